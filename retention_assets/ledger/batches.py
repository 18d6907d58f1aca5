"""A sweep's reads and writes in the ledger. Each write is fenced by the leases of its datasets and has one act for all of them.

In order: settle what an earlier sweep has begun, `spare` what is no longer justified, `plan` the rest; per batch `begin`,
let the store delete, `settle`; then `finish`. The note by which the store finds a transaction again is in the plan before
anything begins. Datasets whose lease is lost are left out and reported; the others go on.

The record of a sweep is the batch: beginning writes one row that names its marks, and settling one update per mark. Beginning
locks the marks, as taking back does, so that exactly one of them has each mark.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import Connection, and_, bindparam, case, insert, literal, null, select, text, tuple_, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType, new_id, planned_seals
from retention_assets.ledger.begun_batches import Share, lock_due_marks, record_begin
from retention_assets.ledger.clock_guard import has_come_by, present_by
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.evaluations import request_evaluations
from retention_assets.ledger.leases import ALL_NAMES, Lease, NameRange
from retention_assets.ledger.mark_rows import MARK_ROW, begun_by_ids
from retention_assets.ledger.reports import ReportCounts, count, count_later
from retention_assets.ledger.schema import ASIDE, AUDIT, BATCHES, MARKS, OPEN, PLANNED, PLANS, PUBLISHED, SWEPT, TIMES
from retention_assets.ledger.steps import (
    IS_BEGUN,
    NO_ERROR,
    OPEN_BATCH,
    SHOWN,
    SHOWN_MARKS,
    MarkStep,
    OpenBatch,
    by_id,
    end_marks,
    of_datasets,
    open_batches,
    record_moves,
    record_steps,
    report_columns,
)
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime, IdsColumn, InstantColumn, fit
from retention_assets.sql.staging import append_rows
from retention_assets.sql.streams import numbers_of
from retention_assets.sql.transactions import portions

# Columns that determine a transaction's class. Few datasets and states occur among many marks.
_WORD = pa.dictionary(pa.int32(), pa.string())
CLASSED_ROWS = pa.schema(
    [
        pa.field("dataset", _WORD),
        *(MARK_ROW.field(name) for name in ("transaction", *TIMES)),
        pa.field("status", _WORD),
        # 1 or 0: returning an instant per mark takes twice the time.
        pa.field("is_due", pa.int8()),
    ]
)
# Columns about a mark from its plan and its batch.
PLANNED_ROWS = pa.schema(
    [
        ("note", pa.string()), ("planned", pa.int64()), ("place", pa.string()), ("planned_at", pa.timestamp("us", "UTC")),
        ("plan", pa.int64()), ("order", pa.string()), ("until", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
# Built once: every batch uses them.
_KEY = BATCHES.c.begun, BATCHES.c.plan
_LOCKING = OPEN_BATCH.where(tuple_(*_KEY).in_(bindparam("keys", expanding=True))).order_by(*_KEY).with_for_update()
_REASONS = select(AUDIT.c.act, AUDIT.c.reason).where(AUDIT.c.act.in_(bindparam("acts", expanding=True)))
_IS_BATCH = and_(BATCHES.c.begun == bindparam("act"), BATCHES.c.plan == bindparam("of"))
_CLOSE = update(BATCHES).where(_IS_BATCH).values(open_ids=bindparam("still_open", type_=IdsColumn()))


@dataclass(frozen=True)
class Settlement:
    """Outcome of a mark: bytes freed or hidden, the error of a failure, and the number of files that stay."""

    mark: int
    outcome: Outcome
    bytes: int = 0
    error: str | None = None
    bytes_hidden: int = 0
    left: int = 0


class Planned(NamedTuple):
    """The store's data for a planned mark: bytes that it will free, and its note."""

    bytes: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Plan:
    """A plan of deletions; only planned marks can begin."""

    id: int
    dataset: str
    marks: int
    bytes: int


