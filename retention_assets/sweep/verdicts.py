"""Verdicts of rules on the rows of a log, and of the re-check on the marks that are looked up among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import Ints, join_chunks, keys_of
from retention_assets.frames.log import TIMES
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.ledger.stores import StorePlace
from retention_assets.stores.protocol import is_same_place

# sets of rules whose verdicts on a log are kept; each takes some 20 bytes a row
_VERDICTS_KEPT = 4


@dataclass
class JudgedRows:
    """Rows of datasets of a log, with cached verdicts of rules. The cache key holds everything a verdict depends on: these very
    rows, the rules with their holds, and the instant.
    """

    rows: pa.Table
    datasets: pa.Table
    _judged: list[tuple[RulesInForce, datetime, pa.Table]] = field(default_factory=list)

    def verdicts(self, rules: RulesInForce, as_of: datetime) -> pa.Table:
        """Verdict and reasons of each row, in the order of the rows."""
        for judged_rules, at, verdicts in self._judged:
            if at == as_of and judged_rules == rules:
                return verdicts
        verdicts = candidate_marks(self.rows, self.datasets, rules.policies, rules.holds, as_of)
        verdicts = verdicts.select(["verdict", "reasons", "policy"])
        self._judged = [(rules, as_of, verdicts), *self._judged[: _VERDICTS_KEPT - 1]]
        return verdicts

    def with_times(self, marks: pa.Table, positions: Ints) -> "JudgedRows":
        """Give rows the times of the marks at their positions: a restored object is as old as the deleted one."""
        rows, at = self.rows, pc.index_in(pa.array(np.arange(len(self.rows))), value_set=pa.array(positions))
        for name in TIMES:
            times = join_chunks(marks[name]).cast(rows.schema.field(name).type).take(at)
            rows = rows.set_column(rows.column_names.index(name), name, pc.if_else(pc.is_valid(at), times, rows[name]))
        return JudgedRows(rows, self.datasets)

    def positions(self, marks: pa.Table) -> Ints:
        """Return for each mark the row of its transaction, -1 without one."""
        keys = self._keys_of(marks)
        # hash the few, look up the many
        at = pc.index_in(self._keys, value_set=keys)
        rows = np.full(len(keys), -1, dtype=np.int64)
        rows[np.asarray(at.drop_null())] = np.flatnonzero(np.asarray(pc.is_valid(at)))
        # two marks of one transaction both get its row
        positions: Ints = rows[np.asarray(pc.index_in(keys, value_set=keys))]
        return positions

    @cached_property
    def _keys(self) -> pa.Array:
        return self._keys_of(self.rows)

    def _keys_of(self, table: pa.Table) -> pa.Array:
        # within one dataset the transaction is the key, without a copy
        return join_chunks(table["transaction"]) if len(self.datasets) == 1 else keys_of(table)


def rows_with(code: str, reasons: pa.ChunkedArray) -> Ints:
    lists = join_chunks(reasons)
    codes = pc.struct_field(pc.list_flatten(lists), "code").cast(pa.string())
    return np.unique(np.asarray(pc.list_parent_indices(lists).filter(pc.equal(codes, code)))).astype(np.int64)


def marked_elsewhere(places: Sequence[StorePlace], marks: pa.Table) -> dict[int, str]:
    by_store: dict[str, list[StorePlace]] = {}
    for row in places:
        by_store.setdefault(row.store, []).append(row)
    spared: dict[int, str] = {}
    for store, own in by_store.items():
        is_elsewhere = False
        for row, following in reversed([*pairwise(own)]):
            is_elsewhere = is_elsewhere or not is_same_place(row.place, following.place)
            if not is_elsewhere:
                continue
            begun = pc.and_(pc.greater_equal(marks["id"], row.first_mark), pc.less(marks["id"], following.first_mark))
            ids = marks.filter(pc.and_(begun, pc.starts_with(marks["dataset"].cast(pa.string()), f"{store}/")))["id"]
            why = f"It was marked when the data of {store} was at {row.place}, before it was accepted at {following.place}."
            spared |= dict.fromkeys(ids.to_pylist(), why)
    return spared


class Fate(Enum):
    GOES = auto()
    # justified, but not now: its grace is longer today, nobody has confirmed it, or its store can't do what its policy asks for
    STAYS = auto()
    SPARED = auto()
    # of what is set aside: not deleted for good, or brought back
    KEPT = auto()
    COMES_BACK = auto()
    # for others with which it shares all of its data
    WAITS = auto()


class Verdict(NamedTuple):
    fate: Fate
    why: str = ""
    # of what goes: from a latest view, where its policy may select
    in_latest_view: bool = False
    # ended branches and tags on it that its policy drops with it
    ended_refs: tuple[str, ...] = ()
    # where transactions share data, the first of those that go together
    together: int | None = None


@dataclass(frozen=True)
class Verdicts:
    by_mark: Mapping[int, Verdict] = field(default_factory=dict)

    def __or__(self, newer: "Verdicts") -> "Verdicts":
        """Replace the verdicts of marks that were asked about again."""
        return Verdicts({**self.by_mark, **newer.by_mark})

    def reasons(self, *fates: Fate) -> dict[int, str]:
        return {mark: verdict.why for mark, verdict in self.by_mark.items() if verdict.fate in fates}

    @cached_property
    def go(self) -> frozenset[int]:
        return frozenset(self.reasons(Fate.GOES))

    @cached_property
    def spared(self) -> dict[int, str]:
        return self.reasons(Fate.SPARED)

    @cached_property
    def back(self) -> dict[int, str]:
        return self.reasons(Fate.COMES_BACK)


def verdicts_of(fate: Fate, reasons: Mapping[int, str]) -> dict[int, Verdict]:
    return {mark: Verdict(fate, why) for mark, why in reasons.items()}
