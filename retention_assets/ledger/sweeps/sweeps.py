"""A sweep's reads and writes in the ledger.

In order: settle what is `left` by an earlier sweep, `spare` what is no longer justified, `plan` the rest; per batch `begin`,
let the store delete, `settle`; then `finish`. The note by which the store finds a transaction again is in the plan before
anything begins.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import case, func, null, or_, select, text

from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.marks.marking import MARK_ROWS, Marks
from retention_assets.ledger.marks.steps import by_id
from retention_assets.ledger.schema import MARKS, OPEN, PLANNED, PLANS, SWEPT, TIMES
from retention_assets.ledger.sweeps.leases import Lease
from retention_assets.ledger.sweeps.parts import ALL_NAMES, NameRange
from retention_assets.ledger.sweeps.writes import (
    Moved,
    Plan,
    Planned,
    Plans,
    Settlement,
    begin_marks,
    finish_plans,
    settle_marks,
    spare_marks,
    write_plans,
)
from retention_assets.sql.streams import numbers_of, stream
from retention_assets.sql.transactions import portions

PLANNED_ROWS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("transaction", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("note", pa.string()),
    ]
)

_NAMES = pa.schema([PLANNED_ROWS.field("transaction")])
CONCERNED_ROWS = pa.schema([MARK_ROWS.field(name) for name in ("dataset", "transaction")])
# Columns that determine a transaction's class. Few datasets and states occur among many marks.
_WORD = pa.dictionary(pa.int32(), pa.string())
CLASSED_ROWS = pa.schema(
    [
        pa.field("dataset", _WORD),
        *(MARK_ROWS.field(name) for name in ("transaction", *TIMES)),
        pa.field("status", _WORD),
        # 1 or 0: returning an instant per mark takes twice the time.
        pa.field("is_due", pa.int8()),
    ]
)


@dataclass(frozen=True)
class Sweeps:
    """The sweeps of a ledger. Every write needs the lease of the dataset and is refused without it."""

    database: LedgerDatabase

    def left(self, datasets: str | Collection[str], names: NameRange = ALL_NAMES) -> pa.Table:
        """Marks that an earlier sweep began and did not settle, with note, place and bytes of their plan: they may be gone."""
        left = names.of(Marks(self.database).table([datasets] if isinstance(datasets, str) else datasets, ["SWEEPING"]))
        ids = left["id"].to_pylist()
        notes, plans = self.notes(ids), self._plans(ids)
        left = left.append_column("note", pa.array([notes.get(mark) for mark in ids], pa.string()))
        known = [plans.get(mark, (None, None)) for mark in ids]
        left = left.append_column("place", pa.array([place for place, _ in known], pa.string()))
        return left.append_column("planned", pa.array([planned for _, planned in known], pa.int64()))

    def amounts(self, datasets: Collection[str], as_of: datetime) -> dict[str, int]:
        query = select(MARKS.c.dataset, func.count()).group_by(MARKS.c.dataset)
        query = query.where(text(OPEN), or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= as_of))
        found: dict[str, int] = {}
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                found |= {row[0]: row[1] for row in connection.execute(query.where(MARKS.c.dataset.in_(some)))}
        return found

    def due(self, datasets: Collection[str], as_of: datetime, names: NameRange = ALL_NAMES) -> npt.NDArray[np.int64]:
        query = select(MARKS.c.id).where(text(OPEN), MARKS.c.status == "MARKED", MARKS.c.due_at <= as_of, names.condition())
        found = [np.empty(0, np.int64)]
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                mine = query.where(MARKS.c.dataset.in_(some))
                # Sorting one dataset's ids here takes a tenth of the database's time.
                if len(some) == 1:
                    found.append(np.sort(numbers_of(connection, mine)))
                else:
                    found.append(numbers_of(connection, mine.order_by(MARKS.c.dataset, MARKS.c.id)))
        return np.concatenate(found)

    def concerned(self, datasets: Collection[str], as_of: datetime, names: NameRange = ALL_NAMES) -> pa.Table:
        query = select(MARKS.c.dataset, MARKS.c.transaction).distinct()
        query = query.where(text(OPEN), or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= as_of), names.condition())
        parts: list[pa.RecordBatch] = []
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                parts += stream(connection, query.where(MARKS.c.dataset.in_(some)), CONCERNED_ROWS)
        return pa.Table.from_batches(parts, CONCERNED_ROWS).sort_by([("dataset", "ascending"), ("transaction", "ascending")])

    def concerned_names(self, datasets: Collection[str], as_of: datetime) -> Iterator[pa.RecordBatch]:
        """Names of due or begun marks, unsorted and possibly repeated."""
        query = select(MARKS.c.transaction)
        query = query.where(text(OPEN), or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= as_of))
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                yield from stream(connection, query.where(MARKS.c.dataset.in_(some)), _NAMES)

    def due_rows(self, ids: Sequence[int]) -> pa.Table:
        columns = [MARKS.c[name] for name in MARK_ROWS.names]
        parts: list[pa.RecordBatch] = []
        with self.database.reading() as connection:
            for where in by_id(connection, ids, MARKS.c.status == "MARKED"):
                parts += stream(connection, select(*columns).where(where), MARK_ROWS)
        return pa.Table.from_batches(parts, MARK_ROWS).sort_by([("dataset", "ascending"), ("id", "ascending")])

    def classed(self, datasets: Collection[str], as_of: datetime) -> pa.Table:
        """Open and swept marks with their class columns. Only swept marks have times: an open mark blocks its id."""
        parts: list[pa.RecordBatch] = []
        is_due = case((MARKS.c.due_at <= as_of, 1), else_=0).label("is_due")
        times = {name: null().label(name) for name in TIMES}
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                # One query per partial index, with the exact text of its condition.
                for condition, others in ((OPEN, times), (SWEPT, {})):
                    found = {**MARKS.c, **others, "is_due": is_due}
                    query = select(*(found[name] for name in CLASSED_ROWS.names))
                    parts += stream(connection, query.where(text(condition), MARKS.c.dataset.in_(some)), CLASSED_ROWS)
        return pa.Table.from_batches(parts, CLASSED_ROWS).unify_dictionaries()

    def notes(self, marks: Iterable[int]) -> dict[int, str]:
        """Newest note of each mark in any plan: the store needs it to find the transaction again."""
        query = select(PLANNED.c.mark, PLANNED.c.note).join(PLANS, PLANS.c.id == PLANNED.c.plan)
        query = query.where(PLANNED.c.note.is_not(None)).order_by(PLANS.c.planned_at)
        found: dict[int, str] = {}
        with self.database.reading() as connection:
            for where in by_id(connection, marks, column=PLANNED.c.mark):
                found |= {row.mark: row.note for row in connection.execute(query.where(where))}
        return found

    def _plans(self, marks: Sequence[int]) -> dict[int, tuple[str | None, int | None]]:
        query = select(PLANNED.c.mark, PLANS.c.place, PLANNED.c.bytes).join(PLANS, PLANS.c.id == PLANNED.c.plan)
        query = query.order_by(PLANS.c.planned_at)
        found: dict[int, tuple[str | None, int | None]] = {}
        with self.database.reading() as connection:
            for where in by_id(connection, marks, column=PLANNED.c.mark):
                found |= {row.mark: (row.place, row.bytes) for row in connection.execute(query.where(where))}
        return found

    def spare(self, leases: Collection[Lease], reasons: Mapping[int, str], execution_date: date | None = None) -> Moved:
        """Spare unjustified marks unless they were unmarked."""
        return self.database.write(lambda tx: spare_marks(tx, leases, reasons, execution_date))

    def plan(
        self, leases: Collection[Lease], marks: Mapping[int, Planned], as_of: datetime, places: Mapping[str, str | None]
    ) -> Plans:
        """Record what is about to be deleted, and its place by dataset: those of the marks that are MARKED and due."""
        return self.database.write(lambda tx: write_plans(tx, leases, marks, as_of, places))

    def planned(self, plan: Plan) -> pa.Table:
        columns = (MARKS.c.id, MARKS.c.transaction, MARKS.c.reason, PLANNED.c.bytes, PLANNED.c.note)
        query = select(*columns).join(PLANNED, PLANNED.c.mark == MARKS.c.id)
        query = query.where(PLANNED.c.plan == plan.id, MARKS.c.status == "MARKED").order_by(MARKS.c.id)
        with self.database.reading() as connection:
            return pa.Table.from_batches(stream(connection, query, PLANNED_ROWS), PLANNED_ROWS)

    def begin(self, leases: Collection[Lease], plans: Collection[Plan], marks: Iterable[int]) -> Moved:
        """Return the marks of a batch that may now be deleted; those unmarked meanwhile are left out."""
        wanted = sorted(set(marks))
        return self.database.write(lambda tx: begin_marks(tx, leases, plans, wanted))

    def settle(self, leases: Collection[Lease], settlements: Sequence[Settlement], execution_date: date | None = None) -> Moved:
        """Record outcomes and count them in a day's reports, in one transaction.

        A failed mark is MARKED again with one more attempt. Settling again what is settled counts nothing twice.
        """
        by_mark = {one.mark: one for one in settlements}
        return self.database.write(lambda tx: settle_marks(tx, leases, by_mark, execution_date))

    def finish(self, leases: Collection[Lease], plans: Collection[Plan]) -> Mapping[str, str]:
        """Finish plans: each of their marks was begun, or will not be. Returns why leases are lost, by dataset."""
        return self.database.write(lambda tx: finish_plans(tx, leases, plans))
