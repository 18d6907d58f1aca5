"""Deleting the folders of transactions, on whatever file system they are.

Belongs here: opening that file system once for all targets of a sweep, and the choice between the two ways to delete.
Does not belong here: either of them (delete_local.py, delete_remote.py), and which folder may go (ownership.py).
"""

from dataclasses import dataclass
from typing import Self

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files import delete_local, delete_remote
from retention_assets.stores.files.file_systems import FileSystem, is_local, open_file_system
from retention_assets.stores.files.paths import Folder, FolderLayout
from retention_assets.stores.protocol import Permit


@dataclass(frozen=True)
class TransactionFolders:
    """A root and its file system. Lives no longer than one sweep, and may be asked by many threads."""

    fs: FileSystem
    root: str

    @classmethod
    def of(cls, layout: FolderLayout) -> Self:
        """Open the file system of a layout. Raises Refused for a root in which nothing is: it cannot tell what is gone."""
        if "::" in layout.root:
            # Such a place is a copy, or an archive: removing there removes elsewhere, or nowhere.
            raise Refused(f"Data at {mask_secrets(layout.root)} cannot be removed. Name the file system itself, without ::.")
        fs, root = open_file_system(layout.root)
        if is_local(fs):
            delete_local.check_root(root)
        elif delete_remote.is_empty(fs, root):
            raise Refused(
                f"The root {mask_secrets(layout.root)} is empty. Is it the right place? Nothing is taken for gone in it."
            )
        return cls(fs, root)

    def measure(self, folder: Folder) -> int | None:
        """The bytes in a folder, or None if it is not there."""
        if is_local(self.fs):
            return delete_local.measure(self.root, folder)
        return delete_remote.measure(self.fs, self._place(folder))

    def remove_folder(self, folder: Folder, permit: Permit) -> int | None:
        """Remove a folder; the bytes that became free, or None if it was not there."""
        if is_local(self.fs):
            return delete_local.remove_folder(self.root, folder, permit)
        return delete_remote.remove_folder(self.fs, self._place(folder), permit)

    def _place(self, folder: Folder) -> str:
        return "/".join((self.root.rstrip("/"), *folder))
