"""Steps: how marks go from one state of their life to the next, one compare-and-set each.

Belongs here: which transitions there are, and the rows that each leaves: in `marks` where the mark is now, in `steps` that it
went there, in the audit one act for all of them.
Does not belong here: who asks for a transition (unmarking.py, sweeps.py).

    MARKED -> UNMARKED, SPARED, SWEEPING        SWEEPING -> SWEPT, MARKED, SPARED

A SWEEPING mark is SPARED where the store finds, as it is about to delete, that somebody needs the transaction.
"""

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
    select,
    text,
    true,
    update,
)
from sqlalchemy.types import TypeEngine

from retention_assets.ledger.audit.chain import Act
from retention_assets.ledger.audit.seals import digest_of, step_seals
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.schema import MARKS, OPEN, OVER, STEPS, SWEPT
from retention_assets.sql.staging import append_rows
from retention_assets.sql.transactions import portions

TRANSITIONS: Mapping[str, Collection[str]] = {
    "MARKED": ("UNMARKED", "SPARED", "SWEEPING"),
    "SWEEPING": ("SWEPT", "MARKED", "SPARED"),
}


# What a mark says of a failure that came without a word.
NO_ERROR = "no error was given"


# That a mark goes to a state, with what a sweep did to its bytes, and why: mark, status, outcome, bytes, why. A plain tuple,
# because there are as many as there are marks.
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
    """Move the marks that are in a state and meet a condition; those that were moved, each with its dataset.

    Whoever comes second finds a mark in another state and moves nothing. The steps are written by `record_steps`. A condition
    that is not about ids says that it is about open marks (`open_marks`), which have an index.
    """
    mine = and_(MARKS.c.status == before, where)
    if tx.connection.dialect.name == "postgresql":
        tx.connection.execute(_locking(mine))
    act.at = tx.present()
    values = {"changed_at": act.at, "changed_by": act.actor, "changed_act": act.id, **(changes or {})}
    moving = update(MARKS).where(mine).values(status=_allowed(before, after), **values)
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
    """Move those of some marks that are in a state and meet a condition; which were moved, in the order of their ids.

    Hardly ever any of them is not: a database counts what it moved in half the time that it takes to name it. The condition is
    one that stays, with `parameters` by name: its statement is made once, which takes as long as to move some hundred marks.
    """
    name, moved = tx.connection.dialect.name, list[int]()
    # One instant for the marks and for the act, so that the one can be held against the other.
    act.at = tx.present()
    changed = {"at": act.at, "actor": act.actor, "number": act.id}
    for some in portions(sorted(set(ids))):
        mine = {"ids": some, **parameters}
        # What is SWEEPING nobody moves but who holds the lease, so that it need not be locked first.
        if name == "postgresql" and before == "MARKED":
            tx.connection.execute(_locking_ids(name, also), mine)
        moving = _moving_ids(name, before, after, also)
        amount = tx.connection.execute(moving.values(changes) if changes else moving, {**mine, **changed}).rowcount
        if amount == len(some):
            moved += some
        elif amount:
            moved += tx.connection.execute(_moved_ids(name), {"ids": some, "number": act.id}).scalars()
    return moved


