"""Protocol of sources of references and edges, and the error of a source that is not whole."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from retention_assets.errors import Refused

# most times that changing shares are read
ROUNDS = 5


class SourceNotWhole(Refused):
    """A source did not prove that it was read completely: the scan fails and marks nothing."""


@dataclass(frozen=True)
class ShareEnd:
    """End of a share: its number of rows, and a small value that the source needs for the proof."""

    share: Any
    rows: int
    proof: Any = None


def shards_of(source: Any, share: Any) -> Sequence[str]:
    """Name the files or shares behind a share, as far as the source can."""
    names: Sequence[str] = source.shards_of(share) if hasattr(source, "shards_of") else ()
    return names


class RowSource(Protocol):
    """A source of references (`tables.REFERENCES`) or edges (`tables.EDGES`), sent to tasks by value. If it consists of several
    files, `shards_of(share)` names them: a source with fewer than before is not whole."""

    @property
    def label(self) -> str:
        """Name for people, without a password: "lines refs/*.jsonl"."""

    @property
    def names_folders(self) -> bool:
        """True if a reference that ends with / names every key with that prefix, and / alone names every key."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """Split the source into about this many parts; small values."""

    def read(self, share: Any) -> Generator[pa.RecordBatch, None, ShareEnd]:
        """Yield the rows of a share and return its end. Raises if the share cannot be read completely."""

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[Any]:
        """Prove that the ends, including earlier rounds', cover everything; return shares that changed meanwhile. Raises
        SourceNotWhole."""
