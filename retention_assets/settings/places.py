"""Places that can be compared, however they are written: which of two is inside the other.

`file:///a`, `/a/./`, a link to `/a` and another mount of it are one place; so are `s3://b/x` and `S3A://B//x/`. A local place
is what the file system says at that moment, so ask again to see new links and mounts.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from retention_assets.settings.urls import has_scheme

# Schemes of different drivers for one store.
_SAME = {
    "local": "file", "s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs", "wasb": "abfs", "wasbs": "abfs",
    "adl": "abfs", "webhdfs": "hdfs", "swebhdfs": "hdfs", "viewfs": "hdfs", "ssh": "sftp",
}  # fmt: skip
_SQLITE = re.compile(r"sqlite(\+\w+)?:///(?P<path>[^?]*)")

# Linux's list of mounts, in which a space is written as an octal number.
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")

Identity = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """A file, folder or key, by everything that contains it and the path from there."""

    roots: frozenset[tuple[object, tuple[str, ...]]]
    # By the nearest existing folder, and by the location on its disk if known.
    names: tuple[tuple[object, tuple[str, ...]], ...]

    def holds(self, other: "Place") -> bool:
        """True if the other place is this one or inside it."""
        return any(root == top and way[: len(own)] == own for top, own in self.names for root, way in other.roots)


def place_of(text: str) -> Place:
    """Place of a path or URI. fsspec reads a chain at its last part; the others are copies."""
    if (path := _path_of(text)) is not None:
        return _local(path)
    scheme, _, rest = text.rpartition("::")[2].partition(":")
    scheme = _SAME.get(scheme.lower(), scheme.lower())
    host, path = "", rest
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
    # Azure has the container before the @; elsewhere that is the user.
    before, _, after = host.rpartition("@")
    store = before if scheme == "abfs" and before else after
    name = ((scheme, store.lower()), _parts(path))
    return Place(frozenset([name]), (name,))


def _path_of(text: str) -> str | None:
    text = text.rpartition("::")[2]
    if (database := _SQLITE.match(text)) is not None:
        return database["path"]
    if not has_scheme(text):
        return text
    scheme, _, rest = text.partition(":")
    return "/" + rest.lstrip("/") if _SAME.get(scheme.lower(), scheme.lower()) == "file" else None


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _local(path: str) -> Place:
    """The path with all folders above by inode: two paths to one folder share them, whatever links are used.

    A bind mount has other parents; the location on disk is the same.
    """
    real = PurePosixPath(os.path.realpath(path))
    roots: list[tuple[object, tuple[str, ...]]] = []
    for above in (real, *real.parents):
        identity = _identity(above)
        if identity is not None:
            roots.append((identity, real.parts[len(above.parts) :]))
    roots.append(("file", real.parts[1:]))
    on_disk = _on_disk(real)
    return Place(frozenset([*roots, *on_disk]), (roots[0], *on_disk))


def _on_disk(real: PurePosixPath) -> list[tuple[object, tuple[str, ...]]]:
    """The disk of a path, and the path from its top; empty if the system does not tell."""
    mounts = [line.split(" ", 5)[2:5] for line in mount_lines()]
    points = [PurePosixPath(_OCTAL.sub(lambda code: chr(int(code[1], 8)), point)) for _, _, point in mounts]
    above = [number for number, point in enumerate(points) if real.is_relative_to(point)]
    if not above:
        return []
    # Of two mounts at one point, the later is visible.
    nearest = max(above, key=lambda number: (len(points[number].parts), number))
    device, top, _ = mounts[nearest]
    top = _OCTAL.sub(lambda code: chr(int(code[1], 8)), top)
    return [(("disk", device), (*PurePosixPath(top).parts[1:], *real.parts[len(points[nearest].parts) :]))]


def mount_lines() -> list[str]:
    """Mounts of this process (proc(5), mountinfo), one per line; empty if the system does not tell."""
    try:
        return _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []


def _identity(path: str | PurePosixPath) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def identities_of(places: Iterable[str]) -> frozenset[Identity]:
    """Present inodes of files and folders; for SQLite its journals too."""
    paths = (name for path in filter(None, map(_path_of, places)) for name in (path, f"{path}-wal", f"{path}-shm"))
    return frozenset(filter(None, map(_identity, paths)))
