"""Whether a folder is that of one transaction alone, by everything that the log knows.

Belongs here: the questions to the log that stand between a name and a removal, and which datasets they are asked about: the
patterns of all datasets as a tree, worked out once for a version of the log. Literals in the template `data` and names with a /
can make folders nest, and whoever removes the outer one takes the inner one with it. Ids that differ in case alone are two
folders on one disk and one folder on another; which disk it is cannot be asked everywhere, so they are refused.
Does not belong here: the name by itself (paths.py).
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
from retention_assets.stores.files.file_systems import is_local, open_file_system
from retention_assets.stores.files.log import FilesLog, LogIndex
from retention_assets.stores.files.paths import TRANSACTION, Folder, FolderLayout, fold_case


@dataclass(frozen=True)
class FolderOwnership:
    """Who owns the folders of some transactions of a dataset, as the log says at the beginning of a sweep."""

    log: FilesLog
    index: LogIndex
    layout: FolderLayout
    dataset: str
    # The datasets whose folders may meet those of this one, itself among them: hardly ever any other.
    neighbours: tuple[str, ...]
    # The ids of this dataset that may share a folder with one of the transactions, by their folded id.
    alike: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, log: FilesLog, layout: FolderLayout, dataset: str, transactions: Collection[str]) -> Self:
        """Read from the log. Raises BadInput if it cannot be read."""
        index = log.recent_index(dataset)
        alike = _alike(index.transactions(dataset), transactions)
        return cls(log, index, layout, dataset, tuple(_neighbours(index, layout, dataset)), alike)

    def folder(self, transaction: str) -> Folder:
        """The folder of a transaction. Raises Refused if it is not plainly one, or not plainly its own."""
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
        """Whether the log has this transaction, which is one of those that were asked about."""
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
        """Where both are, if on one kind of file system. Resolved once, and not for each of thousands of folders."""
        (log_fs, log), (fs, root) = open_file_system(self.log.place), open_file_system(self.layout.root)
        if type(log_fs) is not type(fs):
            return None
        if is_local(fs):
            log, root = os.path.realpath(log), os.path.realpath(root)
        return log, root.rstrip("/")


def _alike(ids: pa.Array, wanted: Collection[str]) -> dict[str, frozenset[str]]:
    """The ids that fold to what one of these folds to, by that."""
    # What is no text at all is in no log.
    names = pa.array(sorted({fold_case(name.encode(errors="ignore").decode()) for name in wanted}), pa.string())
    found = ids.filter(pc.is_in(_fold(ids), names)).unique().to_pylist()
    alike: dict[str, frozenset[str]] = {}
    for name in found:
        alike[fold_case(name)] = alike.get(fold_case(name), frozenset()) | {name}
    return alike


def _fold(ids: pa.Array) -> pa.Array:
    """Folded ids. There may be millions, of which hardly any needs more than small letters."""
    lower = pc.ascii_lower(ids)
    special = pc.invert(pc.string_is_ascii(ids))
    if not pc.any(special).as_py():
        return lower
    return pc.replace_with_mask(
        lower, special, pa.array([fold_case(name) for name in ids.filter(special).to_pylist()], pa.string())
    )


@dataclass(eq=False)
class _FolderTree:
    """A place below the root: the datasets whose pattern ends here, and what is below it, by the next segment."""

    datasets: list[str] = field(default_factory=list)
    below: dict[str, "_FolderTree"] = field(default_factory=dict)
    # Of those below the ones whose segment can be any transaction.
    anything: list["_FolderTree"] = field(default_factory=list)

    def add(self, dataset: str, pattern: Folder) -> None:
        """A dataset and its pattern."""
        here = self
        for segment in pattern:
            if segment not in here.below:
                here.below[segment] = _FolderTree()
                if TRANSACTION in segment:
                    here.anything.append(here.below[segment])
            here = here.below[segment]
        here.datasets.append(dataset)

    def along(self, pattern: Folder) -> Iterator[str]:
        """The datasets whose patterns go along this one until either ends, the dataset of the pattern itself among them."""
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
    """The datasets whose folders may meet those of this one, sorted, itself among them if the log has it."""
    return sorted(_tree(index, layout).along(layout.pattern(dataset)))


@lru_cache(maxsize=8)
def _tree(index: LogIndex, layout: FolderLayout) -> _FolderTree:
    tree = _FolderTree()
    for dataset in index.files:
        tree.add(dataset, layout.pattern(dataset))
    return tree
