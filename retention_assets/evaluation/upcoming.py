"""What goes in the days to come: the open marks that fall due, by dataset and day, without what a hold keeps.

Belongs here: adding up marks, a batch of them at a time. Each of them is looked at once more before it is deleted, and may be
spared then: the dry run of a sweep says that for what is due already (sweep/dry_run.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from heapq import nsmallest
from typing import Any

import pyarrow as pa

from retention_assets.datasets import DatasetFilter
from retention_assets.evaluation.fates import Fates
from retention_assets.ledger import Ledger

_COLUMNS = ("dataset", "transaction", "policy", "policy_version", "marked_at", "due_at", "bytes", "status")


@dataclass
class UpcomingDataset:
    """What of one dataset goes."""

    dataset: str
    transactions: int = 0
    # None where the store knows of none of them how much it holds.
    bytes: int | None = None
    first_due: datetime | None = None
    policies: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Upcoming:
    """What goes until some instant. `held` is what falls due as well and stays, by the names of the holds that keep it."""

    as_of: datetime
    until: datetime
    # The largest first.
    datasets: tuple[UpcomingDataset, ...] = ()
    # By the UTC day on which they fall due: how many, and their bytes. What is due already is under none.
    days: tuple[tuple[date | None, int, int | None], ...] = ()
    # Some of the transactions, in the order in which they fall due.
    first: tuple[dict[str, Any], ...] = ()
    held: dict[str, int] = field(default_factory=dict)
    # Holds that ask for attributes of datasets, which only a log has: what they keep was not taken out.
    unclear: tuple[str, ...] = ()
    # Why nothing is known.
    note: str | None = None

    @property
    def transactions(self) -> int:
        """How many go."""
        return sum(one.transactions for one in self.datasets)

    @property
    def bytes(self) -> int | None:
        """What they hold, as far as it is known; none where nothing is."""
        known = [one.bytes for one in self.datasets if one.bytes is not None]
        return sum(known) if known or not self.datasets else None


def upcoming(ledger: Ledger, fates: Fates, as_of: datetime, days: int, datasets: DatasetFilter, most: int) -> Upcoming:
    """Add up the open marks that are due by the end of some days; and list so many of them."""
    until = as_of + timedelta(days=days)
    found = _Sums(Upcoming(as_of, until, unclear=fates.unclear), most)
    for batch in ledger.marks.read(statuses=["MARKED", "SWEEPING"], due_by=until):
        table = pa.Table.from_batches([batch]).select(_COLUMNS)
        about = frozenset(datasets.select(table["dataset"].unique().to_pylist()))
        for row in table.to_pylist():
            fate = fates.of(row)
            if row["dataset"] in about and fate.spared is None and fate.at <= until:
                found.add({**row, "due_at": fate.at}, fate.hold)
        found.cut()
    return found.total()


@dataclass
class _Sums:
    """Sums that grow."""

    empty: Upcoming
    most: int
    datasets: dict[str, UpcomingDataset] = field(default_factory=dict)
    days: dict[date | None, tuple[int, int | None]] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    first: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: dict[str, Any], holder: str | None) -> None:
        """Count a mark."""
        if holder is not None:
            self.held[holder] = self.held.get(holder, 0) + 1
            return
        due, size = row["due_at"], row["bytes"]
        of_dataset = self.datasets.setdefault(row["dataset"], UpcomingDataset(row["dataset"]))
        of_dataset.transactions += 1
        of_dataset.bytes = _plus(of_dataset.bytes, size)
        of_dataset.first_due = min(due, of_dataset.first_due or due)
        of_dataset.policies.add(row["policy"])
        day = None if row["status"] == "SWEEPING" or due <= self.empty.as_of else due.astimezone(UTC).date()
        count, total = self.days.get(day, (0, None))
        self.days[day] = (count + 1, _plus(total, size))
        self.first.append(row)

    def cut(self) -> None:
        """Keep no more rows than are shown."""
        self.first = nsmallest(self.most, self.first, key=lambda row: (row["due_at"], row["dataset"], row["transaction"]))

    def total(self) -> Upcoming:
        """What was added up."""
        return replace(
            self.empty,
            datasets=tuple(sorted(self.datasets.values(), key=lambda one: (-(one.bytes or 0), -one.transactions, one.dataset))),
            days=tuple(self._days()),
            first=tuple(self.first),
            held=dict(sorted(self.held.items())),
        )

    def _days(self) -> Iterator[tuple[date | None, int, int | None]]:
        for day in sorted(self.days, key=lambda one: one or date.min):
            yield (day, *self.days[day])


def _plus(total: int | None, size: int | None) -> int | None:
    """A sum of what is known."""
    return total if size is None else (total or 0) + size
