"""Markdown for Dagster's pages: answers, lists and tables, with foreign text escaped so that it shows unchanged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention_assets.render.text import sentence_case, visible_line

# Dagster hides longer Markdown behind a click.
MOST_INLINE = 1_000
# most rows of a table beside a sentence
MOST_ROWS = 8


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


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already; empty where there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |", *lines]) if lines else ""


def paragraph(parts: Iterable[str]) -> str:
    """One line each: the page shows a list."""
    return "\n".join(f"- {sentence_case(part)}" for part in parts if part)


def cell(text: str, most: int = 20) -> str:
    """Text for a narrow column: a word that can't be broken is cut, for it would hide the ends of all sentences."""
    words = (word if len(word) <= most else f"{word[: most - 1]}…" for word in visible_line(text).split(" "))
    return plain(" ".join(words))


def with_table(text: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Add a table of the first rows to a text, as many as Dagster shows without a click."""
    shown, more = text, "more rows in the list below"
    for most in range(min(len(rows), MOST_ROWS), -1, -1):
        rest = f"… and {len(rows) - most:,} {more}." if len(rows) > most else ""
        shown = "\n\n".join(filter(None, (text, markdown_table(columns, rows[:most]), rest)))
        if len(shown) < MOST_INLINE:
            break
    return shown


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Table with every column but `bytes` where there is a size in words. Dagster shows it on a click."""
    names = [name for name in rows[0] if name != "bytes" or "size" not in rows[0]]
    table = markdown_table([name.replace("_", " ") for name in names], ([_cell(row[name]) for name in names] for row in rows))
    # Dagster would show a short one at once, however wide it is.
    return table.ljust(MOST_INLINE)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else plain(str(value or ""))
