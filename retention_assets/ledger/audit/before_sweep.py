"""Faults that stop a sweep before it begins: rule rows and due marks, each compared with its newest act, so that the cost does
not grow with the chain.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, text

from retention_assets.ledger.audit.chain import ActType, hash_of
from retention_assets.ledger.audit.database_objects import acting_faults
from retention_assets.ledger.audit.marks import batch_faults, life_faults, single_faults
from retention_assets.ledger.audit.members import ENDS, MARK_STEPS, PLANNED_MARKS, begun_batches, read_sealed, unsealed_marks
from retention_assets.ledger.audit.rows import INITIAL, SEALED, Recorded, detail_in, row_faults, rows_in
from retention_assets.ledger.mark_rows import MARK_ROWS
from retention_assets.ledger.schema import ASIDE, AUDIT, BATCHES, BEGUN, MARKS, OPEN, PLANNED, STEPS, SWEPT
from retention_assets.ledger.steps import BEGUN_REPLAYS, SHOWN_MARKS, is_to_empty_by, is_to_sweep_by
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import portions

# Each evaluation appends one of these acts; only the newest per dataset, or of all, matters.
_NEWEST_BY_DATASET = (ActType.ADVANCE,)
_NEWEST = (ActType.MARK, ActType.CLOCK)


def rule_faults(connection: Connection) -> Iterator[tuple[str, str]]:
    """Faults in holds, realms, policies, visibility, clock and objections, as (dataset, sentence); "" means all datasets."""
    rules = {table: sealing for table, sealing in SEALED.items() if sealing.is_rule}
    writers = {deed for sealing in rules.values() for deed in sealing.writers} | {ActType.ACCEPT}
    always = sorted(writers - {*_NEWEST_BY_DATASET, *_NEWEST})
    by_dataset = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST_BY_DATASET)).group_by(AUDIT.c.dataset)
    newest = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST)).group_by(AUDIT.c.deed)
    wanted = or_(AUDIT.c.deed.in_(always), AUDIT.c.position.in_(by_dataset), AUDIT.c.position.in_(newest))
    acts = select(AUDIT).where(wanted).order_by(AUDIT.c.position)
    recorded = {**INITIAL}
    for row in map(dict, connection.execute(acts, execution_options={"yield_per": 1_000}).mappings()):
        if hash_of(row) != row["hash"]:
            yield "", f"Row {row['position']} of the audit ({row['deed']}) was changed: its hash is wrong."
            continue
        recorded |= {key: Recorded(seal, row["position"]) for key, seal in rows_in(detail_in(row["detail"]))}
    changed = (fault.sentence for fault in row_faults(connection, rules, recorded))
    yield from (("", sentence) for sentence in chain(changed, single_faults(connection, None), acting_faults(connection)))


def due_mark_faults(connection: Connection, datasets: Sequence[str], as_of: datetime) -> Iterator[tuple[str, str]]:
    """Faults of marks that are due, begun, to be deleted for good or called swept, each with its dataset."""
    for part in portions(sorted(set(datasets))):
        here = MARKS.c.dataset.in_(part)
        for state, is_due in ((OPEN, is_to_sweep_by(as_of)), (ASIDE, is_to_empty_by(as_of))):
            yield from mark_faults(connection, and_(is_due, here), and_(text(f"marks.{state}"), here))
        yield from mark_faults(connection, and_(MARKS.c.id.in_(select(BEGUN_REPLAYS.c.mark)), here))
        begun = [BATCHES.c.dataset.in_(part) & text(BEGUN)]
        swept = [MARKS.c.id.in_(ids) for ids in portions(_swept_past_ledger(connection, part))]
        faults = chain(_batches_in(connection, begun), *(_record_faults(connection, marks) for marks in swept))
        yield from (("", sentence) for sentence in faults)


def mark_faults(
    connection: Connection, marks: ColumnElement[bool], recorded: ColumnElement[bool] | None = None
) -> Iterator[tuple[str, str]]:
    """Faults of marks of SHOWN_MARKS, and of the record of these or of more marks."""
    query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).select_from(SHOWN_MARKS).where(marks)
    for batch in stream(connection, query.order_by(MARKS.c.dataset, MARKS.c.id), MARK_ROWS):
        yield from unsealed_marks(pa.Table.from_batches([batch]))
    yield from _unmade_marks(connection, marks)
    yield from (("", sentence) for sentence in _record_faults(connection, marks if recorded is None else recorded))


def _swept_past_ledger(connection: Connection, datasets: Sequence[str]) -> Sequence[int]:
    # stores are told what was swept: not what another act ended, or none
    settled = func.coalesce(MARKS.c.changed_act, 0).in_(select(AUDIT.c.act).where(AUDIT.c.deed == ActType.SETTLE))
    has_end = or_(MARKS.c.end_seal.is_not(None), text(ASIDE))
    odd = or_(MARKS.c.outcome.is_(None), ~settled, ~has_end)
    return connection.execute(select(MARKS.c.id).where(text(SWEPT), MARKS.c.dataset.in_(datasets), odd)).scalars().all()


def _record_faults(connection: Connection, marks: ColumnElement[bool]) -> Iterator[str]:
    # Marks that have not ended: failed, stopped, set aside, or at work.
    yield from life_faults(connection, marks)
    ids, plans = select(MARKS.c.id).where(marks), set[Any]()
    wanted = {
        ENDS: marks & MARKS.c.end_seal.is_not(None),
        MARK_STEPS: STEPS.c.mark.in_(ids),
        PLANNED_MARKS: PLANNED.c.mark.in_(ids),
    }
    for kind, where in wanted.items():
        for read in read_sealed(connection, [select(*kind.columns).where(where)], kind):
            plans.update(read.acts if kind is PLANNED_MARKS else ())
            yield from read.faults
    yield from _batches_in(connection, (BATCHES.c.plan.in_(part) for part in portions(sorted(plans))))


def _batches_in(connection: Connection, conditions: Iterable[ColumnElement[bool]]) -> Iterator[str]:
    for where in conditions:
        for batch in begun_batches(connection, where):
            yield from batch.faults
        yield from batch_faults(connection, where)


def _unmade_marks(connection: Connection, marks: ColumnElement[bool]) -> Iterator[tuple[str, str]]:
    # no marking act reserved their ids
    ends = (func.min(MARKS.c.id).label("first"), func.max(MARKS.c.id).label("last"), func.min(MARKS.c.dataset).label("dataset"))
    groups = select(MARKS.c.act, *ends).select_from(SHOWN_MARKS).where(marks).group_by(MARKS.c.act).subquery()
    query = select(groups, AUDIT.c.deed, AUDIT.c.detail, AUDIT.c.position).outerjoin(AUDIT, AUDIT.c.act == groups.c.act)
    for row in connection.execute(query):
        detail = detail_in(row.detail) if row.deed == ActType.MARK else {}
        first, last = (detail.get(name) for name in ("first", "last"))
        if not (isinstance(first, int) and isinstance(last, int) and first <= row.first and row.last <= last):
            named = f"Marks {row.first} to {row.last} ({row.dataset} among others)"
            yield row.dataset, f"{named} were added past the ledger: no act made them."
