"""Reading sources to their end: share by share in tasks, and what changed meanwhile again, until each says that it was whole.

Belongs here: the rounds, for whoever reads sources, and the words for one that fails or never comes to rest.
Does not belong here: what becomes of the rows (scan/, look/), and any kind of source.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.stores.objects.listings.pacing import Pace
from retention_assets.stores.objects.reference_settings import SourceSettings
from retention_assets.stores.objects.references.source import ROUNDS, RowSource, ShareEnd, SourceNotWhole, count_shards
from retention_assets.stores.protocol import error_text
from retention_assets.stores.tasks import Tasks

_SHARES_PER_SLOT = 3
# Rows are handed on in pieces that fit.
_MOST = 1 << 18


class ShareRead(Protocol):
    """What reading a share came to, whatever else it says."""

    @property
    def source(self) -> int:
        """The number of its source."""

    @property
    def end(self) -> ShareEnd:
        """How it ended."""


R = TypeVar("R", bound=ShareRead)


@dataclass(frozen=True)
class Round:
    """Shares that are read together. It travels to tasks as a value."""

    sources: Sequence[RowSource]
    # Of each share the number of its source.
    shares: Sequence[tuple[int, Any]]
    # What tells this round from earlier ones.
    number: int
    # How many tasks read at a time.
    together: int

    def source(self, number: int) -> tuple[int, RowSource]:
        """The source of a share, and its number."""
        at = self.shares[number][0]
        return at, self.sources[at]

    def read(self, number: int, take: Callable[[pa.RecordBatch], None], rate: float = 0) -> ShareEnd:
        """Read a share to its end. Of rows a second, all tasks together, its task has its part; 0: no limit."""
        at, share = self.shares[number]
        pace = Pace(rate / max(1, self.together))
        with naming(self.sources[at]):
            rows = self.sources[at].read(share)
        while True:
            # What `take` raises is no fault of the source.
            with naming(self.sources[at]):
                try:
                    batch = next(rows)
                except StopIteration as stop:
                    end: ShareEnd = stop.value
                    return end
            for begin in range(0, batch.num_rows, _MOST):
                part = batch.slice(begin, _MOST)
                pace.take(part.num_rows)
                take(part)


def read_whole(tasks: Tasks, sources: Sequence[RowSource], step: Callable[[Round], Callable[[int], R]]) -> list[R]:
    """What reading each share of some sources came to. Raises SourceNotWhole for one that does not prove that it was whole."""
    wanted = _SHARES_PER_SLOT * tasks.slots if tasks.slots > 1 else 1
    found: list[R] = []
    shares: list[tuple[int, Any]] = []
    for at, source in enumerate(sources):
        with naming(source):
            shares += [(at, share) for share in source.shares(wanted)]
    for number in range(ROUNDS):
        if shares:
            found += tasks.run(step(Round(sources, shares, number, min(tasks.slots, len(shares)))), len(shares))
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


def shards_among(settings: Sequence[SourceSettings], number: int, source: RowSource, read: Iterable[ShareRead]) -> int:
    """Of how many files or shares a source is, unless its settings say that these come and go."""
    is_changing = number < len(settings) and settings[number].shards is not None
    return 0 if is_changing else count_shards(source, (one.end for one in read if one.source == number))


@contextmanager
def naming(source: RowSource) -> Iterator[None]:
    """Whatever a source raises says which source it was; it may be anybody's."""
    try:
        yield
    except Refused:
        raise
    except Exception as fault:
        raise SourceNotWhole(f"{source.label}: {error_text(fault)}") from fault
