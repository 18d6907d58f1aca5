"""Terminal output: tables that fit its width, and foreign text that is never markup, an emoji or a control sequence.

Text can be copied as it is printed. JSON for programs does not pass through here.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TextIO

import rich.table
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from retention_assets.render.page import Column, Kind, Medium, Table
from retention_assets.render.text import visible, visible_line

# Wider than any line: readers of a pipe fold lines themselves.
_WIDEST = 100_000
_GAP = 2
# Words up to this length are not folded while there is room elsewhere.
_LONGEST_WORD = 12


class ResultConsole(Console):
    """Console that takes every text as it is."""

    def render_str(self, text: str, **options: Any) -> Text:
        """No markup, emoji and highlights; invisible characters are made visible."""
        kept = {name: options[name] for name in ("style", "justify", "overflow", "tab_size") if options.get(name) is not None}
        return Text(visible(text), **kept)


@dataclass(frozen=True)
class _Drawn:
    """Table that fits where it is shown. Cells are folded, never cut.

    In a pipe each row is one line. On a terminal, rows of one group stand below its name, the first of their cells; and the
    prose of a row, its last cell, stands below the row where there is no room beside it.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    grouped: bool
    prose: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title has the whole line: a name in it is not folded because the columns are narrow."""
        if self.title:
            yield from _below(console, Text(visible_line(self.title), "bold"), options.max_width, 0)
        if options.max_width < _WIDEST:
            yield from self._lines(console, options.max_width) if self.rows else ()
            yield Text()
            return
        boxed = rich.table.Table()
        for column in self.columns:
            boxed.add_column(column.name, justify="right" if column.is_number else "left", overflow="fold")
        for row in self.rows:
            boxed.add_row(*row)
        yield boxed

    def _lines(self, console: Console, width: int) -> Iterator[Text]:
        indent = int(self.grouped)
        groups = _grouped(self.rows) if self.grouped else [("", self.rows)]
        headers = [Text(visible_line(column.name), "bold") for column in self.columns[indent:]]
        columns = list(zip(*(row for _, members in groups for row in members), strict=True))
        right = [column.is_number for column in self.columns[indent:]]
        natural = [max(text.cell_len for text in (header, *cells)) for header, cells in zip(headers, columns, strict=True)]
        below = self.prose and sum(natural) + _GAP * (len(natural) - 1 + indent) > width
        if below:
            headers, natural, columns, right = headers[:-1], natural[:-1], columns[:-1], right[:-1]
        least = [
            size if numbers else min(size, max(map(_longest_word, (header, *cells))))
            for header, cells, size, numbers in zip(headers, columns, natural, right, strict=True)
        ]
        widths = fit(natural, least, width - _GAP * (len(natural) - 1 + indent))
        if any(header.plain for header in headers):
            yield from _beside(console, headers, widths, right, indent)
            yield Text(" " * _GAP * indent + (" " * _GAP).join("─" * size for size in widths))
        for name, members in groups:
            if name:
                yield from _below(console, Text(name, "bold"), width, 0)
            for row in members:
                yield from _beside(console, row[: len(widths)], widths, right, indent)
                if below and row[-1].plain:
                    yield from _below(console, row[-1], width, _GAP * (indent + 2))


@dataclass(frozen=True)
class Indented:
    """Lines that, where folded, continue at their own indentation."""

    lines: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            indent = len(line.plain) - len(line.plain.lstrip(" "))
            yield from _below(console, line[indent:], options.max_width, indent) if line.plain else [line]


def fit(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths that fit: the widest columns give way first, words and numbers are broken last."""
    for floor in (least, [1] * len(natural)):
        for most in range(max(natural, default=0), 0, -1):
            widths = [max(min(size, most), min(low, size)) for size, low in zip(natural, floor, strict=True)]
            if sum(widths) <= room:
                return widths
    return [1] * len(natural)


def _longest_word(text: Text) -> int:
    return min(max((Text(word).cell_len for word in text.plain.split()), default=1), _LONGEST_WORD)


def _grouped(rows: Sequence[Sequence[Text]]) -> list[tuple[str, list[Sequence[Text]]]]:
    groups: dict[str, list[Sequence[Text]]] = {}
    for row in rows:
        groups.setdefault(row[0].plain, []).append(row[1:])
    return list(groups.items())


def _beside(
    console: Console, cells: Sequence[Text], widths: Sequence[int], right: Sequence[bool], indent: int
) -> Iterator[Text]:
    folded = [cell.wrap(console, width, overflow="fold") for cell, width in zip(cells, widths, strict=True)]
    for parts in zip_longest(*folded, fillvalue=Text()):
        line = Text(" " * _GAP * indent)
        for number, (part, width, numbers) in enumerate(zip(parts, widths, right, strict=True)):
            space = " " * (width - part.cell_len)
            line.append(" " * _GAP if number else "")
            line.append(space if numbers else "").append_text(part).append("" if numbers else space)
        line.rstrip()
        yield line


def _below(console: Console, text: Text, width: int, indent: int) -> Iterator[Text]:
    for line in text.wrap(console, max(width - indent, 1), overflow="fold"):
        line.rstrip()
        yield Text(" " * indent).append_text(line)


def console(stream: TextIO | None = None, *, markup: bool = False) -> Console:
    """Console for results. Without a terminal or a given width no line is folded.

    Use `markup` only for text without foreign words.
    """
    kind = Console if markup else ResultConsole
    result = kind(file=stream, highlight=False, emoji=False)
    fits = result.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return result if fits else kind(file=stream, highlight=False, emoji=False, width=_WIDEST)


def status_text(words: str) -> Text:
    return Text(visible_line(words))


def draw(part: Any) -> Any:
    """Draw a table, without columns in which nothing stands; any other part is as it is."""
    if not isinstance(part, Table):
        return part
    columns = part.shown(Medium.TERMINAL)
    cells = [[_cell(column, column.read(row)) for column in columns] for row in part.rows]
    shown = [number for number in range(len(columns)) if not cells or any(row[number].plain for row in cells)]
    grouped = part.grouped and 0 in shown and len(shown) > 1
    prose = bool(shown) and columns[shown[-1]].kind is Kind.PROSE and len(shown) > 1 + grouped
    rows, title = [[row[number] for number in shown] for row in cells], part.title if part.rows else part.empty or part.title
    return _Drawn(title, [columns[number] for number in shown], rows, grouped, prose)


def _cell(column: Column, value: Any) -> Text:
    return Text(visible_line(column.text(value)), column.tone(value))
