"""Forecast for people: a sentence for each set of policies, a table of its days, and a plot of what is stored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from retention_assets.evaluation.days import IN_FORCE, Forecast, ForecastDay, ForecastDays
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.svg import Plot, Series
from retention_assets.render.text import day_of_month, money_of, period_of, visible_line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# Most days for which a table has a row each; most days for which it has a row per week. Beyond, a row per four weeks.
_DAILY, _WEEKLY = 14, 126
# columns and lines of the plot: with its axis it fits 80 columns
_COLUMNS, _LINES = 66, 6
_AXIS = 10
_BLOCKS = " ▁▂▃▄▅▆▇█"
# as many bars as can be told apart on a page
_BARS = 120
ASSUMPTION = "Assumed: nothing new arrives, and each day has one run."


@dataclass(frozen=True)
class ForecastPeriod:
    """Consecutive days: what is there at their end, and what happened on all of them together."""

    last: ForecastDay
    marked: int
    deleted: int
    bytes_deleted: int


def periods_of(foreseen: ForecastDays) -> list[ForecastPeriod]:
    """Group the days in few rows: single days, weeks, or four weeks."""
    periods, length = [], _period_length(foreseen)
    for begin in range(0, len(foreseen.days), length):
        days = foreseen.days[begin : begin + length]
        sums = (sum(getattr(day, name) for day in days) for name in ("marked", "deleted", "bytes_deleted"))
        periods.append(ForecastPeriod(days[-1], *sums))
    return periods


def _period_length(foreseen: ForecastDays) -> int:
    days = len(foreseen.days)
    return 1 if days <= _DAILY else 7 if days <= _WEEKLY else 28


def policies_words(foreseen: ForecastDays) -> str:
    return "With the policies in force" if foreseen.policies == IN_FORCE else f"With {foreseen.policies}"


def summary(foreseen: ForecastDays, currency: str | None) -> str:
    first, last, length = foreseen.start, foreseen.days[-1], count(len(foreseen.days), "day")
    sentences = [
        f"{policies_words(foreseen)}, {size_of(first.bytes)} become {size_of(last.bytes)} in {length}:"
        f" {size_of(foreseen.total('bytes_deleted'))} in {foreseen.total('deleted'):,} transactions are deleted."
    ]
    if currency:
        sentences.append(
            f"A month of storage costs {money_of(first.month, currency)} now and {money_of(last.month, currency)} then."
        )
        requests, early = foreseen.total("requests"), foreseen.total("early")
        sentences += [f"The requests that delete it cost {money_of(requests, currency)}."] if requests else []
        sentences += [f"Billed although deleted early: {money_of(early, currency)}."] if early else []
    return " ".join(sentences)


def forecast_texts(forecast: Forecast) -> "Iterator[Table | Text]":
    """Render all of it for a terminal, with the same scale under all policies."""
    from rich.text import Text

    if not forecast.in_force.datasets:
        yield Text("There is no dataset to forecast.")
        return
    highest = max(day.bytes for foreseen in forecast.sets for day in (foreseen.start, *foreseen.days))
    for number, foreseen in enumerate(forecast.sets):
        yield Text(("\n" if number else "") + visible_line(summary(foreseen, forecast.currency)))
        if highest:
            ends = foreseen.days[0].date, foreseen.days[-1].date
            yield Text("\n".join(["", *blocks([day.bytes for day in foreseen.days], highest, *ends), ""]))
        yield _days_table(foreseen, forecast.currency)
    yield Text(ASSUMPTION)


def _days_table(foreseen: ForecastDays, currency: str | None) -> "Table":
    from retention_assets.render.terminal import Count, Number, Size, table

    columns = ("until", Count("marked"), Count("deleted"), Size("freed"), Size("stored"), Number(f"{currency} a month"))
    rows = [
        (
            part.last.date, part.marked, part.deleted, part.bytes_deleted, part.last.bytes,
            f"{part.last.month:,.2f}" if currency else None,
        )
        for part in periods_of(foreseen)
    ]  # fmt: skip
    words = policies_words(foreseen)
    each = {1: "Day by day", 7: "Week by week"}.get(_period_length(foreseen), "Every four weeks")
    return table(f"{each}, {words[0].lower()}{words[1:]}", columns, rows)


def blocks(values: Sequence[int], highest: int, first: date, last: date) -> Iterator[str]:
    """Draw values as columns of blocks above an axis; neighbours share a column where there are too many."""
    shown = [values[min(end, len(values)) - 1] for end in _ends(len(values), _COLUMNS)]
    wide = max(1, min(6, _COLUMNS // len(shown)))
    eighths = [max(round(value * _LINES * 8 / highest), 1 if value else 0) for value in shown]
    for line in range(_LINES - 1, -1, -1):
        label = size_of(highest) if line == _LINES - 1 else ""
        row = "".join(_BLOCKS[min(max(height - line * 8, 0), 8)] * wide for height in eighths)
        yield f"{label:>{_AXIS}} ┤{row}".rstrip()
    width = wide * len(shown)
    yield f"{'0':>{_AXIS}} └{'─' * width}"
    ends = f"{first}{last!s:>{width - 10}}" if width >= 22 else str(first)
    yield f"{'':>{_AXIS}}  {ends}"


def _ends(count: int, most: int) -> Sequence[int]:
    size = -(-count // most)
    return range(size, count + size, size)


def forecast_plot(forecast: Forecast) -> Plot:
    """Stored bytes by day: bars under the policies in force, a line under each of the others."""
    foreseen = forecast.in_force
    ends = [min(end, len(foreseen.days)) - 1 for end in _ends(len(foreseen.days), _BARS)]
    days = [foreseen.days[end] for end in ends]
    waiting = tuple(day.bytes_waiting for day in days)
    stays = tuple(day.bytes - day.bytes_waiting for day in days)
    length = count(len(foreseen.days), "day")
    return Plot(
        title=f"{size_of(foreseen.start.bytes)} become {size_of(days[-1].bytes)} in {length}",
        note=f"Stored data, marked and not marked, {period_of(foreseen.days[0].date, days[-1].date)}",
        labels=tuple(day_of_month(day.date) for day in days),
        series=(Series("not marked", stays), Series("marked", waiting)),
        in_bytes=True,
        trends=tuple(Series(other.policies, tuple(other.days[end].bytes for end in ends)) for other in forecast.others),
        is_stock=True,
    )