class Moved(NamedTuple):
    """Moved marks with their datasets, why leases are lost, by dataset, and the hold over them, which may be an earlier one."""

    marks: Mapping[int, str]
    lost: Mapping[str, str]
    hold: str | None = None
    placed: bool = False


class Plans(NamedTuple):
    plans: Mapping[str, Plan]
    marks: frozenset[int]
    lost: Mapping[str, str]


class Sweeps(LedgerPart):
    """The sweeps of a ledger. Each write needs the leases of its datasets, and leaves out those whose lease is lost."""

    def planned(
        self,
        marks: Collection[int] = (),
        order: Order = Order.DELETE_ASIDE,
        *,
        begun_in: Collection[str] = (),
        names: NameRange = ALL_NAMES,
    ) -> pa.Table:
        """Rows of swept marks by their newest plans, for another order, and of those that were begun and may be gone."""
        with self.database.reading() as connection:
            parts = (OPEN_BATCH.where(BATCHES.c.dataset.in_(part)) for part in portions(sorted(begun_in)))
            begun = (OpenBatch(*row) for part in parts for row in connection.execute(part))
            batches = {mark: batch for batch in begun for mark in batch.marks}
            plans = newest_plans(connection, marks).items()
            batches |= {mark: OpenBatch(0, plan, "", (), order, None) for mark, plan in plans}
            return _planned_rows(connection, batches, names)

    def due(
        self, datasets: Collection[str], as_of: datetime, names: NameRange = ALL_NAMES, state: str = OPEN
    ) -> npt.NDArray[np.int64]:
        """Ids of marks to delete, or in the state ASIDE to delete for good, that nobody has begun."""
        instant = MARKS.c.due_at if state == OPEN else MARKS.c.until
        query = select(MARKS.c.id).select_from(SHOWN_MARKS).where(text(state), ~IS_BEGUN)
        query = query.where(instant <= as_of, names.condition())
        ids = [np.empty(0, np.int64)]
        with self.database.reading() as connection:
            for part in portions(sorted(datasets)):
                part_query = query.where(MARKS.c.dataset.in_(part))
                # Sorting one dataset's ids here takes a tenth of the database's time.
                if len(part) == 1:
                    ids.append(np.sort(numbers_of(connection, part_query)))
                else:
                    ids.append(numbers_of(connection, part_query.order_by(MARKS.c.dataset, MARKS.c.id)))
        return np.concatenate(ids)

    def classed(self, datasets: Collection[str], as_of: datetime) -> pa.Table:
        """Open and swept marks with their class columns. Only swept marks have times: an open mark blocks its id."""
        columns = {**SHOWN, "is_due": case((MARKS.c.due_at <= as_of, 1), else_=0).label("is_due")}
        no_times = {name: null().label(name) for name in TIMES}
        # One query per partial index, with the exact text of its condition.
        queries = [
            select(*((columns | times)[name] for name in CLASSED_ROWS.names)).select_from(SHOWN_MARKS).where(text(condition))
            for condition, times in ((OPEN, no_times), (SWEPT, {}))
        ]
        batches = self.streamed(queries, MARKS.c.dataset, datasets, CLASSED_ROWS)
        return pa.Table.from_batches(batches, CLASSED_ROWS).unify_dictionaries()

    def notes(self, marks: Iterable[int]) -> dict[int, str]:
        """Newest note of each mark in a plan, by which the store finds a transaction again."""
        query = select(PLANNED.c.mark, PLANNED.c.note).join(PLANS, PLANS.c.id == PLANNED.c.plan).order_by(PLANS.c.planned_at)
        query = query.where(PLANNED.c.note.is_not(None))
        with self.database.reading() as connection:
            parts = by_id(connection, marks, column=PLANNED.c.mark)
            return {mark: note for where in parts for mark, note in connection.execute(query.where(where))}

    @audited
    def postpone(
        self, tx: WriteTransaction, dataset: str, transactions: Sequence[str], within: datetime, until: datetime, actor: str
    ) -> None:
        """Record, before the store is told, that transactions expiring by `within` stay until `until`."""
        names = json.dumps(sorted(transactions), ensure_ascii=False).encode(errors="surrogatepass")
        detail = {
            "transactions": len(transactions),
            "digest": hashlib.sha256(names).hexdigest(),
            "within": text_of(within),
            "until": text_of(until),
        }
        act = Act(ActType.POSTPONE, actor, "They are unfinished, not archived, or held.", dataset, detail=detail)
        tx.record(act)

    @audited
    def spare(
        self, tx: WriteTransaction, leases: Collection[Lease], reasons: Mapping[int, str], execution_date: date | None = None
    ) -> Moved:
        """Spare unjustified marks unless they were unmarked."""
        share = Share.fenced(tx, leases)
        act = Act(ActType.SPARE, share.holder)
        conditions = by_id(tx.connection, reasons if share.tokens else (), of_datasets(share.tokens))
        if spared := end_marks(tx, act, "SPARED", reasons, conditions):
            share.describe(act, set(spared.values()))
            request_evaluations(tx, set(spared.values()))
            if execution_date:
                counted: dict[str, list[ReportCounts]] = {}
                for row in report_columns(tx, spared):
                    counted.setdefault(row.dataset, []).append(ReportCounts(row.id, row.due_at, "spared", row.bytes))
                count(tx, act, execution_date, counted)
        return Moved(spared, share.lost)

    @audited
    def plan(
        self,
        tx: WriteTransaction,
        leases: Collection[Lease],
        marks: Mapping[int, Planned],
        as_of: datetime,
        places: Mapping[str, str | None],
    ) -> Plans:
        """Record what is about to be deleted, and its place by dataset: those of the marks that are MARKED and due."""
        share = Share.fenced(tx, leases)
        names = sorted(share.tokens.keys() & places.keys())
        if not names:
            return Plans({}, frozenset(), share.lost)
        act, plans = new_id(), {name: new_id() for name in names}
        common = {"as_of": as_of, "planned_at": tx.present(), "act": act}
        # Marks and bytes are known before the plans are written: the planner holds the leases, so nobody else begins on them.
        # Due as of the caller's instant and by the ledger's own clock.
        is_due = (MARKS.c.due_at <= as_of) & has_come_by(MARKS.c.due_at, literal(present_by(tx.connection), InstantColumn()))
        due = and_(of_datasets(names), MARKS.c.status == "MARKED", is_due, ~IS_BEGUN)
        rows: list[tuple[int, int, int | None]] = []
        for where in by_id(tx.connection, marks, due):
            matched = select(MARKS.c.id, MARKS.c.dataset, MARKS.c.bytes).select_from(SHOWN_MARKS).where(where)
            for mark, dataset, logged in tx.connection.execute(matched).all():
                size = marks[mark].bytes
                rows.append((plans[dataset], mark, logged if size is None else size))
        rows.sort()
        amounts, sizes = dict.fromkeys(plans.values(), 0), dict.fromkeys(plans.values(), 0)
        for plan, _, size in rows:
            amounts[plan] += 1
            sizes[plan] += size or 0
        recorded = {name: Plan(plan, name, amounts[plan], fit(sizes[plan])) for name, plan in plans.items()}
        written = [
            {**common, "id": plan.id, "dataset": name, "token": share.tokens[name], "marks": plan.marks, "bytes": plan.bytes}
            | {"place": places[name]}
            for name, plan in recorded.items()
        ]
        tx.connection.execute(insert(PLANS), written)
        columns, digest = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")], hashlib.sha256()
        # In batches: a plan may have millions of marks, and only a few numbers of each are kept.
        for part in portions(rows):
            sealed = planned_seals(noted := [(*row, marks[row[1]].note) for row in part])
            append_rows(tx.connection, PLANNED, columns, [(*row, seal) for row, seal in zip(noted, sealed, strict=True)])
            digest.update("".join(sealed).encode())
        planning = share.describe(Act(ActType.PLAN, share.holder, id=act), names, plans.values())
        total = {"marks": len(rows), "bytes": fit(sum(sizes.values()))}
        place = {"place": places[names[0]]} if len(names) == 1 else {}
        planning.detail = {**planning.detail, "as_of": text_of(as_of), **total, **place}
        planning.members, planning.digest = len(rows), digest.hexdigest()
        for these in portions(sorted(plans.values())):
            tx.seal(PLANS, PLANS.c.id.in_(these), planning)
        tx.record(planning)
        return Plans(recorded, frozenset(row[1] for row in rows), share.lost)

    @audited
    def begin(
        self,
        tx: WriteTransaction,
        leases: Collection[Lease],
        plans: Collection[Plan],
        marks: Collection[int],
        until: datetime | None = None,
    ) -> Moved:
        """Return the marks of a batch that may now be deleted, or set aside until an instant; unmarked ones are left out."""
        share = Share.fenced(tx, leases)
        own = {plan.dataset: plan.id for plan in plans if plan.dataset in share.tokens}
        begun = lock_due_marks(tx, own, sorted(set(marks))) if own else {}
        if begun:
            by_dataset: dict[str, list[int]] = {}
            for mark, dataset in begun.items():
                by_dataset.setdefault(dataset, []).append(mark)
            members = {own[name]: (name, ids) for name, ids in by_dataset.items()}
            order = Order.SET_ASIDE if until else Order.DELETE
            record_begin(tx, share, Act(ActType.BEGIN, share.holder), members, order, until)
        return Moved(begun, share.lost)

    @audited
    def settle(
        self,
        tx: WriteTransaction,
        leases: Collection[Lease],
        settled: Sequence[Settlement],
        execution_date: date | None = None,
    ) -> Moved:
        """Record outcomes and count them in a day's reports, in one transaction.

        A failed mark is as it was before, with one more attempt. Settling again what is settled counts nothing twice. All of
        them began by the same order.
        """
        share = Share.fenced(tx, leases)
        asked = {settlement.mark: settlement for settlement in settled}
        batches = open_batches(tx.connection, share.tokens, asked)
        if tx.connection.dialect.name == "postgresql":
            # as they are then: two parts of a dataset may each settle some of a batch that an earlier sweep left
            keys = [(batch.begun, batch.plan) for batch in batches]
            parts = (tx.connection.execute(_LOCKING, {"keys": part}) for part in portions(keys))
            batches = [OpenBatch(*row) for rows in parts for row in rows]
        datasets = {mark: batch.dataset for batch in batches for mark in batch.marks if mark in asked}
        if not datasets:
            return Moved({}, share.lost)
        own = {mark: batch for batch in batches for mark in batch.marks if mark in datasets}
        order = Order(batches[0].order)
        act = Act(ActType.RESTORE if order is Order.RESTORE else ActType.SETTLE, share.holder)
        settlements = [asked[mark] for mark in sorted(datasets)]
        if order is Order.RESTORE:
            request_evaluations(tx, set(datasets.values()))
            why = {row.act: row.reason for row in tx.connection.execute(_REASONS, {"acts": [batch.begun for batch in batches]})}
            settlements = [replace(answer, error=answer.error or why.get(own[answer.mark].begun)) for answer in settlements]
        if spared := {datasets[answer.mark] for answer in settlements if answer.outcome is Outcome.SPARED}:
            request_evaluations(tx, spared)
        share.describe(act, set(datasets.values()))
        act.detail = {**act.detail, "batches": sorted({batch.begun for batch in batches})}
        is_aside = order.starts_in_trash
        if order is Order.REPLAY:
            record_steps(tx, act, [*map(_step_of_replay, settlements)])
        else:
            lasting = [answer for answer in settlements if answer.outcome in (Outcome.FAILED, Outcome.SET_ASIDE)]
            ends = [_end_of(answer) for answer in settlements if answer.outcome not in (Outcome.FAILED, Outcome.SET_ASIDE)]
            untils = _untils(tx, [answer.mark for answer in lasting]) if is_aside else {mark: own[mark].until for mark in own}
            steps = [_step_of(answer, untils[answer.mark], is_aside) for answer in lasting]
            record_moves(tx, act, ends, steps, ASIDE if is_aside else OPEN)
        still_open = ([mark for mark in batch.marks if mark not in datasets] or None for batch in batches)
        closed = zip(batches, still_open, strict=True)
        tx.connection.execute(_CLOSE, [{"act": batch.begun, "of": batch.plan, "still_open": ids} for batch, ids in closed])
        if execution_date and (is_aside or order is Order.REPLAY):
            count_later(tx, act, execution_date, _counted_later(settlements, datasets, order))
        elif execution_date:
            count(tx, act, execution_date, _counted(tx, settlements))
        return Moved(datasets, share.lost)

    @audited
    def finish(self, tx: WriteTransaction, leases: Collection[Lease], plans: Collection[Plan]) -> Mapping[str, str]:
        """Finish plans: each of their marks was begun, or will not be. Returns why leases are lost, by dataset."""
        share = Share.fenced(tx, leases)
        plans_by_id = {plan.id: plan for plan in plans if plan.dataset in share.tokens}
        is_mine = PLANS.c.id.in_(sorted(plans_by_id)) & PLANS.c.dataset.in_(sorted(share.tokens))
        query = select(PLANS.c.id).where(is_mine, PLANS.c.finished_at.is_(None)).order_by(PLANS.c.id)
        ids = tx.connection.execute(query.with_for_update()).scalars().all()
        if ids:
            act = share.describe(Act(ActType.FINISH, share.holder), {plans_by_id[plan].dataset for plan in ids}, ids)
            these = PLANS.c.id.in_(ids)
            tx.change(act, PLANS, these, finished_at=DatabaseTime())
            evaluated = select(PLANS.c.dataset).join(PUBLISHED, PUBLISHED.c.dataset == PLANS.c.dataset)
            evaluated = evaluated.where(these, PUBLISHED.c.published_at >= PLANS.c.planned_at)
            request_evaluations(tx, tx.connection.execute(evaluated).scalars())
        return share.lost


