"""Markdown for Dagster's pages: answers, and tables with names and sentences of others.

Belongs here: writing a text of others so that Markdown shows it unchanged, and rows as lists or tables.
Does not belong here: what is said (summaries.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention_assets.render.text import sentence_case, size_of, visible_line

# Dagster shows Markdown without a click that is shorter.
MOST_INLINE = 1_000
# What a row is about, and what is said of it, by the names of columns.
_ABOUT = ("verdict", "due", "column", "policy", "outcome", "dataset", "branch", "transaction")
_SAID = ("meaning", "sentence", "why", "fault", "refused", "errors", "policies", "words", "for_example")


@dataclass(frozen=True)
class Answer:
    """An answer: one sentence, which says it, and Markdown paragraphs with what it rests on."""

    headline: str
    paragraphs: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        """All of it."""
        return "\n\n".join([f"**{plain(self.headline)}**", *(one for one in self.paragraphs if one)])


def code(text: str) -> str:
    """A name of somebody else's, as Markdown shows it unchanged. It stands in a cell as well as in a sentence."""
    name = visible_line(text)
    # Nothing can be escaped between backticks, and a bar would end the cell.
    return plain(text) if "`" in name or "|" in name or not name.strip() else f"`{name}`"


def plain(text: str) -> str:
    """A sentence with words of others in it, none of which Markdown takes for an order."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|!~&$" else letter for letter in visible_line(text))


def with_code(text: str) -> str:
    """A sentence of our own, in which names of commands and jobs stand between backticks; all else of it as it is."""
    return "".join(code(part) if number % 2 else plain(part) for number, part in enumerate(text.split("`")))


def bullets(lines: Iterable[str]) -> str:
    """A list, each line of it Markdown."""
    return "\n".join(f"* {line}" for line in lines)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, each cell of it Markdown; nothing where there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |", *lines]) if lines else ""


def paragraph(parts: Iterable[str]) -> str:
    """Parts of what is said, a line each: the page shows a list."""
    return "\n".join(f"- {sentence_case(part)}" for part in parts if part)


def readable(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same columns: a line for each, where all of them are short enough to be shown at once; else a table with
    every column, which is shown on a click.
    """
    lines = "\n".join(filter(None, map(_line, rows)))
    if len(lines) < MOST_INLINE:
        return lines
    columns = [name.replace("_", " ") for name in rows[0]]
    return markdown_table(columns, ([_cell(value) for value in row.values()] for row in rows))


def _line(row: Mapping[str, Any]) -> str:
    """One row: what it is about, its numbers that are not 0, and what is said about it."""
    about = " ".join(plain(str(row[name])) for name in _ABOUT if row.get(name))
    amounts = [_amount(name, value) for name, value in row.items() if isinstance(value, int) and value]
    # Records have no size: that is not 0 bytes.
    size = str(row.get("size") or "") if row.get("bytes") else ""
    numbers = ", ".join(filter(None, [*amounts, size]))
    ends = f"{row['least']} to {row['most']}" if row.get("least") else ""
    said = "; ".join(plain(str(one)) for one in (ends, *(row.get(name) for name in _SAID)) if one)
    if "column" in row and not (numbers or said):
        return ""
    return ": ".join(filter(None, [f"- **{about}**", numbers, said]))


def _amount(name: str, value: int) -> str:
    """A number with its name, which is of several unless it is a version. Of bytes there is the size in words as well."""
    if name == "bytes":
        return ""
    if name == "version":
        return f"version {value}"
    words = name.removeprefix("bytes_").replace("_", " ")
    if name.startswith("bytes_"):
        return f"{size_of(value)} {words}"
    return f"{value:,} {words.removesuffix('s') if value == 1 else words}"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else plain(str(value or ""))
