"""The re-check of marks whose transactions share data: what would lose nothing, what waits, and what goes in one batch.

A mark is needed by what is retained, never by what is marked itself: two marks that share their only file would spare each
other for ever. It waits for the last of them instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, keys_of
from retention_assets.frames.log import KNOWN_ROWS, LIVING, is_in_log, known_rows
from retention_assets.frames.verdicts.shared_data import SharedData
from retention_assets.ledger import Ledger
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import minute_in_utc


@dataclass(frozen=True)
class SharedMarks:
    """Rows of a log that is checked, with their marks. Each mask is by row."""

    shared: SharedData
    # retained by holds, retain rules, branches, tags or windows
    protected: Bools
    is_aside: Bools
    # set aside by this sweep if they go, and begun by an earlier one
    has_undo: Bools
    is_begun: Bools
    # when what is marked is due, and until when what is set aside stays, by dataset and transaction
    dues: Mapping[tuple[str, str], datetime]
    datasets: pa.Array

    def check(self, going: Bools, in_trash: bool) -> "SharedFates":
        """Say what becomes of the rows that go now, all of them in sight or all of them in the trash."""
        shared, marked = self.shared, self.shared.marked
        needing = (shared.retained(going, self.protected, self.is_aside) | (marked & in_trash)) & ~going
        needed = going & ~shared.frees(needing)
        rest = going & ~needed
        others = needing | (marked & ~rest)
        # what is set aside keeps its data from being deleted, not from being set aside
        all_others = others | (self.is_aside & ~rest)
        frees = shared.frees(all_others)
        waits = rest & ~self.is_begun & ~(frees | (self.has_undo & shared.frees(others)))
        go = rest & ~waits
        rows = np.flatnonzero(go).tolist()
        groups = dict(zip(rows, shared.groups(others, go).tolist(), strict=True))
        at_needed, at_waits = np.flatnonzero(needed), np.flatnonzero(waits)
        return SharedFates(
            dict(zip(at_needed.tolist(), shared.needers(needing, at_needed), strict=True)),
            dict(zip(at_waits.tolist(), self._waiting(all_others, at_waits), strict=True)),
            groups,
        )

    def _waiting(self, others: Bools, at: Ints) -> Iterator[str]:
        for holders in self.shared.holders(others, at):
            yield f"It waits for {' and '.join(map(self._name, holders))}, with which it shares all of its data."

    def _name(self, row: int) -> str:
        due = self.dues.get((self.datasets[row].as_py(), self.shared.transactions[row].as_py()))
        return f"{self.shared.name(row)}{f' (due {minute_in_utc(due)})' if due else ''}"


@dataclass(frozen=True)
class SharedFates:
    """By row: who needs all of its data, what it waits for, or the number of the group with which it goes."""

    needed: Mapping[int, str]
    waits: Mapping[int, str]
    groups: Mapping[int, int]


@dataclass(frozen=True)
class KnownMarks:
    """Open, swept and set aside marks of datasets. `real`: the real ledger in a rehearsal."""

    known: pa.Table
    marks: pa.Table
    asides: pa.Table

    @classmethod
    def of(cls, ledger: Ledger, real: Ledger | None, datasets: Sequence[str]) -> "KnownMarks":
        marks = ledger.marks.table(datasets)
        tables, asides = [marks], [_asides(ledger, datasets)]
        if real is not None:
            # the copy has what is due, and knows better what has become of it
            earlier = real.marks.table(datasets, LIVING)
            tables.append(earlier.filter(pc.invert(pc.is_in(earlier["id"], value_set=marks["id"].combine_chunks()))))
            asides.append(_asides(real, datasets))
        every = pa.concat_tables(tables)
        living = every.filter(pc.is_in(every["status"], value_set=pa.array(LIVING)))
        known = pa.Table.from_batches(known_rows(living.to_batches()), KNOWN_ROWS)
        return cls(known, living, pa.concat_tables(asides))

    def of_rows(self, log: pa.Table, datasets: pa.Table) -> SharedData | None:
        return SharedData.of(log, datasets, self.known)

    def asides_in(self, log: pa.Table) -> Bools:
        asides = self.asides.filter(pa.array(is_in_log(self.asides, log), pa.bool_()))
        return flags(pc.is_in(keys_of(log), value_set=keys_of(asides)))

    def dues(self) -> dict[tuple[str, str], datetime]:
        rows = self.marks.filter(pc.not_equal(self.marks["status"], "SWEPT")).select(["dataset", "transaction", "due_at"])
        return {(row["dataset"], row["transaction"]): row["due_at"] for row in rows.to_pylist()}


def _asides(ledger: Ledger, datasets: Sequence[str]) -> pa.Table:
    swept = ledger.marks.swept(datasets)
    return swept.filter(pc.equal(swept["outcome"], Outcome.SET_ASIDE))
