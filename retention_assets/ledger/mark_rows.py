"""Rows of marks: each column by its name, with one type, and one reader of them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    and_,
    case,
    func,
    or_,
    select,
    text,
    true,
)

from retention_assets.ledger.database import LedgerPart
from retention_assets.ledger.leases import ALL_NAMES, NameRange
from retention_assets.ledger.schema import ASIDE, MARKS, OPEN, OVER, SWEPT, TIMES
from retention_assets.ledger.steps import BEGUN_REPLAYS, IS_BEGUN, SHOWN, SHOWN_MARKS, by_id, is_to_sweep_by
from retention_assets.sql.columns import InstantColumn, MicrosColumn
from retention_assets.sql.streams import stream

INSTANT = pa.timestamp("us", tz="UTC")
_ARROW = {BigInteger: pa.int64(), Integer: pa.int32(), InstantColumn: INSTANT, MicrosColumn: INSTANT}
_UNREAD = ("changed_act", "outcome", "freed", "end_seal", "until")
# every column of a mark, and those that most readers need
MARK_ROW = pa.schema([(column.name, _ARROW.get(type(column.type), pa.string())) for column in MARKS.columns])
MARK_ROWS = pa.schema([field for field in MARK_ROW if field.name not in _UNREAD])
OPENED = ("MARKED", "SWEEPING")
STATUSES = ("MARKED", "SWEEPING", "SWEPT", "UNMARKED", "SPARED", "RESTORED")
# tell the life of a transaction and its end
OUTCOMES = ("id", "dataset", "transaction", *TIMES, "outcome")


class Asked(TypedDict, total=False):
    # only hidden ones in these stores are left out
    hidden_again: Collection[str]
    # due by then, begun, set aside, or being replayed
    to_sweep_by: datetime
    names: NameRange
    columns: Sequence[str]
    # at most so many, those that are due first
    first: int


class MarkReader(LedgerPart):
    """Reads marks as people see them, in one consistent state."""

    def read(
        self,
        datasets: Iterable[str] | None = None,
        statuses: Iterable[str] | None = None,
        due_by: datetime | None = None,
        **asked: Unpack[Asked],
    ) -> Iterator[pa.RecordBatch]:
        """Stream marks. Those of named datasets are in the order of their ids, if these are among the columns."""
        columns, to_sweep_by = asked.get("columns", MARK_ROWS.names), asked.get("to_sweep_by")
        query = _select(columns).where(asked.get("names", ALL_NAMES).condition())
        query = query if due_by is None else query.where(MARKS.c.due_at <= due_by)
        if "first" in asked:
            query = query.order_by(MARKS.c.due_at, MARKS.c.dataset, MARKS.c.transaction).limit(asked["first"])
        if hidden_again := asked.get("hidden_again"):
            query = query.where(~only_hidden(MARKS, hidden_again))
        if datasets is not None and "id" in columns:
            query = query.order_by(MARKS.c.dataset, MARKS.c.id)
        # One query per partial index: a combined one would use none.
        states = _states(statuses)
        if to_sweep_by is not None:
            is_aside, is_replayed = and_(text(f"marks.{ASIDE}")), MARKS.c.id.in_(select(BEGUN_REPLAYS.c.mark))
            states = [is_to_sweep_by(to_sweep_by), is_aside, is_replayed]
        return self.streamed([query.where(state) for state in states], MARKS.c.dataset, datasets, schema_of(columns))

    def table(
        self,
        datasets: Iterable[str] | None = None,
        statuses: Iterable[str] | None = None,
        due_by: datetime | None = None,
        **asked: Unpack[Asked],
    ) -> pa.Table:
        schema = schema_of(asked.get("columns", MARK_ROWS.names))
        return pa.Table.from_batches(self.read(datasets, statuses, due_by, **asked), schema)

    def swept(self, datasets: Iterable[str]) -> pa.Table:
        """Read the swept marks of datasets with their outcomes, also of lives that are over."""
        return self.table(datasets, ["SWEPT"], columns=OUTCOMES)

    def by_ids(
        self, ids: Iterable[int], statuses: Iterable[str] | None = None, columns: Sequence[str] = MARK_ROWS.names
    ) -> pa.Table:
        is_wanted = true() if statuses is None else SHOWN["status"].in_(sorted(statuses))
        with self.database.reading() as connection:
            return _by_ids(connection, ids, _select(columns).where(is_wanted), columns)


def begun_by_ids(connection: Connection, ids: Iterable[int], where: ColumnElement[bool]) -> pa.Table:
    """Read marks that are known to be begun or set aside; joined to batches, PostgreSQL may compare each mark with each."""
    columns = {**MARKS.c, "status": case((text(OPEN), "SWEEPING"), else_=MARKS.c.status).label("status")}
    query = select(*(columns[name] for name in MARK_ROWS.names)).where(where)
    return _by_ids(connection, ids, query, MARK_ROWS.names)


def _by_ids(connection: Connection, ids: Iterable[int], query: Select[Any], columns: Sequence[str]) -> pa.Table:
    # in the order of datasets and ids, if these are among the columns
    schema = schema_of(columns)
    batches = [batch for part in by_id(connection, ids) for batch in stream(connection, query.where(part), schema)]
    rows, order = pa.Table.from_batches(batches, schema), [name for name in ("dataset", "id") if name in columns]
    return rows.sort_by([(name, "ascending") for name in order]) if order else rows


def _select(columns: Sequence[str]) -> Select[Any]:
    return select(*(SHOWN[name] for name in columns)).select_from(SHOWN_MARKS)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([MARK_ROW.field(name) for name in columns])


def _states(statuses: Iterable[str] | None) -> list[ColumnElement[bool]]:
    if statuses is None:
        return [true()]
    wanted, states = set(statuses), list[ColumnElement[bool]]()
    if opened := wanted.intersection(OPENED):
        is_shown = true() if len(opened) == 2 else IS_BEGUN if "SWEEPING" in opened else ~IS_BEGUN
        states.append(and_(text(OPEN), is_shown))
    for condition, own in ((SWEPT, {"SWEPT"}), (OVER, {"UNMARKED", "SPARED", "RESTORED"})):
        if selected := sorted(wanted & own):
            states.append(and_(text(condition), MARKS.c.status.in_(selected)))
    return states


def only_hidden(marks: FromClause, stores: Collection[str]) -> ColumnElement[bool]:
    begins = (f"{store}/" for store in sorted(stores))
    in_stores = or_(*(func.substr(marks.c.dataset, 1, len(begin)) == begin for begin in begins))
    return and_(in_stores, marks.c.outcome.is_not_distinct_from("HIDDEN"))
