"""Markdown for Dagster's pages: answers, lists and tables, with foreign text escaped so that it shows unchanged."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from retention_assets.render.page import MOST_SHOWN, Column, Kind, Medium, Table
from retention_assets.render.text import sentence_case, visible_line

# Dagster hides longer Markdown behind a click.
MOST_INLINE = 1_000
# most rows of a table beside a sentence
MOST_ROWS = 8
# lines of a table before its rows
_HEAD = 2
# characters of a text in a short table
_MOST_WORDS = 200


@dataclass(frozen=True)
class Answer:
    """One sentence as an answer, and Markdown paragraphs that support it."""

    headline: str
    paragraphs: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        return "\n\n".join([f"**{plain(self.headline)}**", *(one for one in self.paragraphs if one)])


def code(text: str) -> str:
    """Show a foreign name unchanged, in a cell as well as in a sentence."""
    name = visible_line(text)
    # Nothing can be escaped between backticks, and a bar would end the cell.
    return plain(text) if "`" in name or "|" in name or not name.strip() else f"`{name}`"


def plain(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|!~&$" else letter for letter in visible_line(text))


def with_code(text: str) -> str:
    """Keep backticks around names of commands and jobs, and escape the rest of a sentence of our own."""
    return "".join(code(part) if number % 2 else plain(part) for number, part in enumerate(text.split("`")))


def bullets(lines: Iterable[str]) -> str:
    """Each line is Markdown already."""
    return "\n".join(f"* {line}" for line in lines)


def paragraph(parts: Iterable[str]) -> str:
    """One line each: the page shows a list."""
    return "\n".join(f"- {sentence_case(part)}" for part in parts if part)


def cell(text: str, most: int = 20) -> str:
    """Text for a narrow column: a word that can't be broken is cut, for it would hide the ends of all sentences."""
    words = (word if len(word) <= most else f"{word[: most - 1]}…" for word in visible_line(text[:_MOST_WORDS]).split(" "))
    return plain(" ".join(words))


def markdown_table(table: Table, medium: Medium = Medium.MARKDOWN, most: int | None = None) -> str:
    """The first rows under their columns; empty where there are no rows."""
    columns = table.shown(medium)
    lines = [[column.name for column in columns], ["---"] * len(columns)]
    lines += [[_cell(column, column.read(row), medium) for column in columns] for row in table.rows[:most]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(lines) > _HEAD else ""


def _cell(column: Column, value: Any, medium: Medium) -> str:
    text = column.text(value)
    if column.is_number or column.kind in (Kind.MINUTE, Kind.DAY):
        # broken after commas alone
        text = text.replace(" ", "\u00a0").replace(",\u00a0", ", ")
    elif medium is Medium.SHORT:
        return cell(text)
    return code(text) if column.kind is Kind.NAME and text else plain(text)


def with_table(text: str, table: Table) -> str:
    """Add the first rows of a table to a text, as many as Dagster shows without a click."""
    shown, rows = text, len(table.rows)
    for most in range(min(rows, MOST_ROWS), -1, -1):
        rest = f"… and {rows - most:,} more rows in the list below." if rows > most else ""
        shown = "\n\n".join(filter(None, (text, markdown_table(table, Medium.SHORT, most), rest)))
        if len(shown) < MOST_INLINE:
            break
    return shown


def listing(table: Table) -> str:
    """Table that Dagster shows on a click: a short one it would show at once, however wide it is."""
    return markdown_table(table, most=MOST_SHOWN).ljust(MOST_INLINE) if table.rows else "None."
