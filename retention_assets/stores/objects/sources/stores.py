"""References from other stores: every file that tables and views of an Iceberg catalog reach, and everything that a `files`
store knows. Locations of files are mapped to keys below the root of a listing: the same path under another scheme or authority
is either the same file, whose object would be taken for an orphan, or another file. That cannot be detected, so the settings
must declare it. Locations are compared literally, except on local disks, where links are resolved too."""

import os
import posixpath
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import BadInput, Refused
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.files.folders import TRANSACTION, FolderLayout
from retention_assets.stores.files.log import FilesLog
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.objects.sources import ROUNDS, ShareEnd, SourceNotWhole
from retention_assets.stores.objects.tables import REFERENCES
from retention_assets.stores.places import IDENTITY

_LOCAL = "file"
# synonyms in every reader
_ALWAYS_EQUAL = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
_PLACE = r"(?s)^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?)?(?P<path>.*)$"
_UNTIDY = r"//|/\.{1,2}(/|$)"
_FOLDER = r"(?s)^(?P<folder>.*)/(?P<name>[^/]*)$"
_ANYTHING = "+"


@dataclass(frozen=True)
class ListingRoot:
    """Root of a listing, and declared synonyms of schemes and authorities. A synonym of itself is a place of its own."""

    place: str
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)

    def keys(self, locations: pa.Array, whose: str) -> pa.Array:
        """Keys of files below the root, some in two spellings. Raises SourceNotWhole for an ambiguous location."""
        paths = self._paths(locations, whose)
        return pa.concat_arrays([self._below(paths, root) for root in self._roots])

    def folders(self, locations: pa.Array, whose: str) -> pa.Array:
        """References to everything in folders: keys that end with /, or / alone if the root lies in one of them."""
        # A child is appended, so that a folder that is itself a link is resolved.
        inside = pc.binary_join_element_wise(pc.utf8_rtrim(locations, "/"), _ANYTHING, "/")
        paths = self._paths(inside, whose)
        keys = pa.concat_arrays([self._below(paths, root) for root in self._roots])
        above = sorted({f"{one}/{_ANYTHING}" for root in self._roots for one in _folders_above(root)})
        around = pc.any(pc.is_in(paths, pa.array(above, pa.string()))).as_py()
        # the root itself is covered by `above`
        keys = keys.filter(pc.not_equal(keys, _ANYTHING))
        return pa.concat_arrays([pc.utf8_slice_codeunits(keys, 0, -1), pa.array(["/"] if around else [], pa.string())])

    @cached_property
    def _origin(self) -> tuple[str, str, str]:
        found = re.match(_PLACE, self.place)
        scheme, authority, path = found.group("scheme", "authority", "path") if found else ("", "", self.place)
        mine = self._mapped(scheme or "", authority or "")
        return (*mine, _tidy(path) if mine[0] == _LOCAL else path.rstrip("/"))

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        scheme, _, path = self._origin
        # Tables may record either the path through links or the real one.
        return tuple(dict.fromkeys((path, os.path.realpath(path)))) if scheme == _LOCAL else (path,)

    def _mapped(self, scheme: str, authority: str) -> tuple[str, str]:
        scheme = scheme.lower() or _LOCAL
        scheme = _declared(self.equal_schemes, scheme) or scheme
        scheme = _ALWAYS_EQUAL.get(scheme, scheme)
        if scheme == _LOCAL and authority == "localhost":
            authority = ""
        said = _declared(self.equal_authorities, authority)
        return scheme, authority if said is None else said

    def _is_elsewhere(self, scheme: str, authority: str) -> bool:
        scheme = scheme.lower() or _LOCAL
        return _declared(self.equal_schemes, scheme) == scheme or _declared(self.equal_authorities, authority) == authority

    def _paths(self, locations: pa.Array, whose: str) -> pa.Array:
        """Paths of the locations in the root's scheme and authority."""
        parts = pc.extract_regex(locations, _PLACE)
        path = pc.struct_field(parts, "path")
        spelled = pc.binary_join_element_wise(pc.struct_field(parts, "scheme"), pc.struct_field(parts, "authority"), "\0")
        encoded = spelled.dictionary_encode()
        inside = []
        for number, one in enumerate(encoded.dictionary.to_pylist()):
            scheme, _, authority = one.partition("\0")
            inside.append(self._mapped(scheme, authority) == self._origin[:2])
            if not inside[-1] and not self._is_elsewhere(scheme, authority):
                self._check_doubt(locations, path, pc.equal(encoded.indices, number), (scheme, authority), whose)
        if not all(inside):
            path = path.filter(pa.array(inside, pa.bool_()).take(encoded.indices))
        return _on_disk(path) if self._origin[0] == _LOCAL else path

    def _check_doubt(self, locations: pa.Array, paths: pa.Array, some: pa.Array, spelled: tuple[str, str], whose: str) -> None:
        """Raises SourceNotWhole if any of these paths would lie below the root in the root's scheme and authority."""
        begin = f"{self._origin[2]}/"
        doubtful = locations.filter(pc.and_(some, pc.starts_with(paths, begin)))
        if not len(doubtful):
            return
        scheme, authority = spelled
        mine, other = self._origin[:2], self._mapped(scheme, authority)
        if other[0] != mine[0]:
            setting, said, means = "equal_schemes", scheme.lower() or _LOCAL, mine[0]
        else:
            setting, said, means = "equal_authorities", authority, mine[1]
        location = doubtful[0].as_py().removesuffix(f"/{_ANYTHING}")
        raise SourceNotWhole(
            f"{whose} names {mask_secrets(location)}, whose path lies below that of {mask_secrets(self.place)}, in"
            f" another place. If the two are one, declare it in the source: {setting}: {{{said}: {means}}}; if they are not,"
            f" {setting}: {{{said}: {said}}}."
        )

    def _below(self, paths: pa.Array, root: str) -> pa.Array:
        begin = f"{root.rstrip('/')}/"
        keys = pc.utf8_slice_codeunits(paths.filter(pc.starts_with(paths, begin)), len(begin))
        return keys.filter(pc.not_equal(keys, ""))


