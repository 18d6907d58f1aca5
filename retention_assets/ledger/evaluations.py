"""Evaluations, the newest judgement of each dataset, and the published folders that hold its rows of each asset.

An evaluation is written in the transaction that marks, and a transaction that takes marks away requests another one. It decides
nothing about a transaction, so no act covers it: a lost one costs a repetition.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import ColumnElement, or_, select, update

from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.audit.rows import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction
from retention_assets.ledger.schema import CLOCK, EVALUATIONS, PUBLISHED
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.transactions import PORTION, insert_or_update, portions

_INSTANT = pa.timestamp("us", tz="UTC")

# One row per dataset. A null token: the store gave none. `next_look` is null if time alone changes nothing.
EVALUATION_ROWS = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("token", pa.string()),
        pa.field("rules", pa.string(), nullable=False),
        pa.field("looked_at", _INSTANT, nullable=False),
        pa.field("next_look", _INSTANT),
    ]
)
# With the results: `counts` as JSON (`counts_text`), and the fault of a refused log.
FOUND_ROWS = pa.schema([*EVALUATION_ROWS, pa.field("counts", pa.string()), pa.field("fault", pa.string())])
# Verdict of transactions that are deleted but still in the log and still selected.
SWEPT_BEFORE = "swept"
# transactions and bytes deleted before but still selected, by (dataset, policy)
SweptBefore = Mapping[tuple[str, str], tuple[int, int]]


class VerdictCount(NamedTuple):
    """Transactions and bytes with one verdict by one policy; the policy is "" if none is responsible."""

    verdict: str
    policy: str
    transactions: int
    bytes: int


class Evaluations(LedgerPart):
    """The evaluations of a ledger."""

    def all(self) -> pa.Table:
        query = select(*(EVALUATIONS.c[name] for name in EVALUATION_ROWS.names)).order_by(EVALUATIONS.c.dataset)
        return pa.Table.from_batches(self.streamed([query], EVALUATIONS.c.dataset, None, EVALUATION_ROWS), EVALUATION_ROWS)

    def counts(self, datasets: Iterable[str]) -> dict[str, list[VerdictCount]]:
        query = select(EVALUATIONS.c.dataset, EVALUATIONS.c.counts).where(EVALUATIONS.c.counts.is_not(None))
        return {name: counts_of(counts) for name, counts in self.rows_among(query, EVALUATIONS.c.dataset, datasets)}

    def transactions_of(self, store: str) -> int:
        query = select(EVALUATIONS.c.counts).where(EVALUATIONS.c.dataset.startswith(f"{store}/", autoescape=True))
        counts = (count for (text,) in self.rows(query) for count in counts_of(text))
        return sum(count.transactions for count in counts if count.verdict != SWEPT_BEFORE)


def counts_text(counts: Iterable[VerdictCount]) -> str:
    return json.dumps([list(one) for one in counts], separators=(",", ":"))


def counts_of(text: str | None) -> list[VerdictCount]:
    return [VerdictCount(*one) for one in json.loads(text)] if text else []


def record_evaluations(tx: WriteTransaction, evaluations: pa.Table, swept: SweptBefore) -> None:
    """Replace the evaluations of these datasets. What was swept before is counted as SWEPT_BEFORE, whatever its verdict."""
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
    """Make datasets due for another evaluation, in the transaction that took marks of theirs away."""
    names = sorted(set(datasets))
    if not names:
        return
    # Markers hold this row until they commit. One that began earlier saw the old marks and has already written its
    # evaluation.
    tx.connection.execute(select(CLOCK.c.id).with_for_update(read=True))
    for some in portions(names):
        mine = EVALUATIONS.c.dataset.in_(some)
        change_rows(tx.connection, update(EVALUATIONS).where(mine).values(next_look=EVALUATIONS.c.looked_at), mine)


class Publication(NamedTuple):
    """The folder that holds an asset's rows of a dataset, and the run that wrote it."""

    asset: str
    dataset: str
    folder: str
    run: str


class Publications(LedgerPart):
    """The published asset versions of a ledger."""

    def publish(self, publications: Sequence[Publication], actor: str) -> None:
        self.database.write(lambda tx: publish(tx, publications, actor))

    def of(self, asset: str, datasets: Iterable[str] | None = None) -> list[Publication]:
        wanted = None if datasets is None else set(datasets)
        return [one for one in self._of(asset) if wanted is None or one.dataset in wanted]

    def datasets(self, asset: str) -> list[str]:
        query = select(PUBLISHED.c.dataset).where(PUBLISHED.c.asset == asset).order_by(PUBLISHED.c.dataset)
        return [dataset for (dataset,) in self.rows(query)]

    def named(self, name: str) -> dict[str, str]:
        # whatever the prefix of its key
        last = or_(PUBLISHED.c.asset == name, PUBLISHED.c.asset.endswith(f"/{name}", autoescape=True))
        query = select(PUBLISHED.c.dataset, PUBLISHED.c.folder).where(last).order_by(PUBLISHED.c.published_at)
        return {row.dataset: row.folder for row in self.rows(query)}

    def by(self, asset: str, runs: Iterable[str]) -> list[Publication]:
        """Publications of some runs that no later run replaced."""
        return self._of(asset, PUBLISHED.c.run.in_(set(runs)))

    def folders(self) -> set[str]:
        return {folder for (folder,) in self.rows(select(PUBLISHED.c.folder).distinct())}

    def _of(self, asset: str, *where: ColumnElement[bool]) -> list[Publication]:
        query = select(*(PUBLISHED.c[name] for name in Publication._fields)).where(PUBLISHED.c.asset == asset, *where)
        return [Publication(*row) for row in self.rows(query.order_by(PUBLISHED.c.dataset))]


def publish(tx: WriteTransaction, publications: Sequence[Publication], actor: str) -> None:
    if not publications:
        return
    act, at = new_id(), tx.connection.execute(select(DatabaseTime())).scalar_one()
    statement = insert_or_update(tx.connection, PUBLISHED, ("asset", "dataset"), ("folder", "run", "act", "published_at"))
    for some in portions(publications):
        tx.connection.execute(statement.values(act=act, published_at=at), [one._asdict() for one in some])
    detail = {"published": {"act": act, "at": text_of(at), "groups": _groups(publications)}}
    tx.record(Act(ActType.PUBLISH, actor, detail=detail, members=len(publications), at=at, id=act))


def _groups(publications: Sequence[Publication]) -> list[dict[str, Any]]:
    if len(alike := {(one.asset, one.run, one.folder) for one in publications}) == 1:
        return [{"assets": sorted(alike), "datasets": sorted({one.dataset for one in publications})}]
    places: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for one in publications:
        places[one.dataset].add((one.asset, one.run, one.folder))
    groups: defaultdict[tuple[tuple[str, str, str], ...], list[str]] = defaultdict(list)
    for dataset in sorted(places):
        groups[tuple(sorted(places[dataset]))].append(dataset)
    return [{"assets": assets, "datasets": datasets} for assets, datasets in sorted(groups.items())]
