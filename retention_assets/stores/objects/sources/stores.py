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
from typing import TYPE_CHECKING

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
from retention_assets.stores.places import IDENTITY, TRASH

if TYPE_CHECKING:
    from retention_assets.stores.iceberg.store import IcebergStore

_LOCAL = "file"
# synonyms in every reader
_ALWAYS_EQUAL = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
_PLACE = r"(?s)^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?)?(?P<path>.*)$"
_UNTIDY = r"//|/\.{1,2}(/|$)"
_FOLDER = r"(?s)^(?P<folder>.*)/(?P<name>[^/]*)$"
_ANYTHING = "+"
# most tables per share; each costs reading its metadata and manifests
_TABLES = 64


@dataclass(frozen=True)
class ListingRoot:
    """Root of a listing, and declared synonyms of schemes and authorities. A synonym of itself is a place of its own."""

    place: str
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)

    def keys(self, locations: pa.Array, whose: str) -> pa.Array:
        """Keys of files below the root, some in two spellings. Raises SourceNotWhole for an ambiguous location."""
        return self._below(self._paths(locations, whose))

    def folders(self, locations: pa.Array, whose: str) -> pa.Array:
        """References to everything in folders: keys that end with /, or / alone if the root lies in one of them."""
        # A child is appended, so that a folder that is itself a link is resolved.
        paths = self._paths(pc.binary_join_element_wise(pc.utf8_rtrim(locations, "/"), _ANYTHING, "/"), whose)
        keys = self._below(paths)
        parts = [root.rstrip("/").split("/") for root in self._roots]
        above = {"/".join([*names[:end], _ANYTHING]) for names in parts for end in range(1, len(names) + 1)}
        around = pc.any(pc.is_in(paths, pa.array(sorted(above), pa.string()))).as_py()
        # the root itself is covered by `above`
        keys = keys.filter(pc.not_equal(keys, _ANYTHING))
        return pa.concat_arrays([pc.utf8_slice_codeunits(keys, 0, -1), pa.array(["/"] if around else [], pa.string())])

    @cached_property
    def _origin(self) -> tuple[str, str, str]:
        match = re.match(_PLACE, self.place)
        scheme, authority, path = match.group("scheme", "authority", "path") if match else ("", "", self.place)
        origin = self._mapped(scheme or "", authority or "")
        return (*origin, _tidy(path) if origin[0] == _LOCAL else path.rstrip("/"))

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
        meant = _declared(self.equal_authorities, authority)
        return scheme, authority if meant is None else meant

    def _paths(self, locations: pa.Array, whose: str) -> pa.Array:
        # paths of the locations in the root's scheme and authority
        parts = pc.extract_regex(locations, _PLACE)
        path = pc.struct_field(parts, "path")
        spelled = pc.binary_join_element_wise(pc.struct_field(parts, "scheme"), pc.struct_field(parts, "authority"), "\0")
        encoded = spelled.dictionary_encode()
        inside = []
        for number, spelling in enumerate(encoded.dictionary.to_pylist()):
            scheme, _, authority = spelling.partition("\0")
            inside.append(self._mapped(scheme, authority) == self._origin[:2])
            known = scheme.lower() or _LOCAL
            is_elsewhere = (
                _declared(self.equal_schemes, known) == known or _declared(self.equal_authorities, authority) == authority
            )
            if not inside[-1] and not is_elsewhere:
                self._check_doubt(locations, path, pc.equal(encoded.indices, number), (known, authority), whose)
        if not all(inside):
            path = path.filter(pa.array(inside, pa.bool_()).take(encoded.indices))
        return _on_disk(path) if self._origin[0] == _LOCAL else path

    def _check_doubt(self, locations: pa.Array, paths: pa.Array, some: pa.Array, spelled: tuple[str, str], whose: str) -> None:
        # Any of these paths may lie below the root, if both places are one.
        doubtful = locations.filter(pc.and_(some, pc.starts_with(paths, f"{self._origin[2]}/")))
        if not len(doubtful):
            return
        if self._mapped(*spelled)[0] != self._origin[0]:
            setting, synonym, name = "equal_schemes", spelled[0], self._origin[0]
        else:
            setting, synonym, name = "equal_authorities", spelled[1], self._origin[1]
        location = doubtful[0].as_py().removesuffix(f"/{_ANYTHING}")
        raise SourceNotWhole(
            f"{whose} names {mask_secrets(location)}, whose path lies below that of {mask_secrets(self.place)}, in"
            f" another place. If the two are one, declare it in the source: {setting}: {{{synonym}: {name}}}; if they are not,"
            f" {setting}: {{{synonym}: {synonym}}}."
        )

    def _below(self, paths: pa.Array) -> pa.Array:
        keys = []
        for root in self._roots:
            begin = f"{root.rstrip('/')}/"
            keys.append(pc.utf8_slice_codeunits(paths.filter(pc.starts_with(paths, begin)), len(begin)))
        every = pa.concat_arrays(keys)
        return every.filter(pc.not_equal(every, ""))


