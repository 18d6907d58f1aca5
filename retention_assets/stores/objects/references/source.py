"""What every source of references and of edges answers.

Belongs here: the protocol, the end of a share, and the error of a source that is not whole.
Does not belong here: any kind of source (its own module), and opening those of a store (__init__.py).
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from retention_assets.errors import Refused

# So often what changes while it is read is read again.
ROUNDS = 5


class SourceNotWhole(Refused):
    """A source did not prove that everything of it was read: the scan fails, and nothing is marked."""


@dataclass(frozen=True)
class ShareEnd:
    """What reading a share ends with: its rows, and whatever its source needs for the proof. A small value."""

    share: Any
    rows: int
    proof: Any = None


def shards_of(source: Any, share: Any) -> Sequence[str]:
    """Name the files or shares that a share of a source is, as far as the source can."""
    names: Sequence[str] = source.shards_of(share) if hasattr(source, "shards_of") else ()
    return names


def count_shards(source: "RowSource", ends: Iterable[ShareEnd]) -> int:
    """Count the files or shares that a source names; 0 where it can't, or these come and go."""
    return len({name for end in ends for name in shards_of(source, end.share)})


class RowSource(Protocol):
    """A source of references (`tables.REFERENCES`) or of edges (`tables.EDGES`). It travels to tasks as a value.

    One of several files has `shards_of(share)`, which names them: one that has fewer than before is not whole.
    """

    @property
    def label(self) -> str:
        """For people, without a password: "lines refs/*.jsonl"."""

    @property
    def names_folders(self) -> bool:
        """Whether a reference that ends with / means every key that begins so, and / alone means every key."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """The source in about so many parts; small values."""

    def read(self, share: Any) -> Generator[pa.RecordBatch, None, ShareEnd]:
        """The rows of a share, and at last how it ended. Whatever keeps it from reading all of it raises."""

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[Any]:
        """Prove that the ends, those of earlier rounds among them, are of everything. What changed meanwhile comes back as
        shares to be read.

        Raises SourceNotWhole.
        """


@dataclass(frozen=True)
class WithoutRealms:
    """A source in a store whose objects have no realms: whatever realm a row is of, it means the key."""

    source: RowSource

    @property
    def label(self) -> str:
        """As the source says it."""
        return self.source.label

    @property
    def names_folders(self) -> bool:
        """As the source has it."""
        return self.source.names_folders

    def shards_of(self, share: Any) -> Sequence[str]:
        """As the source names them."""
        return shards_of(self.source, share)

    def shares(self, wanted: int) -> Sequence[Any]:
        """As the source has them."""
        return self.source.shares(wanted)

    def read(self, share: Any) -> Generator[pa.RecordBatch, None, ShareEnd]:
        """The rows, none of which has a realm."""
        rows = self.source.read(share)
        while True:
            try:
                batch = next(rows)
            except StopIteration as stop:
                end: ShareEnd = stop.value
                return end
            at = batch.schema.get_field_index("realm")
            yield batch.set_column(at, "realm", pa.nulls(batch.num_rows, pa.string()))

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[Any]:
        """As the source does."""
        return self.source.finish(ends)
