"""Folders of transactions in a `files` store: named, owned by one transaction alone, and below the right root.

Names come from a log that anybody may have written: a name that is not plainly one folder is refused, never repaired. What the
file system has there (symlinks, files) is checked during removal.

Literals in the template `data` and names with a / can make folders nest, and removing the outer one takes the inner one with
it; so the patterns of all datasets form a tree, built once per version of the log. Ids that differ only in case share a folder
on some disks; which disk it is can't be asked everywhere, so they are refused.

An unmounted disk, another disk in its place or a mistyped template has no files of a transaction either: without a sign of data
in the root nothing counts as gone.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.files.log import FilesLog, LogIndex
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.places import Folder, Place, is_own_file
from retention_assets.stores.places.file_systems import is_local, open_file_system
from retention_assets.stores.places.own_files import identity_of

TRANSACTION = "{transaction}"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_GLOB = re.compile(r"[*?\[\]]")
_REMEDY = "Mend the log, or remove its data by hand."
# transactions, and datasets, that are looked for at most
_MOST = 50


def fold_case(name: str) -> str:
    """Fold names that some disks (macOS, Windows, SMB) treat as equal."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


@dataclass(frozen=True)
class FolderLayout:
    """The template `data` of a store: its root, and the segments below it."""

    store: str
    root: str
    segments: Folder

    @classmethod
    def of(cls, settings: FilesSettings) -> Self:
        """Split at the first segment with a placeholder; what stands before it is shared by all transactions."""
        segments = settings.data.rstrip("/").split("/")
        first = next(place for place, segment in enumerate(segments) if "{" in segment)
        return cls(settings.name, "/".join(segments[:first]), tuple(segments[first:]))

    def folder(self, dataset: str, transaction: str) -> Folder:
        """Return the segments of a transaction's folder below the root. Raises Refused for an unsafe name."""
        name = self._name(dataset)
        _check("transaction", transaction, transaction)
        if "/" in transaction:
            raise Refused(
                f"The transaction {quote(transaction)} holds a /, so its folder would belong to another transaction. {_REMEDY}"
            )
        folder = tuple("/".join(self.segments).format(dataset=name, transaction=transaction).split("/"))
        if is_own_file(fold_case(folder[0])):
            raise Refused(f"The folder {quote('/'.join(folder))} has a name that retention keeps for its own files. {_REMEDY}")
        if not {"", ".", ".."}.isdisjoint(folder):
            raise Refused(f"The folder {quote('/'.join(folder))} is not a plain path below the root. {_REMEDY}")
        return folder

    def parent(self, dataset: str) -> Folder:
        """Return the segments of the folder above a dataset's transactions; empty where that is the root."""
        folder = self.folder(dataset, "transaction")
        own = next(place for place, segment in enumerate(self.segments) if TRANSACTION in segment)
        # a dataset's name may have several segments
        return folder[: len(folder) - (len(self.segments) - own)]

    def pattern(self, dataset: str) -> Folder:
        """Return the folded segments of all folders of a dataset, with a placeholder for the transaction."""
        name = dataset.partition("/")[2]
        return tuple(fold_case("/".join(self.segments).replace("{dataset}", name)).split("/"))

    def owner_of_shared(self, folder: Folder, other: str, name_of: Callable[[str, str], str | None]) -> str | None:
        """Return a dataset or transaction whose folder may contain, lie in or equal this one, or None.

        `name_of` maps a folded id to a transaction of the other dataset, never to the one asked about.
        """
        inside = None
        for segment, pattern in zip(map(fold_case, folder), self.pattern(other), strict=False):
            before, placeholder, after = pattern.partition(TRANSACTION)
            if placeholder and len(segment) > len(before + after) and segment.startswith(before) and segment.endswith(after):
                inside = segment[len(before) : len(segment) - len(after)]
            elif segment != pattern:
                return None
        if inside is None:
            return f"the dataset {other}"
        name = name_of(other, inside)
        return None if name is None else f"the transaction {quote(name)} of {other}"

    def fault_of(self, dataset: str) -> str | None:
        """Say why a dataset can have no folder, so that nothing of it could ever be deleted; None if it can."""
        try:
            self._name(dataset)
        except Refused as fault:
            return str(fault)
        return None

    def _name(self, dataset: str) -> str:
        store, _, name = dataset.partition("/")
        if store != self.store:
            raise Refused(f"The dataset {quote(dataset)} is not of the store {self.store}.")
        _check("dataset", dataset, *name.split("/"))
        return name


