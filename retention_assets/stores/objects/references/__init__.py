"""Sources of references: who says which objects are needed.

Belongs here: what every source answers, and opening the sources of a store. It is public: a package brings a source of its own
by the entry point group `retention_assets.references`, or names it in the settings as `use: module:name`.
Does not belong here: any kind (its own module).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.stores.objects.settings import ObjectsSettings


class SourceNotWhole(Refused):
    """A source did not prove that everything of it was read: the scan fails, and nothing is marked."""


@dataclass(frozen=True)
class ShareEnd:
    """What reading a share ends with: its rows, and whatever its source needs for the proof. A small value."""

    share: Any
    rows: int
    proof: Any = None


class RowSource(Protocol):
    """A source of references (`tables.REFERENCES`) or of edges (`tables.EDGES`). It travels to tasks as a value."""

    # For people, without a password: "lines refs/*.jsonl".
    label: str

    def shares(self, wanted: int) -> Sequence[Any]:
        """The source in about so many parts; small values."""

    def read(self, share: Any) -> Generator[pa.RecordBatch, None, ShareEnd]:
        """The rows of a share, and at last how it ended. Whatever keeps it from reading all of it raises."""

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[Any]:
        """Prove that the ends are those of everything. Shares that have changed meanwhile come back, to be read again.

        Raises SourceNotWhole.
        """


def open_references(settings: ObjectsSettings) -> list[RowSource]:
    """The sources of references of a store, in the order of its settings."""
    raise NotImplementedError


def open_edges(settings: ObjectsSettings) -> list[RowSource]:
    """The sources of edges of a store, in the order of its settings."""
    raise NotImplementedError
