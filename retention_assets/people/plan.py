"""Plans a run by a rehearsal: what it would newly mark, delete and spare now, and what falls due on which day."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import keys_of
from retention_assets.frames.log import INSTANT
from retention_assets.ledger import Ledger
from retention_assets.ledger.evaluations import Objection
from retention_assets.people.command import command
from retention_assets.people.history import last_seen
from retention_assets.people.operation import (
    AcceptLarge,
    AsOf,
    DatasetGlobs,
    Kind,
    Only,
    Request,
    Result,
    Strict,
    operation,
)
from retention_assets.people.plan_days import MOST_DAYS, plan_days, show_days
from retention_assets.people.rehearsal import NOTHING, Amount, Rehearsal, amount_of, amounts_by, rehearse
from retention_assets.people.rehearsed_run import PLAN_ROWS, RehearsedRun, rehearse_run
from retention_assets.policy.durations import minute_in_utc
from retention_assets.policy.model import Policy
from retention_assets.policy.sentences import sentence
from retention_assets.render.page import MOST_SHOWN, Column, Columns, Count, Minute, Number, Prose, Size, Table
from retention_assets.sweep.admission import Question

# fields of a transaction in JSON, besides those of its list
_SHOWN = ("dataset", "transaction", "policy", "policy_version", "reason", "bytes")
# Tables that are summed; and columns of a terminal, by the sums that they show. A log may count other bytes than a sweep frees.
_AMOUNTS = ("newly_marked", "deleted", "set_aside", "spared", "waiting")
_COLUMNS = {
    "newly_marked": "mark (size in the log)",
    "deleted": "delete now (size freed)",
    "set_aside": "set aside now (size freed later)",
    "waiting": "due later (size in the log)",
}
# words about what is not simply deleted, by flag
_HOW = {"expires": "expires by itself", "aside": "set aside"}
# rows of each table without --detail
_MOST = 20


class PlanRequest(Request):
    """Instant and datasets of a planned run, or of one a day."""

    days: Annotated[int | None, Only.COMMAND] = Field(
        default=None, ge=1, le=MOST_DAYS, description="Show the days to come, with a run each; the first is that of --as-of."
    )
    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = None
    detail: Annotated[bool, Only.COMMAND] = Field(default=False, description="List the transactions too.")
    accept_large: AcceptLarge = False
    strict: Strict = False


@dataclass(frozen=True, kw_only=True)
class RetentionPlan(RehearsedRun):
    """Effects of a run at an instant, and what waits for later ones."""

    # marked before, and not due yet
    waiting: pa.Table = field(default_factory=PLAN_ROWS.empty_table)
    # by store, a sentence about the cascading foreign keys that its settings accept
    cascades: Mapping[str, str] = field(default_factory=dict)
    # by store why it could not be asked
    away: Mapping[str, str] = field(default_factory=dict)
    # by name
    policies: tuple[Policy, ...] = ()
    # Failed checks of datasets with something due. The run judges anew, and its own checks decide.
    objections: tuple[Objection, ...] = ()
    notes: tuple[str, ...] = ()
    # set aside before
    in_trash: Amount = NOTHING

    @property
    def confirmable(self) -> pa.Table:
        """Everything that a yes is about, with the times that identify it."""
        columns = ["dataset", "transaction", "opened_at", "closed_at", "bytes"]
        return pa.concat_tables([self.taken.select(columns), self.emptied.select(columns)])

    @property
    def headline(self) -> str:
        at = minute_in_utc(self.as_of)
        if not self.to_do:
            return f"As of {at} a run has nothing to mark and nothing to delete. Nothing was changed."
        return f"As of {at} a run would mark {self.total('newly_marked').text('none')}; {self.deletes}. Nothing was changed."

    @property
    def deletes(self) -> str:
        """Predicate about what would be deleted now."""
        spared = f" and spare {len(self.spared):,}" if len(self.spared) else ""
        parts = [f"set aside {self.total('set_aside').text()}"] if len(self.set_aside) else []
        if len(self.deleted) or not len(self.emptied):
            parts.append(f"delete {self.total('deleted').text('none')}")
        if len(self.emptied):
            parts.append(f"delete {self.total('emptied').text()} for good that were set aside")
        return f"{', '.join(parts)}{spared}"

    @property
    def sentences(self) -> Sequence[str]:
        """Accepted cascades, and the trash."""
        about = [*self.cascades.values()]
        if self.in_trash.transactions:
            about.append(f"Set aside and not freed yet: {self.in_trash.text()}. `retention trash empty` frees it at once.")
        return about

    def tables(self, detail: bool) -> Iterator[Table]:
        yield from self.deletion_tables(_COLUMNS)
        days = [{"day": day, **amounts} for day, amounts in self.days().items()]
        lists = (
            _table_of("To be marked", self.newly_marked, Minute("due", "due_at")),
            self.deleted_table(),
            _table_of("To be spared", self.spared, Prose("why")),
            _table_of("Marked before, not due yet", self.waiting, Minute("due", "due_at")),
        )
        yield Table(f"Due later, by day{_more(days)}", _LATER, days[:_MOST])
        yield Table("Why", _RULES, self.policies)
        yield from lists if detail else ()

    def deletion_tables(self, names: Iterable[str] = ("deleted", "set_aside")) -> Iterator[Table]:
        """Tables by dataset and policy, with what would be spared and what goes with deletions."""
        yield from self._group_table(names)
        if len(self.spared):
            counts = self.spared.group_by(["dataset", "why"]).aggregate([("transaction", "count"), ("transaction", "min")])
            rows = counts.sort_by([("dataset", "ascending"), ("why", "ascending")]).to_pylist()
            yield Table(f"Spared, because they are still needed: {len(self.spared):,}{_more(rows)}", _SPARED, rows[:_MOST])
        taken = self.taken.select(["dataset", "transaction", "in_latest_view", "refs"]).to_pylist()
        latest = sorted(Counter(row["dataset"] for row in taken if row["in_latest_view"]).items())
        dropped = [{**row, "ref": ref} for row in taken for ref in row["refs"]]
        yield Table(f"Current data to be deleted, from a latest view{_more(latest)}", _LATEST, latest[:_MOST])
        yield Table(f"Branches and tags that are dropped{_more(dropped)}", _DROPPED, dropped[:_MOST])

    @property
    def refused(self) -> dict[str, str]:
        return {**self.unsound, **{result.dataset: result.refused for result in self.results if result.refused}}

    @property
    def failures(self) -> Sequence[str]:
        """Stores that are away or fail, and a ledger that may not be swept by: no dataset is at fault."""
        away = (f"{name}/* was not read: {why}" for name, why in self.away.items())
        withheld = (self.withheld,) if self.withheld else ()
        return (*away, *withheld, *(self._warnings if any(result.store_failed for result in self.results) else ()))

    @property
    def refusals(self) -> Sequence[str]:
        return () if any(result.store_failed for result in self.results) else self._warnings

    @property
    def _warnings(self) -> tuple[str, ...]:
        swept = {result.dataset: result.refused for result in self.results if result.refused}
        return (
            *(f"{dataset} was refused: {why}" for dataset, why in self.unsound.items() if dataset not in swept),
            *(f"{dataset} would not be swept: {why}" for dataset, why in swept.items()),
        )

    def total(self, name: str) -> Amount:
        return amount_of(getattr(self, name))

    def groups(self) -> dict[tuple[str, ...], dict[str, Amount]]:
        return _summed({name: getattr(self, name) for name in _AMOUNTS}, ("dataset", "policy"))

    def days(self) -> dict[str, dict[str, Amount]]:
        """Amounts that fall due later, by day; new marks are counted apart."""
        over = pa.concat_arrays([keys_of(self.taken), keys_of(self.spared)])
        # without those that have no grace and are deleted at once
        newly_marked = self.newly_marked.filter(pc.invert(pc.is_in(keys_of(self.newly_marked), value_set=over)))
        later = {
            name: rows.append_column("date", pc.strftime(rows["due_at"], "%Y-%m-%d"))
            for name, rows in (("marked_before", self.waiting), ("newly_marked", newly_marked))
        }
        return {day: amounts for (day,), amounts in _summed(later, ("date",)).items()}

    def as_dict(self) -> dict[str, Any]:
        """Sorted, so that equal plans give equal JSON."""
        taken = ("expires", "in_latest_view", "refs")
        lists = {"newly_marked": ("due_at",), "deleted": taken, "set_aside": taken, "spared": ("why",)}
        return {
            "as_of": self.as_of,
            "totals": {name: self.total(name).as_dict() for name in _AMOUNTS},
            "trash": {"set_aside": self.in_trash.as_dict(), "deleted": self.total("emptied").as_dict()},
            "groups": [
                {"dataset": dataset, "policy": policy, **{name: amount.as_dict() for name, amount in amounts.items()}}
                for (dataset, policy), amounts in self.groups().items()
            ],
            "days": [
                {"date": day, **{name: amount.as_dict() for name, amount in amounts.items()}}
                for day, amounts in self.days().items()
            ],
            **{name: getattr(self, name).select([*_SHOWN, *more]).to_pylist() for name, more in lists.items()},
            "cascades": dict(sorted(self.cascades.items())),
            "policies": {one.name: sentence(one) for one in self.policies},
            "refused": dict(sorted(self.refused.items())),
            "stores_away": dict(sorted(self.away.items())),
            "withheld": self.withheld,
            "objections": [vars(one) for one in self.objections],
        }

    def metadata(self) -> Mapping[str, Any]:
        """Numbers, and the first transactions of each kind: the file has all of them."""
        kinds = (
            ("delete", self.deleted), ("set aside", self.set_aside), ("spare", self.spared),
            ("mark", self.newly_marked),
        )  # fmt: skip
        rows = [{**row, "would": would} for would, part in kinds for row in part.slice(0, MOST_SHOWN).to_pylist()]
        return {
            "as_of": self.as_of,
            "datasets": len(self.results),
            "refused": len(self.refused),
            "would_mark": len(self.newly_marked),
            "would_delete": len(self.deleted),
            "would_delete_for_good": len(self.emptied),
            "would_set_aside": len(self.set_aside),
            "would_free": self.total("deleted").bytes,
            "would_spare": len(self.spared),
            "transactions": Table("", _WOULD, rows),
        }

    def _group_table(self, names: Iterable[str]) -> Iterator[Table]:
        groups = self.groups()
        shown = [name for name in names if any(amounts[name].transactions for amounts in groups.values())]
        groups = {key: amounts for key, amounts in groups.items() if any(amounts[name].transactions for name in shown)}
        if not shown:
            return
        # The largest are shown, in the order of their names.
        largest = sorted(groups, key=lambda key: -sum(groups[key][name].bytes for name in shown))[:_MOST]
        rows, before = list[Mapping[str, Any]](), ""
        for dataset, policy in (key for key in groups if key in largest):
            rows.append({"dataset": "" if dataset == before else dataset, "policy": policy, **groups[dataset, policy]})
            before = dataset
        columns = (*_NAMED, *(_amount(_COLUMNS[name], name) for name in shown))
        yield Table(f"By dataset and policy{_more(groups)}", columns, rows)

    def deleted_table(self, most: int | None = None) -> Table:
        """Transactions that would be deleted or set aside, or the first of them."""
        title = "To be deleted or set aside now" if len(self.set_aside) else "To be deleted now"
        return _table_of(title, self.taken, Column("", _how), most)


def _amount(heading: str, name: str) -> Column:
    return Number(heading, lambda row: row[name].text())


_NAMED: Columns = ("dataset", "policy")
_LATER = (
    "day",
    _amount("marked before", "marked_before"),
    _amount("newly marked", "newly_marked"),
    Number("together", lambda row: (row["marked_before"] + row["newly_marked"]).text()),
)
_RULES = (Column("policy", "name"), Column("purpose", "description"), Prose("the rule in force", sentence))
_SPARED = (
    "dataset",
    Count("marks", "transaction_count"),
    Column("example and reason", lambda row: f"{row['transaction_min']}: {row['why']}"),
)
_LATEST = (Column("dataset", lambda row: row[0]), Count("transactions", lambda row: row[1]))
_DROPPED = ("dataset", "ref", Column("with", "transaction"))
_TRANSACTIONS = ("dataset", "transaction", "policy", Minute("closed", "closed_at"), Size("size", "bytes"))
_WOULD = ("dataset", "transaction", "would", Size("bytes"), Column("why", lambda row: row.get("why", "")))


def _how(row: Mapping[str, Any]) -> str:
    how = next((words for flag, words in _HOW.items() if row.get(flag)), "")
    return how or ("" if row["reason"] == "SELECTED" else row["reason"])


def _table_of(title: str, transactions: pa.Table, last: Column, most: int | None = None) -> Table:
    rows = transactions.slice(0, most).to_pylist()
    of = f"{len(rows)} of " if len(rows) < len(transactions) else ""
    title = f"{title}: {of}{len(transactions):,}, times in UTC"
    return Table(title, (*_TRANSACTIONS, last), rows, grouped=True)


def _summed(tables: Mapping[str, pa.Table], columns: Sequence[str]) -> dict[tuple[str, ...], dict[str, Amount]]:
    sums = {name: amounts_by(rows, columns) for name, rows in tables.items()}
    keys = sorted({key for amounts in sums.values() for key in amounts})
    return {key: {name: amounts.get(key, NOTHING) for name, amounts in sums.items()} for key in keys}


def _more(rows: Sized) -> str:
    return f" ({_MOST} of {len(rows):,})" if len(rows) > _MOST else ""


def make_plan(request: PlanRequest, environment: Environment) -> RetentionPlan:
    """Live through a run of the chosen datasets at an instant. Nothing is written but a copy that is thrown away."""
    at = request.as_of or environment.present()
    with rehearse(environment, request.datasets, at, request.as_of) as rehearsed:
        rules = rehearsed.rulebook.rules(rehearsed.names, at)
        run = rehearse_run(rehearsed, environment, rules, at, request.accept_large)
        source, admission = rehearsed.source, run.admission
        sums = source.trash.sums() if source else []
        chosen = {*rehearsed.datasets.select({row.dataset for row in sums})}
        named = {name for rows in (run.newly_marked, run.taken, run.spared) for name in rows["policy"].unique().to_pylist()}
        return RetentionPlan(
            **vars(run),
            waiting=_waiting(source, rehearsed, rules, at) if source else PLAN_ROWS.empty_table(),
            cascades=rehearsed.accepted_cascades(),
            away=rehearsed.away,
            policies=tuple(sorted((one for one in rules.policies if one.name in named), key=lambda one: one.name)),
            objections=tuple(rehearsed.objections(run.due)),
            notes=(
                *rehearsed.notes(environment, admission.told(Question.OBJECTION)),
                *(f"Without your consent {fault}" for fault in admission.told(Question.BRAKE) if request.accept_large),
            ),
            in_trash=sum((Amount(row.marks, row.bytes) for row in sums if row.dataset in chosen), NOTHING),
        )


@operation(
    Kind.LOOK,
    "retention plan",
    "retention plan -d 'lake/raw.*' --detail",
    "retention plan --days 30",
    progress="reading the stores, judging, and sweeping a copy",
    name="preview",
    keeps_file=True,
)
def show_plan(request: PlanRequest, environment: Environment) -> Result:
    """Show what a run would do now: mark, delete, spare, and what falls due on which day. Changes nothing.

    It exits with 3 when there is something to do, else with 0.

    It runs the cycle on a copy of the ledger, over stores that record deletions instead of doing them. Dagster is not started.
    Spark is started only to scan a large store of objects, or on a cluster.

    With --days it lives through a run a day, and shows what is marked, goes and stays on each of the days to come.
    """
    if request.days:
        days = plan_days(environment, request.days, request.datasets, request.as_of, request.accept_large)
        return show_days(days, request.detail)
    plan = make_plan(request, environment)
    return Result(
        headline=plan.headline,
        sentences=plan.sentences,
        tables=lambda: plan.tables(request.detail),
        notes=plan.notes,
        failures=plan.failures,
        refusals=plan.refusals,
        to_do=plan.to_do,
        data=plan.as_dict(),
        next_in_run="The job `delete_cycle` does it; `act_keep` takes something out of it for good.",
        numbers=plan.metadata,
    )


plan = command(show_plan, "plan")


class UpcomingRequest(Request):
    """Days to look ahead, and datasets."""

    days: int = Field(default=8, ge=1, le=MOST_DAYS, description="How many days, one run each; 8 see a week of grace end.")
    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = None


@operation(Kind.LOOK, name="upcoming", keeps_file=True)
def show_upcoming(request: UpcomingRequest, environment: Environment) -> Result:
    """List what the runs of the next days would mark, delete and spare, by name and size: a run a day, ahead of time."""
    as_of = request.as_of
    if as_of is None and environment.settings.clock.simulated:
        with environment.ledger_if_any() as ledger:
            as_of = last_seen(environment, ledger)
    return show_days(plan_days(environment, request.days, request.datasets, as_of))


def _waiting(ledger: Ledger, rehearsed: Rehearsal, rules: RulesInForce, at: datetime) -> pa.Table:
    fates = Fates(rehearsed.copy.policy_book.newest(), rules.holds, at)
    marks, due_by = ledger.marks.table(statuses=["MARKED"]), rehearsed.copy.clock.due_by(rehearsed.as_of)
    chosen = pa.array(rehearsed.datasets.select(marks["dataset"].unique().to_pylist()), pa.string())
    marks = marks.filter(pc.is_in(marks["dataset"], value_set=chosen))
    ends = [fate.at if fate.goes else None for fate in map(fates.of, marks.to_pylist())]
    marks = marks.set_column(marks.column_names.index("due_at"), "due_at", pa.array(ends, INSTANT))
    later = pc.fill_null(pc.greater(marks["due_at"], pa.scalar(due_by, INSTANT)), False)
    return marks.filter(later).select(PLAN_ROWS.names).sort_by([("dataset", "ascending"), ("due_at", "ascending")])
