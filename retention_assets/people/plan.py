"""Plan a run by a rehearsal: what it would newly mark, delete and spare now, and what falls due on which day.

The dry run of a run is the plan.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import keys_of
from retention_assets.frames.log import faults_of
from retention_assets.ledger import Ledger
from retention_assets.ledger.findings import Objection
from retention_assets.ledger.marks.candidates import CANDIDATES
from retention_assets.people.amounts import NOTHING, Amount, PriceFacts, amounts_by
from retention_assets.people.idle_rules import idle_rules
from retention_assets.people.rehearsal import Rehearsal, rehearse, withheld
from retention_assets.policy.durations import parse_duration, text_of
from retention_assets.policy.model import Policy
from retention_assets.policy.sentences import sentence
from retention_assets.sweep.dataset_sweep import SweepResult

_INSTANT = pa.timestamp("us", tz="UTC")
# Transaction of a plan. Times identify it; `due_at` is when the grace of its mark is over.
PLAN_ROWS = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("dataset", "transaction", "policy", "reason")),
        pa.field("policy_version", pa.int32()),
        pa.field("bytes", pa.int64()),
        *(pa.field(name, _INSTANT) for name in ("opened_at", "closed_at", "due_at")),
    ]
)
_DELETED = pa.schema(
    [
        *PLAN_ROWS,
        pa.field("expires", pa.bool_()),
        pa.field("in_latest_view", pa.bool_()),
        pa.field("refs", pa.list_(pa.string())),
    ]
)
_SPARED = pa.schema([*PLAN_ROWS, pa.field("why", pa.string())])
# fields of a transaction in JSON, besides those of its list
_TOLD = ("dataset", "transaction", "policy", "policy_version", "reason", "bytes")


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Instant (default: now) and datasets: globs over store/name. A plan is not recorded, so it names no actor."""

    as_of: datetime | None = None
    datasets: tuple[str, ...] = ("*",)
    # plan also what the brake would stop
    accept_large: bool = False


@dataclass(frozen=True)
class PlanGroup:
    """Plan for the transactions that one policy selects in one dataset."""

    dataset: str
    policy: str
    newly_marked: Amount = NOTHING
    deleted: Amount = NOTHING
    spared: Amount = NOTHING
    # marked before, and not due yet
    waiting: Amount = NOTHING


@dataclass(frozen=True)
class PlannedDay:
    """Transactions that fall due on a coming day."""

    date: str
    marked_before: Amount = NOTHING
    newly_marked: Amount = NOTHING


