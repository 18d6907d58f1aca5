"""What tests of sources share: settings as people write them, and reading a source to its end."""

import pickle
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter

from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.references import RowSource, ShareEnd, open_edges, open_references
from retention_assets.stores.objects.tables import REFERENCES

Row = dict[str, str | None]
_SETTINGS = TypeAdapter(ObjectsSettings)


def settings(folder: Path, *references: Any, edges: Sequence[Any] = (), path: str | None = None) -> ObjectsSettings:
    given = {
        "name": "blobs",
        "listing": {"path": path or str(folder / "root")},
        "realm": "{0}",
        "references": list(references) or [{"lines": "refs/*"}],
        "edges": list(edges),
    }
    return _SETTINGS.validate_python(given, context={"folder": folder})


def source(folder: Path, reference: Any, path: str | None = None) -> RowSource:
    [found] = open_references(settings(folder, reference, path=path))
    return travelled(found)


def edge_source(folder: Path, edge: Any) -> RowSource:
    [found] = open_edges(settings(folder, edges=[edge]))
    return travelled(found)


Value = TypeVar("Value")


def travelled(value: Value) -> Value:
    found: Value = pickle.loads(pickle.dumps(value))
    return found


def taken(reading: Generator[pa.RecordBatch, None, Any]) -> tuple[list[Row], Any]:
    found: list[Row] = []
    while True:
        try:
            found += next(reading).to_pylist()
        except StopIteration as stop:
            return found, stop.value


def read_whole(given: RowSource, wanted: int) -> Generator[pa.RecordBatch, None, list[ShareEnd]]:
    """All rows of a source, share by share, and its ends once it has proved that they are of everything."""
    ends: list[ShareEnd] = []
    shares = given.shares(wanted)
    while shares:
        for share in shares:
            ends.append((yield from given.read(share)))
        shares = given.finish(ends)
    return ends


def rows_of(given: RowSource, wanted: int = 1) -> list[Row]:
    """Everything that a source says, once it is whole; its ends must count it."""
    found, ends = taken(read_whole(given, wanted))
    assert sum(end.rows for end in ends) == len(found)
    return found


def objects_of(given: RowSource, wanted: int = 1) -> list[str]:
    return sorted(str(row["object"]) for row in rows_of(given, wanted))


def ends_of(given: RowSource, shares: Iterable[Any]) -> list[ShareEnd]:
    return [travelled(taken(given.read(travelled(share)))[1]) for share in shares]


@dataclass
class Said:
    """A source in memory that says some rows, and is whole unless it is told otherwise."""

    rows: list[tuple[str | None, ...]]
    label: str = "said"
    names_folders: bool = False
    schema: pa.Schema = REFERENCES
    proof: Callable[[], list[str]] = list
    at_once: int = field(default=3)

    def shares(self, wanted: int) -> list[str]:  # noqa: ARG002 - the protocol's
        return ["all"]

    def read(self, share: str) -> Generator[pa.RecordBatch, None, ShareEnd]:
        for at in range(0, len(self.rows), self.at_once):
            columns = zip(*self.rows[at : at + self.at_once], strict=True)
            yield pa.record_batch([pa.array(one, pa.string()) for one in columns], schema=self.schema)
        return ShareEnd(share, len(self.rows))

    def finish(self, ends: Sequence[ShareEnd]) -> list[str]:  # noqa: ARG002 - the protocol's
        return self.proof()
