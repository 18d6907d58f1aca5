"""Opens paths and URIs as Arrow file systems, and appends names to them; imports nothing of Spark.

A URI may carry a query for its store (`s3://bucket/prefix?endpoint_override=…&region=…`), which stays behind all appended
names.
"""

from functools import lru_cache
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs


def inside(folder: str, *names: str) -> str:
    place, query = without_query(folder)
    return "/".join([place.rstrip("/"), *names]) + query


def without_query(folder: str) -> tuple[str, str]:
    """Split off a URI's query, with its question mark. A path has none: a file name may contain one."""
    if "://" not in folder:
        return folder, ""
    place, mark, query = folder.partition("?")
    return place, mark + query


def place_of(folder: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in folder:
        return pafs.LocalFileSystem(), folder
    if not folder.startswith("s3://"):
        files, path = pafs.FileSystem.from_uri(folder)
        return files, path
    place, query = without_query(folder)
    parts = urlsplit(place)
    files, bucket = _bucket(f"s3://{parts.netloc}{query}")
    return files, f"{bucket}{unquote(parts.path)}".rstrip("/")


@lru_cache(maxsize=16)
def _bucket(uri: str) -> tuple[pafs.FileSystem, str]:
    # cached: a client looks up its credentials, and the bucket's region where the query names none
    files, bucket = pafs.FileSystem.from_uri(uri)
    return files, bucket
