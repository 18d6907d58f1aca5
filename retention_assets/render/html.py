"""The report as one HTML file that refers to nothing else, to be kept, sent or printed.

Order and words of the page are in report.html, its style in report.css. No text gets on the page unescaped.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC
from functools import cache
from importlib.resources import files
from typing import Any
from xml.etree.ElementTree import tostring

from jinja2 import Environment, StrictUndefined, Template

from retention_assets.policy.durations import text_of
from retention_assets.policy.sizes import size_of
from retention_assets.render.summaries import looks_words
from retention_assets.render.svg import NARROW, Plot, draw
from retention_assets.render.text import duration_of, share_of, visible
from retention_assets.report import CLASSES, DayReport, ReportLine, iso_of, sum_lines

# most datasets on the page
MOST_SHOWN = 1_000
# width of the bar of classes, in units of its picture
_WIDTH = 1_000


def page_of(report: DayReport, plots: Iterable[Plot] = ()) -> str:
    """Render the page. The same arguments always give the same text."""
    ordered = sorted(report.lines, key=lambda line: (not line.counters["failed"], -line.counters["to_delete"], line.dataset))
    total, unlisted = report.total, ordered[MOST_SHOWN:]
    return _template().render(
        report=report,
        looks=looks_words(report),
        total=total,
        style=_read("report.css"),
        classes=CLASSES,
        bars=list(_class_bars(total)),
        plots=[_draw(plot, NARROW) for plot in plots],
        terminal_only=[line.terminal_only for line in report.lines if line.terminal_only is not None],
        listed=sorted(ordered[:MOST_SHOWN], key=lambda line: line.dataset),
        others=unlisted,
        others_total=sum_lines("others", unlisted),
    )


def _draw(plot: Plot, width: int) -> str:
    return tostring(draw(plot, width), encoding="unicode", method="html")


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_finalize)
    environment.filters.update(
        number=lambda number: f"{number:,}", size=size_of, share=share_of, words=duration_of, iso_length=iso_of,
        iso=text_of, seconds=lambda instant: f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
    )  # fmt: skip
    # Line breaks and indentation serve readers of the template; on the page they would be spaces between words.
    return environment.from_string(re.sub(r"\n\s*", "", _read("report.html")))


def _read(name: str) -> str:
    return files("retention_assets.render").joinpath(name).read_text("utf-8")


def _finalize(value: Any) -> Any:
    # Escaping comes later and leaves invisible characters alone, so they are made visible here.
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _class_bars(total: ReportLine) -> Iterator[dict[str, Any]]:
    # Parts fill the bar in proportion; each is at least wide enough to be seen.
    counts = total.class_counts
    least, size = _WIDTH / 250, sum(counts.values())
    wide = {name: max(_WIDTH * count / size, least) for name, count in counts.items()}
    x = 0.0
    for name, count in counts.items():
        width = wide[name] * _WIDTH / sum(wide.values())
        yield {"name": name, "count": count, "x": x, "width": width}
        x += width
