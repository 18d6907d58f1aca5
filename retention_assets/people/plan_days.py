"""Plans the days to come: one run a day on the copy of a rehearsal, with what is marked, goes and stays on each.

Policies, graces, holds, tags, realms and history are those of today. Nothing new arrives.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.frames.log import INSTANT
from retention_assets.people.operation import Result
from retention_assets.people.rehearsal import NOTHING, Amount, amount_of, rehearse
from retention_assets.people.rehearsed_run import PLAN_ROWS, RehearsedRun, rehearse_run
from retention_assets.policy.durations import LONGEST_YEARS, text_of
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import LONG, MOST_SHOWN, Column, Count, Medium, Number, Prose, Size, Table
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


def _transactions(name: str) -> Callable[[Any], int | None]:
    return lambda day: getattr(day, name).transactions or None


_DAYS = (
    Column("day", lambda day: day.as_of.date()),
    *(Count(words, _transactions(name), key=name) for name, words in _COUNTS.items()),
    Count("stored", _transactions("stored"), Medium.RUN),
    Size("freed", lambda day: day.freed or ""),
    Size("stored", lambda day: day.stored.bytes, key="stored_bytes"),
)
_GOES = (
    Column("day", lambda row: row["on"].date().isoformat(), LONG & ~Medium.JSON),
    Column("on", lambda row: row["on"].date().isoformat(), Medium.JSON),
    "dataset",
    "transaction",
    "policy",
    Number("policy version", media=Medium.JSON),
    Size("size", "bytes"),
    Column("", "how"),
)
_SPARED = (Count("marks", lambda row: row[1]), Prose("why", lambda row: row[0]))
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

    @property
    def day_table(self) -> Table:
        rows = [day for day in self.days if not day.is_quiet]
        quiet = len(self.days) - len(rows)
        return Table(f"Day by day, without {quiet:,} with no change" if quiet else "Day by day", _DAYS, rows)

    def goes_table(self, most: int | None = None) -> Table:
        """Transactions that go, by name, or the first of them."""
        return Table(f"To go: {len(self.gone):,}", _GOES, self.gone.slice(0, most).to_pylist())

    def tables(self, detail: bool) -> list[Table]:
        spared = Table("Why marks are spared", _SPARED, sorted(self.spared_because.items()))
        return [self.day_table, spared, *([self.goes_table()] if detail else [])]

    def as_dict(self) -> dict[str, Any]:
        return {
            "as_of": self.days[0].as_of,
            "days": [day.as_dict() for day in self.days],
            "totals": {name: self.total(name).as_dict() for name in _ADDED},
            "goes": self.goes_table().records(),
            "spared_because": dict(sorted(self.spared_because.items())),
            "cascades": dict(sorted(self.cascades.items())),
            "refused": dict(sorted(self.refused.items())),
            "stores_away": dict(sorted(self.away.items())),
            "withheld": {why: at.date().isoformat() for why, at in self.withheld.items()},
        }

    def metadata(self) -> Mapping[str, Any]:
        """Numbers, the days, and the first transactions that go: the file of the run has all of them."""
        return {
            "as_of": self.days[0].as_of,
            "until": self.days[-1].as_of,
            **{name: self.total(name).transactions for name in _ADDED},
            "bytes_freed": sum(day.freed for day in self.days),
            "refused": len(self.refused),
            "days": self.day_table,
            "goes": self.goes_table(MOST_SHOWN),
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
    return Result(
        headline=planned.headline,
        sentences=[planned.cascades[name] for name in sorted(planned.cascades)],
        tables=lambda: planned.tables(detail),
        notes=planned.notes,
        failures=planned.failures,
        refusals=planned.refusals,
        to_do=any(not day.is_quiet for day in planned.days),
        data=planned.as_dict(),
        next_in_run="`act_keep` takes something out of it for good.",
        numbers=planned.metadata,
    )
