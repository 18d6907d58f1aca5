"""Evaluations of datasets, objections and violations of checks, and the published folders of assets.

An evaluation, the newest judgement of a dataset, is written in the transaction that marks, and a transaction that takes marks
away requests another one. It decides nothing about a transaction, so no act covers it: losing one costs another evaluation.

Under an objection of a check a dataset is not swept; a violation stands until it is mended. Both are in the ledger, so that a
run on other datasets makes no check pass, and whoever launches a sweep is stopped.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import ColumnElement, Table, or_, select, text, update

from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.audit.rows import change_rows, put_rows, stored
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.invariants import Violation
from retention_assets.ledger.schema import CLOCK, EVALUATIONS, OBJECTIONS, PUBLISHED, STANDING, VIOLATIONS, WHOLE_CHECKS
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
    return json.dumps([list(count) for count in counts], separators=(",", ":"))


def counts_of(text: str | None) -> list[VerdictCount]:
    if not text:
        return []
    return stored("A row of looks", text, lambda counts: [VerdictCount(*values) for values in json.loads(counts)])


def record_evaluations(tx: WriteTransaction, evaluations: pa.Table, swept: SweptBefore) -> None:
    """Replace the evaluations of these datasets. Transactions swept before count as SWEPT_BEFORE, whatever their verdict."""
    missing = [name for name in FOUND_ROWS.names[len(EVALUATION_ROWS) :] if name not in evaluations.column_names]
    for name in missing:
        evaluations = evaluations.append_column(name, pa.nulls(len(evaluations), pa.string()))
    table, with_swept = evaluations.cast(FOUND_ROWS), {dataset for dataset, _ in swept}
    for at in range(0, len(table), PORTION):
        rows = table.slice(at, PORTION).to_pylist()
        for row in rows:
            if row["dataset"] in with_swept and row["counts"]:
                row["counts"] = counts_text(_apart(row["dataset"], counts_of(row["counts"]), swept))
        put_rows(tx.connection, EVALUATIONS, rows, FOUND_ROWS.names[1:])


def _apart(dataset: str, counts: Iterable[VerdictCount], swept: SweptBefore) -> Iterable[VerdictCount]:
    for count in counts:
        gone, size = swept.get((dataset, count.policy), (0, 0)) if count.verdict == "mark" else (0, 0)
        if count.transactions > gone:
            yield count._replace(transactions=count.transactions - gone, bytes=count.bytes - size)
        if gone:
            yield VerdictCount(SWEPT_BEFORE, count.policy, gone, size)


def request_evaluations(tx: WriteTransaction, datasets: Iterable[str]) -> None:
    """Make datasets due for another evaluation, in the transaction that took marks of theirs away."""
    names = sorted(set(datasets))
    if not names:
        return
    # Markers hold this row until they commit. One that began earlier saw the old marks and has already written its
    # evaluation.
    tx.connection.execute(select(CLOCK.c.id).with_for_update(read=True))
    for part in portions(names):
        here = EVALUATIONS.c.dataset.in_(part)
        change_rows(tx.connection, update(EVALUATIONS).where(here).values(next_look=EVALUATIONS.c.looked_at), here)


class Publication(NamedTuple):
    """The folder that holds an asset's rows of a dataset, and the run that wrote it."""

    asset: str
    dataset: str
    folder: str
    run: str


class Publications(LedgerPart):
    def publish(self, publications: Sequence[Publication], actor: str) -> None:
        self.database.write(lambda tx: publish(tx, publications, actor))

    def of(self, asset: str, datasets: Iterable[str] | None = None) -> list[Publication]:
        wanted = None if datasets is None else set(datasets)
        return [publication for publication in self._of(asset) if wanted is None or publication.dataset in wanted]

    def datasets(self, asset: str) -> list[str]:
        query = select(PUBLISHED.c.dataset).where(PUBLISHED.c.asset == asset).order_by(PUBLISHED.c.dataset)
        return [dataset for (dataset,) in self.rows(query)]

    def named(self, name: str) -> dict[str, str]:
        # also under an asset key with a prefix
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
    for part in portions(publications):
        tx.connection.execute(statement.values(act=act, published_at=at), [publication._asdict() for publication in part])
    detail = {"published": {"act": act, "at": text_of(at), "groups": _groups(publications)}}
    tx.record(Act(ActType.PUBLISH, actor, detail=detail, members=len(publications), at=at, id=act))


def _groups(publications: Sequence[Publication]) -> list[dict[str, Any]]:
    if len(alike := {(publication.asset, publication.run, publication.folder) for publication in publications}) == 1:
        return [{"assets": sorted(alike), "datasets": sorted({publication.dataset for publication in publications})}]
    places: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for publication in publications:
        places[publication.dataset].add((publication.asset, publication.run, publication.folder))
    groups: defaultdict[tuple[tuple[str, str, str], ...], list[str]] = defaultdict(list)
    for dataset in sorted(places):
        groups[tuple(sorted(places[dataset]))].append(dataset)
    return [{"assets": assets, "datasets": datasets} for assets, datasets in sorted(groups.items())]


@dataclass(frozen=True)
class Objection:
    dataset: str
    check: str
    sentence: str
    raised_by: str


@dataclass(frozen=True)
class StandingViolation:
    check: str
    dataset: str
    what: str
    times: int
    since: datetime


