"""Evaluations: what was true of a dataset when it was last judged, so that it is not judged again before anything can change.

Belongs here: the newest evaluation of each dataset: the token of its log, the rules that could reach it, and when time alone
changes a verdict. It is written in the transaction that marks, so that there is none without its marks; the one that takes a
mark away requests another evaluation.
Does not belong here: whether a dataset has to be evaluated (evaluation/changes.py). An evaluation decides nothing about a
transaction, so the audit does not know it: one that is lost costs another.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import select, update

from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import CLOCK, EVALUATIONS
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import portions
from retention_assets.sql.upserts import insert_or_update

_INSTANT = pa.timestamp("us", tz="UTC")

# One row per dataset. No token: its store said none. `next_look` is null where time alone changes nothing.
EVALUATION_ROWS = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("token", pa.string()),
        pa.field("rules", pa.string(), nullable=False),
        pa.field("looked_at", _INSTANT, nullable=False),
        pa.field("next_look", _INSTANT),
    ]
)


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of a ledger."""

    database: LedgerDatabase

    def all(self) -> pa.Table:
        """The newest evaluation of every dataset that was ever judged."""
        query = select(*(EVALUATIONS.c[name] for name in EVALUATION_ROWS.names)).order_by(EVALUATIONS.c.dataset)
        with self.database.reading() as connection:
            return pa.Table.from_batches(stream(connection, query, EVALUATION_ROWS), EVALUATION_ROWS)


def record_evaluations(tx: WriteTransaction, evaluations: pa.Table) -> None:
    """Write evaluations as part of a transaction; earlier ones of the same datasets are forgotten."""
    rows = evaluations.cast(EVALUATION_ROWS).to_pylist()
    if rows:
        tx.connection.execute(insert_or_update(tx.connection, EVALUATIONS, ("dataset",), EVALUATION_ROWS.names[1:]), rows)


def request_evaluations(tx: WriteTransaction, datasets: Iterable[str]) -> None:
    """Make some datasets due for another evaluation, as part of a transaction that took marks of theirs away."""
    names = sorted(set(datasets))
    if not names:
        return
    # Who marks holds this row to the end. One who began before has still seen the marks as they were, and has written so.
    tx.connection.execute(select(CLOCK.c.id).with_for_update(read=True))
    for some in portions(names):
        mine = EVALUATIONS.c.dataset.in_(some)
        tx.connection.execute(update(EVALUATIONS).where(mine).values(next_look=EVALUATIONS.c.looked_at))
