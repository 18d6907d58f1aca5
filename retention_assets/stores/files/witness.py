"""Whether a root is the right one: by what it is known, and the signs that data of a dataset is or was in it.

Belongs here: the file in a root that says which root it is, and looking for signs. A disk that is not mounted, or another one
in its place, has none of a transaction's files either: without a sign nothing is taken for gone.
Does not belong here: what follows from it (store.py), and anything that deletes.
"""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.delete import TransactionFolders
from retention_assets.stores.files.file_systems import FileSystem, is_local, open_file_system
from retention_assets.stores.files.log import LogIndex
from retention_assets.stores.files.paths import IDENTITY, TRANSACTION, Folder, FolderLayout
from retention_assets.stores.protocol import KNOWN_BY

_ID = re.compile(rb"[0-9a-f]{32}\n?")
# So many other transactions, and other datasets, are asked about at most.
_MOST = 50


def place_of(layout: FolderLayout) -> str:
    """Where the root of a layout is, and by what it is known, if anything."""
    return place_of_root(layout.root)


def place_of_root(place: str) -> str:
    """Where a root is, and by what it is known, if anything."""
    fs, root = open_file_system(place)
    shown = os.path.realpath(root) if is_local(fs) else mask_secrets(place)
    known = _identity(fs, root)
    return f"{shown}{KNOWN_BY}{known}" if known else shown


def leave_identity(layout: FolderLayout) -> None:
    """Leave in the root of a layout by what it is known again."""
    leave_identity_in(layout.root)


def leave_identity_in(place: str) -> None:
    """Leave in a root by what it is known again, unless that is there. One in which nobody may write has its name alone."""
    fs, root = open_file_system(place)
    content = f"{uuid.uuid4().hex}\n".encode()
    if is_local(fs):
        with suppress(OSError), open(os.path.join(root, IDENTITY), "xb") as file:
            file.write(content)
    elif _identity(fs, root) is None:
        # What does not know how to make a file only where there is none says so with errors of its own.
        with suppress(Exception):
            fs.pipe_file(_file_of(root), content, mode="create")


def _identity(fs: FileSystem, root: str) -> str | None:
    """What the file says. Raises OSError where it can't be told whether it is there."""
    try:
        if is_local(fs):
            with open(os.open(_file_of(root), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
                content = file.read(100)
        else:
            fs.invalidate_cache()
            content = fs.cat_file(_file_of(root))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return content.decode().strip() if _ID.fullmatch(content) else None


def _file_of(root: str) -> str:
    return f"{root.rstrip('/')}/{IDENTITY}"


@dataclass(frozen=True)
class RootSigns:
    """Signs in a root that it is the one of a dataset's data. One is enough."""

    folders: TransactionFolders
    layout: FolderLayout
    index: LogIndex
    dataset: str

    def is_known(self) -> bool:
        """Whether the root says which one it is, or holds anything of the data. Whoever resumes has compared what it says."""
        return _identity(self.folders.fs, self.folders.root) is not None or self.holds_data()

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
            folder = self.layout.folder(dataset, "transaction")
            own = next(place for place, segment in enumerate(self.layout.segments) if TRANSACTION in segment)
            # A dataset's name may have several segments.
            above = folder[: len(folder) - (len(self.layout.segments) - own)]
            if above:
                yield above
