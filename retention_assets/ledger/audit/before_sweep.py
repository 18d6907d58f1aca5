"""Audit checks before each sweep: rule rows and due marks against their newest acts. Their cost does not grow with the chain.

Only `verify.py` finds changes that fit because somebody rewrote the chain.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, func, or_, select, text

from retention_assets.ledger.audit.chain import ActType, hash_of
from retention_assets.ledger.audit.foreign import acting_faults
from retention_assets.ledger.audit.lives import life_faults
from retention_assets.ledger.audit.members import unsealed_marks
from retention_assets.ledger.audit.row_faults import Recorded, row_faults, single_faults
from retention_assets.ledger.audit.rows import RULES, WRITERS, RowKey, initial_rows, rows_in
from retention_assets.ledger.marks.marking import MARK_ROWS
from retention_assets.ledger.schema import AUDIT, MARKS, OPEN
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import portions

# Each evaluation appends one of these acts; only the newest per dataset, or of all, matters.
_NEWEST_BY_DATASET = (ActType.ADVANCE,)
_NEWEST = (ActType.MARK, ActType.CLOCK)
_OPEN = text(f"marks.{OPEN}")


def rule_faults(connection: Connection) -> Iterator[tuple[str, str]]:
    """Faults in holds, realms, policies, visibility, clock and objections, as (dataset, sentence); "" means all datasets."""
    writers = {deed for table in RULES for deed in WRITERS[table.name]} | {ActType.ACCEPT}
    all_of = sorted(writers - {*_NEWEST_BY_DATASET, *_NEWEST})
    by_dataset = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST_BY_DATASET)).group_by(AUDIT.c.dataset)
    newest = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST)).group_by(AUDIT.c.deed)
    wanted = or_(AUDIT.c.deed.in_(all_of), AUDIT.c.position.in_(by_dataset), AUDIT.c.position.in_(newest))
    acts = select(AUDIT).where(wanted).order_by(AUDIT.c.position)
    recorded: dict[RowKey, Recorded] = {key: Recorded(seal, 0) for key, seal in initial_rows().items()}
    for row in map(dict, connection.execute(acts, execution_options={"yield_per": 1_000}).mappings()):
        if hash_of(row) != row["hash"]:
            yield "", f"Row {row['position']} of the audit ({row['deed']}) was changed: it has not the hash of what it says."
            continue
        recorded |= {key: Recorded(seal, row["position"]) for key, seal in rows_in(json.loads(row["detail"]))}
    changed = (fault.sentence for fault in row_faults(connection, RULES, recorded))
    yield from (("", sentence) for sentence in chain(changed, single_faults(connection, None), acting_faults(connection)))


def due_mark_faults(connection: Connection, datasets: Sequence[str], as_of: datetime) -> Iterator[tuple[str, str]]:
    """Faults of due or SWEEPING marks, each with its dataset."""
    for some in portions(sorted(set(datasets))):
        due = _OPEN, MARKS.c.dataset.in_(some), or_(MARKS.c.due_at <= as_of, MARKS.c.status == "SWEEPING")
        query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).where(*due).order_by(MARKS.c.dataset, MARKS.c.id)
        for batch in stream(connection, query, MARK_ROWS):
            yield from unsealed_marks(pa.Table.from_batches([batch]))
        yield from _made(connection, due)
        mine: ColumnElement[bool] = MARKS.c.dataset.in_(some) & _OPEN
        yield from (("", sentence) for sentence in life_faults(connection, mine))


def _made(connection: Connection, due: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Check that the act of each mark is a marking act that reserved its id."""
    ends = (func.min(MARKS.c.id).label("first"), func.max(MARKS.c.id).label("last"), func.min(MARKS.c.dataset).label("dataset"))
    groups = select(MARKS.c.act, *ends).where(*due).group_by(MARKS.c.act).subquery()
    query = select(groups, AUDIT.c.deed, AUDIT.c.detail, AUDIT.c.position).outerjoin(AUDIT, AUDIT.c.act == groups.c.act)
    for row in connection.execute(query):
        said = json.loads(row.detail) if row.deed == ActType.MARK else {}
        if not (said and said["first"] <= row.first and row.last <= said["last"]):
            yield (
                row.dataset,
                (f"Marks {row.first} to {row.last} ({row.dataset} among others) were added past the ledger: no act made them."),
            )
