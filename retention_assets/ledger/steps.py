"""Transitions of marks, one compare-and-set each, with one act for all.

MARKED -> UNMARKED, SPARED        of a batch: MARKED -> SWEPT, SPARED, or MARKED again after a failure
                                  set aside:  SWEPT -> SWEPT for good, RESTORED, or set aside still after a failure
                                  replayed:   SWEPT as before

How a mark ended is in its own row, sealed; what failed or was set aside is a row of `steps`. A mark of a batch that is begun
and not settled is shown as SWEEPING: only the settlement of that batch moves it.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    Subquery,
    TextClause,
    and_,
    any_,
    bindparam,
    case,
    cast,
    false,
    func,
    or_,
    select,
    text,
    true,
)

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType, step_seals
from retention_assets.ledger.audit.rows import detail_in
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.schema import ASIDE, AUDIT, BATCHES, BEGUN, MARKS, OPEN, OVER, STEPS, SWEPT, TAKEN_BACK
from retention_assets.outcomes import Order
from retention_assets.sql.columns import EachOf, IdsColumn, InstantColumn
from retention_assets.sql.staging import append_rows, update_rows
from retention_assets.sql.transactions import PORTION, portions

NO_ERROR = "no error was given"
# Mark, status, outcome, bytes, until, why. A plain tuple, because there are as many as marks.
MarkStep = tuple[int, str, str | None, int | None, datetime | None, str | None]

STEP = [STEPS.c[name] for name in ("act", "mark", "status", "outcome", "bytes", "until", "why", "seal")]
# Columns with the same meaning in the row of a mark that ended.
END = [MARKS.c[name] for name in ("changed_act", "id", "status", "outcome", "freed", "until", "why", "end_seal")]


def members_of(ids: ColumnElement[Sequence[int]], *where: ColumnElement[bool] | TextClause) -> Subquery:
    """Marks in a column of ids of batches, with their batches."""
    each = EachOf(ids).table_valued("value", joins_implicitly=True)
    mark = cast(each.c.value, BigInteger).label("mark")
    columns = (mark, *(BATCHES.c[name] for name in ("begun", "plan", "dataset", "begun_at", "begun_by", "order_given")))
    # The offset keeps databases from merging it with what it is joined to, and reading all ids once for each mark.
    return select(*columns).select_from(BATCHES, each).where(*where).offset(0).subquery()


def touched_since(connection: Connection, position: int) -> ColumnElement[bool]:
    """Condition: a batch that was begun, or of which something was settled, after a position of the audit."""
    deeds = [ActType.BEGIN, ActType.SETTLE, ActType.RESTORE]
    query = select(AUDIT.c.act, AUDIT.c.deed, AUDIT.c.detail).where(AUDIT.c.deed.in_(deeds))
    touched: set[int] = set()
    for act, deed, detail in connection.execute(query.where(AUDIT.c.position > position)):
        touched.update([act] if deed == ActType.BEGIN else detail_in(detail).get("batches", ()))
    return or_(false(), *(BATCHES.c.begun.in_(part) for part in portions(sorted(touched))))


def marks_of(connection: Connection, batches: ColumnElement[bool]) -> list[int]:
    """Ids of the marks of the batches that match."""
    return sorted(connection.execute(select(members_of(BATCHES.c.ids, batches).c.mark).distinct()).scalars())


BEGUN_MARKS = members_of(BATCHES.c.open_ids, text(BEGUN))
# of steps: a mark had ended before, and stays as it is
IS_REPLAY = and_(STEPS.c.status == "SWEPT", STEPS.c.until.is_(None), STEPS.c.outcome.is_distinct_from(TAKEN_BACK))
BEGUN_REPLAYS = members_of(BATCHES.c.open_ids, text(BEGUN), BATCHES.c.order_given == Order.REPLAY)
IS_BEGUN = BEGUN_MARKS.c.mark.is_not(None)
# Marks as people see them: select columns of SHOWN from SHOWN_MARKS.
SHOWN_MARKS = MARKS.outerjoin(BEGUN_MARKS, BEGUN_MARKS.c.mark == MARKS.c.id)
SHOWN: Mapping[str, ColumnElement[Any]] = {
    **MARKS.c,
    "status": case((and_(IS_BEGUN, text(f"marks.{OPEN}")), "SWEEPING"), else_=MARKS.c.status).label("status"),
    "changed_at": func.coalesce(BEGUN_MARKS.c.begun_at, MARKS.c.changed_at, type_=InstantColumn()).label("changed_at"),
    "changed_by": func.coalesce(BEGUN_MARKS.c.begun_by, MARKS.c.changed_by).label("changed_by"),
}


class OpenBatch(NamedTuple):
    """A batch that is not settled, with its marks that are not."""

    begun: int
    plan: int
    dataset: str
    marks: Sequence[int]
    order: str
    until: datetime | None


# Built once: every batch uses them.
OPEN_BATCH = select(*(BATCHES.c[name] for name in ("begun", "plan", "dataset", "open_ids", "order_given", "until")))
OPEN_BATCH = OPEN_BATCH.where(text(BEGUN))
_NEAR = OPEN_BATCH.where(
    BATCHES.c.first <= bindparam("last"),
    BATCHES.c.last >= bindparam("first"),
    BATCHES.c.dataset.in_(bindparam("datasets", expanding=True)),
)


def open_batches(connection: Connection, datasets: Collection[str], marks: Collection[int]) -> list[OpenBatch]:
    near = {"first": min(marks, default=0), "last": max(marks, default=0)}
    batches: list[OpenBatch] = []
    for part in portions(sorted(datasets)):
        batches += map(OpenBatch._make, connection.execute(_NEAR, {**near, "datasets": part}))
    wanted = frozenset(marks)
    return [batch for batch in batches if not wanted.isdisjoint(batch.marks)]


def end_marks(
    tx: WriteTransaction, act: Act, status: str, reasons: Mapping[int, str] | str, conditions: Iterable[ColumnElement[bool]]
) -> dict[int, str]:
    """End the MARKED marks that match and are not begun, and record the act; return each with its dataset.

    Whoever comes second finds another state and moves nothing. With ids, limit datasets by `of_datasets`.
    """
    locked: dict[int, str] = {}
    for where in conditions:
        matching = locking(and_(text(OPEN), where), MARKS.c.dataset)
        locked |= {mark: dataset for mark, dataset in tx.connection.execute(matching)}  # noqa: C416 - no pairs to a type checker
    # Asked next: who begins a batch locks its marks too, so this sees that batch, or it goes first.
    begun = {mark for batch in open_batches(tx.connection, set(locked.values()), locked) for mark in batch.marks}
    ended = {mark: locked[mark] for mark in sorted(locked.keys() - begun)}
    why = reasons if not isinstance(reasons, str) else dict.fromkeys(ended, reasons)
    if ended:
        record_moves(tx, act, [(mark, status, None, None, None, why[mark]) for mark in ended])
    return ended


def locking(mine: ColumnElement[bool], *more: ColumnElement[Any]) -> Select[Any]:
    return select(MARKS.c.id, *more).where(mine).order_by(MARKS.c.id).with_for_update()  # by id, against deadlocks


def record_moves(
    tx: WriteTransaction, act: Act, ends: Sequence[MarkStep], steps: Sequence[MarkStep] = (), state: str = OPEN
) -> None:
    """End marks in a state, set them aside, or let them fail; record the act, which is about all in the order of their ids."""
    seals = step_seals((act.id, *end) for end in ends)
    instant = partial(InstantColumn().process_bind_param, dialect=tx.connection.dialect)
    if ends:
        ids, *own = map(list, zip(*ends, strict=True))
        _change(tx, act, state, ids, dict(zip((column.name for column in END[2:]), (*own, seals), strict=True)))
    if failures := [step for step in steps if step[2] == "FAILED"]:
        errors = {"last_error": [step[-1] for step in failures]}
        _change(tx, act, state, [step[0] for step in failures], errors, "attempts = attempts + 1")
    if asides := [step for step in steps if step[2] != "FAILED"]:
        ids, status, outcome, _, until, _ = map(list, zip(*asides, strict=True))
        changes = {"status": status, "outcome": outcome, "until": [*map(instant, until)], "last_error": [None] * len(ids)}
        _change(tx, act, state, ids, changes)
    record_steps(tx, act, steps, seals)


def record_steps(tx: WriteTransaction, act: Act, steps: Sequence[MarkStep], ends: Sequence[str] = ()) -> None:
    """Record steps, and the act that is about them and about the marks with these seals of their ends. No mark is changed."""
    seals = step_seals((act.id, *step) for step in steps)
    instant = partial(InstantColumn().process_bind_param, dialect=tx.connection.dialect)
    rows = ((act.id, *step[:4], instant(step[4]), step[5], seal) for step, seal in zip(steps, seals, strict=True))
    append_rows(tx.connection, STEPS, STEP, [*rows])
    act.members = len(ends) + len(steps)
    act.digest = hashlib.sha256("".join((*ends, *seals)).encode()).hexdigest()
    tx.record(act)


def _change(
    tx: WriteTransaction, act: Act, state: str, ids: Sequence[int], own: Mapping[str, Sequence[Any]], also: str = ""
) -> None:
    # `also` is set as SQL
    act.at = tx.present()
    changed_at = InstantColumn().process_bind_param(act.at, tx.connection.dialect)
    common = {"changed_at": changed_at, "changed_by": act.actor, "changed_act": act.id}
    for at in range(0, len(ids), PORTION):
        part = slice(at, at + PORTION)
        values = {name: column[part] for name, column in own.items()}
        if (changed := update_rows(tx.connection, MARKS, ids[part], values, common, also, state)) != len(ids[part]):
            raise Refused(
                f"Of {len(ids[part])} marks of a batch, {changed} are as they were: some were changed past the ledger during "
                "the sweep, so the batch is not recorded. `retention audit verify` names them."
            )


def report_columns(tx: WriteTransaction, marks: Iterable[int]) -> Iterator[Row[int, str, int | None, datetime]]:
    query = select(MARKS.c.id, MARKS.c.dataset, MARKS.c.bytes, MARKS.c.due_at)
    for where in by_id(tx.connection, marks):
        # All at once: fetching one by one costs as much as finding the row.
        yield from tx.connection.execute(query.where(where)).all()


def by_id(
    connection: Connection, ids: Iterable[int], also: ColumnElement[bool] | None = None, column: ColumnElement[int] = MARKS.c.id
) -> Iterator[ColumnElement[bool]]:
    for part in portions(sorted(set(ids))):
        yield and_(among(connection.dialect.name, column, part), true() if also is None else also)


def is_to_sweep_by(as_of: datetime) -> ColumnElement[bool]:
    """Condition on SHOWN_MARKS: due, or begun by a sweep."""
    return and_(text(OPEN), or_(IS_BEGUN, MARKS.c.due_at <= as_of))


def is_to_empty_by(as_of: datetime) -> ColumnElement[bool]:
    """Condition on SHOWN_MARKS: set aside, and to be deleted for good by then, or begun."""
    return and_(text(ASIDE), or_(IS_BEGUN, MARKS.c.until <= as_of))


def of_datasets(names: Iterable[str]) -> ColumnElement[bool]:
    """Limit a condition on ids to datasets. No column: by the index of a dataset's open marks SQLite would read them all."""
    return MARKS.c.dataset.concat("").in_(sorted(names))