def newest_plans(connection: Connection, marks: Collection[int]) -> dict[int, int]:
    # by which marks were swept: nothing is planned of what is set aside
    query = select(PLANNED.c.mark, PLANNED.c.plan).join(PLANS, PLANS.c.id == PLANNED.c.plan).order_by(PLANS.c.planned_at)
    parts = by_id(connection, marks, column=PLANNED.c.mark)
    plans = {mark: plan for where in parts for mark, plan in connection.execute(query.where(where))}
    return dict(sorted(plans.items()))


def _planned_rows(connection: Connection, batches: Mapping[int, OpenBatch], names: NameRange) -> pa.Table:
    replays = {mark for mark, batch in batches.items() if batch.order == Order.REPLAY}
    rows = begun_by_ids(connection, batches.keys() - replays, and_(MARKS.c.end_seal.is_(None), names.condition()))
    if replays:
        again = begun_by_ids(connection, replays, names.condition())
        again = again.set_column(again.column_names.index("status"), "status", pa.array(["SWEEPING"] * len(again), pa.string()))
        rows = pa.concat_tables([rows, again]).sort_by([("dataset", "ascending"), ("id", "ascending")])
    planned: dict[int, tuple[str | None, int | None]] = {}
    for where in by_id(connection, batches, column=PLANNED.c.mark):
        notes = connection.execute(select(*(PLANNED.c[name] for name in ("plan", "mark", "note", "bytes"))).where(where))
        planned |= {mark: (note, size) for plan, mark, note, size in notes if plan == batches[mark].plan}
    plans: dict[int, tuple[str | None, datetime]] = {}
    for part in portions(sorted({batch.plan for batch in batches.values()})):
        rows_of_plans = connection.execute(select(PLANS.c.id, PLANS.c.place, PLANS.c.planned_at).where(PLANS.c.id.in_(part)))
        plans |= {row.id: (row.place, row.planned_at) for row in rows_of_plans}
    own = [(mark, batches[mark]) for mark in rows["id"].to_pylist()]
    if lost := [mark for mark, batch in own if mark not in planned or batch.plan not in plans]:
        raise Refused(
            f"Mark {lost[0]} is in a batch of plan {batches[lost[0]].plan}, which has no such mark: one of the tables batches, "
            "planned and plans was changed past the ledger. `retention audit verify` names the row. Write back what the record "
            "has, or restore the newest backup of the ledger."
        )
    facts = [(*planned[mark], *plans[batch.plan], batch.plan, batch.order, batch.until) for mark, batch in own]
    for at, field in enumerate(PLANNED_ROWS):
        rows = rows.append_column(field, pa.array([fact[at] for fact in facts], field.type))
    return rows


