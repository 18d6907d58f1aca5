"""Sums transactions with their bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from retention_assets.frames.log import sums_by
from retention_assets.policy.sizes import size_of


@dataclass(frozen=True)
class Amount:
    transactions: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.transactions + other.transactions, self.bytes + other.bytes)

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def text(self, none: str = "") -> str:
        return f"{self.transactions:,} ({size_of(self.bytes)})" if self.transactions else none


NOTHING = Amount()


def amounts_by(rows: pa.Table, columns: Sequence[str]) -> dict[tuple[str, ...], Amount]:
    """Sum rows by some columns, sorted."""
    if not len(rows):
        return {}
    sums = sums_by(rows, columns)
    return dict(sorted((tuple(row[name] for name in columns), Amount(row["transactions"], row["bytes"])) for row in sums))


def amount_of(rows: pa.Table) -> Amount:
    return amounts_by(rows, ()).get((), NOTHING)
