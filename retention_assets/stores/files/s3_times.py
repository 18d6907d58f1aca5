"""Times in answers of S3, read quickly: each object of a listing has one, and the driver tries every form of a date there is.

Belongs here: the two forms in which S3 writes a time, and telling the driver to try these first.
Does not belong here: opening file systems (file_systems.py), and any request.
"""

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from fsspec import AbstractFileSystem as FileSystem  # type: ignore[import-untyped]


def read_times_quickly(fs: FileSystem) -> None:
    """Have a file system of S3 that has not connected yet read times so."""
    if fs.session is None:
        from aiobotocore.session import AioSession  # type: ignore[import-untyped]

        session = AioSession(**fs.kwargs)
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
        fs.session = session


def parse_time(value: Any) -> datetime:
    """A time as S3 writes it in a listing, or in a header; whatever else, as the driver reads it."""
    if isinstance(value, str):
        try:
            if value[10:11] == "T" and value.endswith("Z"):
                return datetime.fromisoformat(value)
            if value.endswith(" GMT"):
                return parsedate_to_datetime(value)
        except ValueError:
            pass
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    found: datetime = parse_timestamp(value)
    return found
