"""The report of a day, or of several: planned deletions and their outcomes so far, per dataset and summed.

Reports add up: a day is the sum of its datasets and a month the sum of its days. What failed and was open again the next
day counts on both.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from retention_assets.ledger import Ledger
from retention_assets.ledger.reports import COUNTERS, DayLook
from retention_assets.policy.durations import minute_of, parse_duration, parse_instant
from retention_assets.policy.globs import matches
from retention_assets.policy.sentences import first_of, short_actor
from retention_assets.render.page import ALL, LONG, Column, Count, Medium, Number, Prose, Size, Table, amounts_of
from retention_assets.render.text import iso_of, plain_json

# classes of a log in the order of a transaction's life, with their meanings
CLASSES: Mapping[str, str] = {
    "swept": "deleted or set aside before",
    "sweeping": "a sweep has begun",
    "due": "marked, and its grace is over",
    "waiting": "marked, and in its grace",
    "selected": "selected by a policy, not marked yet",
    "spared": "selected by a policy, and protected",
    "kept": "selected by no policy",
    "open": "not closed yet",
}
# final outcomes of the day's marks; what failed is still open, and is counted by attempt
_SETTLED = ("deleted", "already_gone", "hidden", "set_aside", "spared", "unmarked")

_FINISHED, _ALARM = {"yes": "green", "no": "yellow"}, {True: "red"}
# where what a terminal says in words has a column
_PAGES = LONG & ~Medium.TERMINAL

V = TypeVar("V", int, str)


@dataclass(frozen=True)
class ReportLine:
    """One dataset, or the sum over several. A line that never started is the sum of nothing."""

    dataset: str
    counters: Mapping[str, int]
    policies: Mapping[str, Sequence[int]] = field(default_factory=dict)
    bounds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    terminal_only: bool | None = None
    archived_types: tuple[str, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None
    periods: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # who started the sweeps: names and runs, as in the record
    ordered_by: tuple[str, ...] = ()

    @property
    def orderers(self) -> str:
        """First three who started the sweeps, and how many more there are."""
        return first_of(list(map(short_actor, self.ordered_by)))

    @property
    def duration(self) -> timedelta | None:
        """Time from the first beginning to the last end, once all of it is done."""
        return self.finished_at - self.started_at if self.started_at and self.finished_at else None

    @property
    def unsettled(self) -> int:
        """Planned but not settled: still open, or settled in a later day's report."""
        return self.counters["to_delete"] - sum(self.counters[name] for name in _SETTLED)

    @property
    def class_counts(self) -> dict[str, int]:
        """Classes that occur, in the order of a transaction's life; those that this release does not know stand last."""
        unknown = sorted(name for name in self.classes if name not in CLASSES)
        return {name: self.classes[name] for name in (*CLASSES, *unknown) if self.classes.get(name)}

    def bound_range(self, policy: str) -> Sequence[str]:
        """Bound of a policy, or the first and the last of several."""
        bounds = self.bounds.get(policy, ())
        return (bounds[0], bounds[-1]) if len(bounds) > 1 else bounds

    @property
    def is_finished(self) -> str:
        return "yes" if self.finished_at else "no"


def _counter(
    kind: Callable[..., Column], name: str, counter: str = "", media: Medium = _PAGES, meaning: str = "", **more: Any
) -> Column:
    counter = counter or name.replace(" ", "_")
    return kind(name, lambda line: line.counters[counter], media, meaning, counter, **more)


