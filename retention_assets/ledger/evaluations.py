"""Evaluations: what was true of a dataset when it was last judged, so that it is not judged again before anything can change.

Belongs here: the newest evaluation of each dataset: the token of its log, the rules that could reach it, and when time alone
changes a verdict. It is written in the transaction that marks, so that there is none without its marks; the one that takes a
mark away requests another evaluation. And what was found then, for those who ask how things stand: the verdicts, added up by
policy, or why the dataset was refused.
Does not belong here: whether a dataset has to be evaluated (evaluation/changes.py). An evaluation decides nothing about a
transaction, so no act is about it: one that is lost costs another.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from sqlalchemy import select, update

from retention_assets.ledger.audit.state import change_rows, put_rows
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import CLOCK, EVALUATIONS
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import PORTION, portions

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
# The same with what was found: `counts` as `counts_text` has them, and the fault of a log that was refused.
FOUND_ROWS = pa.schema([*EVALUATION_ROWS, pa.field("counts", pa.string()), pa.field("fault", pa.string())])
# What of a log is deleted already, though it is still in it and policies still select it.
SWEPT_BEFORE = "swept"


class VerdictCount(NamedTuple):
    """How many transactions have one verdict by one policy, which is empty where none has the credit, and their bytes."""

    verdict: str
    policy: str
    transactions: int
    bytes: int


# By dataset and policy, what an evaluation selects and a sweep has deleted before: transactions and bytes.
SweptBefore = Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of a ledger."""

    database: LedgerDatabase

    def all(self) -> pa.Table:
        """The newest evaluation of every dataset that was ever judged."""
        query = select(*(EVALUATIONS.c[name] for name in EVALUATION_ROWS.names)).order_by(EVALUATIONS.c.dataset)
        with self.database.reading() as connection:
            return pa.Table.from_batches(stream(connection, query, EVALUATION_ROWS), EVALUATION_ROWS)

    def counts(self, datasets: Iterable[str]) -> dict[str, list[VerdictCount]]:
        """By dataset the verdicts of its newest evaluation, of those that were ever judged."""
        found: dict[str, list[VerdictCount]] = {}
        query = select(EVALUATIONS.c.dataset, EVALUATIONS.c.counts).where(EVALUATIONS.c.counts.is_not(None))
        with self.database.reading() as connection:
            for some in portions(sorted(set(datasets))):
                for name, counts in connection.execute(query.where(EVALUATIONS.c.dataset.in_(some))):
                    found[name] = counts_of(counts)
        return found

    def transactions_of(self, store: str) -> int:
        """How many transactions the datasets of a store had when they were judged last, without what is swept."""
        query = select(EVALUATIONS.c.counts).where(EVALUATIONS.c.dataset.startswith(f"{store}/", autoescape=True))
        with self.database.reading() as connection:
            rows = connection.execute(query).scalars()
            return sum(count.transactions for text in rows for count in counts_of(text) if count.verdict != SWEPT_BEFORE)


def counts_text(counts: Iterable[VerdictCount]) -> str:
    """The verdicts of a dataset as its row has them."""
    return json.dumps([list(one) for one in counts], separators=(",", ":"))


def counts_of(text: str | None) -> list[VerdictCount]:
    """The verdicts of a dataset; none where it was refused."""
    return [VerdictCount(*one) for one in json.loads(text)] if text else []


def record_evaluations(tx: WriteTransaction, evaluations: pa.Table, swept: SweptBefore) -> None:
    """Write evaluations as part of a transaction; earlier ones of the same datasets are forgotten.

    What was swept before is no mark any more, whatever its verdict: it is counted apart.
    """
    missing = [name for name in FOUND_ROWS.names[len(EVALUATION_ROWS) :] if name not in evaluations.column_names]
    for name in missing:
        evaluations = evaluations.append_column(name, pa.nulls(len(evaluations), pa.string()))
    found, with_swept = evaluations.cast(FOUND_ROWS), {dataset for dataset, _ in swept}
    for at in range(0, len(found), PORTION):
        rows = found.slice(at, PORTION).to_pylist()
        for row in rows:
            if row["dataset"] in with_swept and row["counts"]:
                row["counts"] = counts_text(_apart(row["dataset"], counts_of(row["counts"]), swept))
        put_rows(tx.connection, EVALUATIONS, rows, FOUND_ROWS.names[1:])


def _apart(dataset: str, counts: Iterable[VerdictCount], swept: SweptBefore) -> Iterable[VerdictCount]:
    for one in counts:
        gone, size = swept.get((dataset, one.policy), (0, 0)) if one.verdict == "mark" else (0, 0)
        if one.transactions > gone:
            yield one._replace(transactions=one.transactions - gone, bytes=one.bytes - size)
        if gone:
            yield VerdictCount(SWEPT_BEFORE, one.policy, gone, size)


def request_evaluations(tx: WriteTransaction, datasets: Iterable[str]) -> None:
    """Make some datasets due for another evaluation, as part of a transaction that took marks of theirs away."""
    names = sorted(set(datasets))
    if not names:
        return
    # Who marks holds this row to the end. One who began before has still seen the marks as they were, and has written so.
    tx.connection.execute(select(CLOCK.c.id).with_for_update(read=True))
    for some in portions(names):
        mine = EVALUATIONS.c.dataset.in_(some)
        change_rows(tx.connection, update(EVALUATIONS).where(mine).values(next_look=EVALUATIONS.c.looked_at), mine)
