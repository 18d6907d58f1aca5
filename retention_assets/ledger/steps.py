"""Steps: transitions of marks, one compare-and-set each. Each leaves a row in `marks` and `steps` and one act for all.

MARKED -> UNMARKED, SPARED, SWEEPING        SWEEPING -> SWEPT, MARKED, SPARED

A SWEEPING mark is SPARED if the store finds, when about to delete, that the transaction is still needed.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Row,
    Select,
    Text,
    TypeDecorator,
    Update,
    and_,
    any_,
    bindparam,
    func,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.types import TypeEngine

from retention_assets.ledger.audit.chain import Act, step_seals
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.schema import MARKS, OPEN, OVER, STEPS, SWEPT
from retention_assets.sql.staging import append_rows
from retention_assets.sql.transactions import portions

TRANSITIONS: Mapping[str, Collection[str]] = {
    "MARKED": ("UNMARKED", "SPARED", "SWEEPING"),
    "SWEEPING": ("SWEPT", "MARKED", "SPARED"),
}


NO_ERROR = "no error was given"


# Mark, status, outcome, bytes, why. A plain tuple, because there are as many as marks.
MarkStep = tuple[int, str, str | None, int | None, str | None]

_COLUMNS = [STEPS.c[name] for name in ("act", "mark", "status", "outcome", "bytes", "why", "seal")]


def move_marks(
    tx: WriteTransaction,
    act: Act,
    before: str,
    after: str,
    where: ColumnElement[bool],
    changes: Mapping[str, Any] | None = None,
) -> dict[int, str]:
    """Move the marks in a state that match; return each moved mark with its dataset.

    Whoever comes second finds another state and moves nothing. Write the steps with `record_steps`. A condition not on ids
    needs `open_marks`, which is indexed.
    """
    matching = and_(MARKS.c.status == before, where)
    if tx.connection.dialect.name == "postgresql":
        tx.connection.execute(_locking(matching))
    act.at = tx.present()
    values = {"changed_at": act.at, "changed_by": act.actor, "changed_act": act.id, **(changes or {})}
    moving = update(MARKS).where(matching).values(status=_allowed(before, after), **values)
    moved = tx.connection.execute(moving.returning(MARKS.c.id, MARKS.c.dataset)).all()
    return {mark: dataset for mark, dataset in moved}  # noqa: C416 - the rows are no pairs to a type checker


def move_ids(
    tx: WriteTransaction,
    act: Act,
    before: str,
    after: str,
    ids: Iterable[int],
    also: ColumnElement[bool],
    parameters: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
) -> list[int]:
    """Move these marks if they are in a state and match; return the moved ids, sorted.

    Normally all move: counting them takes half the time of naming them. The condition must be constant, with `parameters` by
    name: building its statement costs as much as moving some hundred marks.
    """
    name, moved = tx.connection.dialect.name, list[int]()
    # One time for marks and act, so that they can be compared.
    act.at = tx.present()
    changed = {"at": act.at, "actor": act.actor, "number": act.id}
    for part in portions(sorted(set(ids))):
        arguments = {"ids": part, **parameters}
        # Only the holder of the lease moves SWEEPING marks, so they need no lock first.
        if name == "postgresql" and before == "MARKED":
            tx.connection.execute(_locking_ids(name, also), arguments)
        moving = _moving_ids(name, before, after, also)
        amount = tx.connection.execute(moving.values(changes) if changes else moving, {**arguments, **changed}).rowcount
        if amount == len(part):
            moved += part
        elif amount:
            moved += tx.connection.execute(_moved_ids(name), {"ids": part, "number": act.id}).scalars()
    return moved


@cache
def _of_ids(name: str, before: str, also: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(among(name, MARKS.c.id), MARKS.c.status == before, also)


@cache
def _moving_ids(name: str, before: str, after: str, also: ColumnElement[bool]) -> Update:
    changed = {"changed_at": "at", "changed_by": "actor", "changed_act": "number"}
    values = {column: bindparam(parameter, type_=MARKS.c[column].type) for column, parameter in changed.items()}
    return update(MARKS).where(_of_ids(name, before, also)).values(status=_allowed(before, after), **values)


@cache
def _moved_ids(name: str) -> Select[int]:
    moved = MARKS.c.changed_act == bindparam("number", type_=BigInteger)
    return select(MARKS.c.id).where(among(name, MARKS.c.id), moved).order_by(MARKS.c.id)


def _allowed(before: str, after: str) -> str:
    if after not in TRANSITIONS.get(before, ()):
        raise ValueError(f"no mark goes from {before} to {after}")
    return after


@cache
def _locking_ids(name: str, also: ColumnElement[bool]) -> Select[int]:
    return _locking(_of_ids(name, "MARKED", also))


def _locking(mine: ColumnElement[bool]) -> Select[int]:
    # by id, against deadlocks; a statement of its own: joined to the update, PostgreSQL may scan all marks
    locked = select(MARKS.c.id).where(mine).order_by(MARKS.c.id).with_for_update().subquery()
    return select(func.count()).select_from(locked)


def record_steps(tx: WriteTransaction, act: Act, steps: Iterable[MarkStep]) -> int:
    ordered = sorted(steps, key=itemgetter(0))
    if not ordered:
        return 0
    seals = step_seals(ordered)
    append_rows(tx.connection, STEPS, _COLUMNS, [(act.id, *step, seal) for step, seal in zip(ordered, seals, strict=True)])
    act.members, act.digest = len(ordered), hashlib.sha256("".join(seals).encode()).hexdigest()
    tx.record(act)
    return len(ordered)


def report_columns(tx: WriteTransaction, marks: Iterable[int]) -> Iterator[Row[int, str, int | None, datetime]]:
    query = select(MARKS.c.id, MARKS.c.dataset, MARKS.c.bytes, MARKS.c.due_at)
    for where in by_id(tx.connection, marks):
        # All at once: fetching one by one costs as much as finding the row.
        yield from tx.connection.execute(query.where(where)).all()


def same_steps(marks: Iterable[int], status: str, why: str | None = None) -> Iterator[MarkStep]:
    return zip(marks, repeat(status), repeat(None), repeat(None), repeat(why))


class _Ids(TypeDecorator[Sequence[int]]):
    """Ids as one value: JSON, or PostgreSQL's array text, because its driver would inspect each number."""

    impl = ARRAY(BigInteger)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return ARRAY(BigInteger) if dialect.name == "postgresql" else Text()

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        begin, end = "{}" if dialect.name == "postgresql" else "[]"
        return lambda ids: f"{begin}{','.join(map(str, ids))}{end}"


