"""SVG pictures: stacked bars with an axis, strips that Dagster shows without a click, and the plots of a report.

A picture has its own background and dark theme, since the page around it may have another one.
"""

import base64
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from urllib.parse import quote
from xml.etree.ElementTree import Element, tostring

from retention_assets.ledger.states import FreedGroup, PendingGroup
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.text import day_of_month, period_of, visible

# Okabe and Ito's palette, in an order in which neighbours differ in lightness too; the last is for everything else.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8b95a3")
_DARK = ("#3f9fdc", "#f0b429", "#2fbf93", "#e093bf", "#8fd0f5", "#7b8794")
WIDTH, NARROW, HEIGHT = 760, 560, 300
_EMPTY_HEIGHT = 72
_LEFT, _RIGHT, _BOTTOM = 76, 20, 34
_LETTER = 6.6
_LONGEST_NAME = 28

_STYLE = (
    ".plot{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-size:12px}"
    ".plot .ground{fill:#fff;stroke:#dfe4ea}.plot text{fill:#5b6675}.plot .title{fill:#1c2430;font-size:16px;font-weight:600}"
    ".plot .name{fill:#1c2430;unicode-bidi:isolate}.plot .line{stroke:#e6eaee}.plot .axis{stroke:#9aa6b4}"
    + "".join(f".plot .c{number}{{fill:{colour}}}" for number, colour in enumerate(COLOURS))
    + "@media(prefers-color-scheme:dark){.plot .ground{fill:#1a212b;stroke:#2d3744}.plot text{fill:#9aa6b4}"
    ".plot .title,.plot .name{fill:#e7ebf0}.plot .line{stroke:#2d3744}.plot .axis{stroke:#6b7685}"
    + "".join(f".plot .c{number}{{fill:{colour}}}" for number, colour in enumerate(_DARK))
    + "}"
)

# Dagster's page hides Markdown of a thousand characters or more behind a click.
STRIP_LIMIT = 990
# room in a column of a page that is 1280 wide
_STRIP_WIDTH, _STRIP_HEIGHT, _STRIP_TOP = 252, 46, 16
_STRIP_COLOUR = "%232a8fd0"


@dataclass(frozen=True)
class Series:
    """One part of every bar."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Plot:
    """Plot with its answer in words, and a stacked bar per label."""

    title: str
    note: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    in_bytes: bool

    @property
    def highest(self) -> int:
        return max((sum(column) for column in zip(*(part.values for part in self.series), strict=True)), default=0)

    @property
    def step(self) -> int:
        return binary_ticks(self.highest) if self.in_bytes else decimal_ticks(self.highest)

    def words(self, value: int) -> str:
        """Value for the axis and the legend, without decimals that are zero."""
        if not self.in_bytes:
            return f"{value:,}"
        return size_of(value).replace(".0 ", " ") if value else "0"


def decimal_ticks(highest: int) -> int:
    """Round step: 1, 2 or 5 of some power of ten, at most four to the top."""
    power = 1
    while True:
        for first in (1, 2, 5):
            if first * power * 4 >= highest:
                return first * power
        power *= 10


def binary_ticks(highest: int) -> int:
    """Round step for bytes: a power of two, at most four to the top."""
    return 1 << max(0, (max(highest, 1) - 1).bit_length() - 2)


def largest(series: Sequence[Series]) -> tuple[Series, ...]:
    """Series with the largest sums, and all others as one: more colours can't be told apart."""
    ordered, most = sorted(series, key=lambda part: (-sum(part.values), part.name)), len(COLOURS) - 1
    rest = ordered[most:]
    if len(rest) < 2:
        return tuple(ordered)
    added_up = tuple(sum(column) for column in zip(*(part.values for part in rest), strict=True))
    return (*ordered[:most], Series(f"{len(rest)} others", added_up))


