"""What a release without seals left in a ledger, sealed as it is found.

Belongs here: the one act by which such a ledger becomes one that can be verified: the seals of its rows, and digests over plans
and over lives that have ended. What was changed before then nobody can know.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Select, inspect, select

from retention_assets.ledger.audit.chain import Act, ActType, append_acts
from retention_assets.ledger.audit.rows import SEALED, existing_rows, initial_rows, key_in
from retention_assets.ledger.audit.seals import planned_seals
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, CLOCK, MARKS, PLANNED
from retention_assets.policy.durations import text_of

# The digest over nothing.
NOTHING = hashlib.sha256().hexdigest()
WRITTEN_EARLIER = "An older release wrote this. It is sealed as it was found."


def seal_existing(connection: Connection) -> None:
    """Seal what is there. A ledger in which nobody has done anything has nothing to be sealed."""
    head = connection.execute(select(AUDIT_HEAD.c.position, AUDIT_HEAD.c.ledger)).one()
    # What a later migration makes is not there yet, and nobody has written to it.
    there = set(inspect(connection).get_table_names())
    tables = [table for table in SEALED.values() if table.name in there]
    rows = [row for row in existing_rows(connection, tables) if initial_rows().get(key_in(row)) != row[2]]
    if head.position == 0 and not rows:
        return
    detail = {
        "ledger": head.ledger,
        "rows": rows,
        "planned": planned_digest(connection),
        "lives": ended_digest(connection, head.position),
        "next_mark": connection.execute(select(CLOCK.c.next_mark)).scalar_one_or_none(),
    }
    append_acts(connection, [Act(ActType.SEAL, "::system", WRITTEN_EARLIER, detail=detail)])


def planned_digest(connection: Connection) -> str:
    """Over what plans of older releases hold, whose rows have no seals."""
    columns = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note")]
    query = select(*columns).where(PLANNED.c.seal.is_(None)).order_by(PLANNED.c.plan, PLANNED.c.mark)
    return _digest(seal for row in _all(connection, query) for seal in planned_seals([row]))


def ended_digest(connection: Connection, until: int) -> str:
    """Over when marks ended, by acts up to a position: the acts of older releases themselves say a moment later."""
    over = MARKS.c.status.in_(("UNMARKED", "SPARED", "SWEPT"))
    query = select(MARKS.c.id, MARKS.c.changed_at).join(AUDIT, AUDIT.c.act == MARKS.c.changed_act)
    query = query.where(over, AUDIT.c.position <= until).order_by(MARKS.c.id)
    return _digest(f"{mark}|{at and text_of(at)}\n" for mark, at in _all(connection, query))


def _all(connection: Connection, query: Select[Any]) -> Iterable[Any]:
    return connection.execute(query, execution_options={"yield_per": 50_000})


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()
