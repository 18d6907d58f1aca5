"""Declares once what a result shows: tables of columns with a name, a meaning and a value, and the sentence before them.

The printers know columns and rows, and no result: terminal.py, markdown.py with dagster.py, and html.py; JSON (text.py) has
its records.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag
from functools import partial
from typing import Any

from retention_assets.policy.durations import minute_of
from retention_assets.policy.sizes import size_of
from retention_assets.render.text import date_of

# SHORT is the table beside the sentence of a page, RUN the data of a run in Dagster
Medium = Flag("Medium", "TERMINAL HTML MARKDOWN SHORT RUN JSON")
# longest table of a page: what matters stands first, and all of it is in the warehouse or the ledger
MOST_SHOWN = 1_000
ALL = ~Medium(0)
LONG = ALL & ~Medium.SHORT
_DATA = Medium.RUN | Medium.JSON
# a NAME is code in Markdown; PROSE is a sentence, the last cell of a row
Kind = Enum("Kind", "TEXT NAME PROSE NUMBER COUNT SIZE MINUTE DAY")
# texts of values that are none yet; a question mark where nobody knows the size
_TEXTS: Mapping[Kind, Callable[[Any], str]] = {
    Kind.COUNT: lambda count: f"{count:,}", Kind.SIZE: size_of, Kind.MINUTE: minute_of, Kind.DAY: date_of,
}  # fmt: skip
_NUMBERS = (Kind.NUMBER, Kind.COUNT, Kind.SIZE)


@dataclass(frozen=True)
class Column:
    """Column of texts; the kinds below show numbers, instants, names and sentences."""

    name: str
    # field of a row, or a function of it; by default the field of the name
    value: str | Callable[[Any], Any] = ""
    media: Medium = LONG
    meaning: str = ""
    # field in JSON and in runs, where it is not that of the value
    key: str = ""
    # left out for people where no row has any of it
    rare: bool = False
    # colours of values; True is anything but 0
    tones: Mapping[Any, str] | None = None
    kind: Kind = Kind.TEXT

    @property
    def is_number(self) -> bool:
        return self.kind in _NUMBERS

    @property
    def field(self) -> str:
        return self.key or (self.value if isinstance(self.value, str) else "") or self.name.replace(" ", "_")

    def read(self, row: Any) -> Any:
        if callable(self.value):
            return self.value(row)
        name = self.value or self.name.replace(" ", "_")
        return row[name] if isinstance(row, Mapping) else getattr(row, name)

    def text(self, value: Any) -> str:
        if isinstance(value, str) or (value is None and self.kind is not Kind.SIZE):
            return value or ""
        return _TEXTS.get(self.kind, str)(value)

    def tone(self, value: Any) -> str:
        return self.tones.get(value) or self.tones.get(bool(value), "") if self.tones else ""


Name, Prose, Number, Count, Size, Minute, Day = (
    partial(Column, kind=kind) for kind in (Kind.NAME, Kind.PROSE, Kind.NUMBER, Kind.COUNT, Kind.SIZE, Kind.MINUTE, Kind.DAY)
)
# a name stands for a column of texts
Columns = Sequence[Column | str]


@dataclass(frozen=True)
class Table:
    """Rows under their columns. Rows are objects or mappings."""

    title: str
    columns: Columns
    rows: Sequence[Any]
    # entry in JSON for programs
    key: str = ""
    # title without rows; without one, people see nothing of an empty table
    empty: str = ""
    # on a terminal, rows with the same first cell stand together
    grouped: bool = False
    # rows that add up others, below them
    sums: Sequence[Any] = ()

    def shown(self, medium: Medium) -> list[Column]:
        return [
            column
            for column in (Column(each) if isinstance(each, str) else each for each in self.columns)
            if medium in column.media
            and (medium in _DATA or not column.rare or any(map(column.read, (*self.rows, *self.sums))))
        ]

    def records(self, medium: Medium = Medium.JSON) -> list[dict[str, Any]]:
        """Rows as values by field; of a run the first ones."""
        columns, most = self.shown(medium), MOST_SHOWN if medium is Medium.RUN else None
        return [{column.field: column.read(row) for column in columns} for row in self.rows[:most]]


def amounts_of(columns: Iterable[Column], row: Any) -> str:
    """`2 deleted, 1,000 spared`: the numbers of a row that are not 0."""
    return ", ".join(f"{number:,} {column.name}" for column in columns if (number := column.read(row)))


@dataclass(frozen=True)
class Page:
    """Page of a step: a sentence in Markdown, tables, numbers and data."""

    sentence: str
    tables: Sequence[Table] = ()
    # to plot over time, by a name with the unit
    numbers: Mapping[str, Any] = field(default_factory=dict)
    # for programs, besides the tables
    data: Mapping[str, Any] = field(default_factory=dict)
    # the short table beside the sentence, where it is not the first that has rows
    beside: Table | None = None
