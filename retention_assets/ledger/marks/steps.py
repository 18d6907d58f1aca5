"""Steps: how marks go from one state of their life to the next, one compare-and-set each.

Belongs here: which transitions there are, and the rows that each leaves: in `marks` where the mark is now, in `steps` that it
went there, in the audit one act for all of them.
Does not belong here: who asks for a transition (unmarking.py, sweeps.py).

    MARKED -> UNMARKED, SPARED, SWEEPING        SWEEPING -> SWEPT, MARKED, SPARED

A SWEEPING mark is SPARED where the store finds, as it is about to delete, that somebody needs the transaction.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Text,
    and_,
    any_,
    bindparam,
    func,
    select,
    text,
    true,
    update,
)

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


class MarkStep(NamedTuple):
    """That a mark goes to a state, with what a sweep did to its bytes, and why."""

    mark: int
    status: str
    outcome: str | None = None
    bytes: int | None = None
    why: str | None = None


_COLUMNS = [STEPS.c[name] for name in ("act", *MarkStep._fields, "seal")]


def move_marks(
    tx: WriteTransaction,
    act: Act,
    before: str,
    after: str,
    where: ColumnElement[bool],
    changes: Mapping[str, Any] | None = None,
) -> Sequence[Row[int, str, int | None, datetime]]:
    """Move the marks that are in a state and meet a condition; id, dataset, bytes and due_at of those that were moved.

    Whoever comes second finds a mark in another state and moves nothing. The steps are written by `record_steps`. A condition
    that is not about ids says that it is about open marks (`open_marks`), which have an index.
    """
    if after not in TRANSITIONS.get(before, ()):
        raise ValueError(f"no mark goes from {before} to {after}")
    mine = and_(MARKS.c.status == before, where)
    if tx.connection.dialect.name == "postgresql":
        # Rows are locked in the order of their ids, so that two who move the same marks don't wait in a circle. Not as part of
        # the statement that moves them: joined with its own rows, the server may look through all marks for a few.
        locked = select(MARKS.c.id).where(mine).order_by(MARKS.c.id).with_for_update().subquery()
        tx.connection.execute(select(func.count()).select_from(locked))
    # One instant for the marks and for the act, so that the one can be held against the other.
    act.at = tx.present()
    values = {"status": after, "changed_at": act.at, "changed_by": act.actor, "changed_act": act.id, **(changes or {})}
    statement = update(MARKS).where(mine).values(values)
    return tx.connection.execute(statement.returning(MARKS.c.id, MARKS.c.dataset, MARKS.c.bytes, MARKS.c.due_at)).all()


def record_steps(tx: WriteTransaction, act: Act, steps: Iterable[MarkStep]) -> int:
    """Write steps down, and have the act say how many they are and what their digest is."""
    ordered = sorted(steps, key=itemgetter(0))
    if not ordered:
        return 0
    seals = step_seals(ordered)
    rows = [(act.id, *step, seal) for step, seal in zip(ordered, seals, strict=True)]
    append_rows(tx.connection, STEPS, _COLUMNS, rows)
    act.members, act.digest = len(ordered), digest_of(seals)
    tx.record(act)
    return len(ordered)


def by_id(
    connection: Connection, ids: Iterable[int], also: ColumnElement[bool] | None = None, column: ColumnElement[int] = MARKS.c.id
) -> Iterator[ColumnElement[bool]]:
    """Conditions that together are met by marks of some ids."""
    for some in portions(sorted(set(ids))):
        yield and_(_among(connection, column, some), true() if also is None else also)


def open_marks(where: ColumnElement[bool]) -> ColumnElement[bool]:
    """The same condition over open marks. Not for ids: SQLite would read all open marks of their dataset, for a few of them."""
    return and_(text(OPEN), where)


def _among(connection: Connection, column: ColumnElement[int], ids: Sequence[int]) -> ColumnElement[bool]:
    # One parameter, however many ids: one statement to compile and to plan.
    if connection.dialect.name != "postgresql":
        listed = func.json_each(bindparam(None, str([*ids]), Text)).table_valued("value")
        return column.in_(select(listed.c.value))
    found: ColumnElement[bool] = column == any_(bindparam(None, ids, ARRAY(BigInteger)))
    return found


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