# Columns of a report in all media, with numbers that add up. A terminal says in words what is not a column of its own.
COUNTS = (
    _counter(Count, "to delete", media=LONG),
    _counter(Count, "deleted", media=LONG),
    _counter(Count, "already gone", meaning="nothing was left to delete"),
    _counter(Count, "hidden", rare=True, tones=_ALARM),
    _counter(Count, "set aside", rare=True),
    _counter(Count, "restored", meaning="brought back by people", rare=True),
    _counter(Count, "deleted again", "replayed", meaning="was there again, from a backup", rare=True),
    _counter(Count, "failed", meaning="attempts; each is tried again", tones=_ALARM),
    _counter(Count, "spared", meaning="still needed"),
    _counter(Count, "unmarked", meaning="taken back by people"),
    _counter(
        Count, "files left", "left", meaning="of what was swept: not ours to delete, or still needed", rare=True, tones=_ALARM
    ),
)
SIZES = (
    _counter(Size, "to free", "bytes_to_free", LONG),
    _counter(Size, "freed", "bytes_freed", ALL),
    _counter(Size, "hidden size", "bytes_hidden", _PAGES & ~Medium.HTML, rare=True),
    _counter(Size, "size set aside", "bytes_set_aside", _PAGES & ~Medium.HTML, rare=True),
)
COLUMNS: Sequence[Column] = (
    Column("dataset", media=ALL),
    *COUNTS,
    *SIZES,
    Number("done", lambda line: amounts_of(COUNTS[1:], line) or "nothing", Medium.SHORT),
    Column("finished", "is_finished", Medium.HTML | Medium.MARKDOWN | Medium.RUN, tones=_FINISHED),
    Prose("otherwise", lambda line: _otherwise(line), Medium.TERMINAL),
    *(Column(name, media=Medium.JSON) for name in ("policies", "periods", "bounds", "terminal_only", "archived_types")),
    *(Column(name, media=Medium.JSON) for name in ("started_at", "finished_at", "classes", "ordered_by")),
    Column("duration", lambda line: None if line.duration is None else iso_of(line.duration), Medium.JSON),
)


def _otherwise(line: ReportLine) -> str:
    return ", ".join(filter(None, (amounts_of(COUNTS[2:], line), "" if line.finished_at else "not finished")))


@dataclass(frozen=True)
class ReportedRealm:
    """Realm whose purge is not over, or in which something appeared since it was PURGED; and what keeps it."""

    name: str
    status: str
    words: str

    @property
    def sentence(self) -> str:
        return f"Realm {self.name} is {self.status}; {self.words}."


REALMS = (Column("realm", "name", key="realm"), Column("status"), Prose("left", "words", key="left"))


@dataclass(frozen=True)
class DayReport:
    """Report of an execution date, or of all from that one to `last`. It is finished when all its datasets are."""

    execution_date: date
    lines: tuple[ReportLine, ...]
    last: date | None = None
    # by day with a look: a day without a line but with a look had nothing due; without a look nobody came
    looks: Mapping[date, DayLook] = field(default_factory=dict)
    # as the last evaluations left them; unknown for days that are over
    realms: tuple[ReportedRealm, ...] = ()

    @property
    def when(self) -> str:
        """ISO 8601, a day or an interval."""
        return f"{self.execution_date}/{self.last}" if self.last else str(self.execution_date)

    @property
    def unfinished(self) -> int:
        return sum(line.finished_at is None for line in self.lines)

    @property
    def total(self) -> ReportLine:
        return sum_lines("all", self.lines)

    def as_dict(self) -> dict[str, Any]:
        return as_json(self.when, self.lines, self.looks, self.realms)


def as_json(
    when: str | None,
    lines: Iterable[ReportLine],
    looks: Mapping[date, DayLook] | None = None,
    realms: Iterable[ReportedRealm] = (),
) -> dict[str, Any]:
    """Render lines and their sum; the fields are the same where there is no report at all."""
    parts = tuple(lines)
    *datasets, total = Table("", COLUMNS, [*parts, sum_lines("all", parts)]).records()
    del total["dataset"]
    looked = [{"date": day, **look._asdict()} for day, look in sorted((looks or {}).items())]
    left = Table("", REALMS, [*realms]).records()
    report = {"execution_date": when, **total, "looked": looked, "realms": left, "datasets": datasets}
    return dict(plain_json(report))


