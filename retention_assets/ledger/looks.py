"""Looks: what was true of a dataset when it was last judged, so that nobody judges it again before something can have changed.

Belongs here: the newest look at each dataset: the token of its log, the rules that could reach it, when time alone changes a
verdict. It is written in the transaction that marks, so that there is no look without its marks.
Does not belong here: whether a dataset is to be looked at (looking.py). A look decides nothing about a transaction, so the
audit does not know it: one that is lost costs an evaluation.
"""

from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import select

from retention_assets.ledger.bulk import stream
from retention_assets.ledger.database import Database, Writing
from retention_assets.ledger.schema import LOOKS
from retention_assets.ledger.upserts import insert_or_update

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
class Looks:
    """The looks of a ledger."""

    database: Database

    def all(self) -> pa.Table:
        """The newest look at every dataset that was ever judged."""
        query = select(*(LOOKS.c[name] for name in LOOK_ROWS.names)).order_by(LOOKS.c.dataset)
        with self.database.reading() as connection:
            return pa.Table.from_batches(stream(connection, query, LOOK_ROWS), LOOK_ROWS)


def look(doing: Writing, looks: pa.Table) -> None:
    """Note looks as part of a transaction; what an earlier look at the same datasets said is forgotten."""
    rows = looks.cast(LOOK_ROWS).to_pylist()
    if rows:
        doing.connection.execute(insert_or_update(doing.connection, LOOKS, ("dataset",), LOOK_ROWS.names[1:]), rows)
