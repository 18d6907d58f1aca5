"""Which plots there are: what was freed by day and policy, and how long marks have waited.

Belongs here: turning sums of the ledger into plots, with a title that says the answer.
Does not belong here: how a plot is drawn (bars.py).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from retention_assets.ledger.marks.pending import FreedGroup, PendingGroup, PendingMarks
from retention_assets.render.bars import Plot, Series, binary_ticks, decimal_ticks, largest
from retention_assets.render.terminal import size_of

DAYS = 30
_AT_LEAST = 7
# Ages in whole days, up to and with, and how they are called.
_AGES: tuple[tuple[int, str], ...] = (
    (0, "under 1"), (1, "1"), (3, "2–3"), (7, "4–7"), (14, "8–14"), (30, "15–30"), (90, "31–90"),
)  # fmt: skip
_OLDER = "over 90"


@dataclass(frozen=True)
class Days:
    """What was freed on each day of a while: days without anything are there too."""

    days: tuple[date, ...]
    by_policy: tuple[Series, ...]

    @property
    def totals(self) -> list[int]:
        """The bytes of each day."""
        return [sum(column) for column in zip(*(one.values for one in self.by_policy), strict=True)] or [0] * len(self.days)


@dataclass(frozen=True)
class Plots:
    """What a report shows besides its numbers."""

    days: Days
    freed: Plot
    ages: Plot

    @property
    def both(self) -> tuple[Plot, Plot]:
        """In the order in which they are looked at."""
        return self.freed, self.ages


def plots_of(outlook: PendingMarks, day: date, as_of: datetime) -> Plots:
    """What sweeps freed up to a day, and what waits at an instant."""
    days = freed_days(outlook.freed(since(day)), day)
    return Plots(days, freed_plot(days), ages_plot(outlook.waiting(), as_of))


def since(day: date) -> datetime:
    """From when on a plot that ends on some day looks."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=DAYS - 1)


def freed_days(freed: Sequence[FreedGroup], last: date) -> Days:
    """Bytes by day and policy, up to a day. A record that began only lately is not drawn as a long empty one."""
    sums: Counter[tuple[str, date]] = Counter()
    for one in freed:
        sums[one.policy, one.as_of.astimezone(UTC).date()] += one.bytes
    there = [day for (_, day), amount in sums.items() if amount and day <= last]
    first = min([*there, last - timedelta(days=_AT_LEAST - 1)])
    days = tuple(first + timedelta(days=number) for number in range((last - first).days + 1))[-DAYS:]
    policies = sorted({policy for policy, _ in sums})
    series = [Series(policy, tuple(sums[policy, day] for day in days)) for policy in policies]
    return Days(days, largest([one for one in series if any(one.values)]))


def freed_plot(found: Days) -> Plot:
    """The bytes that sweeps freed, by day and policy."""
    total, count = sum(found.totals), len(found.days)
    first, last = _day(found.days[0]), f"{_day(found.days[-1])} {found.days[-1].year}"
    if total:
        most = found.by_policy[0]
        whole = f", all by {most.name}" if len(found.by_policy) == 1 else f", {_share(sum(most.values), total)} by {most.name}"
        title = f"{size_of(total)} freed in {count} days{whole}"
    else:
        title = f"Nothing was freed in {count} days"
    note = f"Bytes freed by day and policy, {first} to {last} (UTC)"
    return Plot(title, note, tuple(map(_day, found.days)), found.by_policy, _round_size, binary_ticks)


def freed_words(found: Days) -> str:
    """The same in a few words."""
    total = sum(found.totals)
    return f"{size_of(total)} freed in {len(found.days)} days" if total else f"Nothing freed in {len(found.days)} days"


def ages_plot(waiting: Sequence[PendingGroup], as_of: datetime) -> Plot:
    """Open marks by how long ago they were made, those that are due apart."""
    due, still = Counter[str](), Counter[str]()
    for one in waiting:
        (due if one.sweeping or one.due_at <= as_of else still)[age_of(one.marked_at, as_of)] += one.marks
    labels = (*(name for _, name in _AGES), _OLDER)
    series = (
        Series("in their grace", tuple(still[label] for label in labels)),
        Series("due", tuple(due[label] for label in labels)),
    )
    total = sum(one.marks for one in waiting)
    if total:
        oldest = max((as_of - min(one.marked_at for one in waiting)) // timedelta(days=1), 0)
        title = f"{_marks(total)} {'waits' if total == 1 else 'wait'}, the oldest for {_days(oldest)}; {_are(due.total())} due"
    else:
        title = "No mark waits"
    note = (
        f"Open marks by the days since they were made, as of {_day(as_of.astimezone(UTC).date())} {as_of.astimezone(UTC).year}"
    )
    return Plot(title, note, labels, series, lambda number: f"{number:,}", decimal_ticks)


def age_of(marked_at: datetime, as_of: datetime) -> str:
    """The age of a mark, as a class."""
    days = (as_of - marked_at) // timedelta(days=1)
    return next((name for most, name in _AGES if days <= most), _OLDER)


def _day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _days(number: int) -> str:
    return "less than a day" if number < 1 else f"{number} day{'s' if number > 1 else ''}"


def _marks(number: int) -> str:
    return f"{number:,} mark{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "none is" if not number else f"{number:,} {'is' if number == 1 else 'are'}"


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    return "nearly all" if share > 99 else f"{share:.0f} %"


def _round_size(size: int) -> str:
    """A size without decimals that say nothing."""
    return size_of(size).replace(".0 ", " ") if size else "0"