def _untils(tx: WriteTransaction, marks: Sequence[int]) -> dict[int, datetime | None]:
    query = select(MARKS.c.id, MARKS.c.until)
    return {mark: until for where in by_id(tx.connection, marks) for mark, until in tx.connection.execute(query.where(where))}


def _step_of(answer: Settlement, until: datetime | None, is_aside: bool) -> MarkStep:
    if answer.outcome is Outcome.SET_ASIDE:
        return answer.mark, "SWEPT", "SET_ASIDE", answer.bytes, until, answer.error
    status, until = ("SWEPT", until) if is_aside else ("MARKED", None)
    return answer.mark, status, "FAILED", answer.bytes, until, answer.error or NO_ERROR


def _step_of_replay(answer: Settlement) -> MarkStep:
    # without an outcome nothing of it went
    outcome = None if answer.outcome is Outcome.SPARED else answer.outcome.value
    return answer.mark, "SWEPT", outcome, answer.bytes, None, answer.error or (None if outcome else NO_ERROR)


def _end_of(answer: Settlement) -> MarkStep:
    if answer.outcome is Outcome.RESTORED:
        return answer.mark, "RESTORED", None, answer.bytes, None, answer.error
    if answer.outcome is Outcome.SPARED:
        return answer.mark, "SPARED", None, answer.bytes, None, answer.error or NO_ERROR
    return answer.mark, "SWEPT", answer.outcome.value, answer.bytes, None, answer.error


