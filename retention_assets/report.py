"""The report of a day, or of several: planned deletions and their outcomes so far, per dataset and summed.

Reports add up: a day is the sum of its datasets and a month the sum of its days. What failed and was open again the next
day counts on both.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from retention_assets.ledger import Ledger
from retention_assets.ledger.reports import COUNTERS, DayLook
from retention_assets.policy.durations import text_of
from retention_assets.policy.globs import matches
from retention_assets.policy.sentences import first_of, short_actor

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
# Final outcomes of the day's marks. What failed is still open, and is counted by attempt.
_SETTLED = ("deleted", "already_gone", "hidden", "set_aside", "spared", "unmarked")

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

    def as_dict(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "policies": {name: list(versions) for name, versions in self.policies.items()},
            "periods": {name: list(periods) for name, periods in self.periods.items()},
            "bounds": {name: list(bounds) for name, bounds in self.bounds.items()},
            "terminal_only": self.terminal_only,
            "archived_types": list(self.archived_types),
            **self.counters,
            "started_at": text_of(self.started_at) if self.started_at else None,
            "finished_at": text_of(self.finished_at) if self.finished_at else None,
            "duration": iso_of(self.duration) if self.duration is not None else None,
            "classes": dict(self.classes),
            "ordered_by": list(self.ordered_by),
        }


@dataclass(frozen=True)
class ReportedRealm:
    """Realm whose purge is not over, or in which something appeared since it was PURGED; and what keeps it."""

    name: str
    status: str
    words: str

    @property
    def sentence(self) -> str:
        return f"Realm {self.name} is {self.status}; {self.words}."

    def as_dict(self) -> dict[str, str]:
        return {"realm": self.name, "status": self.status, "left": self.words}


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
    total = sum_lines("all", parts).as_dict()
    del total["dataset"]
    looked = [{"date": day.isoformat(), **_look(look)} for day, look in sorted((looks or {}).items())]
    left = [realm.as_dict() for realm in realms]
    return {"execution_date": when, **total, "looked": looked, "realms": left, "datasets": [part.as_dict() for part in parts]}


def _look(look: DayLook) -> dict[str, Any]:
    return {name: text_of(value) if isinstance(value, datetime) else value for name, value in look._asdict().items()}


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


def iso_of(length: timedelta) -> str:
    """ISO 8601, such as PT32M1.01S."""
    if length < timedelta():
        # The clock of the database was set back in between.
        return f"-{iso_of(-length)}"
    hours, rest = divmod(length, timedelta(hours=1))
    minutes, rest = divmod(rest, timedelta(minutes=1))
    seconds = f"{rest.total_seconds():.6f}".rstrip("0").rstrip(".")
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", f"{seconds}S" if seconds != "0" else ""]
    return "PT" + ("".join(parts) or "0S")
