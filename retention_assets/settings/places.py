"""One identity for each place, however it is written: which of two places lies in the other.

Belongs here: paths and URIs as values that can be compared. `file:///a`, `/a/./`, a link to `/a` and a second mount of it or
of a folder in it are one place; so are `s3://b/x` and `S3A://B//x/`. A local place is what the file system says it is at that
moment: whoever asks again later sees a link or a mount that was made meanwhile.
Does not belong here: which places may not lie in each other (model.py).
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from retention_assets.settings.urls import has_scheme

# Schemes that are different drivers' words for one store.
_SAME = {
    "local": "file", "s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs", "wasb": "abfs", "wasbs": "abfs",
    "adl": "abfs", "webhdfs": "hdfs", "swebhdfs": "hdfs", "viewfs": "hdfs", "ssh": "sftp",
}  # fmt: skip
_SQLITE = re.compile(r"sqlite(\+\w+)?:///(?P<path>[^?]*)")

# Where Linux says what is mounted, a space and the like written as an octal number.
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")

# A file or folder as the file system knows it: its device and its number there.
Identity = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """A file or a folder, or what begins with a key: by everything that holds it, each with the way from there."""

    roots: frozenset[tuple[object, tuple[str, ...]]]
    # By the nearest of these, and by where it is on its disk, if that can be known.
    names: tuple[tuple[object, tuple[str, ...]], ...]

    def holds(self, other: "Place") -> bool:
        """Whether the other place is this one or lies in it."""
        return any(root == top and way[: len(own)] == own for top, own in self.names for root, way in other.roots)


def place_of(text: str) -> Place:
    """The place of a path or a URI. That of a chain of fsspec is the last one: the others are copies of it."""
    if (path := _path_of(text)) is not None:
        return _local(path)
    scheme, _, rest = text.rpartition("::")[2].partition(":")
    scheme = _SAME.get(scheme.lower(), scheme.lower())
    host, path = "", rest
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
    # Of Azure the container stands before the @; elsewhere that is who asks.
    before, _, after = host.rpartition("@")
    store = before if scheme == "abfs" and before else after
    name = ((scheme, store.lower()), _parts(path))
    return Place(frozenset([name]), (name,))


def _path_of(text: str) -> str | None:
    """The path on this machine to which a path, a URI or the URL of a database leads, if it leads to one."""
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
    """All folders above with their numbers: two paths that lead to one folder have that in common, whatever leads there.

    Of a folder that is mounted elsewhere these are others than of the folder itself; both are in one place of one disk.
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
    """The disk on which a path lies, with the way from the top of that disk; nothing where the system does not say it."""
    mounts = [line.split(" ", 5)[2:5] for line in mount_lines()]
    points = [PurePosixPath(_OCTAL.sub(lambda code: chr(int(code[1], 8)), point)) for _, _, point in mounts]
    above = [number for number, point in enumerate(points) if real.is_relative_to(point)]
    if not above:
        return []
    # Of two mounts at one point the later one is seen.
    nearest = max(above, key=lambda number: (len(points[number].parts), number))
    device, top, _ = mounts[nearest]
    top = _OCTAL.sub(lambda code: chr(int(code[1], 8)), top)
    return [(("disk", device), (*PurePosixPath(top).parts[1:], *real.parts[len(points[nearest].parts) :]))]


def mount_lines() -> list[str]:
    """Read the mounts of this process (proc(5), mountinfo), a line each; none where the system does not say it."""
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
    """The files and folders of places as the file system knows them now; of a SQLite database its journals too."""
    paths = (name for path in filter(None, map(_path_of, places)) for name in (path, f"{path}-wal", f"{path}-shm"))
    return frozenset(filter(None, map(_identity, paths)))
