"""Sum transactions with their bytes, and what they cost by the price table of the settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import store_of
from retention_assets.frames.arrays import keys_of
from retention_assets.frames.log import SUMMED, attribute_of
from retention_assets.settings.sections import Prices

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Costs:
    """Monthly saving, cost of the requests, and charge for early deletion."""

    saved_monthly: float = 0.0
    requests: float = 0.0
    ended_early: float = 0.0

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(**{name: amount + getattr(other, name) for name, amount in vars(self).items()})


@dataclass(frozen=True)
class Amount:
    """Number of transactions, their bytes, and their costs; None where none of them has a price."""

    transactions: int = 0
    bytes: int = 0
    costs: Costs | None = None

    def __add__(self, other: "Amount") -> "Amount":
        costs = [one for one in (self.costs, other.costs) if one]
        return Amount(self.transactions + other.transactions, self.bytes + other.bytes, sum(costs, Costs()) if costs else None)

    def as_dict(self) -> dict[str, Any]:
        """Money is rounded: sums of fractions differ in their last digits."""
        costs = {name: round(value, 6) for name, value in vars(self.costs).items()} if self.costs else {}
        return {"transactions": self.transactions, "bytes": self.bytes, **costs}


NOTHING = Amount()
# columns by which a row is priced, and those of its costs, which are null where it has no price
_PRICED = ("dataset", "transaction", "bytes", "opened_at", "closed_at", "due_at")
_COSTS = tuple(vars(Costs()))


@dataclass(frozen=True)
class PriceFacts:
    """Price table, and the facts in logs that prices depend on: files, and class of storage."""

    prices: Prices
    of_transactions: dict[tuple[str, str], tuple[int | None, str | None]] = field(default_factory=dict)

    def learn(self, log: pa.Table, keys: pa.Array) -> None:
        """Read the facts about some transactions from a log, by their keys."""
        if not self.prices.are_set or not len(log):
            return
        rows = log.filter(pc.is_in(keys_of(log), value_set=keys))
        classes = attribute_of(rows, "storage_class")
        names = zip(rows["dataset"].to_pylist(), rows["transaction"].to_pylist(), strict=True)
        values = zip(rows["files"].to_pylist(), classes.to_pylist(), strict=True)
        self.of_transactions.update(zip(names, values, strict=True))

    def priced(self, rows: pa.Table, at: datetime) -> pa.Table:
        """Add to rows their costs, if deleted when due; those that are due already at `at`."""
        inputs = rows.select(_PRICED).to_pylist() if self.prices.are_set else ()
        costs = [self._costs(row, at) for row in inputs] or [None] * len(rows)
        for name in _COSTS:
            column = pa.array([getattr(cost, name) if cost else None for cost in costs], pa.float64())
            rows = rows.append_column(name, column)
        return rows

    def _costs(self, row: Mapping[str, Any], at: datetime) -> Costs | None:
        # one request per file; per transaction where files were not counted
        files, storage_class = self.of_transactions.get((row["dataset"], row["transaction"]), (None, None))
        price = self.prices.of(store_of(row["dataset"]), storage_class)
        if price is None:
            return None
        since, size = row["closed_at"] or row["opened_at"], row["bytes"] or 0
        ended_early = price.ending_early(size, (max(at, row["due_at"]) - since) / _DAY) if since else 0.0
        return Costs(price.monthly(size), price.deleting(1 if files is None else files), ended_early)


def amounts_by(rows: pa.Table, columns: Sequence[str]) -> dict[tuple[str, ...], Amount]:
    """Sum priced rows by some columns, sorted."""
    if not len(rows):
        return {}
    summed = rows.set_column(rows.column_names.index("bytes"), "bytes", rows["bytes"].cast(SUMMED))
    sums = [("bytes", "sum"), *((name, "sum") for name in _COSTS)]
    amounts = {}
    for row in summed.group_by(list(columns)).aggregate([([], "count_all"), *sums]).to_pylist():
        costs = {name: row[f"{name}_sum"] for name in _COSTS}
        # a row has all of its costs, or none
        priced = Costs(**costs) if None not in costs.values() else None
        amounts[tuple(row[name] for name in columns)] = Amount(row["count_all"], int(row["bytes_sum"] or 0), priced)
    return dict(sorted(amounts.items()))
