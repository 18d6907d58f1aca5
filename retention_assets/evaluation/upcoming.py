"""Deletions of the coming days: open marks by due day and dataset, without what a hold keeps.

The sweep checks each of them again and may spare it; sweep/dry_run.py does that for what is due already.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
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

    def add(self, row: Mapping[str, Any], due: datetime) -> None:
        self.transactions += 1
        self.bytes = _plus(self.bytes, row["bytes"])
        self.first_due = min(due, self.first_due or due)
        self.policies.add(row["policy"])


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
        sizes = [one.bytes for one in self.datasets if one.bytes is not None]
        return sum(sizes) if sizes or not self.datasets else None


def upcoming(ledger: Ledger, fates: Fates, as_of: datetime, days: int, datasets: DatasetFilter, most: int) -> Upcoming:
    """Add up the open marks that are due within some days, and list the first `most`."""
    until = as_of + timedelta(days=days)
    sums, by_day, held = dict[str, UpcomingDataset](), dict[date | None, tuple[int, int | None]](), Counter[str]()
    first: list[dict[str, Any]] = []
    for batch in ledger.marks.read(statuses=["MARKED", "SWEEPING"], due_by=until):
        table = pa.Table.from_batches([batch]).select(_COLUMNS)
        about = frozenset(datasets.select(table["dataset"].unique().to_pylist()))
        for row in table.to_pylist():
            fate = fates.of(row)
            if row["dataset"] not in about or fate.spared is not None or fate.at > until:
                continue
            if fate.hold is not None:
                held[fate.hold] += 1
                continue
            sums.setdefault(row["dataset"], UpcomingDataset(row["dataset"])).add(row, fate.at)
            is_due = row["status"] == "SWEEPING" or fate.at <= as_of
            day = None if is_due else fate.at.astimezone(UTC).date()
            count, size = by_day.get(day, (0, None))
            by_day[day] = count + 1, _plus(size, row["bytes"])
            first.append({**row, "due_at": fate.at})
        first = nsmallest(most, first, key=lambda row: (row["due_at"], row["dataset"], row["transaction"]))
    return Upcoming(
        as_of,
        until,
        tuple(sorted(sums.values(), key=lambda one: (-(one.bytes or 0), -one.transactions, one.dataset))),
        tuple((day, *by_day[day]) for day in sorted(by_day, key=lambda day: day or date.min)),
        tuple(first),
        dict(sorted(held.items())),
        fates.unclear,
    )


def _plus(total: int | None, size: int | None) -> int | None:
    return total if size is None else (total or 0) + size
