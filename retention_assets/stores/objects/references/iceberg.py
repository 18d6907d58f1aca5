"""References from an Iceberg catalog: every file that any of its tables or views reaches. Proof of wholeness: a table is read
again if its metadata file changed meanwhile, and so are new tables and views."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.objects.references.places import ListingRoot
from retention_assets.stores.objects.references.source import ROUNDS, ShareEnd, SourceNotWhole
from retention_assets.stores.objects.tables import REFERENCES

if TYPE_CHECKING:
    from retention_assets.stores.iceberg.store import IcebergStore

# most tables per share; each costs reading its metadata and manifests
_TABLES = 64


@dataclass(frozen=True)
class CatalogEntry:
    """A table or view, by the catalog store's name."""

    name: str
    is_view: bool = False

    @property
    def shown(self) -> str:
        return f"{'view' if self.is_view else 'table'} {self.name.partition('/')[2]}"


@dataclass(frozen=True)
class TableFileSource:
    """Tables and views of a catalog, in groups as shares. The proof maps each entry to the place of its metadata, or to None if
    a listed entry no longer existed."""

    label: str
    settings: IcebergSettings
    root: ListingRoot
    names_folders: bool = True

    def shares(self, wanted: int) -> Sequence[tuple[CatalogEntry, ...]]:
        with self._opened() as store:
            entries = self._entries(store)
        return [tuple(some) for some in equal_parts(entries, max(wanted, -(-len(entries) // _TABLES)))]

    def read(self, share: tuple[CatalogEntry, ...]) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows, proof = 0, {}
        with self._opened() as store:
            for entry in share:
                read = self._read_view if entry.is_view else self._read_table
                place, found = yield from read(store, entry)
                proof[entry], rows = place, rows + found
        return ShareEnd(share, rows, proof)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[tuple[CatalogEntry, ...]]:
        """Return entries that are new or were committed to meanwhile."""
        read: dict[CatalogEntry, set[str]] = {}
        for end in ends:
            for entry, place in end.proof.items():
                read.setdefault(entry, set()).update(() if place is None else (place,))
        with self._opened() as store:
            present = self._places(store, self._entries(store))
        for entry, place in present.items():
            if place is None and entry in read and not read[entry]:
                raise SourceNotWhole(
                    f"{self.label} is not whole: the {entry.shown} is listed, and can't be loaded. Mend it, or drop it from the"
                    " catalog."
                )
        unread = [entry for entry, place in present.items() if place is not None and place not in read.get(entry, ())]
        unread += [entry for entry, place in present.items() if place is None and entry not in read]
        return [tuple(some) for some in equal_parts(unread, -(-len(unread) // _TABLES))]

    def _read_table(
        self, store: "IcebergStore", entry: CatalogEntry
    ) -> Generator[pa.RecordBatch, None, tuple[str | None, int]]:
        from retention_assets.stores.iceberg.manifests import Unreadable
        from retention_assets.stores.iceberg.sweep import Unloadable

        rows, before = 0, None
        for _ in range(ROUNDS):
            try:
                reached = store.reached(entry.name)
            except (Unloadable, Refused) as fault:
                raise self._fault(entry, fault) from fault
            if reached is None:
                return None, rows
            place, files = reached
            try:
                for one in files:
                    batch = self._batch(entry, one.what, one.locations, one.folders)
                    rows += len(batch)
                    if len(batch):
                        yield batch
            except Unreadable as fault:
                # Expected if the snapshot expired meanwhile: then the metadata has changed, too.
                if place == before:
                    raise self._fault(entry, fault) from fault
                before = place
                continue
            return place, rows
        raise SourceNotWhole(f"{self.label} is not whole: the {entry.shown} changed whenever it was read. Scan again later.")

    def _read_view(self, store: "IcebergStore", entry: CatalogEntry) -> Generator[pa.RecordBatch, None, tuple[str | None, int]]:
        """Refer to all of a view's folders, as catalogs do not tell which of its files is current."""
        folders = self._folders(store, entry)
        if not folders:
            return None, 0
        batch = self._batch(entry, "folder", folders, folders=True)
        yield batch
        return repr(folders), len(batch)

    def _batch(self, entry: CatalogEntry, what: str, locations: Sequence[str], folders: bool) -> pa.RecordBatch:
        given = pa.array(locations, pa.string())
        keys = (self.root.folders if folders else self.root.keys)(given, f"{self.label}: the {entry.shown}")
        who = pa.repeat(f"{entry.shown}: {what}", len(keys))
        return pa.record_batch([keys, pa.nulls(len(keys), pa.string()), who], schema=REFERENCES)

    def _entries(self, store: "IcebergStore") -> list[CatalogEntry]:
        try:
            tables, views = store.datasets(), store.views()
        except Refused as fault:
            raise SourceNotWhole(f"{self.label} is not whole: {fault}") from fault
        return [*map(CatalogEntry, tables), *(CatalogEntry(name, is_view=True) for name in views)]

    def _places(self, store: "IcebergStore", entries: Sequence[CatalogEntry]) -> dict[CatalogEntry, str | None]:
        try:
            tokens = store.tokens([entry.name for entry in entries if not entry.is_view])
        except Refused as fault:
            raise SourceNotWhole(f"{self.label} is not whole: {fault}") from fault
        found: dict[CatalogEntry, str | None] = {}
        for entry in entries:
            folders = self._folders(store, entry) if entry.is_view else []
            found[entry] = (repr(folders) if folders else None) if entry.is_view else tokens.get(entry.name)
        return found

    def _folders(self, store: "IcebergStore", entry: CatalogEntry) -> list[str]:
        try:
            return store.view_folders(entry.name)
        except Refused as fault:
            raise self._fault(entry, fault) from fault

    def _fault(self, entry: CatalogEntry, fault: Exception) -> SourceNotWhole:
        return SourceNotWhole(f"{self.label} is not whole: the {entry.shown} can't be read: {mask_secrets(str(fault))}")

    @contextmanager
    def _opened(self) -> Iterator["IcebergStore"]:
        from retention_assets.stores.iceberg.store import IcebergStore

        store = IcebergStore(self.settings)
        try:
            yield store
        finally:
            store.close()
