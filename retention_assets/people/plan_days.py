"""Plans the days to come: one run a day on the copy of a rehearsal, with what is marked, goes and stays on each.

Policies, graces, holds, tags, realms and history are those of today. Nothing new arrives.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from rich.table import Table

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.frames.log import INSTANT
from retention_assets.people.operation import MOST_SHOWN, Result, Rows
from retention_assets.people.rehearsal import NOTHING, Amount, amount_of, rehearse
from retention_assets.people.rehearsed_run import PLAN_ROWS, RehearsedRun, rehearse_run
from retention_assets.policy.durations import LONGEST_YEARS, text_of
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.terminal import Count, Size, table
from retention_assets.sweep.admission import Question

MOST_DAYS = 1_000
_LAST_YEAR = 9_999
# what a day shows, and the columns of a terminal
_AMOUNTS = ("newly_marked", "due", "deleted", "set_aside", "emptied", "spared", "waiting", "stored")
# amounts that add up over the days
_ADDED = ("newly_marked", "deleted", "set_aside", "emptied", "spared")
_COUNTS = {
    "newly_marked": "marked",
    "due": "due",
    "deleted": "deleted",
    "set_aside": "set aside",
    "emptied": "deleted from trash",
    "spared": "spared",
    "waiting": "then waiting",
}
GOES = pa.schema([("on", INSTANT), *PLAN_ROWS, ("how", pa.string())])
_NO_CHANGE = "Nothing was changed. New data is not in it."


@dataclass(frozen=True)
class PlannedDay:
    """A day after its run. `due` is what the sweep found, `waiting` and `stored` are what is there then."""

    as_of: datetime
    newly_marked: Amount
    due: Amount
    deleted: Amount
    set_aside: Amount
    emptied: Amount
    spared: Amount
    waiting: Amount
    stored: Amount

    @property
    def is_quiet(self) -> bool:
        return not any(getattr(self, name).transactions for name in _AMOUNTS[:-2])

    @property
    def freed(self) -> int:
        return self.deleted.bytes + self.emptied.bytes

    def as_dict(self) -> dict[str, Any]:
        amounts = {name: getattr(self, name).as_dict() for name in _AMOUNTS}
        return {"date": self.as_of.date().isoformat(), "as_of": self.as_of, **amounts}


@dataclass
class PlannedDays:
    """Days with a run each, what goes on them by name, and why other things stay."""

    days: list[PlannedDay] = field(default_factory=list)
    goes: list[pa.Table] = field(default_factory=list)
    spared_because: Counter[str] = field(default_factory=Counter)
    # by dataset, in words
    refused: dict[str, str] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    withheld: dict[str, datetime] = field(default_factory=dict)
    store_failures: set[str] = field(default_factory=set)
    cascades: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def add(self, run: RehearsedRun, waiting: Amount) -> None:
        due = sum((Amount(row.marks, row.bytes) for row in run.due), NOTHING)
        amounts = {name: amount_of(getattr(run, name)) for name in _ADDED}
        self.days.append(PlannedDay(run.as_of, due=due, waiting=waiting, stored=run.left, **amounts))
        for how in ("deleted", "set_aside", "emptied"):
            rows = getattr(run, how).select(PLAN_ROWS.names)
            day, word = pa.repeat(pa.scalar(run.as_of, INSTANT), len(rows)), pa.repeat(_COUNTS[how], len(rows))
            self.goes.append(rows.add_column(0, "on", day).append_column("how", word))
        self.spared_because.update(run.spared["why"].to_pylist())
        for name, why in run.unsound.items():
            self.refused.setdefault(name, f"{name} was refused: {why}")
        for result in run.results:
            if result.refused and result.dataset not in self.refused:
                self.refused[result.dataset] = f"{result.dataset} would not be swept on {run.as_of.date()}: {result.refused}"
                self.store_failures |= {result.dataset} if result.store_failed else set()
        if run.withheld:
            self.withheld.setdefault(run.withheld, run.as_of)

    @property
    def gone(self) -> pa.Table:
        return pa.concat_tables([GOES.empty_table(), *self.goes])

    def total(self, name: str) -> Amount:
        return sum((getattr(day, name) for day in self.days), NOTHING)

    @property
    def headline(self) -> str:
        marked, deleted, spared = (self.total(name) for name in ("newly_marked", "deleted", "spared"))
        trash = [
            f"{amount.text()} {_COUNTS[name]}" for name in ("set_aside", "emptied") if (amount := self.total(name)).transactions
        ]
        words = (
            f"{marked.transactions:,} marked", f"{deleted.transactions:,} deleted ({size_of(deleted.bytes)})", *trash,
            f"{spared.transactions:,} spared",
        )  # fmt: skip
        return f"In {count(len(self.days), 'day')}: {', '.join(words)}. {_NO_CHANGE}"

    @property
    def failures(self) -> list[str]:
        away = [f"{name}/* was not read: {why}" for name, why in self.away.items()]
        withheld = [f"From {at.date()} on: {why}" for why, at in self.withheld.items()]
        return [*away, *withheld, *(self.refused[name] for name in sorted(self.store_failures))]

    @property
    def refusals(self) -> list[str]:
        return [why for name, why in sorted(self.refused.items()) if name not in self.store_failures]

    def tables(self, detail: bool) -> Iterator[Table]:
        shown = [name for name in _COUNTS if self.total(name).transactions]
        rows = [
            (
                day.as_of.date(),
                *(getattr(day, name).transactions or None for name in shown),
                day.freed or "",
                day.stored.bytes,
            )
            for day in self.days
            if not day.is_quiet
        ]
        quiet = len(self.days) - len(rows)
        if rows:
            title = f"Day by day, without {quiet:,} with no change" if quiet else "Day by day"
            yield table(title, ("day", *map(Count, map(_COUNTS.__getitem__, shown)), Size("freed"), Size("stored")), rows)
        if self.spared_because:
            counts = sorted((why, marks) for why, marks in self.spared_because.items())
            yield table("Why marks are spared", (Count("marks"), "why"), [(marks, why) for why, marks in counts], prose=True)
        if detail and len(goes := self.gone):
            columns = ("day", "dataset", "transaction", "policy", Size("size"), "")
            names = ("dataset", "transaction", "policy", "bytes", "how")
            listed = [(row["on"].date(), *(row[name] for name in names)) for row in goes.to_pylist()]
            yield table(f"To go: {len(goes):,}", columns, listed)

    def as_dict(self) -> dict[str, Any]:
        goes = self.gone.select(["on", "dataset", "transaction", "policy", "policy_version", "bytes", "how"])
        return {
            "as_of": self.days[0].as_of,
            "days": [day.as_dict() for day in self.days],
            "totals": {name: self.total(name).as_dict() for name in _ADDED},
            "goes": [{**row, "on": row["on"].date().isoformat()} for row in goes.to_pylist()],
            "spared_because": dict(sorted(self.spared_because.items())),
            "cascades": dict(sorted(self.cascades.items())),
            "refused": dict(sorted(self.refused.items())),
            "stores_away": dict(sorted(self.away.items())),
            "withheld": {why: at.date().isoformat() for why, at in self.withheld.items()},
        }

    def metadata(self) -> Mapping[str, Any]:
        """Numbers, the days, and the first transactions that go: the file of the run has all of them."""
        columns = {"day": "string", **dict.fromkeys(_AMOUNTS, "int"), "freed": "int", "stored_bytes": "int"}
        days = [
            (
                day.as_of.date().isoformat(),
                *(getattr(day, name).transactions for name in _AMOUNTS),
                day.freed,
                day.stored.bytes,
            )
            for day in self.days
            if not day.is_quiet
        ]
        first = self.gone.slice(0, MOST_SHOWN).to_pylist()
        named = dict.fromkeys(("day", "dataset", "transaction", "bytes", "policy", "how"), "string") | {"bytes": "int"}
        rows = [
            (row["on"].date().isoformat(), row["dataset"], row["transaction"], row["bytes"] or 0, row["policy"], row["how"])
            for row in first
        ]
        return {
            "as_of": self.days[0].as_of,
            "until": self.days[-1].as_of,
            **{name: self.total(name).transactions for name in _ADDED},
            "bytes_freed": sum(day.freed for day in self.days),
            "refused": len(self.refused),
            "days": Rows(columns, days),
            "goes": Rows(named, rows),
        }


def plan_days(
    environment: Environment, days: int, datasets: Sequence[str], as_of: datetime | None, accept_large: bool = False
) -> PlannedDays:
    """Live through a run a day. Nothing is written but a copy that is thrown away."""
    begin, planned = as_of or environment.present(), PlannedDays()
    if begin.year + LONGEST_YEARS + days // 365 >= _LAST_YEAR:
        raise BadInput(Problem(f"is {text_of(begin)}", key="as_of", expected="an earlier instant"))
    with rehearse(environment, datasets, begin, as_of, days) as rehearsed:
        later, told = rehearsed.due_after(begin + timedelta(days=days - 1)), dict[str, None]()
        for number in range(days):
            at = begin + timedelta(days=number)
            rehearsed = replace(rehearsed, as_of=at)
            rules = rehearsed.rulebook.rules(rehearsed.names, at)
            run = rehearse_run(rehearsed, environment, rules, at, accept_large, marks_all=True)
            planned.add(run, later + rehearsed.waiting())
            planned.cascades |= rehearsed.accepted_cascades()
            told |= dict.fromkeys(run.admission.told(Question.OBJECTION))
            rehearsed = rehearsed.next_day(run.unsound)
        planned.away, planned.notes = rehearsed.away, rehearsed.notes(environment, told)
    return planned


def show_days(planned: PlannedDays, detail: bool = False) -> Result:
    result = Result(
        headline=planned.headline,
        sentences=[planned.cascades[name] for name in sorted(planned.cascades)],
        tables=lambda: planned.tables(detail),
        notes=planned.notes,
        failures=planned.failures,
        refusals=planned.refusals,
        to_do=any(not day.is_quiet for day in planned.days),
        data=planned.as_dict(),
    )
    keep = "`act_keep` takes something out of it for good."
    return replace(result, page=lambda: (replace(result, next=keep).answer, planned.metadata()))