def _declared(equal: Mapping[str, str], name: str) -> str | None:
    # a key may list several names separated by commas
    return next((meant for names, meant in equal.items() if name in (given.strip() for given in names.split(","))), None)


def _tidy(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _on_disk(paths: pa.Array) -> pa.Array:
    # Normalized, plus the resolved path where a folder is a link. Links are resolved once per folder.
    untidy = pc.or_(pc.match_substring_regex(paths, _UNTIDY), pc.invert(pc.starts_with(paths, "/")))
    if pc.any(untidy).as_py():
        tidy = pa.array([_tidy(path) for path in paths.filter(untidy).to_pylist()], pa.string())
        paths = pc.replace_with_mask(paths, untidy, tidy)
    parts = pc.extract_regex(paths, _FOLDER)
    folders = pc.struct_field(parts, "folder").dictionary_encode()
    names = folders.dictionary.to_pylist()
    resolved = [os.path.realpath(folder or "/").rstrip("/") for folder in names]
    links = pa.array([name != real for name, real in zip(names, resolved, strict=True)], pa.bool_()).take(folders.indices)
    if not pc.any(links).as_py():
        return paths
    targets = pa.array(resolved, pa.string()).take(folders.indices.filter(links))
    return pa.concat_arrays([paths, pc.binary_join_element_wise(targets, pc.struct_field(parts, "name").filter(links), "/")])


def _references(keys: pa.Array, who: str) -> pa.RecordBatch:
    return pa.record_batch([keys, pa.nulls(len(keys), pa.string()), pa.repeat(who, len(keys))], schema=REFERENCES)


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
    """Every file that tables and views of a catalog reach; these are shares in groups. The proof maps each to the place of its
    metadata, or to None if a listed entry no longer existed: it is read again if that changed, and so are new ones."""

    label: str
    settings: IcebergSettings
    root: ListingRoot
    names_folders: bool = True

    def shares(self, wanted: int) -> Sequence[tuple[CatalogEntry, ...]]:
        with self._opened() as store:
            entries = self._entries(store)
        return [tuple(part) for part in equal_parts(entries, max(wanted, -(-len(entries) // _TABLES)))]

    def read(self, share: tuple[CatalogEntry, ...]) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows, proof = 0, {}
        with self._opened() as store:
            for entry in share:
                if entry.is_view:
                    # All of a view's folders, as catalogs do not tell which of its files is current.
                    folders = self._folders(store, entry)
                    proof[entry], more = repr(folders) if folders else None, 0
                    if folders:
                        batch = self._batch(entry, "folder", folders, folders=True)
                        more = len(batch)
                        yield batch
                else:
                    proof[entry], more = yield from self._read_table(store, entry)
                rows += more
        return ShareEnd(share, rows, proof)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[tuple[CatalogEntry, ...]]:
        """Return entries that are new or were committed to meanwhile."""
        read: dict[CatalogEntry, set[str]] = {}
        for end in ends:
            for entry, place in end.proof.items():
                read.setdefault(entry, set()).update(() if place is None else (place,))
        with self._opened() as store:
            present = self._places(store, self._entries(store))
        unread = []
        for entry, place in present.items():
            if place is None and entry in read and not read[entry]:
                raise SourceNotWhole(
                    f"{self.label} is not whole: the {entry.shown} is listed, but can't be loaded. Mend it, or drop it from "
                    "the catalog."
                )
            if (entry not in read) if place is None else (place not in read.get(entry, ())):
                unread.append(entry)
        return [tuple(part) for part in equal_parts(unread, -(-len(unread) // _TABLES))]

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
                for group in files:
                    batch = self._batch(entry, group.what, group.locations, group.folders)
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
        raise SourceNotWhole(
            f"{self.label} is not whole: the {entry.shown} changed at each attempt to read it. Scan again later."
        )

    def _batch(self, entry: CatalogEntry, what: str, locations: Sequence[str], folders: bool) -> pa.RecordBatch:
        mapped = self.root.folders if folders else self.root.keys
        return _references(
            mapped(pa.array(locations, pa.string()), f"{self.label}: the {entry.shown}"), f"{entry.shown}: {what}"
        )

    def _entries(self, store: "IcebergStore") -> list[CatalogEntry]:
        return [*map(CatalogEntry, store.datasets()), *(CatalogEntry(name, is_view=True) for name in store.views())]

    def _places(self, store: "IcebergStore", entries: Sequence[CatalogEntry]) -> dict[CatalogEntry, str | None]:
        tokens = store.tokens([entry.name for entry in entries if not entry.is_view])
        return {
            entry: (repr(folders) if (folders := self._folders(store, entry)) else None)
            if entry.is_view
            else tokens.get(entry.name)
            for entry in entries
        }

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
        except SourceNotWhole:
            raise
        except Refused as fault:
            raise SourceNotWhole(f"{self.label} is not whole: {fault}") from fault
        finally:
            store.close()


@dataclass(frozen=True)
class TransactionFolderSource:
    """The folder of every transaction in the log of a `files` store, its log, its marker and its trash; data in no such folder
    is not referred to. Shares are datasets; the empty share stands for the store's own files. The proof is the version of the
    log's files that were read."""

    label: str
    settings: FilesSettings
    root: ListingRoot
    names_folders: bool = True

    def shares(self, wanted: int) -> Sequence[tuple[str, ...]]:  # noqa: ARG002 - datasets of one file are read together
        with self._faults():
            return [(), *self._log.shares(self._log.datasets())]

    def shards_of(self, share: tuple[str, ...]) -> Sequence[str]:
        return share

    def read(self, share: tuple[str, ...]) -> Generator[pa.RecordBatch, None, ShareEnd]:
        with self._faults():
            tokens = self._log.tokens(share)
            batches = [self._of_dataset(dataset) for dataset in share] if share else [self._of_store()]
        yield from batches
        return ShareEnd(share, sum(map(len, batches)), tokens)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[tuple[str, ...]]:
        with self._faults():
            datasets = self._log.datasets()
            tokens = self._log.tokens(datasets)
            read = {(name, token) for end in ends for name, token in end.proof.items()}
            unread = [name for name in datasets if (name, tokens.get(name)) not in read]
            return [*([] if any(end.share == () for end in ends) else [()]), *self._log.shares(unread)]

    @property
    def _log(self) -> FilesLog:
        return FilesLog(self.settings.name, self.settings.log)

    def _of_dataset(self, dataset: str) -> pa.RecordBatch:
        layout = FolderLayout.of(self.settings)
        below = "/".join(layout.segments).replace("{dataset}", dataset.partition("/")[2])
        before, _, after = below.partition(TRANSACTION)
        ids = pc.unique(self._log.index().transactions(dataset))
        folders = pc.binary_join_element_wise(f"{layout.root}/{before}", ids, after, "")
        return _references(self.root.folders(folders, self.label), f"store {self.settings.name}: a transaction of {dataset}")

    def _of_store(self) -> pa.RecordBatch:
        # The log may be one file, or a folder to which every sweep adds files.
        log, root = self.settings.log, FolderLayout.of(self.settings).root
        files = self.root.keys(pa.array([log, f"{root}/{IDENTITY}"], pa.string()), self.label)
        folders = self.root.folders(pa.array([log, f"{root}/{TRASH}"], pa.string()), self.label)
        return _references(pa.concat_arrays([files, folders]), f"store {self.settings.name}: the store's own files")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (BadInput, OSError, Refused) as fault:
            raise SourceNotWhole(f"{self.label} is not whole: {fault}") from fault
