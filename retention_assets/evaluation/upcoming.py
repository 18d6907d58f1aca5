"""Deletions of the coming days: open marks by due day and dataset, without what a hold keeps.

The sweep checks each of them again and may spare it; sweep/dry_run.py does that for what is due already.
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
    """Transactions of one dataset that go."""

    dataset: str
    transactions: int = 0
    # None where the store knows no sizes
    bytes: int | None = None
    first_due: datetime | None = None
    policies: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Upcoming:
    """Transactions that go until an instant. `held` are due as well but stay, by the names of the holds that keep them."""

    as_of: datetime
    until: datetime
    # largest first
    datasets: tuple[UpcomingDataset, ...] = ()
    # UTC due day (None: due already), transactions, bytes
    days: tuple[tuple[date | None, int, int | None], ...] = ()
    # some of the transactions, in the order in which they fall due
    first: tuple[dict[str, Any], ...] = ()
    held: dict[str, int] = field(default_factory=dict)
    # holds that ask for attributes, which only a log has: they were not applied
    unclear: tuple[str, ...] = ()
    # reason why nothing is known
    note: str | None = None

    @property
    def transactions(self) -> int:
        return sum(one.transactions for one in self.datasets)

    @property
    def bytes(self) -> int | None:
        """Sum of the known sizes; None where none is known."""
        known = [one.bytes for one in self.datasets if one.bytes is not None]
        return sum(known) if known or not self.datasets else None


def upcoming(ledger: Ledger, fates: Fates, as_of: datetime, days: int, datasets: DatasetFilter, most: int) -> Upcoming:
    """Add up the open marks that are due within some days, and list the first `most`."""
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
    """Running sums."""

    empty: Upcoming
    most: int
    datasets: dict[str, UpcomingDataset] = field(default_factory=dict)
    days: dict[date | None, tuple[int, int | None]] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    first: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: dict[str, Any], holder: str | None) -> None:
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
        self.first = nsmallest(self.most, self.first, key=lambda row: (row["due_at"], row["dataset"], row["transaction"]))

    def total(self) -> Upcoming:
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
    return total if size is None else (total or 0) + size
