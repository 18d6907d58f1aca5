"""Places of files: folders of disks, prefixes of buckets, and whatever else fsspec opens."""

import re
from collections.abc import Iterable

from retention_assets.settings.places import has_scheme, identities_of
from retention_assets.stores.places.protocol import (
    IDENTITY,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderChanged,
    FolderNote,
    Place,
    RemovedFolder,
)

__all__ = [
    "IDENTITY", "DeletionPace", "DueObject", "Entry", "Folder", "FolderChanged", "FolderNote", "Place", "RemovedFolder",
    "is_on_s3", "open_place",
]  # fmt: skip

_LOCAL = re.compile(r"(file|local):(//)?", re.IGNORECASE)


def is_on_s3(location: str) -> bool:
    """Also true of servers that are compatible with S3."""
    return location.lower().startswith(("s3:", "s3a:"))


def open_place(location: str, guarded: Iterable[str] = (), delete_versions: bool = False) -> Place:
    """Return the place of a path or URI without asking anything of it.

    A removal stops at the guarded places, which retention itself or another store keeps.
    """
    if is_on_s3(location):
        from retention_assets.stores.places.s3 import S3Place

        return S3Place(location, delete_versions)
    if not has_scheme(location) or location.lower().startswith(("file:", "local:")):
        from retention_assets.stores.places.local import LocalPlace

        return LocalPlace(_LOCAL.sub("", location) if has_scheme(location) else location, identities_of(guarded))
    from retention_assets.stores.places.fsspec import FsspecPlace

    return FsspecPlace(location)
