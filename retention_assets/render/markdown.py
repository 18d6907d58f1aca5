"""Markdown that holds names and sentences of others: what Dagster's pages show of a table, and the parts of a sentence.

Belongs here: writing a text of others so that Markdown shows it unchanged, and rows as lists or tables.
Does not belong here: what is said (summaries.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from retention_assets.render.text import size_of, visible_line

# Dagster shows Markdown without a click that is shorter.
MOST_INLINE = 1_000
# What a row is about, and what is said of it, by the names of columns.
_ABOUT = ("verdict", "due", "column", "policy", "outcome", "dataset", "branch", "transaction")
_SAID = ("meaning", "sentence", "why", "fault", "refused", "errors", "policies", "words", "for_example")


def count(number: int, noun: str, several: str = "") -> str:
    """An amount with its noun: `1 mark`, `2,000 marks`."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def code(text: str) -> str:
    """A name of somebody else's, as Markdown shows it unchanged."""
    name = visible_line(text)
    # More ticks than there are in the name: no run of its own ends it.
    fence, pad = "`" * (name.count("`") + 1), " " if "`" in name else ""
    return f"{fence}{pad}{name}{pad}{fence}"


def plain(text: str) -> str:
    """A sentence with words of others in it, none of which Markdown takes for an order."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|!~&$" else letter for letter in visible_line(text))


def paragraph(parts: Iterable[str]) -> str:
    """Parts of what is said, a line each: the page shows a list."""
    return "\n".join(f"- {part[:1].upper()}{part[1:]}" for part in parts if part)


def readable(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same columns: a line for each, where all of them are short enough to be shown at once; else a table with
    every column, which is shown on a click.
    """
    lines = "\n".join(map(_line, rows))
    if len(lines) < MOST_INLINE:
        return lines
    names = list(rows[0])
    header = [f"| {' | '.join(name.replace('_', ' ') for name in names)} |", f"| {' | '.join('---' for _ in names)} |"]
    return "\n".join([*header, *(f"| {' | '.join(_cell(row[name]) for name in names)} |" for row in rows)])


def _line(row: Mapping[str, Any]) -> str:
    """One row: what it is about, its numbers that are not 0, and what is said about it."""
    about = " ".join(plain(str(row[name])) for name in _ABOUT if row.get(name))
    amounts = [_amount(name, value) for name, value in row.items() if isinstance(value, int) and value]
    numbers = ", ".join(filter(None, [*amounts, str(row.get("size") or "")]))
    said = "; ".join(plain(str(row[name])) for name in _SAID if row.get(name))
    return ": ".join(filter(None, [f"- **{about}**", numbers, said]))


def _amount(name: str, value: int) -> str:
    """A number with its name. Of bytes there is the size in words as well."""
    if name == "bytes":
        return ""
    words = name.removeprefix("bytes_").replace("_", " ")
    return f"{size_of(value)} {words}" if name.startswith("bytes_") else f"{value:,} {words}"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else plain(str(value or ""))