def _check(what: str, name: str, *segments: str) -> None:
    fault = None
    if not all(segments):
        fault = "has an empty name" if segments == ("",) else "holds an empty segment"
    elif "." in segments or ".." in segments:
        fault = "holds . or .. as a segment"
    elif "\\" in name:
        fault = "holds a backslash"
    elif _CONTROL.search(name):
        fault = "holds a control character"
    elif glob := _GLOB.search(name):
        fault = f"holds {glob[0]}, which file systems read as a pattern"
    if fault:
        raise Refused(f"The {what} {quote(name)} {fault}. {_REMEDY}")


@dataclass(frozen=True)
class FolderOwnership:
    """Owners of the folders of some transactions of a dataset, from the log at the beginning of a sweep."""

    log: FilesLog
    index: LogIndex
    layout: FolderLayout
    dataset: str
    # datasets whose folders may overlap this one's, itself included; rarely any other
    neighbours: tuple[str, ...]
    # ids of this dataset that may share a folder with one of the transactions, by folded id
    alike: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, log: FilesLog, layout: FolderLayout, dataset: str, transactions: Collection[str]) -> Self:
        """Read from the log. Raises BadInput if it can't be read."""
        index = log.recent_index(dataset)
        alike = _alike(index.transactions(dataset), transactions)
        return cls(log, index, layout, dataset, tuple(_neighbours(index, layout, dataset)), alike)

    def folder(self, transaction: str) -> Folder:
        """Return the folder of a transaction. Raises Refused if the name is unsafe or the folder may be shared."""
        folder = self.layout.folder(self.dataset, transaction)

        def name_of(other: str, id_folded: str) -> str | None:
            if other == self.dataset:
                return min(self.alike.get(id_folded, frozenset()) - {transaction}, default=None)
            found = _alike(self.index.transactions(other), [id_folded])
            return min(found.get(id_folded, ()), default=None)

        for other in self.neighbours:
            if whose := self.layout.owner_of_shared(folder, other, name_of):
                remedy = "Give each a folder of its own by the template `data`, or remove it by hand."
                is_as_deep = len(folder) == len(self.layout.pattern(other))
                where = "may be the same on some disks as" if is_as_deep else "contains or is inside"
                raise Refused(f"The folder {'/'.join(folder)} {where} that of {whose}. {remedy}")
        if self._holds_log(folder):
            raise Refused(
                f"The folder {'/'.join(folder)} holds the log {mask_secrets(self.log.place)}. Move the log out of it."
            )
        return folder

    def knows(self, transaction: str) -> bool:
        """Tell whether the log has this transaction; only for those passed to `of`."""
        return transaction in self.alike.get(fold_case(transaction), ())

    def _holds_log(self, folder: Folder) -> bool:
        if self._log_and_root is None:
            return False
        log, root = self._log_and_root
        return f"{log}/".startswith("/".join((root, *folder, "")))

    @cached_property
    def _log_and_root(self) -> tuple[str, str] | None:
        # resolved once, not for each of thousands of folders; None on different kinds of file systems
        (log_fs, log), (fs, root) = open_file_system(self.log.place), open_file_system(self.layout.root)
        if type(log_fs) is not type(fs):
            return None
        if is_local(fs):
            log, root = os.path.realpath(log), os.path.realpath(root)
        return log, root.rstrip("/")


def _alike(ids: pa.Array, wanted: Collection[str]) -> dict[str, frozenset[str]]:
    # a name that isn't valid text is in no log
    names = pa.array(sorted({fold_case(name.encode(errors="ignore").decode()) for name in wanted}), pa.string())
    similar = ids.filter(pc.is_in(_fold(ids), names)).unique().to_pylist()
    alike: dict[str, frozenset[str]] = {}
    for name in similar:
        alike[fold_case(name)] = alike.get(fold_case(name), frozenset()) | {name}
    return alike


