"""Spares what 0.2.0 ended as kept readable: nothing of it is gone, so it can be marked anew. The old end becomes a step."""

from sqlalchemy import Connection, select

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.clock_guard import SYSTEM
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.evaluations import request_evaluations
from retention_assets.ledger.reports import only_one
from retention_assets.ledger.schema import MARKS, STEPS, SWEPT, TAKEN_BACK
from retention_assets.ledger.steps import END, NO_ERROR, STEP, record_moves
from retention_assets.sql.staging import append_rows

BEFORE, REVISION = "0024", "0025"
_REASON = "The ledger was upgraded: what lost nothing in its sweep is spared, and judged again."


def upgrade(connection: Connection) -> None:
    query = select(*END, MARKS.c.dataset).where(MARKS.c.outcome == TAKEN_BACK).order_by(MARKS.c.id)
    if not (kept := connection.execute(query).all()):
        return
    tx, datasets = WriteTransaction(connection), {row.dataset for row in kept}
    act = Act(ActType.SPARE, SYSTEM, _REASON, only_one(datasets), detail={"revision": REVISION})
    append_rows(connection, STEPS, STEP, [row[:-1] for row in kept])
    record_moves(tx, act, [(row.id, "SPARED", None, None, None, row.why or NO_ERROR) for row in kept], state=SWEPT)
    request_evaluations(tx, datasets)
    tx.append()
