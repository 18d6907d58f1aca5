"""File systems: the one place that opens them, and tells apart the few kinds that are treated differently.

Belongs here: a path or URI to a file system and a path in it. Drivers and credentials are found as fsspec finds them, by the
environment and its configuration files. Does not belong here: anything done with one.
"""

from datetime import datetime
from email.utils import parsedate_to_datetime

import fsspec  # type: ignore[import-untyped]
from fsspec import AbstractFileSystem as FileSystem
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from retention_assets.errors import Refused
from retention_assets.settings.urls import has_scheme

__all__ = ["FileSystem", "is_local", "is_s3", "open_file_system", "server_time"]


def open_file_system(place: str) -> tuple[FileSystem, str]:
    """The file system of a path or URI, and the path in it. A plain path is one, whatever characters it holds.

    Raises Refused where its driver is not installed.
    """
    if not has_scheme(place):
        return LocalFileSystem(), place
    try:
        fs, path = fsspec.url_to_fs(place)
    except ImportError as fault:
        # fsspec says which package is missing; that of S3 comes with an extra.
        if "s3fs" in str(fault):
            raise Refused("s3fs is not installed, which speaks with S3: pip install 'retention-assets[s3]'.") from fault
        raise Refused(f"The driver for this place is not installed: {fault}.") from fault
    return fs, str(path)


def is_local(fs: FileSystem) -> bool:
    """Whether its files are on this machine, where the operating system can be asked about symlinks."""
    return isinstance(fs, LocalFileSystem)


def is_s3(fs: FileSystem) -> bool:
    """Whether it speaks to S3, or to something that speaks like it."""
    return "s3" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def server_time(place: str) -> datetime | None:
    """What time it is by the object store that a place is in, to the second; none where nothing of the kind answers."""
    fs, path = open_file_system(place)
    if not is_s3(fs):
        return None
    answer = fs.call_s3("head_bucket", Bucket=path.partition("/")[0])
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(date) if date else None
