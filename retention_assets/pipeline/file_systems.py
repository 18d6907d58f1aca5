"""The file system of a path or URI, as Arrow knows it, and places below one. Nothing of Spark is imported here.

A URI may carry a query, which says how its store is reached (`s3://bucket/prefix?endpoint_override=…&region=…`). It stays
behind all names that are appended.
"""

from functools import lru_cache
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs


def inside(folder: str, *names: str) -> str:
    """A place below a path or URI."""
    place, query = without_query(folder)
    return "/".join([place.rstrip("/"), *names]) + query


def without_query(folder: str) -> tuple[str, str]:
    """A path or URI, and its query with the question mark. What has no scheme has none: a file may be named with one."""
    if "://" not in folder:
        return folder, ""
    place, mark, query = folder.partition("?")
    return place, mark + query


def place_of(folder: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path on it."""
    if "://" not in folder:
        return pafs.LocalFileSystem(), folder
    if not folder.startswith("s3://"):
        files, path = pafs.FileSystem.from_uri(folder)
        return files, path
    place, query = without_query(folder)
    found = urlsplit(place)
    files, bucket = _bucket(f"s3://{found.netloc}{query}")
    return files, f"{bucket}{unquote(found.path)}".rstrip("/")


@lru_cache(maxsize=16)
def _bucket(uri: str) -> tuple[pafs.FileSystem, str]:
    """Opened once: a client looks for its credentials, and for the region of the bucket where the query names none."""
    files, bucket = pafs.FileSystem.from_uri(uri)
    return files, bucket