@dataclass(frozen=True)
class RetentionPlan:
    """Effects of a run at an instant. Tables have the columns of `PLAN_ROWS`, some of their own, and the costs of each row."""

    as_of: datetime
    newly_marked: pa.Table = field(default_factory=PLAN_ROWS.empty_table)
    deleted: pa.Table = field(default_factory=_DELETED.empty_table)
    spared: pa.Table = field(default_factory=_SPARED.empty_table)
    waiting: pa.Table = field(default_factory=PLAN_ROWS.empty_table)
    # by store, a sentence about the cascading foreign keys that its settings accept
    cascades: Mapping[str, str] = field(default_factory=dict)
    results: tuple[SweepResult, ...] = ()
    # by dataset why its log is refused, and by store why it could not be asked
    unsound: Mapping[str, str] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    # by name
    policies: tuple[Policy, ...] = ()
    # why nothing would be swept at all
    withheld: str | None = None
    # Failed checks of datasets with something due. The run judges anew, and its own checks decide.
    objections: tuple[Objection, ...] = ()
    # objections of the brake to what is planned all the same
    accepted: tuple[str, ...] = ()
    # rules without effect
    idle: tuple[str, ...] = ()
    note: str | None = None
    currency: str | None = None

    @property
    def refused(self) -> dict[str, str]:
        """Datasets that would not be judged or not be swept, and why."""
        return {**self.unsound, **{one.dataset: one.refused for one in self.results if one.refused}}

    @property
    def warnings(self) -> tuple[str, ...]:
        swept = {one.dataset: one.refused for one in self.results if one.refused}
        return (
            *(f"{dataset} was refused: {why}" for dataset, why in self.unsound.items() if dataset not in swept),
            *(f"{dataset} would not be swept: {why}" for dataset, why in swept.items()),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        found = (
            f"{one.dataset}: {one.check} failed in {one.raised_by}: {one.sentence}. Unless the run's own check finds it mended,"
            " nothing of it is swept."
            for one in self.objections
        )
        large = (f"Without your consent {fault}" for fault in self.accepted)
        return (*((self.note,) if self.note else ()), *found, *large, *self.idle)

    @property
    def failures(self) -> tuple[str, ...]:
        """Stores that are away, and a ledger that may not be swept by: no dataset is at fault."""
        away = (f"{name}/* was not read: {why}" for name, why in self.away.items())
        return (*away, *((self.withheld,) if self.withheld else ()))

    @property
    def store_failed(self) -> bool:
        """True if a dataset would not be swept because its store can't do what it is asked."""
        return any(one.store_failed for one in self.results)

    @property
    def has_work(self) -> bool:
        return any(len(rows) for rows in (self.newly_marked, self.deleted, self.spared))

    def total(self, rows: pa.Table) -> Amount:
        return sum(amounts_by(rows, ()).values(), NOTHING)

    def groups(self) -> list[PlanGroup]:
        """By dataset and policy, sorted."""
        parts = {name: getattr(self, name) for name in ("newly_marked", "deleted", "spared", "waiting")}
        found: dict[tuple[str, ...], dict[str, Amount]] = {}
        for name, rows in parts.items():
            for key, amount in amounts_by(rows, ("dataset", "policy")).items():
                found.setdefault(key, {})[name] = amount
        return [PlanGroup(dataset=key[0], policy=key[1], **amounts) for key, amounts in sorted(found.items())]

    def days(self) -> list[PlannedDay]:
        """Transactions that fall due later, by day; new marks are counted apart."""
        later = {"marked_before": self.waiting, "newly_marked": self._still_waiting()}
        found: dict[tuple[str, ...], dict[str, Amount]] = {}
        for name, rows in later.items():
            dated = rows.append_column("date", pc.strftime(rows["due_at"], "%Y-%m-%d"))
            for key, amount in amounts_by(dated, ("date",)).items():
                found.setdefault(key, {})[name] = amount
        return [PlannedDay(date=key[0], **amounts) for key, amounts in sorted(found.items())]

    def _still_waiting(self) -> pa.Table:
        """New marks, without those that have no grace and are deleted at once."""
        over = pa.concat_arrays([keys_of(self.deleted), keys_of(self.spared)])
        return self.newly_marked.filter(pc.invert(pc.is_in(keys_of(self.newly_marked), value_set=over)))

    def as_dict(self) -> dict[str, Any]:
        """Sorted, so that equal plans give equal JSON."""
        rows = {"newly_marked": self.newly_marked, "deleted": self.deleted, "spared": self.spared}
        own = {"newly_marked": ("due_at",), "deleted": ("expires", "in_latest_view", "refs"), "spared": ("why",)}
        amounts = ("newly_marked", "deleted", "spared", "waiting")
        return {
            "as_of": text_of(self.as_of),
            "dry_run": True,
            "currency": self.currency,
            "totals": {name: self.total(getattr(self, name)).as_dict() for name in amounts},
            "groups": [
                {"dataset": one.dataset, "policy": one.policy, **{name: getattr(one, name).as_dict() for name in amounts}}
                for one in self.groups()
            ],
            "days": [
                {"date": one.date, **{name: getattr(one, name).as_dict() for name in ("marked_before", "newly_marked")}}
                for one in self.days()
            ],
            **{name: [_told(row) for row in table.select([*_TOLD, *own[name]]).to_pylist()] for name, table in rows.items()},
            "cascades": dict(sorted(self.cascades.items())),
            "policies": {one.name: sentence(one) for one in self.policies},
            "refused": dict(sorted(self.refused.items())),
            "stores_away": dict(sorted(self.away.items())),
            "withheld": self.withheld,
            "objections": [vars(one) for one in self.objections],
        }


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: text_of(value) if isinstance(value, datetime) else value for name, value in row.items()}


