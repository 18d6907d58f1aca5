"""Stacked bars as SVG: an answer as the title, an axis in units that people read, and colours that everybody can tell apart.

Belongs here: drawing. A picture carries its own ground and its own dark theme, since the page around it may have another one.
Does not belong here: which plots there are, and any number that is not in a `Plot`.
"""

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, tostring

from retention_assets.render.elements import element

# By Okabe and Ito, in an order in which neighbours differ in lightness too; the last is for everything else.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8b95a3")
_DARK = ("#3f9fdc", "#f0b429", "#2fbf93", "#e093bf", "#8fd0f5", "#7b8794")
WIDTH, NARROW, HEIGHT = 760, 560, 300
_EMPTY = 72
_LEFT, _RIGHT, _BOTTOM = 76, 20, 34
_LETTER = 6.6
_NAME = 28

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


@dataclass(frozen=True)
class Series:
    """One part of every bar."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Plot:
    """What is drawn: the answer in words, what is counted, and a bar per label, stacked of the series."""

    title: str
    note: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    words: Callable[[int], str]
    # From the highest bar to the distance of two lines of the axis.
    step: Callable[[int], int]

    @property
    def highest(self) -> int:
        """The height of the highest bar."""
        return max((sum(column) for column in zip(*(one.values for one in self.series), strict=True)), default=0)


def decimal_ticks(highest: int) -> int:
    """A round step for numbers: 1, 2 or 5 of some power of ten, at most four to the top."""
    power = 1
    while True:
        for first in (1, 2, 5):
            if first * power * 4 >= highest:
                return first * power
        power *= 10


def binary_ticks(highest: int) -> int:
    """A round step for bytes: a power of two, at most four to the top."""
    return 1 << max(0, (max(highest, 1) - 1).bit_length() - 2)


def draw(plot: Plot, width: int = WIDTH) -> Element:
    """The picture as an element, to stand in a page or in a picture's address. Letters stay as they are, however wide it is."""
    height = HEIGHT if plot.highest else _EMPTY
    whole = element(
        "svg",
        element("title", f"{plot.title} {plot.note}"),
        element("style", _STYLE),
        element("rect", class_="ground", x="0.5", y="0.5", width=str(width - 1), height=str(height - 1), rx="10"),
        element("text", _cut(plot.title, (width - 40) // 8), class_="title", x="20", y="32"),
        element("text", _cut(plot.note, (width - 40) // 6), x="20", y="52"),
        viewBox=f"0 0 {width} {height}", width=str(width), height=str(height),
        role="img", class_="plot",
    )  # fmt: skip
    if not plot.highest:
        return whole
    top = 100.0
    if len(plot.series) > 1:
        top += _legend(whole, plot, width) * 18
    else:
        top -= 22
    whole.extend([*_axis(plot, top, width), *_bars(plot, top, width), *_labels(plot, width)])
    return whole


def data_uri(plot: Plot) -> str:
    """The picture as an address that holds all of it."""
    picture = draw(plot)
    # A page says by itself what an svg is; a picture that stands alone has to.
    picture.set("xmlns", "http://www.w3.org/2000/svg")
    return "data:image/svg+xml;base64," + base64.b64encode(tostring(picture)).decode()


def _legend(whole: Element, plot: Plot, width: int) -> int:
    """The names and sums of the series, below the title; how many lines they took besides the first."""
    x, line = 20.0, 0
    for number, one in enumerate(plot.series):
        name, amount = _cut(one.name, _NAME), plot.words(sum(one.values))
        taken = 22 + (len(name) + len(amount) + 1) * _LETTER + 16
        if x > 20 and x + taken > width - _RIGHT:
            x, line = 20.0, line + 1
        y = 68 + 18 * line
        whole.append(element("rect", class_=f"c{number}", x=f"{x:.0f}", y=str(y), width="11", height="11", rx="3"))
        text = element("text", element("tspan", name, class_="name"), f" {amount}", x=f"{x + 17:.0f}", y=str(y + 10))
        whole.append(text)
        x += taken
    return line


def _scale(plot: Plot, top: float) -> tuple[int, int, float]:
    """The step of the axis, its end, and how high one unit is."""
    step = plot.step(plot.highest)
    end = -(-plot.highest // step) * step
    return step, end, (HEIGHT - _BOTTOM - top) / end


def _axis(plot: Plot, top: float, width: int) -> Iterator[Element]:
    step, end, unit = _scale(plot, top)
    for value in range(0, end + 1, step):
        y = f"{HEIGHT - _BOTTOM - value * unit:.1f}"
        look = "line" if value else "axis"
        yield element("line", class_=look, x1=str(_LEFT), x2=str(width - _RIGHT), y1=y, y2=y)
        yield element("text", plot.words(value), x=str(_LEFT - 8), y=f"{float(y) + 4:.1f}", text_anchor="end")


def _bars(plot: Plot, top: float, width: int) -> Iterator[Element]:
    """One path per series: all of its parts together."""
    _, _, unit = _scale(plot, top)
    slot = (width - _RIGHT - _LEFT) / len(plot.labels)
    wide = min(slot * 0.72, 56)
    below = [0] * len(plot.labels)
    for number, one in enumerate(plot.series):
        pieces = []
        for place, value in enumerate(one.values):
            if value:
                x = _LEFT + slot * place + (slot - wide) / 2
                # What is there at all can be seen.
                height = max(value * unit, 1)
                y = HEIGHT - _BOTTOM - below[place] * unit
                pieces.append(f"M{x:.1f} {y:.1f}v{-height:.1f}h{wide:.1f}v{height:.1f}z")
                below[place] += value
        if pieces:
            yield element("path", class_=f"c{number}", d="".join(pieces))


def _labels(plot: Plot, width: int) -> Iterator[Element]:
    """Labels below the bars; of many only some, the last one always."""
    slot = (width - _RIGHT - _LEFT) / len(plot.labels)
    longest = max(map(len, plot.labels)) * _LETTER + 8
    every = math.ceil(longest / slot)
    for place, label in enumerate(plot.labels):
        if (len(plot.labels) - 1 - place) % every == 0:
            x = _LEFT + slot * (place + 0.5)
            yield element("text", label, x=f"{x:.1f}", y=str(HEIGHT - 14), text_anchor="middle")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def largest(named: Sequence[Series], most: int = len(COLOURS) - 1) -> tuple[Series, ...]:
    """The series with the largest sums, and all others as one: there are no more colours that everybody can tell apart."""
    ordered = sorted(named, key=lambda one: (-sum(one.values), one.name))
    rest = ordered[most:]
    if len(rest) < 2:
        return tuple(ordered)
    together = tuple(sum(column) for column in zip(*(one.values for one in rest), strict=True))
    return (*ordered[:most], Series(f"{len(rest)} others", together))
