"""Whether a folder is that of one transaction alone, by everything that the log knows.

Belongs here: the questions to the log that stand between a name and a removal. Literals in the template `data` and
names with a / can make folders nest, and whoever removes the outer one takes the inner one with it.
Does not belong here: the name by itself (below_root.py).
"""

import os
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.places import masked
from retention_assets.problems import Refused
from retention_assets.stores.below_root import Folder, Layout
from retention_assets.stores.file_systems import is_local, opened
from retention_assets.stores.files_log import FilesLog


@dataclass(frozen=True)
class Owners:
    """Who owns the folders of a dataset, as the log says at the beginning of a sweep."""

    log: FilesLog
    layout: Layout
    dataset: str
    # The datasets whose folders may lie around or in those of this one: hardly ever any.
    others: tuple[str, ...]
    ids: pa.Array

    @classmethod
    def of(cls, log: FilesLog, layout: Layout, dataset: str) -> Self:
        """Read from the log. Raises BadInput if it cannot be read."""
        return cls(log, layout, dataset, tuple(layout.overlapping(dataset, log.datasets())), log.transactions(dataset))

    def folder(self, transaction: str) -> Folder:
        """The folder of a transaction. Raises Refused if it is not plainly one, or not plainly its own."""
        folder = self.layout.folder(self.dataset, transaction)
        for other in self.others:
            if whose := self.layout.shared(folder, other, self._has):
                remedy = "Give each a folder of its own by the template `data`, or remove it by hand."
                raise Refused(f"The folder {'/'.join(folder)} lies around or in that of {whose}. {remedy}")
        if self._around_log(folder):
            raise Refused(f"The folder {'/'.join(folder)} holds the log {masked(self.log.place)}. Move the log out of it.")
        return folder

    def knows(self, transaction: str) -> bool:
        """Whether the log has this transaction."""
        return _index(self.ids, transaction)

    def _has(self, other: str, transaction: str) -> bool:
        return _index(self.log.transactions(other), transaction)

    def _around_log(self, folder: Folder) -> bool:
        (log_fs, log), (fs, root) = opened(self.log.place), opened(self.layout.root)
        if type(log_fs) is not type(fs):
            return False
        if is_local(fs):
            log, root = os.path.realpath(log), os.path.realpath(root)
        return f"{log}/".startswith("/".join((root.rstrip("/"), *folder, "")))


def _index(ids: pa.Array, transaction: str) -> bool:
    return bool(pc.index(ids, pa.scalar(transaction, pa.string())).as_py() >= 0)
