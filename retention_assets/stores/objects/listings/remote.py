"""Lists objects of any other fsspec place: gs://, abfs://, sftp://, memory:// and so on. A place that does not provide
modification times is refused: ages are not guessed. Everything below one name in the root is in memory at once."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from retention_assets.clock import now
from retention_assets.errors import Refused, quote
from retention_assets.frames.log import INSTANT
from retention_assets.policy.durations import micros
from retention_assets.settings.urls import mask_secrets, mask_text
from retention_assets.stores.objects.conditions import ObjectCondition
from retention_assets.stores.objects.naming import SEPARATOR, first_level_datasets
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import BATCH, objects_batch
from retention_assets.stores.places import IDENTITY
from retention_assets.stores.places.file_systems import FileSystem, open_file_system

Info = Mapping[str, Any]

# Last write first: a copy of an old object is a new object.
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "timeCreated", "creation_time", "created")
_AT_ONCE = 16


@dataclass(frozen=True)
class NamesShare:
    """Every `of`-th name in the root, with everything below it."""

    number: int
    of: int


@dataclass(frozen=True)
class RemoteObjects:
    place: str

    def begin(self) -> datetime:
        """This machine's time: such places tell none."""
        return now()

    def shares(self, wanted: int) -> Sequence[NamesShare]:
        return [NamesShare(number, max(1, wanted)) for number in range(max(1, wanted))]

    def read(self, share: NamesShare) -> Iterator[pa.RecordBatch]:
        fs, root = self._open()
        found = list[Info]()
        for top in self._top(fs, root):
            if zlib.crc32(_name(top).encode(errors="surrogateescape")) % share.of != share.number:
                continue
            with self._refusing():
                below = fs.find(_name(top), detail=True).values() if top["type"] == "directory" else [top]
            for info in below:
                if info["type"] == "file":
                    found.append(info)
                if len(found) >= BATCH:
                    yield self._batch(root, found)
                    found = []
        if found:
            yield self._batch(root, found)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        fs, root = self._open()
        fs.invalidate_cache()

        def ask(key: str) -> Info | None:
            with suppress(FileNotFoundError, NotADirectoryError), self._refusing():
                info: Info = fs.info(f"{root}{key}")
                return info if info["type"] == "file" else None
            return None

        plain = [
            key for key in sorted(set(keys)) if key and key != IDENTITY and {"", ".", ".."}.isdisjoint(key.split(SEPARATOR))
        ]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for at in range(0, len(plain), BATCH):
                found = [info for info in threads.map(ask, plain[at : at + BATCH]) if info is not None]
                if found:
                    yield self._batch(root, found)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        def names() -> Iterator[str]:
            fs, root = self._open()
            for top in self._top(fs, root):
                yield _name(top)[len(root) :] + (SEPARATOR if top["type"] == "directory" else "")

        return first_level_datasets(settings, names)

    def _open(self) -> tuple[FileSystem, str]:
        fs, path = open_file_system(self.place)
        return fs, f"{path.rstrip(SEPARATOR)}{SEPARATOR}"

    def _top(self, fs: FileSystem, root: str) -> list[Info]:
        fs.invalidate_cache()
        with self._refusing():
            try:
                found = fs.ls(root.rstrip(SEPARATOR), detail=True)
            except FileNotFoundError:
                raise Refused(f"{mask_secrets(self.place)} is not there. Nothing is taken for gone without it.") from None
        if strange := next((info for info in found if not _name(info).startswith(root)), None):
            raise Refused(f"The file system names {quote(_name(strange), 200)} among what is below {mask_secrets(self.place)}.")
        return [info for info in found if _name(info) != root + IDENTITY]

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as fault:
            text = mask_text(str(fault)) or type(fault).__name__
            raise Refused(f"{mask_secrets(self.place)} can't be listed: {text}. Look at its permissions.") from fault

    def _batch(self, root: str, found: Sequence[Info]) -> pa.RecordBatch:
        created = [self._created(info) for info in found]
        columns = {
            "size": pa.array([info.get("size") for info in found], pa.int64()),
            "created_at": pa.array(created, INSTANT),
            "condition": pa.array([_condition(info, at) for info, at in zip(found, created, strict=True)], pa.string()),
        }
        return objects_batch([_name(info)[len(root) :] for info in found], mask_secrets(self.place), columns)

    def _created(self, info: Info) -> datetime:
        said = next((info[key] for key in _TIMES if info.get(key)), None)
        try:
            if isinstance(said, str):
                said = datetime.fromisoformat(said)
            if isinstance(said, int | float):
                return datetime.fromtimestamp(said, UTC)
            if isinstance(said, datetime):
                return said.replace(tzinfo=UTC) if said.tzinfo is None else said.astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            pass
        raise Refused(
            f"{mask_secrets(self.place)} does not say when {quote(_name(info), 200)} was written, and ages are not guessed."
            " List it in another way: `parquet`, `table` or `sql`."
        )


def _name(info: Info) -> str:
    return str(info["name"]).rstrip(SEPARATOR)


def _condition(info: Info, created: datetime) -> str:
    if generation := info.get("generation"):
        return ObjectCondition(generation=str(generation)).text
    if etag := info.get("etag") or info.get("ETag"):
        return ObjectCondition(etag=str(etag).strip('"')).text
    return ObjectCondition(created_at=micros(created), size=info.get("size")).text
