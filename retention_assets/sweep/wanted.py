"""Finds in the ledger what a sweep asks of a store that it need not read whole: its transactions and the size of their logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.ledger import Ledger, invariants
from retention_assets.ledger.sweeps.parts import ALL_NAMES, NameRange
from retention_assets.policy.globs import matching
from retention_assets.policy.model import Hold


@dataclass(frozen=True)
class Wanted:
    """Transactions by dataset, the realms being purged, the size of each log when it was last judged, and holds."""

    transactions: Mapping[str, pa.Array]
    purging: frozenset[str]
    sizes: Mapping[str, int]
    # datasets along whose lines a policy counts: what is wanted is judged with the rest of the dataset
    whole: frozenset[str] = frozenset()
    holds: tuple[Hold, ...] = ()

    @classmethod
    def by(cls, ledger: Ledger, datasets: Sequence[str], as_of: datetime, among: NameRange = ALL_NAMES) -> "Wanted":
        """Find what is due of datasets, or of a part of one, and what an earlier sweep has begun."""
        found = ledger.sweeps.concerned(datasets, as_of, among).combine_chunks()
        names, begins = np.unique(np.asarray(found["dataset"].to_pylist(), dtype=object), return_index=True)
        column = pa.concat_arrays(found["transaction"].chunks) if len(found) else pa.array([], pa.string())
        parts = {
            str(name): column.slice(begin, end - begin)
            for name, (begin, end) in zip(names, pairwise([*begins.tolist(), len(found)]), strict=True)
        }
        return cls.of(ledger, {name: parts.get(name, column.slice(0, 0)) for name in datasets}, as_of)

    @classmethod
    def of(cls, ledger: Ledger, transactions: Mapping[str, pa.Array], as_of: datetime | None = None) -> "Wanted":
        """Build it for these very transactions, from the ledger's present state."""
        counts = ledger.evaluations.counts(transactions)
        return cls(
            transactions,
            ledger.realms.purging(),
            {name: sum(one.transactions for one in mine) for name, mine in counts.items()},
            counted_along_lines(ledger, [name for name, asked in transactions.items() if len(asked)]),
            ledger.holds.known(ledger.clock.due_by(as_of)),
        )

    def with_sizes(self, datasets: pa.Table) -> pa.Table:
        """Give each dataset the size of its whole log instead of that of the part that was read."""
        known = zip(datasets["dataset"].to_pylist(), datasets["transactions"].to_pylist(), strict=True)
        sizes = pa.array([max(self.sizes.get(name, 0), read) for name, read in known], pa.int64())
        return datasets.set_column(datasets.column_names.index("transactions"), datasets.schema.field("transactions"), sizes)


def counted_along_lines(ledger: Ledger, datasets: Sequence[str]) -> frozenset[str]:
    """Return the datasets about which a policy may be, in any version, that judges a transaction of a line by the others."""
    with ledger.database.reading() as connection:
        policies = invariants.policies(connection).values()
    globs = [glob for policy in policies if policy.looks_along_lines for glob in policy.datasets.include]
    return frozenset(name for name, counts in zip(datasets, matching(datasets, globs), strict=True) if counts)


def among_asked(rows: pa.Table, asked: Iterable[tuple[str, pa.Array]]) -> pa.Table:
    """Keep the marks that a reading covers: what became due later is left to the next sweep."""
    for name, transactions in asked:
        others = pc.not_equal(rows["dataset"], name)
        rows = rows.filter(pc.or_(others, pc.is_in(rows["transaction"], transactions)))
    return rows
