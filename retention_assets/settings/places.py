"""Paths and URLs of the settings: resolve them, mask their passwords, and compare places, however they are written.

`file:///a`, `/a/./`, a link to `/a` and another mount of it are one place; so are `s3://b/x` and `S3A://B//x/`. A local place
is what the file system says at that moment, so ask again to see new links and mounts.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, ValidationInfo

from retention_assets.errors import InvalidValue
from retention_assets.settings.secrets import masked

# At least two letters, so that a drive letter is no scheme; fsspec chains schemes as in `simplecache::s3://…`.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=[/:])")
# From the first colon that is not `://` to the last @: a password may hold an unescaped @, / or colon.
_USER_PASSWORD = re.compile(r":(?!//).*@", re.DOTALL)
_SECRET = "pass|pwd|secret|token|credential|key"
_QUERY_PASSWORD = re.compile(rf"([?&#][^=&]*(?:{_SECRET})[^=&]*=)[^&]*", re.IGNORECASE)
# A key of a query or fragment. Any may sign a request: each service has its own.
_QUERY_VALUE = re.compile(r"([?&#;])([^\s=&?#;]+)=[^&#\s]*")
_HARMLESS = {
    "application_name", "charset", "connect_timeout", "generation", "host", "mode", "port", "region", "sslmode",
    "timeout", "uri", "user", "versionid",
}  # fmt: skip
# A fragment of a page is a place in it, but some services write a token there.
_FRAGMENT = re.compile(r"(\bhttps?://[^\s#]*#)[^\s=&]+(?=$|[\s'\"),])", re.IGNORECASE)
# Connection strings: AccountKey=…;SharedAccessSignature=…, or password=… host=…
_CONNECTION_PASSWORD = re.compile(
    r"\b(\w*(?:password|passwd|pwd|secret|token|signature|accesskey|accountkey)\w*=)[^;&\s]+", re.IGNORECASE
)
_WORD = re.compile(r"\S+")
# Drivers disagree about its place.
_FILE_OF_HOST = re.compile(r"(file|local)://(?!/)", re.IGNORECASE)

# Dialects and drivers that are tested for ledger and stores; the next line is for stores alone.
_DIALECTS = {"sqlite": ("", "pysqlite"), "postgresql": ("", "psycopg", "psycopg2")}
_STORE_DIALECTS = {**_DIALECTS, "mysql": ("", "pymysql"), "mariadb": ("", "pymysql")}
_EXPECTED_DATABASE = "a database URL: sqlite:///folder/file.db or postgresql://user:password@host/database"
_EXPECTED_STORE_DATABASE = f"{_EXPECTED_DATABASE}, or the same with mysql:// or mariadb://"


def mask_secrets(text: str) -> str:
    """Mask a URL's password and every query value not known to be harmless; in longer texts it may mask too much."""
    text = _QUERY_PASSWORD.sub(r"\1***", _USER_PASSWORD.sub(":***@", text))
    text = _CONNECTION_PASSWORD.sub(r"\1***", _QUERY_VALUE.sub(_masked_value, text))
    return _FRAGMENT.sub(r"\1***", text)


def _masked_value(found: re.Match[str]) -> str:
    mark, key = found[1], found[2]
    return found[0] if mark != "#" and key.lower() in _HARMLESS else f"{mark}{key}=***"


def mask_text(text: str) -> str:
    """Mask secrets of the settings and of the addresses in a sentence, such as a driver's error."""
    return _WORD.sub(lambda word: mask_secrets(word[0]), masked(text))


