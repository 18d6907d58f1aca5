"""Checks that each mark's status columns follow from its steps. No seal covers these columns; the steps are sealed."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Subquery, and_, case, func, or_, select

from retention_assets.ledger.marks.steps import NO_ERROR
from retention_assets.ledger.schema import AUDIT, MARKS, STEPS

# Status columns other than `status`, by the name that people see.
_WORDS = {
    "attempts": "attempts", "last_error": "last_error", "why": "why", "changed_at": "changed_at", "changed_by": "changed_by",
}  # fmt: skip


def life_faults(connection: Connection, where: ColumnElement[bool] | None = None) -> Iterator[str]:
    last, failed = _last_steps(where), _failed_steps(where)
    should = {
        "status": func.coalesce(last.c.status, "MARKED"),
        "changed_act": last.c.act,
        "attempts": func.coalesce(failed.c.attempts, 0),
        "last_error": failed.c.error,
        "why": case((last.c.status.in_(("UNMARKED", "SPARED")), func.coalesce(last.c.why, NO_ERROR))),
        "changed_at": last.c.at,
        "changed_by": last.c.actor,
    }
    query = select(MARKS, *(value.label(f"should_{name}") for name, value in should.items()))
    query = query.outerjoin(last, last.c.mark == MARKS.c.id).outerjoin(failed, failed.c.mark == MARKS.c.id)
    strays = or_(*(MARKS.c[name].is_distinct_from(value) for name, value in should.items()))
    found = query.where(strays) if where is None else query.where(where, strays)
    for row in connection.execute(found.order_by(MARKS.c.id)):
        yield from _sentences(row)


def _last_steps(where: ColumnElement[bool] | None) -> Subquery:
    steps = select(STEPS.c.mark, func.max(AUDIT.c.position).label("position")).join(AUDIT, AUDIT.c.act == STEPS.c.act)
    newest = _narrowed(steps, where).group_by(STEPS.c.mark).subquery()
    columns = (newest.c.mark, newest.c.position, STEPS.c.status, STEPS.c.why, STEPS.c.act, AUDIT.c.actor, AUDIT.c.at)
    taken = and_(STEPS.c.act == AUDIT.c.act, STEPS.c.mark == newest.c.mark)
    return select(*columns).select_from(newest).join(AUDIT, AUDIT.c.position == newest.c.position).join(STEPS, taken).subquery()


def _failed_steps(where: ColumnElement[bool] | None) -> Subquery:
    steps = select(STEPS.c.mark, func.count().label("attempts"), func.max(AUDIT.c.position).label("position")).join(
        AUDIT, AUDIT.c.act == STEPS.c.act
    )
    newest = _narrowed(steps.where(STEPS.c.outcome == "FAILED"), where).group_by(STEPS.c.mark).subquery()
    taken = and_(STEPS.c.act == AUDIT.c.act, STEPS.c.mark == newest.c.mark)
    error = func.coalesce(STEPS.c.why, NO_ERROR).label("error")
    query = select(newest.c.mark, newest.c.attempts, error).select_from(newest)
    return query.join(AUDIT, AUDIT.c.position == newest.c.position).join(STEPS, taken).subquery()


def _narrowed(steps: Any, where: ColumnElement[bool] | None) -> Any:
    return steps if where is None else steps.where(STEPS.c.mark.in_(select(MARKS.c.id).where(where)))


def _sentences(row: Row[Any]) -> Iterator[str]:
    name = f"Mark {row.id} ({row.transaction} of {row.dataset})"
    if row.status != row.should_status or row.changed_act != row.should_changed_act:
        yield (
            f"{name} is said to be {row.status}, and its last step led to {row.should_status}: it was changed past the audit."
        )
    for column, words in _WORDS.items():
        present, should = getattr(row, column), getattr(row, f"should_{column}")
        if present != should:
            yield f"{name} was changed: its {words} is {present!s}, and its steps say {should!s}."
