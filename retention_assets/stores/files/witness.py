"""Signs that a root is the right one: that data of a dataset is or was in it.

Belongs here: looking for signs. A disk that is not mounted, another one in its place or a mistyped template has none of a
transaction's files either: without a sign nothing is taken for gone.
Does not belong here: the file by which a root is known (root_file.py), and what follows from it (store.py).
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
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
        parents = (folder for name in (self.dataset, *self._neighbours()) for folder in self._parent(name))
        return any(map(self.folders.has, parents)) or self.holds_transactions()

    def holds_transactions(self) -> bool:
        """Whether the folder of any of its newest transactions is there, or of the newest of another dataset."""
        return any(map(self.folders.has, self._newest()))

    def fault(self) -> str:
        """A sentence about a root in which no transaction has a folder."""
        place = "/".join((mask_secrets(self.layout.root), *self.layout.segments))
        return (
            f"None of the newest transactions of {self.dataset}, nor of any other dataset, has a folder at {place}. Mend `data`"
            f" of the store {self.layout.store}, or mount the disk. Nothing is taken for gone without a sign of the data: if it"
            " is gone for good, take its lines out of the log."
        )

    def _neighbours(self) -> Iterator[str]:
        return islice((name for name in self.index.files if name != self.dataset), _MOST)

    def _newest(self) -> Iterator[Folder]:
        """The likeliest first: hardly ever is more than one asked about."""
        for dataset, most in ((self.dataset, _MOST), *((name, 1) for name in self._neighbours())):
            for transaction in reversed(self.index.transactions(dataset)[-most:].to_pylist()):
                # The name of what is in a log need not be that of a folder.
                with suppress(Refused):
                    yield self.layout.folder(dataset, transaction)

    def _parent(self, dataset: str) -> Iterator[Folder]:
        """The folder in which a dataset has those of its transactions, unless that is the root itself."""
        with suppress(Refused):
            if above := self.layout.parent(dataset):
                yield above
