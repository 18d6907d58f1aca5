"""The file system of a path or URI, as Arrow knows it. Nothing of Spark is imported here."""

import pyarrow.fs as pafs


def place_of(folder: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path on it."""
    if "://" not in folder:
        return pafs.LocalFileSystem(), folder
    files, path = pafs.FileSystem.from_uri(folder)
    return files, path