def _declared(equal: Mapping[str, str], name: str) -> str | None:
    """Declared synonym of a name; a key may list several names separated by commas."""
    for names, meant in equal.items():
        if name in (one.strip() for one in names.split(",")):
            return meant
    return None


def _tidy(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _folders_above(root: str) -> list[str]:
    parts = root.rstrip("/").split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _on_disk(paths: pa.Array) -> pa.Array:
    """Normalized local paths, plus the resolved path where a folder is a link. Links are resolved once per folder."""
    untidy = pc.or_(pc.match_substring_regex(paths, _UNTIDY), pc.invert(pc.starts_with(paths, "/")))
    if pc.any(untidy).as_py():
        tidy = pa.array([_tidy(path) for path in paths.filter(untidy).to_pylist()], pa.string())
        paths = pc.replace_with_mask(paths, untidy, tidy)
    parts = pc.extract_regex(paths, _FOLDER)
    folders = pc.struct_field(parts, "folder").dictionary_encode()
    names = folders.dictionary.to_pylist()
    led = [os.path.realpath(folder or "/").rstrip("/") for folder in names]
    links = pa.array([one != other for one, other in zip(names, led, strict=True)], pa.bool_()).take(folders.indices)
    if not pc.any(links).as_py():
        return paths
    real = pa.array(led, pa.string()).take(folders.indices.filter(links))
    return pa.concat_arrays([paths, pc.binary_join_element_wise(real, pc.struct_field(parts, "name").filter(links), "/")])


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

        rows, before = 0, None
        for _ in range(ROUNDS):
            try:
                reached = store.reached(entry.name)
            except Refused as fault:
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


@dataclass(frozen=True)
class TransactionFolderSource:
    """Datasets of a log as shares; the empty share stands for the log itself and the marker. The proof is the version of the
    log's files that were read."""

    label: str
    settings: FilesSettings
    root: ListingRoot
    names_folders: bool = True

    def shares(self, wanted: int) -> Sequence[tuple[str, ...]]:  # noqa: ARG002 - datasets of one file are read together
        try:
            return [(), *self._log.shares(self._log.datasets())]
        except (BadInput, OSError, Refused) as fault:
            raise self._fault(fault) from fault

    def shards_of(self, share: tuple[str, ...]) -> Sequence[str]:
        return share

    def read(self, share: tuple[str, ...]) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows = 0
        try:
            tokens = self._log.tokens(share)
            batches = [self._of_dataset(dataset) for dataset in share] if share else [self._of_store()]
        except (BadInput, OSError, Refused) as fault:
            raise self._fault(fault) from fault
        for batch in batches:
            rows += len(batch)
            yield batch
        return ShareEnd(share, rows, tokens)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[tuple[str, ...]]:
        try:
            datasets = self._log.datasets()
            tokens = self._log.tokens(datasets)
            read = {(name, token) for end in ends for name, token in end.proof.items()}
            unread = [name for name in datasets if (name, tokens.get(name)) not in read]
            return [*([] if any(end.share == () for end in ends) else [()]), *self._log.shares(unread)]
        except (BadInput, OSError, Refused) as fault:
            raise self._fault(fault) from fault

    @property
    def _log(self) -> FilesLog:
        return FilesLog(self.settings.name, self.settings.log)

    @property
    def _layout(self) -> FolderLayout:
        return FolderLayout.of(self.settings)

    def _of_dataset(self, dataset: str) -> pa.RecordBatch:
        layout = self._layout
        below = "/".join(layout.segments).replace("{dataset}", dataset.partition("/")[2])
        before, _, after = below.partition(TRANSACTION)
        ids = pc.unique(self._log.index().transactions(dataset))
        folders = pc.binary_join_element_wise(f"{layout.root}/{before}", ids, after, "")
        return self._batch(self.root.folders(folders, self.label), f"a transaction of {dataset}")

    def _of_store(self) -> pa.RecordBatch:
        # The log may be one file, or a folder to which every sweep adds files.
        log = pa.array([self.settings.log], pa.string())
        marker = pa.array([f"{self._layout.root}/{IDENTITY}"], pa.string())
        keys = [self.root.keys(log, self.label), self.root.folders(log, self.label), self.root.keys(marker, self.label)]
        return self._batch(pa.concat_arrays(keys), "the store's own files")

    def _batch(self, keys: pa.Array, what: str) -> pa.RecordBatch:
        return pa.record_batch(
            [keys, pa.nulls(len(keys), pa.string()), pa.repeat(f"store {self.settings.name}: {what}", len(keys))],
            schema=REFERENCES,
        )

    def _fault(self, fault: Any) -> SourceNotWhole:
        return SourceNotWhole(f"{self.label} is not whole: {fault}")
