"""Markdown for Dagster's pages: answers, lists and tables, with foreign text escaped so that it shows unchanged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention_assets.render.text import sentence_case, size_of, visible_line

# Dagster hides longer Markdown behind a click.
MOST_INLINE = 1_000
# columns that name the subject of a row, and columns with a text about it
_SUBJECTS = ("verdict", "due", "column", "policy", "outcome", "dataset", "branch", "transaction")
_TEXTS = ("meaning", "sentence", "why", "fault", "refused", "errors", "policies", "words", "for_example")


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


def readable(rows: Sequence[Mapping[str, Any]]) -> str:
    """List rows with the same columns, a line each, if that is short enough to be shown at once; else make a table with
    every column, which is shown on a click.
    """
    lines = "\n".join(filter(None, map(_line, rows)))
    if len(lines) < MOST_INLINE:
        return lines
    columns = [name.replace("_", " ") for name in rows[0]]
    return markdown_table(columns, ([_cell(value) for value in row.values()] for row in rows))


def _line(row: Mapping[str, Any]) -> str:
    subject = " ".join(plain(str(row[name])) for name in _SUBJECTS if row.get(name))
    amounts = [_amount(name, value) for name, value in row.items() if isinstance(value, int) and value]
    # Records have no size, which is not 0 bytes.
    size = str(row.get("size") or "") if row.get("bytes") else ""
    numbers = ", ".join(filter(None, [*amounts, size]))
    ends = f"{row['least']} to {row['most']}" if row.get("least") else ""
    texts = "; ".join(plain(str(each)) for each in (ends, *(row.get(name) for name in _TEXTS)) if each)
    if "column" in row and not (numbers or texts):
        return ""
    return ": ".join(filter(None, [f"- **{subject}**", numbers, texts]))


def _amount(name: str, value: int) -> str:
    # Plural, except for a version; bytes also as a size in words.
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