def _fold(ids: pa.Array) -> pa.Array:
    # there may be millions, and nearly all need only lower case
    lower = pc.ascii_lower(ids)
    special = pc.invert(pc.string_is_ascii(ids))
    if not pc.any(special).as_py():
        return lower
    return pc.replace_with_mask(
        lower, special, pa.array([fold_case(name) for name in ids.filter(special).to_pylist()], pa.string())
    )


@dataclass(eq=False)
class _FolderTree:
    """A node of the tree of folders below the root: datasets whose pattern ends here, and children by segment."""

    datasets: list[str] = field(default_factory=list)
    below: dict[str, "_FolderTree"] = field(default_factory=dict)
    # children whose segment is the placeholder of the transaction
    anything: list["_FolderTree"] = field(default_factory=list)

    def add(self, dataset: str, pattern: Folder) -> None:
        here = self
        for segment in pattern:
            if segment not in here.below:
                here.below[segment] = _FolderTree()
                if TRANSACTION in segment:
                    here.anything.append(here.below[segment])
            here = here.below[segment]
        here.datasets.append(dataset)

    def along(self, pattern: Folder) -> Iterator[str]:
        """Yield datasets whose patterns match this one up to the end of the shorter, its own dataset included."""
        here = [self]
        for segment in pattern:
            for tree in here:
                yield from tree.datasets
            here = [below for tree in here for below in tree._at(segment)]
        while here:
            tree = here.pop()
            yield from tree.datasets
            here += tree.below.values()

    def _at(self, segment: str) -> list["_FolderTree"]:
        if TRANSACTION in segment:
            return list(self.below.values())
        return self.anything + ([self.below[segment]] if segment in self.below else [])


def _neighbours(index: LogIndex, layout: FolderLayout, dataset: str) -> list[str]:
    return sorted(_tree(index, layout).along(layout.pattern(dataset)))


@lru_cache(maxsize=8)
def _tree(index: LogIndex, layout: FolderLayout) -> _FolderTree:
    tree = _FolderTree()
    for dataset in index.files:
        tree.add(dataset, layout.pattern(dataset))
    return tree


@dataclass(frozen=True)
class RootSigns:
    """Signs that a root holds a dataset's data. One is enough."""

    folders: Place
    layout: FolderLayout
    index: LogIndex
    dataset: str

    def is_known(self) -> bool:
        """Tell whether the root has an identity or any of the data. The caller that resumes has compared the identity."""
        return identity_of(self.layout.root) is not None or self.holds_data()

    def holds_data(self) -> bool:
        """Tell whether there is a folder of the dataset's transactions, or of a transaction or dataset beside it."""
        parents = (folder for name in (self.dataset, *self._neighbours()) for folder in self._parent(name))
        return any(map(self.folders.has, parents)) or self.holds_transactions()

    def holds_transactions(self) -> bool:
        """Tell whether the folder of one of its newest transactions, or of another dataset's newest, is there."""
        return any(map(self.folders.has, self._newest()))

    def fault(self) -> str:
        place = "/".join((mask_secrets(self.layout.root), *self.layout.segments))
        return (
            f"None of the newest transactions of {self.dataset}, nor of any other dataset, has a folder at {place}. Mend "
            f"`data` of the store {self.layout.store}, or mount the disk. The sweep records nothing as gone while there "
            "is no sign of the data. If the data is gone for good, remove its lines from the log."
        )

    def _neighbours(self) -> Iterator[str]:
        return islice((name for name in self.index.files if name != self.dataset), _MOST)

    def _newest(self) -> Iterator[Folder]:
        # likeliest first: rarely is a second one looked up
        for dataset, most in ((self.dataset, _MOST), *((name, 1) for name in self._neighbours())):
            for transaction in reversed(self.index.transactions(dataset)[-most:].to_pylist()):
                # a name in a log need not be a valid folder
                with suppress(Refused):
                    yield self.layout.folder(dataset, transaction)

    def _parent(self, dataset: str) -> Iterator[Folder]:
        with suppress(Refused):
            if above := self.layout.parent(dataset):
                yield above
