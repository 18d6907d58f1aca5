"""Parses the two time formats of S3 directly: the driver tries every date format, for each object of a listing."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from fsspec import AbstractFileSystem as FileSystem  # type: ignore[import-untyped]


def read_times_quickly(fs: FileSystem) -> None:
    """Install the parser in an S3 file system. It must not have connected yet."""
    if fs.session is None:
        from aiobotocore.session import AioSession  # type: ignore[import-untyped]

        session = AioSession(**fs.kwargs)
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
        fs.session = session


def parse_time(value: Any) -> datetime:
    """Parse a time in S3's formats; leave any other to the driver's parser."""
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
