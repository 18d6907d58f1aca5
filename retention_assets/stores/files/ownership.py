"""Whether a folder is that of one transaction alone, by everything that the log knows.

Belongs here: the questions to the log that stand between a name and a removal. Literals in the template `data` and
names with a / can make folders nest, and whoever removes the outer one takes the inner one with it. Ids that differ in case
alone are two folders on one disk and one folder on another; which disk it is cannot be asked everywhere, so they are refused.
Does not belong here: the name by itself (paths.py).
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.file_systems import is_local, open_file_system
from retention_assets.stores.files.log import FilesLog, LogAnswer
from retention_assets.stores.files.neighbours import neighbours
from retention_assets.stores.files.paths import Folder, FolderLayout, fold_case


@dataclass(frozen=True)
class FolderOwnership:
    """Who owns the folders of some transactions of a dataset, as the log says at the beginning of a sweep."""

    log: FilesLog
    held: LogAnswer
    layout: FolderLayout
    dataset: str
    # The datasets whose folders may meet those of this one, itself among them: hardly ever any other.
    near: tuple[str, ...]
    # The ids of this dataset that may share a folder with one of the transactions, by their folded id.
    alike: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, log: FilesLog, layout: FolderLayout, dataset: str, transactions: Collection[str]) -> Self:
        """Read from the log. Raises BadInput if it cannot be read."""
        held = log.held()
        alike = _alike(held.transactions(dataset), transactions)
        return cls(log, held, layout, dataset, tuple(neighbours(held, layout, dataset)), alike)

    def folder(self, transaction: str) -> Folder:
        """The folder of a transaction. Raises Refused if it is not plainly one, or not plainly its own."""
        folder = self.layout.folder(self.dataset, transaction)

        def named(other: str, id_folded: str) -> str | None:
            if other == self.dataset:
                return min(self.alike.get(id_folded, frozenset()) - {transaction}, default=None)
            found = _alike(self.held.transactions(other), [id_folded])
            return min(found.get(id_folded, ()), default=None)

        for other in self.near:
            if whose := self.layout.shared(folder, other, named):
                remedy = "Give each a folder of its own by the template `data`, or remove it by hand."
                where = "may be the same on some disks as" if self._same(folder, other) else "lies around or in"
                raise Refused(f"The folder {'/'.join(folder)} {where} that of {whose}. {remedy}")
        if self._around_log(folder):
            raise Refused(
                f"The folder {'/'.join(folder)} holds the log {mask_secrets(self.log.place)}. Move the log out of it."
            )
        return folder

    def knows(self, transaction: str) -> bool:
        """Whether the log has this transaction, which is one of those that were asked about."""
        return transaction in self.alike.get(fold_case(transaction), ())

    def _same(self, folder: Folder, other: str) -> bool:
        return len(folder) == len(self.layout.pattern(other))

    def _around_log(self, folder: Folder) -> bool:
        (log_fs, log), (fs, root) = open_file_system(self.log.place), open_file_system(self.layout.root)
        if type(log_fs) is not type(fs):
            return False
        if is_local(fs):
            log, root = os.path.realpath(log), os.path.realpath(root)
        return f"{log}/".startswith("/".join((root.rstrip("/"), *folder, "")))


def _alike(ids: pa.Array, wanted: Collection[str]) -> dict[str, frozenset[str]]:
    """The ids that fold to what one of these folds to, by that."""
    # What is no text at all is in no log.
    names = pa.array(sorted({fold_case(name.encode(errors="ignore").decode()) for name in wanted}), pa.string())
    found = ids.filter(pc.is_in(_folded(ids), names)).unique().to_pylist()
    alike: dict[str, frozenset[str]] = {}
    for name in found:
        alike[fold_case(name)] = alike.get(fold_case(name), frozenset()) | {name}
    return alike


def _folded(ids: pa.Array) -> pa.Array:
    """Folded ids. There may be millions, of which hardly any needs more than small letters."""
    lower = pc.ascii_lower(ids)
    special = pc.invert(pc.string_is_ascii(ids))
    if not pc.any(special).as_py():
        return lower
    return pc.replace_with_mask(
        lower, special, pa.array([fold_case(name) for name in ids.filter(special).to_pylist()], pa.string())
    )