def draw(plot: Plot, width: int = WIDTH) -> Element:
    """Draw an element, to stand in a page or in a data URI. Letters have one size, however wide it is."""
    height = HEIGHT if plot.highest else _EMPTY_HEIGHT
    picture = _element(
        "svg",
        _element("title", f"{plot.title} {plot.note}"),
        _element("style", _STYLE),
        _element("rect", class_="ground", x="0.5", y="0.5", width=str(width - 1), height=str(height - 1), rx="10"),
        _element("text", _shorten(plot.title, (width - 40) // 8), class_="title", x="20", y="32"),
        _element("text", _shorten(plot.note, (width - 40) // 6), x="20", y="52"),
        viewBox=f"0 0 {width} {height}", width=str(width), height=str(height),
        role="img", class_="plot",
    )  # fmt: skip
    if not plot.highest:
        return picture
    top = 78
    if len(plot.series) > 1:
        legend, lines = _draw_legend(plot, width)
        picture.extend(legend)
        top = 82 + 18 * lines
    step = plot.step
    end = -(-plot.highest // step) * step
    unit = (HEIGHT - _BOTTOM - top) / end
    picture.extend([*_draw_axis(plot, range(0, end + 1, step), unit, width), *_draw_series(plot, unit, width)])
    picture.extend(_draw_labels(plot, width))
    return picture


def data_uri(plot: Plot) -> str:
    picture = draw(plot)
    # Inside HTML an svg needs no namespace; a picture that stands alone does.
    picture.set("xmlns", "http://www.w3.org/2000/svg")
    return "data:image/svg+xml;base64," + base64.b64encode(tostring(picture)).decode()


def strip(words: str, values: Sequence[int]) -> str:
    """Markdown that shows the words above a bar for each value; of many values the newest that fit."""
    words = "".join(letter if letter.isalnum() or letter in " .,:-" else " " for letter in words)
    for most in range(len(values), -1, -1):
        markdown = f"![{words}](data:image/svg+xml,{_draw_strip(words, values[len(values) - most :])})"
        if len(markdown) <= STRIP_LIMIT:
            return markdown
    return words


def _draw_strip(words: str, values: Sequence[int]) -> str:
    height, highest = _STRIP_HEIGHT - _STRIP_TOP, max(values, default=0)
    slot = _STRIP_WIDTH // max(len(values), 12)
    bars = "".join(
        f"M{slot * place},{_STRIP_HEIGHT}v-{max(1, round(height * value / highest))}h{slot - 2}V{_STRIP_HEIGHT}"
        for place, value in enumerate(values)
        if value
    )
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_STRIP_WIDTH}' height='{_STRIP_HEIGHT}'>"
        f"<text y='11' font-family='sans-serif' font-size='12' fill='gray'>{words}</text>"
        f"<path fill='@' d='{bars}M0,{_STRIP_HEIGHT}h{slot * max(len(values), 1)}' stroke='@'/></svg>"
    )
    return quote(svg, safe="/:=',;@-.").replace("@", _STRIP_COLOUR)


def _element(tag: str, *content: Element | str, **attributes: str) -> Element:
    # Attributes whose names Python reserves, or can't write, are spelled with underscores.
    element = Element(tag, {name.strip("_").replace("_", "-"): visible(value) for name, value in attributes.items()})
    for part in content:
        if isinstance(part, Element):
            element.append(part)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + visible(part)
        else:
            element.text = (element.text or "") + visible(part)
    return element


def _colour(number: int) -> int:
    return min(number, len(COLOURS) - 1)


def _draw_legend(plot: Plot, width: int) -> tuple[list[Element], int]:
    # Also returns the number of lines that the legend takes.
    legend, x, line = list[Element](), 20.0, 0
    for number, part in enumerate(plot.series):
        name, amount = _shorten(part.name, _LONGEST_NAME), plot.words(sum(part.values))
        taken = 22 + (len(name) + len(amount) + 1) * _LETTER + 16
        if x > 20 and x + taken > width - _RIGHT:
            x, line = 20.0, line + 1
        y = 68 + 18 * line
        legend.append(_element("rect", class_=f"c{_colour(number)}", x=f"{x:.0f}", y=str(y), width="11", height="11", rx="3"))
        words = _element("tspan", name, class_="name"), f" {amount}"
        legend.append(_element("text", *words, x=f"{x + 17:.0f}", y=str(y + 10)))
        x += taken
    return legend, line + 1


def _draw_axis(plot: Plot, ticks: range, unit: float, width: int) -> Iterator[Element]:
    for value in ticks:
        y = f"{HEIGHT - _BOTTOM - value * unit:.1f}"
        look = "line" if value else "axis"
        yield _element("line", class_=look, x1=str(_LEFT), x2=str(width - _RIGHT), y1=y, y2=y)
        yield _element("text", plot.words(value), x=str(_LEFT - 8), y=f"{float(y) + 4:.1f}", text_anchor="end")


def _draw_series(plot: Plot, unit: float, width: int) -> Iterator[Element]:
    slot = (width - _RIGHT - _LEFT) / len(plot.labels)
    wide = min(slot * 0.72, 56)
    below = [0] * len(plot.labels)
    for number, part in enumerate(plot.series):
        parts = []
        for place, value in enumerate(part.values):
            if value:
                x = _LEFT + slot * place + (slot - wide) / 2
                # A value above zero is always visible.
                height = max(value * unit, 1)
                y = HEIGHT - _BOTTOM - below[place] * unit
                parts.append(f"M{x:.1f} {y:.1f}v{-height:.1f}h{wide:.1f}v{height:.1f}z")
                below[place] += value
        if parts:
            yield _element("path", class_=f"c{number}", d="".join(parts))


def _draw_labels(plot: Plot, width: int) -> Iterator[Element]:
    slot = (width - _RIGHT - _LEFT) / len(plot.labels)
    longest = max(map(len, plot.labels)) * _LETTER + 8
    every = math.ceil(longest / slot)
    for place, label in enumerate(plot.labels):
        if (len(plot.labels) - 1 - place) % every == 0:
            x = _LEFT + slot * (place + 0.5)
            yield _element("text", label, x=f"{x:.1f}", y=str(HEIGHT - 14), text_anchor="middle")


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
        return [sum(column) for column in zip(*(part.values for part in self.by_policy), strict=True)] or [0] * len(self.days)


@dataclass(frozen=True)
class Plots:
    """Plots of a report."""

    days: FreedDays
    freed: Plot
    ages: Plot


def plots_of(freed: Sequence[FreedGroup], waiting: Sequence[PendingGroup], day: date, as_of: datetime) -> Plots:
    days = freed_days(freed, day)
    return Plots(days, freed_plot(days), ages_plot(waiting, as_of))


def since(day: date) -> datetime:
    """First instant of the plot of freed bytes that ends on a day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=DAYS - 1)


def freed_days(freed: Sequence[FreedGroup], last: date) -> FreedDays:
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
    total = sum(freed.totals)
    return f"{size_of(total) if total else 'Nothing'} freed in {len(freed.days)} days"


def ages_plot(waiting: Sequence[PendingGroup], as_of: datetime) -> Plot:
    """Open marks by age, with due marks and marks that do not go apart."""
    due, in_grace, kept = Counter[str](), Counter[str](), Counter[str]()
    for group in waiting:
        ages = due if group.is_due(as_of) else in_grace if group.goes else kept
        days = (as_of - group.marked_at).days
        ages[next((label for most, label in _AGES if days <= most), _OLDER)] += group.marks
    parts = {"in their grace": in_grace, "due": due, **({"held or to be spared": kept} if kept else {})}
    labels = (*(label for _, label in _AGES), _OLDER)
    title = "No mark waits"
    if total := due.total() + in_grace.total() + kept.total():
        days = (as_of - min(group.marked_at for group in waiting)).days
        oldest = count(days, "day") if days > 0 else "less than a day"
        are_due = count(due.total(), "is", "are") if due.total() else "none is"
        title = f"{count(total, 'mark waits', 'marks wait')}, the oldest for {oldest}; {are_due} due"
    today = as_of.astimezone(UTC)
    return Plot(
        title=title,
        note=f"Open marks by the days since they were made, as of {day_of_month(today)} {today.year}",
        labels=labels,
        series=tuple(Series(name, tuple(ages[label] for label in labels)) for name, ages in parts.items()),
        in_bytes=False,
    )
