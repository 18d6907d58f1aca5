"""Pages of HTML from templates, and tables on them. No text gets on a page unescaped."""

import re
from datetime import UTC
from functools import cache
from importlib.resources import files
from typing import Any
from xml.etree.ElementTree import tostring

from jinja2 import Environment, FunctionLoader, StrictUndefined

from retention_assets.policy.durations import text_of
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import Column, Kind, Medium, Table
from retention_assets.render.svg import NARROW, Plot, draw
from retention_assets.render.text import duration_of, iso_of, share_of, visible

# classes of the style, by the colour of a value
_STYLES = {"red": "failed", "yellow": "going", "green": "done"}


def fill(name: str, **values: Any) -> str:
    return _templates().get_template(name).render(**values)


def draw_plot(plot: Plot) -> str:
    return tostring(draw(plot, NARROW), encoding="unicode", method="html")


def draw_table(table: Table) -> Any:
    """Markup of rows, then of those that add them up; the first cell of each is its heading."""
    columns = table.shown(Medium.HTML)
    rows, sums = ([[_cell(column, row) for column in columns] for row in part] for part in (table.rows, table.sums))
    return _templates().get_template("table.html").module.show(columns, rows, sums)  # type: ignore[attr-defined]


def _cell(column: Column, row: Any) -> dict[str, str]:
    value = column.read(row)
    look = "zero" if column.is_number and not value else _STYLES.get(column.tone(value), "")
    exact = f"{value:,} bytes" if column.kind is Kind.SIZE and isinstance(value, int) else ""
    words = ("number" if column.is_number else "", look)
    return {"text": column.text(value) or "–", "look": " ".join(filter(None, words)), "exact": exact}


@cache
def _templates() -> Environment:
    # Line breaks and indentation serve readers of a template; on the page they would be spaces between words.
    loader = FunctionLoader(lambda name: re.sub(r"\n\s*", "", read(name)))
    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_finalize, loader=loader)
    environment.filters.update(
        number=lambda number: f"{number:,}", size=size_of, share=share_of, words=duration_of, iso_length=iso_of, iso=text_of,
        table=draw_table, seconds=lambda instant: f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
    )  # fmt: skip
    return environment


def read(name: str) -> str:
    return files("retention_assets.render").joinpath(name).read_text("utf-8")


def _finalize(value: Any) -> Any:
    # Escaping comes later and leaves invisible characters alone, so they are made visible here.
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
