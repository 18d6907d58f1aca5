"""Looks: what was true of a dataset when it was last judged, so that nobody judges it again before something can have changed.

Belongs here: the newest look at each dataset: the token of its log, the rules that could reach it, when time alone changes a
verdict. It is written in the transaction that marks, so that there is no look without its marks; the one that takes a mark away
says that it is time for another.
Does not belong here: whether a dataset is to be looked at (evaluation/changes.py). A look decides nothing about a transaction,
so the audit does not know it: one that is lost costs an evaluation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import select, update

from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import CLOCK, LOOKS
from retention_assets.sql.streams import stream
from retention_assets.sql.upserts import insert_or_update

# More names than one statement takes are named in several.
_NAMES = 10_000
_INSTANT = pa.timestamp("us", tz="UTC")

# One row per dataset. No token: its store said none. `next_look` is null where time alone changes nothing.
LOOK_ROWS = pa.schema(
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
    """The looks of a ledger."""

    database: LedgerDatabase

    def all(self) -> pa.Table:
        """The newest look at every dataset that was ever judged."""
        query = select(*(LOOKS.c[name] for name in LOOK_ROWS.names)).order_by(LOOKS.c.dataset)
        with self.database.reading() as connection:
            return pa.Table.from_batches(stream(connection, query, LOOK_ROWS), LOOK_ROWS)


def record_evaluations(doing: WriteTransaction, looks: pa.Table) -> None:
    """Note looks as part of a transaction; what an earlier look at the same datasets said is forgotten."""
    rows = looks.cast(LOOK_ROWS).to_pylist()
    if rows:
        doing.connection.execute(insert_or_update(doing.connection, LOOKS, ("dataset",), LOOK_ROWS.names[1:]), rows)


def request_evaluations(doing: WriteTransaction, datasets: Iterable[str]) -> None:
    """Have some datasets looked at at once, as part of a transaction that took marks of theirs away."""
    names = sorted(set(datasets))
    if not names:
        return
    # Who marks holds this row to the end. One who began before has still seen the marks as they were, and notes a look.
    doing.connection.execute(select(CLOCK.c.id).with_for_update(read=True))
    for at in range(0, len(names), _NAMES):
        mine = LOOKS.c.dataset.in_(names[at : at + _NAMES])
        doing.connection.execute(update(LOOKS).where(mine).values(next_look=LOOKS.c.looked_at))