@cache
def _of_ids(name: str, before: str, also: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(among(name, MARKS.c.id), MARKS.c.status == before, also)


@cache
def _moving_ids(name: str, before: str, after: str, also: ColumnElement[bool]) -> Update:
    changed = {"changed_at": "at", "changed_by": "actor", "changed_act": "number"}
    values = {column: bindparam(one, type_=MARKS.c[column].type) for column, one in changed.items()}
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
    """Rows are locked in the order of their ids, so that two who move the same marks don't wait in a circle.

    Not as part of the statement that moves them: joined with its own rows, a server may look through all marks for a few.
    """
    locked = select(MARKS.c.id).where(mine).order_by(MARKS.c.id).with_for_update().subquery()
    return select(func.count()).select_from(locked)


def record_steps(tx: WriteTransaction, act: Act, steps: Iterable[MarkStep]) -> int:
    """Write steps down, and have the act say how many they are and what their digest is."""
    ordered = sorted(steps, key=itemgetter(0))
    if not ordered:
        return 0
    seals = step_seals(ordered)
    append_rows(tx.connection, STEPS, _COLUMNS, [(act.id, *step, seal) for step, seal in zip(ordered, seals, strict=True)])
    act.members, act.digest = len(ordered), digest_of(seals)
    tx.record(act)
    return len(ordered)


def report_columns(tx: WriteTransaction, marks: Iterable[int]) -> Iterator[Row[int, str, int | None, datetime]]:
    """What reports ask of some marks: id, dataset, bytes and due_at."""
    query = select(MARKS.c.id, MARKS.c.dataset, MARKS.c.bytes, MARKS.c.due_at)
    for where in by_id(tx.connection, marks):
        # All at once: one by one, each row costs as much as finding it.
        yield from tx.connection.execute(query.where(where)).all()


def same_steps(marks: Iterable[int], status: str, why: str | None = None) -> Iterator[MarkStep]:
    """Steps of marks that go to one state for one reason, and keep their bytes."""
    return zip(marks, repeat(status), repeat(None), repeat(None), repeat(why))


class _Ids(TypeDecorator[Sequence[int]]):
    """Ids as one value: JSON, or an array of PostgreSQL in its own words: its driver would look at each number for itself."""

    impl = ARRAY(BigInteger)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """As what the database takes it."""
        return ARRAY(BigInteger) if dialect.name == "postgresql" else Text()

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        """From numbers to the text."""
        begin, end = "{}" if dialect.name == "postgresql" else "[]"
        return lambda ids: f"{begin}{','.join(map(str, ids))}{end}"


def by_id(
    connection: Connection, ids: Iterable[int], also: ColumnElement[bool] | None = None, column: ColumnElement[int] = MARKS.c.id
) -> Iterator[ColumnElement[bool]]:
    """Conditions that together are met by marks of some ids."""
    for some in portions(sorted(set(ids))):
        yield and_(among(connection.dialect.name, column, some), true() if also is None else also)


def open_marks(where: ColumnElement[bool]) -> ColumnElement[bool]:
    """The same condition over open marks. Not for ids: SQLite would read all open marks of their dataset, for a few of them."""
    return and_(text(OPEN), where)


def among(name: str, column: ColumnElement[int], ids: Sequence[int] | None = None) -> ColumnElement[bool]:
    """Whether a column is one of some ids, or of the parameter `ids`, on the databases of a name.

    One parameter, however many ids: one statement to compile and to plan.
    """
    given = bindparam("ids", type_=_Ids()) if ids is None else bindparam(None, ids, _Ids())
    if name == "postgresql":
        found: ColumnElement[bool] = column == any_(given)
        return found
    return column.in_(select(func.json_each(given).table_valued("value").c.value))


def newest_of(
    connection: Connection, dataset: str, transactions: Iterable[str], locked: bool = False
) -> dict[str, Row[tuple[object, ...]]]:
    """The newest mark of each transaction that ever had one; locked, what is said of it stays true in this transaction."""
    names, newest = sorted(set(transactions)), dict[str, Row[tuple[object, ...]]]()
    for some in portions(names):
        # Marks leave OPEN for one of the others and never come back, so in this order none slips through while it moves.
        for condition in (OPEN, SWEPT, OVER):
            here = (MARKS.c.dataset == dataset) & MARKS.c.transaction.in_(some)
            query = select(MARKS).where(text(condition), here).order_by(MARKS.c.id)
            for row in connection.execute(query.with_for_update() if locked else query):
                known = newest.get(row.transaction)
                if known is None or known.id <= row.id:
                    newest[row.transaction] = row
    return newest
