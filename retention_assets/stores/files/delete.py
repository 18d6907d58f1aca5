"""Deletes folders of transactions; opens the file system once for a sweep and picks the way to delete (local, S3, other)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from retention_assets.errors import Refused
from retention_assets.settings.places import identities_of
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files import delete_local, delete_remote, delete_s3
from retention_assets.stores.files.folder_notes import FolderCheck, FolderNote, accept_any
from retention_assets.stores.files.paths import Folder, FolderLayout
from retention_assets.stores.places.file_systems import FileSystem, is_local, is_s3, open_file_system
from retention_assets.stores.protocol import Permit, always


@dataclass(frozen=True)
class TransactionFolders:
    """A root and its file system, for one sweep. Thread-safe."""

    fs: FileSystem
    root: str
    # S3 only
    versions: delete_s3.VersionRules | None = None
    # local disks only
    guarded: delete_local.Guarded = frozenset()

    @classmethod
    def of(cls, layout: FolderLayout, every_version: bool = False, guarded: Sequence[str] = ()) -> Self:
        """Open the file system of a layout. Raises Refused for an empty root, from which nobody can tell what is gone."""
        if "::" in layout.root:
            # such a place is a copy or an archive: removing there removes elsewhere, or nowhere
            raise Refused(f"Data at {mask_secrets(layout.root)} cannot be removed. Name the file system itself, without ::.")
        fs, root = open_file_system(layout.root)
        if is_local(fs):
            delete_local.check_root(root)
            return cls(fs, root, guarded=identities_of(guarded))
        rules = delete_s3.version_rules(fs, root, every_version) if is_s3(fs) else None
        if delete_s3.is_empty(fs, root, rules) if rules else delete_remote.is_empty(fs, root):
            raise Refused(
                f"The root {mask_secrets(layout.root)} is empty. Is it the right place? Nothing is taken for gone in it."
            )
        return cls(fs, root, rules)

    @property
    def may_hide(self) -> bool:
        """True where deleted data may stay readable: the bucket may keep versions and the settings don't delete them."""
        return self.versions is not None and self.versions.may_exist and not self.versions.delete

    def has(self, folder: Folder) -> bool:
        place = self._place(folder)
        if is_local(self.fs):
            return os.path.isdir(place) and not os.path.islink(place)
        if self.versions:
            return not delete_s3.is_empty(self.fs, place, self.versions)
        return not delete_remote.is_empty(self.fs, place)

    def names_in(self, folder: Folder) -> frozenset[str]:
        place = self._place(folder)
        if is_local(self.fs):
            return frozenset(os.listdir(place)) if os.path.isdir(place) else frozenset()
        return delete_remote.names_in(self.fs, place)

    def measure(self, folder: Folder) -> FolderNote | None:
        if is_local(self.fs):
            return delete_local.measure(self.root, folder, self.guarded)
        if self.versions:
            return delete_s3.measure(self.fs, self._place(folder), self.versions)
        return delete_remote.measure(self.fs, self._place(folder))

    def remove_folder(
        self, folder: Folder, permit: Permit = always, check: FolderCheck = accept_any
    ) -> delete_remote.Removed | None:
        """Remove a folder; return the bytes freed or only hidden, or None if it was not there.

        `check` runs before anything of it goes.
        """
        if self.versions:
            return delete_s3.remove_folder(self.fs, self._place(folder), permit, self.versions, check)
        if is_local(self.fs):
            freed = delete_local.remove_folder(self.root, folder, permit, self.guarded, check)
        else:
            freed = delete_remote.remove_folder(self.fs, self._place(folder), permit, check)
        return None if freed is None else delete_remote.Removed(freed)

    def _place(self, folder: Folder) -> str:
        return "/".join((self.root.rstrip("/"), *folder))
