"""Places of files: folders of disks, prefixes of buckets, and whatever else fsspec opens."""

import re
from collections.abc import Iterable

from retention_assets.settings.places import has_scheme, identities_of, mask_secrets
from retention_assets.stores.places.protocol import (
    IDENTITY,
    TRASH,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderChanged,
    FolderNote,
    Place,
    RemovedFolder,
    is_own_file,
)

__all__ = [
    "IDENTITY", "TRASH", "DeletionPace", "DueObject", "Entry", "Folder", "FolderChanged", "FolderNote", "Place",
    "RemovedFolder", "addresses_of", "is_on_disk", "is_on_s3", "is_own_file", "open_place", "undo_fault_of",
]  # fmt: skip

_LOCAL = re.compile(r"(file|local):(//)?", re.IGNORECASE)


def is_on_s3(location: str) -> bool:
    """Also true of servers that are compatible with S3."""
    return location.lower().startswith(("s3:", "s3a:"))


def is_on_disk(location: str) -> bool:
    return not has_scheme(location) or location.lower().startswith(("file:", "local:"))


def addresses_of(places: Iterable[str]) -> tuple[str, ...]:
    """Return places; for those on S3 the server that their driver asks, if one is configured."""
    if not any(map(is_on_s3, places := tuple(places))):
        return places
    from retention_assets.stores.places.file_systems import s3_endpoint

    endpoint = s3_endpoint()
    return tuple(endpoint if endpoint and is_on_s3(place) else place for place in places)


def undo_fault_of(location: str | None) -> str | None:
    """Say by its name alone why nothing at a place can be set aside, and what to do; None if it may be possible."""
    if location is not None and "::" not in location and (is_on_disk(location) or is_on_s3(location)):
        return None
    where = "in rows or at an unknown place" if location is None else f"at {mask_secrets(location)}"
    return (
        f"Data {where} can't be set aside: that needs a folder on a disk, or a bucket on S3 with versions. Leave `undo` out "
        "for the datasets of this store."
    )


def open_place(location: str, guarded: Iterable[str] = (), delete_versions: bool = False) -> Place:
    """Return the place of a path or URI without asking anything of it.

    A removal stops at the guarded places, which retention itself or another store keeps.
    """
    if is_on_s3(location):
        from retention_assets.stores.places.s3 import S3Place

        return S3Place(location, delete_versions)
    if is_on_disk(location):
        from retention_assets.stores.places.local import LocalPlace

        return LocalPlace(_LOCAL.sub("", location) if has_scheme(location) else location, identities_of(guarded))
    from retention_assets.stores.places.fsspec import FsspecPlace

    return FsspecPlace(location)
