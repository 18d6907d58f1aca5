"""Marks and batches compared with their record: ends, steps and the acts that settled them."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, or_, select, text

from retention_assets.ledger.audit.chain import ActType
from retention_assets.ledger.audit.rows import detail_in
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, BATCHES, BEGUN, CLOCK, MARKS, STEPS, TAKEN_BACK
from retention_assets.ledger.steps import IS_REPLAY, NO_ERROR, members_of
from retention_assets.outcomes import Order


def life_faults(connection: Connection, where: ColumnElement[bool] | None = None) -> Iterator[str]:
    """Find marks that differ from the record: from their sealed end, or else from their last failed step."""
    failures = func.count(case((STEPS.c.outcome == "FAILED", 1)))
    amounts = (failures.label("times"), func.max(AUDIT.c.position).label("position"))
    steps = select(STEPS.c.mark, *amounts).join(AUDIT, AUDIT.c.act == STEPS.c.act).group_by(STEPS.c.mark)
    steps = steps.where(STEPS.c.outcome.is_distinct_from(TAKEN_BACK), ~IS_REPLAY)
    newest = (steps if where is None else steps.where(STEPS.c.mark.in_(select(MARKS.c.id).where(where)))).subquery()
    failed, ended, act = STEPS.alias("failed"), MARKS.c.end_seal.is_not(None), AUDIT.alias("last_act")
    by_deed = ((act.c.deed == ActType.UNMARK, "UNMARKED"), (act.c.deed == ActType.RESTORE, "RESTORED"))
    did = case(*by_deed, (MARKS.c.outcome.is_not(None), "SWEPT"), else_="SPARED")
    should = {
        "status": case((ended, did), else_=func.coalesce(failed.c.status, "MARKED")),
        "changed_act": case((ended, MARKS.c.changed_act), else_=failed.c.act),
        "attempts": func.coalesce(newest.c.times, 0),
        "last_error": case((failed.c.outcome == "FAILED", func.coalesce(failed.c.why, NO_ERROR))),
        **{name: case((ended, MARKS.c[name])) for name in ("why", "freed")},
        "outcome": case((ended, MARKS.c.outcome), (failed.c.status == "SWEPT", "SET_ASIDE")),
        "until": case((ended, MARKS.c.until), else_=failed.c.until),
        "changed_at": act.c.at,
        "changed_by": act.c.actor,
    }
    failure = AUDIT.alias("failure_act")
    query = select(MARKS, *(value.label(f"should_{name}") for name, value in should.items()))
    query = query.outerjoin(newest, newest.c.mark == MARKS.c.id).outerjoin(failure, failure.c.position == newest.c.position)
    query = query.outerjoin(failed, and_(failed.c.act == failure.c.act, failed.c.mark == MARKS.c.id))
    query = query.outerjoin(act, act.c.act == should["changed_act"])
    strays = or_(*(MARKS.c[name].is_distinct_from(value) for name, value in should.items()))
    query = query.where(strays) if where is None else query.where(where, strays)
    for row in connection.execute(query.order_by(MARKS.c.id)):
        mark = f"Mark {row.id} ({row.transaction} of {row.dataset})"
        if row.status != row.should_status or row.changed_act != row.should_changed_act:
            led = f"its last step led to {row.should_status}"
            yield f"{mark} has the status {row.status}, but {led}: it was changed past the audit."
        for column in [*should][2:]:
            present, by_record = getattr(row, column), getattr(row, f"should_{column}")
            if present != by_record:
                yield f"{mark} was changed: its {column} is {present!s}, but by its steps it is {by_record!s}."


def batch_faults(connection: Connection, *where: ColumnElement[bool]) -> Iterator[str]:
    """Find marks that differ from their batch.

    It calls them settled, but they neither ended nor failed since; or open, but they did, or are not in it.
    """
    whole, still_open = members_of(BATCHES.c.ids, *where), members_of(BATCHES.c.open_ids, *where)
    for members, others, is_settled in ((whole, still_open, True), (still_open, whole, False)):
        begun, moved = AUDIT.alias("begun_act"), AUDIT.alias("moved_act")
        failed = exists().where(STEPS.c.mark == members.c.mark, moved.c.act == STEPS.c.act, moved.c.position > begun.c.position)
        is_same = and_(others.c.mark == members.c.mark, others.c.begun == members.c.begun)
        query = select(members.c.mark, members.c.dataset, MARKS.c.transaction, begun.c.position).select_from(members)
        query = query.join(begun, begun.c.act == members.c.begun).outerjoin(others, is_same)
        query = query.outerjoin(MARKS, MARKS.c.id == members.c.mark).order_by(members.c.mark)
        # what is replayed has ended before
        is_other, has_end = others.c.mark.is_(None), MARKS.c.end_seal.is_not(None) & (members.c.order_given != Order.REPLAY)
        query = query.where(is_other, ~has_end, ~failed) if is_settled else query.where(or_(is_other, has_end, failed))
        for row in connection.execute(query):
            state = "is settled, and the mark has no outcome" if is_settled else "is not settled, and the mark has an outcome"
            mark = f"Mark {row.mark} ({row.transaction} of {row.dataset})"
            yield f"{mark} was changed past the ledger: the batch that began with row {row.position} of the audit {state}."
    readable = exists().where(still_open.c.begun == BATCHES.c.begun, still_open.c.plan == BATCHES.c.plan)
    for act, plan in connection.execute(select(BATCHES.c.begun, BATCHES.c.plan).where(text(BEGUN), ~readable, *where)):
        yield f"The batch of act {act} and plan {plan} was changed: its open_ids can't be read."


def single_faults(connection: Connection, ledger: str | None) -> Iterator[str]:
    """Check the two single values that no seal covers: the ledger's id and the next mark id."""
    present = connection.execute(select(AUDIT_HEAD.c.ledger)).scalar_one()
    if ledger is not None and ledger != present:
        yield f"The head of the audit names ledger {present}, but its first row is of ledger {ledger}."
    newest = connection.execute(select(func.max(MARKS.c.id))).scalar_one()
    following = connection.execute(select(CLOCK.c.next_mark)).scalar_one_or_none()
    recorded = _next_mark(connection)
    if following != recorded:
        there = "no mark" if newest is None else f"a mark {newest}"
        yield (
            f"The clock names {following} as the next mark, but {there} exists and the record names {recorded}: its "
            "next_mark was changed."
        )


def _next_mark(connection: Connection) -> int:
    # by the newest marking act, or by a later act in which a person vouched for another one
    marked, vouched = (
        connection.execute(
            select(AUDIT.c.position, AUDIT.c.detail)
            .where(AUDIT.c.deed == deed, AUDIT.c.dataset.is_(None))
            .order_by(AUDIT.c.position.desc())
            .limit(1)
        ).one_or_none()
        for deed in (ActType.MARK, ActType.ACCEPT)
    )
    if vouched and (not marked or vouched.position > marked.position):
        following = detail_in(vouched.detail).get("next_mark")
        if following is not None:
            return int(following)
    return int(detail_in(marked.detail).get("last", 0)) + 1 if marked else 1