def _counted_later(settlements: Sequence[Settlement], datasets: Mapping[int, str], order: Order) -> Mapping[str, Counter[str]]:
    counted: dict[str, Counter[str]] = {}
    for answer in settlements:
        is_freed = answer.outcome not in (Outcome.RESTORED, Outcome.FAILED)
        sums = {"bytes_freed": answer.bytes, "left": answer.left} if is_freed else {answer.outcome.value.lower(): 1}
        if order is Order.REPLAY and is_freed:
            is_gone = answer.outcome in (Outcome.DELETED, Outcome.ALREADY_GONE)
            sums |= {"replayed": int(is_gone), "bytes_hidden": answer.bytes_hidden}
        counted.setdefault(datasets[answer.mark], Counter()).update(sums)
    return counted


def _counted(tx: WriteTransaction, settlements: Sequence[Settlement]) -> Mapping[str, list[ReportCounts]]:
    answers = {answer.mark: answer for answer in settlements}
    counted: dict[str, list[ReportCounts]] = {}
    for mark, dataset, logged, due_at in report_columns(tx, answers):
        answer = answers[mark]
        freed, left = (0, 0) if answer.outcome in (Outcome.FAILED, Outcome.SPARED) else (answer.bytes, answer.left)
        freed, aside = (0, freed) if answer.outcome is Outcome.SET_ASIDE else (freed, 0)
        amount = ReportCounts(mark, due_at, answer.outcome.value.lower(), logged, freed, answer.bytes_hidden, left, aside)
        counted.setdefault(dataset, []).append(amount)
    return counted
