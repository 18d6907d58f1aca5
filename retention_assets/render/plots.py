"""Plots of what was freed by day and policy, and of how long marks have waited."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from retention_assets.ledger.states import FreedGroup, PendingGroup, PendingMarks
from retention_assets.policy.sentences import count
from retention_assets.render.svg import Plot, Series, largest
from retention_assets.render.text import day_of_month, period_of, size_of

# most days in the plot of what was freed, and the least
DAYS = 30
_AT_LEAST = 7
# highest age of each class in whole days, and its label
_AGES = ((0, "under 1"), (1, "1"), (3, "2–3"), (7, "4–7"), (14, "8–14"), (30, "15–30"), (90, "31–90"))
_OLDER = "over 90"


@dataclass(frozen=True)
class FreedDays:
    """Freed bytes on consecutive days, including days with none."""

    days: tuple[date, ...]
    by_policy: tuple[Series, ...]

    @property
    def totals(self) -> list[int]:
        return [sum(column) for column in zip(*(one.values for one in self.by_policy), strict=True)] or [0] * len(self.days)


@dataclass(frozen=True)
class Plots:
    """Plots of a report."""

    days: FreedDays
    freed: Plot
    ages: Plot


def plots_of(pending: PendingMarks, waiting: Sequence[PendingGroup], day: date, as_of: datetime) -> Plots:
    """Sweeps' freed bytes up to a day, and the marks that wait at an instant."""
    days = freed_days(pending.freed(since(day)), day)
    return Plots(days, freed_plot(days), ages_plot(waiting, as_of))


def since(day: date) -> datetime:
    """First instant of the plot of freed bytes that ends on a day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=DAYS - 1)


def freed_days(freed: Sequence[FreedGroup], last: date) -> FreedDays:
    """Bytes by day and policy, up to a day, from the first day on which something was freed."""
    sums: Counter[tuple[str, date]] = Counter()
    for group in freed:
        sums[group.policy, group.as_of.astimezone(UTC).date()] += group.bytes
    with_bytes = [day for (_, day), size in sums.items() if size and day <= last]
    first = min([*with_bytes, last - timedelta(days=_AT_LEAST - 1)])
    days = tuple(first + timedelta(days=number) for number in range((last - first).days + 1))[-DAYS:]
    policies = sorted({policy for policy, _ in sums})
    series = [Series(policy, tuple(sums[policy, day] for day in days)) for policy in policies]
    return FreedDays(days, largest([each for each in series if any(each.values)]))


def freed_plot(freed: FreedDays) -> Plot:
    """Bytes that sweeps freed, by day and policy."""
    total, count = sum(freed.totals), len(freed.days)
    title = f"Nothing was freed in {count} days"
    if total:
        most = freed.by_policy[0]
        share = 100 * sum(most.values) / total
        amount = "all" if len(freed.by_policy) == 1 else "nearly all" if share > 99 else f"{share:.0f} %"
        title = f"{size_of(total)} freed in {count} days, {amount} by {most.name}"
    return Plot(
        title=title,
        note=f"Bytes freed by day and policy, {period_of(freed.days[0], freed.days[-1])}",
        labels=tuple(map(day_of_month, freed.days)),
        series=freed.by_policy,
        in_bytes=True,
    )


def freed_words(freed: FreedDays) -> str:
    """Summary for pages without a picture."""
    total = sum(freed.totals)
    return f"{size_of(total) if total else 'Nothing'} freed in {len(freed.days)} days"


def ages_plot(waiting: Sequence[PendingGroup], as_of: datetime) -> Plot:
    """Open marks by age, with due marks and marks that do not go apart."""
    due, in_grace, kept = Counter[str](), Counter[str](), Counter[str]()
    for group in waiting:
        ages = due if group.is_due(as_of) else in_grace if group.goes else kept
        ages[age_of(group.marked_at, as_of)] += group.marks
    labels = (*(label for _, label in _AGES), _OLDER)
    title = "No mark waits"
    if total := due.total() + in_grace.total() + kept.total():
        days = (as_of - min(group.marked_at for group in waiting)).days
        oldest = count(days, "day") if days > 0 else "less than a day"
        are_due = f"{due.total():,} {'is' if due.total() == 1 else 'are'}" if due.total() else "none is"
        title = f"{count(total, 'mark')} {'waits' if total == 1 else 'wait'}, the oldest for {oldest}; {are_due} due"
    today = as_of.astimezone(UTC)
    return Plot(
        title=title,
        note=f"Open marks by the days since they were made, as of {day_of_month(today)} {today.year}",
        labels=labels,
        series=(
            Series("in their grace", tuple(in_grace[label] for label in labels)),
            Series("due", tuple(due[label] for label in labels)),
            *([Series("held or to be spared", tuple(kept[label] for label in labels))] if kept else []),
        ),
        in_bytes=False,
    )


def age_of(marked_at: datetime, as_of: datetime) -> str:
    """Label of the class of a mark's age."""
    days = (as_of - marked_at).days
    return next((label for most, label in _AGES if days <= most), _OLDER)
