"""Reads sources share by share in tasks, and what changed meanwhile again, until each proves that it was whole."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import sleep
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from retention_assets.clock import moment
from retention_assets.errors import Refused
from retention_assets.stores.objects.references.source import ROUNDS, RowSource, ShareEnd, SourceNotWhole, shards_of
from retention_assets.stores.objects.scan_result import SourceCount
from retention_assets.stores.objects.source_settings import SourceSettings
from retention_assets.stores.protocol import error_text
from retention_assets.stores.tasks import Tasks

_SHARES_PER_SLOT = 3
# rows per piece
_MOST = 1 << 17


class ShareRead(Protocol):
    """Result of reading a share; steps add their own fields."""

    @property
    def source(self) -> int:
        """Number of the source."""

    @property
    def end(self) -> ShareEnd:
        """End of the share."""


R = TypeVar("R", bound=ShareRead)


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


@dataclass(frozen=True)
class Round:
    """Shares that are read together; tasks are sent it as a value."""

    sources: Sequence[RowSource]
    shares: Sequence[tuple[int, Any]]
    # distinguishes its files from those of earlier rounds
    number: int
    together: int
    # if False, rows lose their realms
    has_realms: bool = True

    def source(self, number: int) -> tuple[int, RowSource]:
        at = self.shares[number][0]
        return at, self.sources[at]

    def read(self, number: int, take: Callable[[pa.RecordBatch], None], rate: float = 0) -> ShareEnd:
        """Read a share to its end. `rate` is in rows per second for all tasks together; 0 is unlimited."""
        at, share = self.shares[number]
        pace = Pace(rate / max(1, self.together))
        with naming(self.sources[at]):
            rows = self.sources[at].read(share)
        while True:
            # Exceptions of `take` are not the source's.
            with naming(self.sources[at]):
                try:
                    batch = next(rows)
                except StopIteration as stop:
                    end: ShareEnd = stop.value
                    return end
            for begin in range(0, batch.num_rows, _MOST):
                part = batch.slice(begin, _MOST)
                pace.take(part.num_rows)
                if not self.has_realms:
                    realms = pa.nulls(part.num_rows, pa.string())
                    part = part.set_column(part.schema.get_field_index("realm"), "realm", realms)
                take(part)


def read_whole(
    tasks: Tasks, sources: Sequence[RowSource], step: Callable[[Round], Callable[[int], R]], *, has_realms: bool = True
) -> list[R]:
    """Read all shares of the sources. Raises SourceNotWhole if one does not prove that it was whole."""
    wanted = _SHARES_PER_SLOT * tasks.slots if tasks.slots > 1 else 1
    found: list[R] = []
    shares: list[tuple[int, Any]] = []
    for at, source in enumerate(sources):
        with naming(source):
            shares += [(at, share) for share in source.shares(wanted)]
    for number in range(ROUNDS):
        if shares:
            together = min(tasks.slots, len(shares))
            found += tasks.run(step(Round(sources, shares, number, together, has_realms)), len(shares))
        shares = []
        for at, source in enumerate(sources):
            with naming(source):
                shares += [(at, share) for share in source.finish([one.end for one in found if one.source == at])]
        if not shares:
            return found
    changing = ", ".join(sorted({sources[at].label for at, _ in shares}))
    raise SourceNotWhole(
        f"{changing} changed each of the {ROUNDS} times that it was read. Try again when less is written to it, or have it"
        " written elsewhere and put in place at once."
    )


def count_sources(
    sources: Sequence[RowSource], settings: Sequence[SourceSettings], read: Sequence[ShareRead], kind: str = ""
) -> list[SourceCount]:
    """Count rows of each source, and its files or shares: 0 if it names none, or if its settings say that they come and go."""
    counts = []
    for number, source in enumerate(sources):
        ends = [one.end for one in read if one.source == number]
        is_changing = number < len(settings) and settings[number].shards is not None
        shards = {name for end in ends for name in shards_of(source, end.share)} if not is_changing else ()
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
