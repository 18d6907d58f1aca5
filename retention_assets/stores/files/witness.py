"""Signs that a root is the right one: that data of a dataset is or was in it.

Belongs here: looking for signs. A disk that is not mounted, or another one in its place, has none of a transaction's files
either: without a sign nothing is taken for gone.
Does not belong here: the file by which a root is known (root_file.py), and what follows from it (store.py).
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from retention_assets.errors import Refused
from retention_assets.stores.files.delete import TransactionFolders
from retention_assets.stores.files.log import LogIndex
from retention_assets.stores.files.paths import Folder, FolderLayout
from retention_assets.stores.files.root_file import identity_of

# So many other transactions, and other datasets, are asked about at most.
_MOST = 50


@dataclass(frozen=True)
class RootSigns:
    """Signs in a root that it is the one of a dataset's data. One is enough."""

    folders: TransactionFolders
    layout: FolderLayout
    index: LogIndex
    dataset: str

    def is_known(self) -> bool:
        """Whether the root says which one it is, or holds anything of the data. Whoever resumes has compared what it says."""
        return identity_of(self.folders.fs, self.folders.root) is not None or self.holds_data()

    def holds_data(self) -> bool:
        """Whether a folder is there in which transactions of the dataset are, or one of a transaction or dataset beside it."""
        return any(self.folders.has(folder) for folder in self._candidates())

    def _candidates(self) -> Iterator[Folder]:
        """The likeliest first: hardly ever is more than one asked about."""
        yield from self._parent(self.dataset)
        for name in reversed(self.index.transactions(self.dataset).to_pylist()[-_MOST:]):
            # The name of what is in a log need not be that of a folder.
            with suppress(Refused):
                yield self.layout.folder(self.dataset, name)
        for dataset in list(self.index.files)[:_MOST]:
            yield from self._parent(dataset)

    def _parent(self, dataset: str) -> Iterator[Folder]:
        """The folder in which a dataset has those of its transactions, unless that is the root itself."""
        with suppress(Refused):
            if above := self.layout.parent(dataset):
                yield above