def by_id(
    connection: Connection, ids: Iterable[int], also: ColumnElement[bool] | None = None, column: ColumnElement[int] = MARKS.c.id
) -> Iterator[ColumnElement[bool]]:
    for part in portions(sorted(set(ids))):
        yield and_(among(connection.dialect.name, column, part), true() if also is None else also)


def to_sweep_by(as_of: datetime) -> ColumnElement[bool]:
    """Condition: due, or begun by a sweep."""
    return and_(text(OPEN), or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= as_of))


def open_marks(where: ColumnElement[bool]) -> ColumnElement[bool]:
    """Limit a condition to open marks. Not for ids: SQLite would read all open marks of their dataset."""
    return and_(text(OPEN), where)


def among(name: str, column: ColumnElement[int], ids: Sequence[int] | None = None) -> ColumnElement[bool]:
    """Condition: the column is one of the ids, passed as one parameter so that the statement is planned once."""
    given = bindparam("ids", type_=_Ids()) if ids is None else bindparam(None, ids, _Ids())
    if name == "postgresql":
        condition: ColumnElement[bool] = column == any_(given)
        return condition
    return column.in_(select(func.json_each(given).table_valued("value").c.value))


def lock_newest(connection: Connection, dataset: str, transactions: Iterable[str]) -> dict[str, Row[tuple[object, ...]]]:
    """Newest mark of each transaction, which stays so in this database transaction."""
    names, newest = sorted(set(transactions)), dict[str, Row[tuple[object, ...]]]()
    for part in portions(names):
        # Marks leave OPEN and never come back, so this order misses none that moves.
        for condition in (OPEN, SWEPT, OVER):
            here = (MARKS.c.dataset == dataset) & MARKS.c.transaction.in_(part)
            query = select(MARKS).where(text(condition), here).order_by(MARKS.c.id)
            for row in connection.execute(query.with_for_update()):
                earlier = newest.get(row.transaction)
                if earlier is None or earlier.id <= row.id:
                    newest[row.transaction] = row
    return newest
