"""Checks against the log that a folder belongs to one transaction alone.

Literals in the template `data` and names with a / can make folders nest, and removing the outer one takes the inner one with
it; so the patterns of all datasets form a tree, built once per version of the log. Ids that differ only in case share a folder
on some disks; which disk it is can't be asked everywhere, so they are refused.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.log import FilesLog, LogIndex
from retention_assets.stores.files.paths import TRANSACTION, FolderLayout, fold_case
from retention_assets.stores.places import Folder
from retention_assets.stores.places.file_systems import is_local, open_file_system


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
                where = "may be the same on some disks as" if self._is_as_deep(folder, other) else "lies around or in"
                raise Refused(f"The folder {'/'.join(folder)} {where} that of {whose}. {remedy}")
        if self._holds_log(folder):
            raise Refused(
                f"The folder {'/'.join(folder)} holds the log {mask_secrets(self.log.place)}. Move the log out of it."
            )
        return folder

    def knows(self, transaction: str) -> bool:
        """Tell whether the log has this transaction; only for those passed to `of`."""
        return transaction in self.alike.get(fold_case(transaction), ())

    def _is_as_deep(self, folder: Folder, other: str) -> bool:
        return len(folder) == len(self.layout.pattern(other))

    def _holds_log(self, folder: Folder) -> bool:
        if self._log_and_root is None:
            return False
        log, root = self._log_and_root
        return f"{log}/".startswith("/".join((root, *folder, "")))

    @cached_property
    def _log_and_root(self) -> tuple[str, str] | None:
        """Resolved once, not for each of thousands of folders. None if log and root are on different kinds of file systems."""
        (log_fs, log), (fs, root) = open_file_system(self.log.place), open_file_system(self.layout.root)
        if type(log_fs) is not type(fs):
            return None
        if is_local(fs):
            log, root = os.path.realpath(log), os.path.realpath(root)
        return log, root.rstrip("/")


def _alike(ids: pa.Array, wanted: Collection[str]) -> dict[str, frozenset[str]]:
    # a name that isn't valid text is in no log
    names = pa.array(sorted({fold_case(name.encode(errors="ignore").decode()) for name in wanted}), pa.string())
    found = ids.filter(pc.is_in(_fold(ids), names)).unique().to_pylist()
    alike: dict[str, frozenset[str]] = {}
    for name in found:
        alike[fold_case(name)] = alike.get(fold_case(name), frozenset()) | {name}
    return alike


def _fold(ids: pa.Array) -> pa.Array:
    """Fold ids in Arrow: there may be millions, and nearly all need only lower case."""
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