def day_report(ledger: Ledger, execution_date: date, datasets: Sequence[str] = ("*",)) -> DayReport:
    return replace(days_report(ledger, [execution_date], execution_date, execution_date, datasets), last=None)


def days_report(ledger: Ledger, days: Iterable[date], first: date, last: date, datasets: Sequence[str] = ("*",)) -> DayReport:
    """Read the report of several days, each dataset summed over them."""
    by_dataset: dict[str, ReportLine] = {}
    days = sorted(days)
    for day in days:
        for line in (_line(row) for row in ledger.reports.of(day) if matches(row["dataset"], datasets)):
            before = by_dataset.get(line.dataset)
            by_dataset[line.dataset] = sum_lines(line.dataset, (before, line)) if before else line
    actors = ledger.reports.ordered_by(first, last)
    lines = tuple(replace(by_dataset[name], ordered_by=actors.get(name, ())) for name in sorted(by_dataset))
    looks = {day: look for day in days if (look := ledger.reports.look(day)) is not None}
    return DayReport(first, lines, last, looks)


def _line(row: Mapping[str, Any]) -> ReportLine:
    return ReportLine(
        dataset=row["dataset"],
        counters={name: row[name] for name in COUNTERS},
        policies={name: (version,) for name, version in row["policies"].items()},
        bounds={name: (bound,) for name, bound in row["bounds"].items()},
        terminal_only=row["terminal_only"],
        archived_types=tuple(row["archived_types"]),
        classes=row["classes"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        periods={name: (period,) for name, period in row["periods"].items()},
    )


def sum_lines(name: str, lines: Iterable[ReportLine]) -> ReportLine:
    """Sum counters and classes; policies, periods and bounds are all that occur."""
    parts = tuple(lines)
    classes: Counter[str] = Counter()
    for part in parts:
        classes.update(part.classes)
    terminal = [part.terminal_only for part in parts if part.terminal_only is not None]
    started = [part for part in parts if part.started_at]
    finished = [part.finished_at for part in started if part.finished_at]
    return ReportLine(
        dataset=name,
        counters={counter: sum(part.counters[counter] for part in parts) for counter in COUNTERS},
        policies=_all_of(part.policies for part in parts),
        bounds=_all_of(part.bounds for part in parts),
        # One dataset whose unfinished records may go is enough for the sum not to promise that none do.
        terminal_only=all(terminal) if terminal else None,
        archived_types=tuple(sorted({kind for part in parts for kind in part.archived_types})),
        classes=dict(classes),
        started_at=min((part.started_at for part in started if part.started_at), default=None),
        finished_at=max(finished) if finished and len(finished) == len(started) else None,
        periods=_all_of(part.periods for part in parts),
        ordered_by=tuple(sorted({actor for part in parts for actor in part.ordered_by})),
    )


def _all_of(parts: Iterable[Mapping[str, Sequence[V]]]) -> dict[str, tuple[V, ...]]:
    values: dict[str, set[V]] = {}
    for part in parts:
        for policy, own in part.items():
            values.setdefault(policy, set()).update(own)
    return {policy: tuple(sorted(values[policy])) for policy in sorted(values)}


def policy_table(total: ReportLine) -> Table:
    screen, page = Medium.TERMINAL, Medium.HTML
    columns = (
        Column("policy", lambda row: row[0]),
        Column("versions", lambda row: ", ".join(str(version) for version in row[1] if version)),
        Column("period", lambda row: ", ".join(parse_duration(each).words() for each in total.periods.get(row[0], ())), screen),
        Column("period", lambda row: ", ".join(total.periods.get(row[0], ())), page),
        Column("takes what is older than (UTC)", lambda row: " to ".join(map(_minute, total.bound_range(row[0]))), screen),
        Column("takes what is older than", lambda row: " to ".join(total.bound_range(row[0])) or "no age", page),
    )
    return Table("Policies", columns, [*total.policies.items()], empty="No policy matches these datasets")


def _minute(bound: str) -> str:
    return minute_of(parse_instant(bound))