class Objections(LedgerPart):
    @audited
    def object(self, tx: WriteTransaction, sentences: Mapping[str, str], check: str, actor: str) -> None:
        said = dict(sorted(sentences.items()))
        act = Act(ActType.OBJECT, actor, f"{check} failed.", detail={"check": check, "datasets": said})
        for where in _rows_of(OBJECTIONS, check, sentences):
            tx.seal(OBJECTIONS, where, act)
        row = {"raised_by": actor, "withdrawn_at": None, "withdrawn_by": None, "act": act.id}
        statement = insert_or_update(tx.connection, OBJECTIONS, ("dataset", "check_name"), ("sentence", "raised_at", *row))
        rows = [{"dataset": name, "check_name": check, "sentence": sentence, **row} for name, sentence in said.items()]
        tx.connection.execute(statement.values(raised_at=DatabaseTime()), rows)
        tx.record(act)

    def withdraw(self, datasets: Iterable[str], check: str, actor: str, known: Collection[Objection] | None = None) -> None:
        """Withdraw a check's objections to datasets for which it now passes. `known`: all that stand, if asked before."""
        objections = self.standing() if known is None else known
        if withdrawn := sorted(set(datasets) & {one.dataset for one in objections if one.check == check}):
            self._withdraw(withdrawn, check, actor)

    @audited
    def _withdraw(self, tx: WriteTransaction, datasets: Collection[str], check: str, actor: str) -> None:
        act = Act(ActType.WITHDRAW, actor, f"{check} passed.", detail={"check": check, "datasets": datasets})
        over = {"withdrawn_at": DatabaseTime(), "withdrawn_by": actor, "act": act.id}
        for where in _rows_of(OBJECTIONS, check, datasets):
            tx.seal(OBJECTIONS, where, act)
            tx.connection.execute(update(OBJECTIONS).where(where, OBJECTIONS.c.withdrawn_at.is_(None)).values(**over))
        tx.record(act)

    def standing(self, datasets: Collection[str] | None = None) -> list[Objection]:
        columns = [OBJECTIONS.c[name] for name in ("dataset", "check_name", "sentence", "raised_by")]
        rows = self.rows(select(*columns).where(OBJECTIONS.c.withdrawn_at.is_(None)).order_by(*columns[:2]))
        return [Objection(*row) for row in rows if datasets is None or row.dataset in datasets]


class Violations(LedgerPart):
    def standing(self, check: str | None = None) -> list[StandingViolation]:
        columns = [VIOLATIONS.c[name] for name in ("check_name", "dataset", "what", "times", "since")]
        query = select(*columns).where(text(STANDING)).order_by(*columns[:2])
        rows = self.rows(query if check is None else query.where(VIOLATIONS.c.check_name == check))
        return [StandingViolation(*row) for row in rows]

    def update(
        self,
        check: str,
        violations: Mapping[str, Violation],
        looked_at: Collection[str] | None,
        at: datetime,
        actor: str,
        known: Collection[StandingViolation] | None = None,
    ) -> list[StandingViolation]:
        """Record the violations of a check in `looked_at` (None: all); return what stands. Other datasets stay unchanged.

        `known`: what stood before, if somebody has asked for it.
        """
        standing = self.standing(check) if known is None else known
        before = {violation.dataset: violation for violation in standing if violation.check == check}
        new = [violation for name, violation in violations.items() if name not in before]
        common = [(one, before[name]) for name, one in violations.items() if name in before]
        changed = [one for one, last in common if (one.what, one.times) != (last.what, last.times)]
        # Violations without a dataset are checked each time.
        over = [name for name in before if name not in violations and (looked_at is None or not name or name in looked_at)]
        if not (new or changed or over):
            return list(before.values())
        row = {"check_name": check, "since": at, "found_by": actor, "over_at": None}

        def write(tx: WriteTransaction) -> None:
            present = ("what", "times", "found_by")
            for rows, columns in ((new, (*present, "since", "over_at")), (changed, present)):
                put_rows(tx.connection, VIOLATIONS, [{**row, **asdict(violation)} for violation in rows], columns)
            _end(tx, check, over, at)

        self.database.write(write)
        return self.standing(check)

    def end(self, check: str, datasets: Iterable[str], at: datetime) -> None:
        names = sorted(datasets)
        if names:
            self.database.write(lambda tx: _end(tx, check, names, at))

    def whole_looks(self) -> dict[str, datetime]:
        """When each check looked at everything last."""
        return {check: at for check, at in self.rows(select(WHOLE_CHECKS.c.check_name, WHOLE_CHECKS.c.looked_at))}  # noqa: C416

    @audited
    def note_whole_look(self, tx: WriteTransaction, check: str, at: datetime) -> None:
        put_rows(tx.connection, WHOLE_CHECKS, [{"check_name": check, "looked_at": at}], ("looked_at",))


def _end(tx: WriteTransaction, check: str, datasets: Iterable[str], at: datetime) -> None:
    for here in _rows_of(VIOLATIONS, check, datasets):
        change_rows(tx.connection, update(VIOLATIONS).where(here, text(STANDING)).values(over_at=at), here)


def _rows_of(table: Table, check: str, datasets: Iterable[str]) -> Iterator[ColumnElement[bool]]:
    for part in portions(sorted(datasets)):
        yield (table.c.check_name == check) & table.c.dataset.in_(part)