class Url(str):
    """A URL that only a driver sees with its password.

    A driver reads the characters; `str()`, `repr()` and f-strings give the masked text, so log lines, errors and tracebacks are
    safe. Use `exposed` to write the real text.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return self.exposed if self.startswith("sqlite") else mask_secrets(self.exposed)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce_ex__(self, protocol: object) -> tuple[type["Url"], tuple[str]]:
        """For any protocol: older ones would call `str()` and lose the password."""
        return type(self), (self.exposed,)

    @property
    def exposed(self) -> str:
        return "".join(self)


def has_scheme(text: str) -> bool:
    return _SCHEME.match(text) is not None


def without_scheme(text: str) -> str:
    """Text after the scheme; host or bucket counts as a folder."""
    found = _SCHEME.match(text)
    return text[found.end() :] if found else text


def locate(text: str, folder: Path) -> str:
    """Absolute path of a place, or its URI unchanged."""
    if not text.strip() or not text.isprintable():
        raise InvalidValue("is not a path", "a path or a URI")
    if text.startswith("~"):
        raise InvalidValue("begins with ~, which only a shell expands", "a path or a URI", "Write ${HOME} instead.")
    if _FILE_OF_HOST.match(text):
        raise InvalidValue("names a host, or is a relative path", "file:///folder", "Three slashes begin an absolute path.")
    if has_scheme(text) and ".." in text.split("/"):
        raise InvalidValue("leads out of its folder by ..", "a URI without ..")
    return text if has_scheme(text) else os.path.abspath(folder / text)


def database_url(
    text: str, folder: Path, dialects: Mapping[str, tuple[str, ...]] = _DIALECTS, expected: str = _EXPECTED_DATABASE
) -> Url:
    """URL of a supported database. A relative SQLite file starts at the folder."""
    scheme, separator, rest = text.partition("://")
    dialect, _, driver = scheme.partition("+")
    if not separator or dialect not in dialects or driver not in dialects[dialect]:
        what = "is a URL of a database that is not supported" if separator else "is not a URL"
        raise InvalidValue(what, expected, "Write postgresql:// instead of postgres://." if scheme == "postgres" else None)
    if dialect == "sqlite":
        path, question, query = rest.removeprefix("/").partition("?")
        # A database in memory would be lost with the program.
        if not rest.startswith("/") or not path.strip() or path.startswith((":memory:", "file:")):
            remedy = "Three slashes begin a relative path, four an absolute one."
            raise InvalidValue("names no database file", "sqlite:///folder/file.db", remedy)
        return Url(f"{scheme}:///{locate(path, folder)}{question}{query}")
    try:
        usable = urlsplit(text).port != 0 and len(rest) > 0 and text.isprintable() and " " not in text
    except ValueError:
        usable = False
    if not usable:
        remedy = "Characters such as @ / : # ? in a password are written percent-encoded."
        raise InvalidValue("is a URL whose host or port cannot be read", expected, remedy)
    return Url(text)


def folder_of(info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("folder") or Path.cwd())


def _local_path(place: object, info: ValidationInfo) -> Path:
    if not isinstance(place, str | Path):
        raise InvalidValue("has the wrong type", "a path")
    if has_scheme(str(place)):
        raise InvalidValue("is a URI", "a local file or folder")
    return Path(locate(str(place), folder_of(info)))


Location = Annotated[str, AfterValidator(lambda text, info: locate(text, folder_of(info)))]
LocalPath = Annotated[Path, BeforeValidator(_local_path)]
StoreUrl = Annotated[
    str,
    AfterValidator(lambda text, info: database_url(text, folder_of(info), _STORE_DIALECTS, _EXPECTED_STORE_DATABASE)),
    PlainSerializer(str, when_used="json"),
]
DatabaseUrl = Annotated[
    str, AfterValidator(lambda text, info: database_url(text, folder_of(info))), PlainSerializer(str, when_used="json")
]


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
    # The path with all folders above by inode: two paths to one folder share them, whatever links are used. A bind mount has
    # other parents; the location on disk is the same.
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
    # The disk of a path, and the path from its top; empty if the system does not tell.
    mounts = [line.split(" ", 5)[2:5] for line in mount_lines()]
    points = [PurePosixPath(_OCTAL.sub(lambda code: chr(int(code[1], 8)), point)) for _, _, point in mounts]
    above = [number for number, point in enumerate(points) if real.is_relative_to(point)]
    if not above:
        return []
    # the later of two mounts at one point is visible
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
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def identities_of(places: Iterable[str]) -> frozenset[Identity]:
    """Present inodes of files and folders; for SQLite its journals too."""
    paths = (name for path in filter(None, map(_path_of, places)) for name in (path, f"{path}-wal", f"{path}-shm"))
    return frozenset(filter(None, map(_identity, paths)))
