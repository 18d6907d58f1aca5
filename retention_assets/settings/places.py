"""One identity for each place, however it is written: which of two places lies in the other.

Belongs here: paths and URIs as values that can be compared. `file:///a`, `/a/./`, a link to `/a` and a second mount of it are
one place; so are `s3://b/x` and `S3A://B//x/`. A local place is what the file system says it is at that moment: whoever asks
again later sees a link that was made meanwhile.
Does not belong here: which places may not lie in each other (model.py).
"""

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from retention_assets.settings.urls import has_scheme

# Schemes that are different drivers' words for one store.
_SAME = {
    "local": "file", "s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs", "wasb": "abfs", "wasbs": "abfs",
    "adl": "abfs", "webhdfs": "hdfs", "swebhdfs": "hdfs", "viewfs": "hdfs", "ssh": "sftp",
}  # fmt: skip
_SQLITE = re.compile(r"sqlite(\+\w+)?:///(?P<path>[^?]*)")

# A folder as the file system knows it: its device and its number there.
_Identity = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """A file or a folder, or what begins with a key: by everything that holds it, each with the way from there."""

    roots: frozenset[tuple[object, tuple[str, ...]]]
    # By the nearest of these.
    name: tuple[object, tuple[str, ...]]

    def holds(self, other: "Place") -> bool:
        """Whether the other place is this one or lies in it."""
        mine, way = self.name
        return any(root == mine and found[: len(way)] == way for root, found in other.roots)


def place_of(text: str) -> Place:
    """The place of a path or a URI. That of a chain of fsspec is the last one: the others are copies of it."""
    text = text.rpartition("::")[2]
    if (found := _SQLITE.match(text)) is not None:
        return _local(found["path"])
    if not has_scheme(text):
        return _local(text)
    scheme, _, rest = text.partition(":")
    scheme = _SAME.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        return _local("/" + rest.lstrip("/"))
    host, path = "", rest
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
    # Of Azure the container stands before the @; elsewhere that is who asks.
    before, _, after = host.rpartition("@")
    store = before if scheme == "abfs" and before else after
    name = ((scheme, store.lower()), _parts(path))
    return Place(frozenset([name]), name)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _local(path: str) -> Place:
    """All folders above with their numbers: two paths that lead to one folder have that in common, whatever leads there."""
    real = PurePosixPath(os.path.realpath(path))
    roots: list[tuple[object, tuple[str, ...]]] = []
    for above in (real, *real.parents):
        identity = _identity(above)
        if identity is not None:
            roots.append((identity, real.parts[len(above.parts) :]))
    roots.append(("file", real.parts[1:]))
    return Place(frozenset(roots), roots[0])


def _identity(path: PurePosixPath) -> _Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
