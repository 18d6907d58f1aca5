"""Looks for signs that a root is the right one: data of a dataset is or was in it.

An unmounted disk, another disk in its place or a mistyped template has no files of a transaction either: without a sign nothing
counts as gone.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.log import LogIndex
from retention_assets.stores.files.paths import FolderLayout
from retention_assets.stores.places import Folder, Place
from retention_assets.stores.places.own_files import identity_of

# transactions, and datasets, that are looked for at most
_MOST = 50


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
            f"None of the newest transactions of {self.dataset}, nor of any other dataset, has a folder at {place}. Mend `data`"
            f" of the store {self.layout.store}, or mount the disk. Nothing is taken for gone without a sign of the data: if it"
            " is gone for good, take its lines out of the log."
        )

    def _neighbours(self) -> Iterator[str]:
        return islice((name for name in self.index.files if name != self.dataset), _MOST)

    def _newest(self) -> Iterator[Folder]:
        """Likeliest first: rarely is a second one looked up."""
        for dataset, most in ((self.dataset, _MOST), *((name, 1) for name in self._neighbours())):
            for transaction in reversed(self.index.transactions(dataset)[-most:].to_pylist()):
                # a name in a log need not be a valid folder
                with suppress(Refused):
                    yield self.layout.folder(dataset, transaction)

    def _parent(self, dataset: str) -> Iterator[Folder]:
        """None where it is the root itself."""
        with suppress(Refused):
            if above := self.layout.parent(dataset):
                yield above