def among(name: str, column: ColumnElement[int], ids: Sequence[int] | None = None) -> ColumnElement[bool]:
    """Condition: the column is one of the ids, passed as one parameter so that the statement is planned once."""
    given = bindparam("ids", type_=IdsColumn()) if ids is None else bindparam(None, ids, IdsColumn())
    if name == "postgresql":
        condition: ColumnElement[bool] = column == any_(given)
        return condition
    return column.in_(select(func.json_each(given).table_valued("value").c.value))


def lock_newest(connection: Connection, dataset: str, transactions: Iterable[str]) -> dict[str, Row[Any]]:
    """Newest mark of each transaction as people see it, which stays so in this database transaction."""
    names, newest = sorted(set(transactions)), dict[str, int]()
    for part in portions(names):
        # Marks leave OPEN and never come back, so this order misses none that moves.
        for condition in (OPEN, SWEPT, OVER):
            here = (MARKS.c.dataset == dataset) & MARKS.c.transaction.in_(part)
            query = select(MARKS.c.id, MARKS.c.transaction).where(text(condition), here).order_by(MARKS.c.id)
            for mark, transaction in connection.execute(query.with_for_update()):
                newest[transaction] = max(mark, newest.get(transaction, mark))
    # Read anew: a batch may have begun while this waited for the lock.
    query, shown = select(*SHOWN.values()).select_from(SHOWN_MARKS), dict[str, Row[Any]]()
    for where in by_id(connection, newest.values()):
        shown |= {row.transaction: row for row in connection.execute(query.where(where))}
    return shown
