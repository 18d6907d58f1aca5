"""Objects, references and edges in memory, as a listing and as sources, and a scan of them."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.classes import log_lines
from retention_assets.stores.objects.folder import ScanFolder, read_classes
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.look import ObjectsLook, look_in
from retention_assets.stores.objects.references import ShareEnd, SourceNotWhole
from retention_assets.stores.objects.scan import Scan, scan_here
from retention_assets.stores.objects.scan_result import ScanResult
from retention_assets.stores.objects.tables import EDGES, OBJECTS, REFERENCES

AS_OF = datetime(2026, 3, 31, 12, tzinfo=UTC)
OLD = AS_OF - timedelta(days=30)


def stored(
    key: str, realm: str | None = None, kind: str | None = None, at: datetime | None = OLD, size: int = 1
) -> dict[str, Any]:
    return {"key": key, "realm": realm, "kind": kind, "size": size, "created_at": at, "condition": None}


def named(key: str, realm: str | None = None) -> dict[str, Any]:
    return {"object": key, "realm": realm, "from": None}


def edge(begin: str, end: str, realm: str | None = None) -> dict[str, Any]:
    return {"from": begin, "to": end, "realm": realm}


@dataclass(frozen=True)
class Rows:
    rows: Sequence[Mapping[str, Any]]
    schema: pa.Schema
    size: int = 3

    def parts(self) -> list[int]:
        return list(range(0, len(self.rows), self.size))

    def batch(self, begin: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(list(self.rows[begin : begin + self.size]), self.schema)


@dataclass(frozen=True)
class Listed:
    rows: Rows
    as_of: datetime = AS_OF
    # for a look
    finds: bool = False

    def begin(self) -> datetime:
        return self.as_of

    def shares(self, wanted: int) -> Sequence[int]:
        assert wanted > 0
        return self.rows.parts()

    def read(self, share: int) -> Iterator[pa.RecordBatch]:
        yield self.rows.batch(share)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self.finds, f"a scan asks for no single key: {keys}"
        yield pa.RecordBatch.from_pylist([row for row in self.rows.rows if row["key"] in keys], OBJECTS)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        raise AssertionError(f"a scan asks for no names: {settings}")


@dataclass(frozen=True)
class Source:
    """A source of some references or edges. `changes` is how often all of it comes back to be read again."""

    rows: Rows
    label: str = "lines refs/*.jsonl"
    names_folders: bool = False
    changes: int = 0
    fails_at: int | None = None

    def shares(self, wanted: int) -> Sequence[int]:
        assert wanted > 0
        return self.rows.parts()

    def read(self, share: int) -> Generator[pa.RecordBatch, None, ShareEnd]:
        batch = self.rows.batch(share)
        yield batch
        if self.fails_at == share:
            raise SourceNotWhole(f"{self.label} is not whole: refs/1.jsonl:{share} is cut off")
        return ShareEnd(share, batch.num_rows)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[int]:
        parts = self.rows.parts()
        return parts if len(ends) < (self.changes + 1) * len(parts) else []


def listed(*objects: Mapping[str, Any], size: int = 3, as_of: datetime = AS_OF) -> Listed:
    return Listed(Rows(objects, OBJECTS, size), as_of)


def source(*references: Mapping[str, Any], size: int = 3, **facts: Any) -> Source:
    return Source(Rows(references, REFERENCES, size), **facts)


def edges(*pairs: Mapping[str, Any], size: int = 3) -> Source:
    return Source(Rows(pairs, EDGES, size), "lines edges/*.jsonl")


def settings(**keys: Any) -> ObjectsSettings:
    listing = {"files": "/lake/list.parquet", "as_of": "2026-01-01T00:00:00Z", "columns": {"realm": "realm"}}
    given = {
        "name": "blobs",
        "listing": {"path": "/lake/blobs", "parquet": listing},
        **keys,
    }
    return ObjectsSettings.model_validate(given)


def scan_of(
    objects: Listed, *references: Source, over: Sequence[Source] = (), purging: Sequence[str] = (), **keys: Any
) -> Scan:
    sources = {
        "references": [{"lines": "refs/*.jsonl"}] * len(references) or "none",
        "edges": [{"lines": "edges/*.jsonl"}] * len(over),
    }
    return Scan(settings(**sources | keys), objects, references, over, frozenset(purging))


_COLUMNS = {"realm": "realm", "kind": "kind"}


def finished(
    scan: Scan, objects: Sequence[Mapping[str, Any]], folder: Path, columns: Mapping[str, str] = _COLUMNS, **keys: Any
) -> Scan:
    """The same scan of a list of those objects in a Parquet file of a folder."""
    pq.write_table(pa.Table.from_pylist(list(objects), OBJECTS), folder / "list.parquet", row_group_size=4)
    listing = {"parquet": {"files": f"{folder}/list.parquet", "as_of": AS_OF, "columns": columns}}
    given = scan.settings.model_dump(exclude_unset=True, by_alias=True) | {"listing": listing} | keys
    about = ObjectsSettings.model_validate(given)
    return replace(scan, settings=about, listing=open_listing(about))


@dataclass(frozen=True)
class Judged:
    """What a scan came to: its numbers, and the class of each object by its realm and key."""

    result: ScanResult
    classes: Mapping[tuple[str | None, str], str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        realm, mark, key = name.rpartition(":")
        return self.classes[realm if mark else None, key]

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.result.classes:
            found[str(one.name)] = found.get(str(one.name), 0) + one.objects
        return found


def judge(scan: Scan, last: ScanResult | None = None) -> Judged:
    with scan_here(replace(scan, last=last)) as (result, folder):
        rows = [row for table in read_classes(folder, ("realm", "key")) for row in table.to_pylist()]
    return Judged(result, {(row["realm"], row["key"]): row["class"] for row in rows})


def log_of(scan: Scan, *datasets: str) -> tuple[ScanResult, pa.Table]:
    with scan_here(scan) as (result, folder):
        return result, log_lines(folder, result, scan.settings, datasets)


Looked = ObjectsLook


def look_of(scan: Scan, folder: Path) -> Looked:
    return look_in(TasksHere(), scan, ScanFolder(str(folder)))
