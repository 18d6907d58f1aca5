"""Compares file locations and tells which of them a sweep of a table may delete.

A table may name files that are not its own to delete: files added from elsewhere, a migrated table's, a location that was
changed. Only what lies below the table's location, `write.data.path` or `write.metadata.path` is deleted. Locations are
literal: `%`, `#`, `?` and spaces are parts of names.
"""

import os
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
_LOCAL = "file:"


def file_identity(location: str) -> str:
    """Normalize a location: two files with the same identity are never both deleted."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", location
    if scheme == "file":
        return _LOCAL + posixpath.normpath("/" + rest.lstrip("/"))
    return f"{_SAME_SCHEME.get(scheme, scheme)}:{rest}"


def folders_of(metadata: TableMetadata) -> tuple[str, ...]:
    written = (metadata.properties.get(key) for key in ("write.data.path", "write.metadata.path"))
    return metadata.location, *(place for place in written if place)


@dataclass(frozen=True)
class TableFence:
    """Folders below which a table's files are its own."""

    roots: tuple[str, ...]

    @classmethod
    def of(cls, metadata: TableMetadata) -> "TableFence":
        return cls(tuple(_roots(folders_of(metadata))))

    def overlaps(self, other: "TableFence") -> bool:
        return any(mine.startswith(root) or root.startswith(mine) for mine in self.roots for root in other.roots)

    def names(self, identity: str) -> bool:
        """Tell whether a file lies below a root, by its name alone."""
        return any(identity.startswith(root) for root in self.roots)

    def encloses(self, location: str) -> bool:
        """Tell whether a file may be deleted: it lies below a root by its name and, on a local disk, after resolving links."""
        if ".." in location.split("/"):
            return False
        file = file_identity(location)
        root = next((root for root in self.roots if file.startswith(root)), None)
        if root is None or file == root:
            return False
        if not file.startswith(_LOCAL):
            return True
        # A link inside of the table may lead out of it. A table that is itself reached through a link is fine.
        folder, real = (os.path.realpath(path.removeprefix(_LOCAL)) for path in (posixpath.dirname(file), root))
        return f"{folder}/".startswith(f"{real.rstrip('/')}/")


def _roots(places: Iterable[str]) -> Iterable[str]:
    for place in places:
        root = file_identity(place).rstrip("/") + "/"
        # the root of a disk is nobody's own, nor is a place that leads elsewhere
        if root.partition(":")[2].strip("/") and ".." not in place.split("/"):
            yield root
