"""Sources of rows: listings, references and edges. Tasks read a source share by share, and shares that changed meanwhile again,
until the source proves that it was read completely."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import sleep
from typing import Any, Generic, Protocol

import pyarrow as pa

from retention_assets.clock import moment
from retention_assets.errors import Refused
from retention_assets.stores.concurrency import Result, Tasks
from retention_assets.stores.objects.scan_result import SourceCount
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import SourceSettings
from retention_assets.stores.protocol import error_text, never

# most times that changing shares are read
ROUNDS = 5


class SourceNotWhole(Refused):
    """A source did not prove that it was read completely: the scan fails and marks nothing."""


class LookStopped(Refused):
    """A stop was requested."""

    def __init__(self) -> None:
        super().__init__("the check of references was stopped")


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


class ObjectListing(Protocol):
    """A listing of all objects of a store. It and its shares are sent to tasks by value, so connections are opened where they
    are used."""

    def begin(self) -> datetime:
        """Instant from which the listing is valid: the store's own clock, or the time at which a finished listing was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """Split the listing into about this many small, disjoint parts that leave nothing out."""

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """Objects of a share, as `tables.OBJECTS`. Realm and kind are null unless a column provides them. Raises if the share
        cannot be listed completely."""

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Objects present now under the given keys, as `tables.OBJECTS`, from the place itself and not from a finished list."""

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        """Sorted names of the datasets; None if only a complete listing can tell."""


_SHARES_PER_SLOT = 3
# most rows that are handed on together
_MOST = 1 << 17


@dataclass
class Pace:
    """Rate in rows per second since its creation; 0 is unlimited."""

    rate: float
    _began: float = field(default_factory=lambda: moment().running)
    _taken: int = 0

    def take(self, rows: int) -> None:
        if self.rate:
            self._taken += rows
            sleep(max(0.0, self._taken / self.rate - (moment().running - self._began)))


@dataclass
class ShareRows:
    """Rows of a share. Iterating sets `end`; `name` distinguishes its files from those of other shares and rounds."""

    number: int
    source: RowSource
    share: Any
    name: str
    # rows per second; 0 is unlimited
    rate: float
    # if False, rows lose their realms
    has_realms: bool
    is_stopped: Callable[[], bool]
    end: ShareEnd | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        pace = Pace(self.rate)
        if self.is_stopped():
            raise LookStopped
        with naming(self.source):
            batches = self.source.read(self.share)
        while True:
            # Exceptions of whoever takes the rows are not the source's.
            with naming(self.source):
                try:
                    batch = next(batches)
                except StopIteration as stop:
                    self.end = stop.value
                    return
            for begin in range(0, batch.num_rows, _MOST):
                if self.is_stopped():
                    raise LookStopped
                part = batch.slice(begin, _MOST)
                pace.take(part.num_rows)
                if not self.has_realms:
                    realms = pa.nulls(part.num_rows, pa.string())
                    part = part.set_column(part.schema.get_field_index("realm"), "realm", realms)
                yield part


ReadRows = Callable[[ShareRows], Result]


@dataclass(frozen=True)
class ShareRead(Generic[Result]):
    """A share that was read: the number of its source, its end and what was made of its rows."""

    source: int
    end: ShareEnd
    result: Result
    seconds: float = 0.0


def read_whole(
    tasks: Tasks,
    sources: Sequence[RowSource],
    read: ReadRows[Result],
    *,
    # rows per second for all tasks together; 0 is unlimited
    rate: float = 0,
    has_realms: bool = True,
    is_stopped: Callable[[], bool] = never,
) -> list[ShareRead[Result]]:
    """Read all shares of the sources by tasks. Raises SourceNotWhole if a source does not prove that it was whole."""
    wanted = _SHARES_PER_SLOT * tasks.slots if tasks.slots > 1 else 1
    done: list[ShareRead[Result]] = []
    shares: list[tuple[int, Any]] = []
    for at, source in enumerate(sources):
        with naming(source):
            shares += [(at, share) for share in source.shares(wanted)]
    for turn in range(ROUNDS):
        if shares:
            each = rate / min(tasks.slots, len(shares))
            rows = [
                ShareRows(at, sources[at], share, f"{at:04d}-{turn}-{number:06d}", each, has_realms, is_stopped)
                for number, (at, share) in enumerate(shares)
            ]
            done += tasks.run(partial(_read_share, read, rows), len(rows))
        shares = []
        for at, source in enumerate(sources):
            with naming(source):
                shares += [(at, share) for share in source.finish([part.end for part in done if part.source == at])]
        if not shares:
            return done
    changing = ", ".join(sorted({sources[at].label for at, _ in shares}))
    raise SourceNotWhole(
        f"{changing} changed each of the {ROUNDS} times that it was read. Try again at a quieter time, or write it "
        "elsewhere and move it into place at once."
    )


def _read_share(read: ReadRows[Result], shares: Sequence[ShareRows], number: int) -> ShareRead[Result]:
    began, rows = moment().running, shares[number]
    result = read(rows)
    assert rows.end is not None, "rows are read to their end"
    return ShareRead(rows.number, rows.end, result, moment().running - began)


def count_sources(
    sources: Sequence[RowSource], settings: Sequence[SourceSettings], read: Sequence[ShareRead[Any]], kind: str = ""
) -> list[SourceCount]:
    """Count rows of each source, and its files or shares: 0 if it names none, or if its settings say that they come and go."""
    counts = []
    for number, (source, about) in enumerate(zip(sources, settings, strict=True)):
        ends = [part.end for part in read if part.source == number]
        shards = {name for end in ends for name in shards_of(source, end.share)} if about.shards is None else ()
        rows = sum(end.rows for end in ends)
        counts.append(SourceCount(f"{kind}{source.label}", rows, rows, shards=len(shards)))
    return counts


@contextmanager
def naming(source: RowSource) -> Iterator[None]:
    """Name the source in exceptions, which foreign sources may raise at will."""
    try:
        yield
    except Refused:
        raise
    except Exception as fault:
        raise SourceNotWhole(f"{source.label}: {error_text(fault)}") from fault