def make_plan(request: PlanRequest, environment: Environment) -> RetentionPlan:
    """Live through a run of the chosen datasets at an instant. Nothing is written but a copy that is thrown away."""
    at = request.as_of or environment.present()
    with rehearse(environment, request.datasets, at, as_of=request.as_of) as rehearsed:
        rules, begin = rehearsed.rules(at), rehearsed.marking_time(request.as_of)
        judged = _judge(rehearsed, rules, begin, at)
        # The grace of the others is not over in this run.
        at_once = judged.candidates.filter(pc.less_equal(judged.newly_marked["due_at"], pa.scalar(begin, _INSTANT)))
        rehearsed.mark(at_once, request.as_of)
        source = rehearsed.source
        due = rehearsed.due_datasets(request.as_of)
        why = rehearsed.ends_early or (withheld(environment, source, due, at) if source else None)
        large = rehearsed.braked(request.as_of)
        stopped = {} if request.accept_large else large
        results = [SweepResult(name, refused=fault) for name, fault in stopped.items()]
        results += [] if why else rehearsed.sweep_copy(request.as_of, without=stopped)
        marks = rehearsed.copy.marks.table()
        deleted, spared = _deleted(rehearsed, marks), _spared(marks)
        due_by = rehearsed.copy.clock.due_by(request.as_of)
        fates = Fates(rehearsed.copy.policy_book.newest(), rules.holds, at) if source else None
        waiting = _waiting(source, rehearsed.datasets, due_by, fates)
        named = {name for rows in (judged.newly_marked, deleted, spared) for name in rows["policy"].unique().to_pylist()}
        return RetentionPlan(
            as_of=at,
            newly_marked=judged.facts.priced(judged.newly_marked, at),
            deleted=judged.facts.priced(deleted, at),
            spared=judged.facts.priced(spared, at),
            waiting=judged.facts.priced(waiting, at),
            cascades=rehearsed.accepted_cascades(),
            results=tuple(results),
            accepted=tuple(sorted(set(large.values()))) if request.accept_large else (),
            unsound=judged.unsound,
            away=rehearsed.away,
            policies=tuple(sorted((one for one in rules.policies if one.name in named), key=lambda one: one.name)),
            withheld=why,
            objections=tuple(source.objections.standing(set(due))) if source else (),
            idle=tuple(idle_rules(rehearsed.rulebook.files, source)),
            note=None if source else environment.no_ledger,
            currency=judged.facts.prices.currency if judged.facts.prices.are_set else None,
        )


@dataclass(frozen=True)
class _Judged:
    """New marks of an evaluation, in the forms of the ledger and of a plan; and the logs that are refused."""

    candidates: pa.Table
    newly_marked: pa.Table
    unsound: Mapping[str, str]
    facts: PriceFacts


def _judge(rehearsed: Rehearsal, rules: RulesInForce, begin: datetime, at: datetime) -> _Judged:
    """Share by share: only the planned part of what was read stays in memory."""
    parts, unsound, facts = [CANDIDATES.empty_table()], dict[str, str](), PriceFacts(rehearsed.settings.prices)
    for log in rehearsed.logs():
        known = rehearsed.known(log)
        parts.append(rehearsed.candidates(log, known, rules, at))
        unsound |= faults_of(log.datasets)
        facts.learn(log.transactions, pa.concat_arrays([keys_of(known), keys_of(parts[-1])]))
    # Stable: within a dataset they stay in the order of its log.
    candidates = pa.concat_tables(parts).sort_by("dataset").combine_chunks()
    graces = candidates["grace"].unique().to_pylist()
    dues = pa.array([parse_duration(grace).after(begin) for grace in graces], _INSTANT)
    due = dues.take(pc.index_in(candidates["grace"], value_set=pa.array(graces, pa.string())))
    newly_marked = candidates.append_column("due_at", due).select(PLAN_ROWS.names).cast(PLAN_ROWS)
    return _Judged(candidates, newly_marked, dict(sorted(unsound.items())), facts)


def _deleted(rehearsed: Rehearsal, marks: pa.Table) -> pa.Table:
    """Recorded deletions, with the marks by which they would go."""
    by_key = {(row["dataset"], row["transaction"]): row for row in marks.to_pylist()}
    rows = [
        {
            **by_key[one.dataset, one.transaction],
            "bytes": one.bytes,
            "expires": one.expires,
            "in_latest_view": one.in_latest_view,
            "refs": list(one.refs),
        }
        for one in rehearsed.recorded()
    ]
    return _in_order(rows, _DELETED)


def _spared(marks: pa.Table) -> pa.Table:
    return _in_order(marks.filter(pc.equal(marks["status"], "SPARED")).to_pylist(), _SPARED)


def _in_order(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """By dataset, and there in the order in which they were marked, which is that of the log."""
    ordered: Sequence[Any] = sorted(rows, key=lambda row: (row["dataset"], row["id"]))
    return pa.Table.from_pylist(ordered, schema)


def _waiting(ledger: Ledger | None, datasets: DatasetFilter, due_by: datetime, fates: Fates | None) -> pa.Table:
    """Marks that are not due yet, and neither held nor to be spared."""
    if ledger is None or fates is None:
        return PLAN_ROWS.empty_table()
    marks = ledger.marks.table(statuses=["MARKED"])
    mine = pa.array(datasets.select(marks["dataset"].unique().to_pylist()), pa.string())
    marks = marks.filter(pc.is_in(marks["dataset"], value_set=mine))
    ends = [fate.at if fate.goes else None for fate in map(fates.of, marks.to_pylist())]
    marks = marks.set_column(marks.column_names.index("due_at"), "due_at", pa.array(ends, _INSTANT))
    later = pc.fill_null(pc.greater(marks["due_at"], pa.scalar(due_by, _INSTANT)), False)
    return marks.filter(later).select(PLAN_ROWS.names).sort_by([("dataset", "ascending"), ("due_at", "ascending")])
