"""A sweep's reads and writes in the ledger.

In order: settle what is `left` by an earlier sweep, `spare` what is no longer justified, `plan` the rest; per batch `begin`,
let the store delete, `settle`; then `finish`. The note by which the store finds a transaction again is in the plan before
anything begins.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import case, func, null, select, text

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import WriteTransaction, audited
from retention_assets.ledger.marks.marking import MARK_ROWS, Marks
from retention_assets.ledger.marks.steps import by_id, to_sweep_by
from retention_assets.ledger.schema import MARKS, OPEN, PLANNED, PLANS, SWEPT, TIMES
from retention_assets.ledger.sweeps.parts import ALL_NAMES, NameRange
from retention_assets.ledger.sweeps.writes import SweepWrites
from retention_assets.policy.durations import text_of
from retention_assets.sql.streams import numbers_of, stream
from retention_assets.sql.transactions import portions

_NAMES = pa.schema([MARK_ROWS.field("transaction")])
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


class Sweeps(SweepWrites):
    """The sweeps of a ledger."""

    def left(self, datasets: Collection[str], names: NameRange = ALL_NAMES) -> pa.Table:
        """Marks that an earlier sweep began and did not settle, with note, place and bytes of their plan: they may be gone."""
        left = names.of(Marks(self.database).table(datasets, ["SWEEPING"]))
        ids = left["id"].to_pylist()
        plans = self._plans(ids)
        for at, (name, kind) in enumerate({"note": pa.string(), "place": pa.string(), "planned": pa.int64()}.items()):
            left = left.append_column(name, pa.array([plans[mark][at] if mark in plans else None for mark in ids], kind))
        return left

    def amounts(self, datasets: Collection[str], as_of: datetime) -> dict[str, int]:
        query = select(MARKS.c.dataset, func.count()).where(to_sweep_by(as_of)).group_by(MARKS.c.dataset)
        return dict(self.rows_among(query, MARKS.c.dataset, datasets))

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
        query = select(MARKS.c.dataset, MARKS.c.transaction).distinct().where(to_sweep_by(as_of), names.condition())
        rows = pa.Table.from_batches(self.streamed([query], MARKS.c.dataset, datasets, CONCERNED_ROWS), CONCERNED_ROWS)
        return rows.sort_by([("dataset", "ascending"), ("transaction", "ascending")])

    def concerned_names(self, datasets: Collection[str], as_of: datetime) -> Iterator[pa.RecordBatch]:
        """Names of due or begun marks, unsorted and possibly repeated."""
        query = select(MARKS.c.transaction).where(to_sweep_by(as_of))
        return self.streamed([query], MARKS.c.dataset, datasets, _NAMES)

    def due_rows(self, ids: Sequence[int]) -> pa.Table:
        columns = [MARKS.c[name] for name in MARK_ROWS.names]
        parts: list[pa.RecordBatch] = []
        with self.database.reading() as connection:
            for where in by_id(connection, ids, MARKS.c.status == "MARKED"):
                parts += stream(connection, select(*columns).where(where), MARK_ROWS)
        return pa.Table.from_batches(parts, MARK_ROWS).sort_by([("dataset", "ascending"), ("id", "ascending")])

    def classed(self, datasets: Collection[str], as_of: datetime) -> pa.Table:
        """Open and swept marks with their class columns. Only swept marks have times: an open mark blocks its id."""
        columns = {**MARKS.c, "is_due": case((MARKS.c.due_at <= as_of, 1), else_=0).label("is_due")}
        no_times = {name: null().label(name) for name in TIMES}
        # One query per partial index, with the exact text of its condition.
        queries = [
            select(*((columns | times)[name] for name in CLASSED_ROWS.names)).where(text(condition))
            for condition, times in ((OPEN, no_times), (SWEPT, {}))
        ]
        batches = self.streamed(queries, MARKS.c.dataset, datasets, CLASSED_ROWS)
        return pa.Table.from_batches(batches, CLASSED_ROWS).unify_dictionaries()

    def notes(self, marks: Iterable[int]) -> dict[int, str]:
        """Newest note of each mark in any plan: the store needs it to find the transaction again."""
        return {mark: note for mark, (note, *_) in self._plans(marks).items() if note is not None}

    def _plans(self, marks: Iterable[int]) -> dict[int, tuple[str | None, str | None, int | None]]:
        """Newest note of each planned mark, and place and bytes in its newest plan."""
        query = select(PLANNED.c.mark, PLANNED.c.note, PLANS.c.place, PLANNED.c.bytes).join(PLANS, PLANS.c.id == PLANNED.c.plan)
        found: dict[int, tuple[str | None, str | None, int | None]] = {}
        with self.database.reading() as connection:
            for where in by_id(connection, marks, column=PLANNED.c.mark):
                for mark, note, place, size in connection.execute(query.where(where).order_by(PLANS.c.planned_at)):
                    found[mark] = (found[mark][0] if note is None and mark in found else note, place, size)
        return found

    @audited
    def postpone(
        self, tx: WriteTransaction, dataset: str, transactions: Sequence[str], within: datetime, until: datetime, actor: str
    ) -> None:
        """Record, before it is done, that transactions that would expire `within` an instant stay `until` another."""
        names = json.dumps(sorted(transactions), ensure_ascii=False).encode(errors="surrogatepass")
        detail = {
            "transactions": len(transactions),
            "digest": hashlib.sha256(names).hexdigest(),
            "within": text_of(within),
            "until": text_of(until),
        }
        act = Act(ActType.POSTPONE, actor, "They are unfinished, not archived, or held.", dataset, detail=detail)
        tx.record(act)
