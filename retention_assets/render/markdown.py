"""Answers as Markdown, for the pages of Dagster: a sentence first, then what it rests on.

Belongs here: layout, and making names of others safe to stand in Markdown. What is said of a transaction is said by those who
know it (evaluation, ledger/marks/history.py, policy/deletion_message.py).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from retention_assets.render.text import visible_line

# What would begin something in Markdown, or in HTML that stands in it.
_SIGNS = re.compile(r"([\\`*_\[\]<>#|~$&])")


@dataclass(frozen=True)
class Answer:
    """An answer: one sentence, which says it, and Markdown paragraphs with what it rests on."""

    headline: str
    paragraphs: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        """All of it."""
        return "\n\n".join([f"**{plain(self.headline)}**", *(one for one in self.paragraphs if one)])


def plain(text: str) -> str:
    """A text as it is, whatever Markdown would make of it."""
    return _SIGNS.sub(r"\\\1", visible_line(text))


def code(text: str) -> str:
    """A name as it is written, to be copied. It stands in a cell as well as in a sentence."""
    shown = visible_line(text)
    # Nothing can be escaped between backticks, and a bar would end the cell.
    return plain(text) if "`" in shown or "|" in shown or not shown.strip() else f"`{shown}`"


def with_code(text: str) -> str:
    """A sentence of our own, in which names of commands and jobs stand between backticks; all else of it as it is."""
    return "".join(code(part) if number % 2 else plain(part) for number, part in enumerate(text.split("`")))


def bullets(lines: Iterable[str]) -> str:
    """A list, each line of it Markdown."""
    return "\n".join(f"* {line}" for line in lines)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, each cell of it Markdown; nothing where there are no rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |", *lines])
