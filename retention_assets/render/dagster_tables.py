"""Tables in Dagster's words: columns with types, rows of plain values, and bars of text for what is to be compared at a glance.

Belongs here: how a table is made. What is in one is said by the module that shows it.
"""

from collections.abc import Iterable, Mapping

import dagster as dg

from retention_assets.render.terminal import size_of

# No table of a page is longer: what matters stands first, and all of it is in the warehouse or the ledger.
MOST_SHOWN = 1_000
_EIGHTHS = " ▏▎▍▌▋▊▉"
_WIDTH = 10

Value = str | int | float | bool | None


def table(
    columns: Mapping[str, str], rows: Iterable[Mapping[str, Value]], about: Mapping[str, str] | None = None
) -> dg.MetadataValue:
    """A table: columns with their types in Dagster's words (string, int, …), and what one means whose name doesn't say it."""
    said = about or {}
    schema = dg.TableSchema([dg.TableColumn(name, kind, description=said.get(name)) for name, kind in columns.items()])
    return dg.MetadataValue.table([dg.TableRecord({name: row[name] for name in columns}) for row in rows], schema)


def size(count: int) -> str:
    """Bytes for people, in one piece: a cell is broken at its spaces."""
    return size_of(count).replace(" ", "\u00a0")


def bar(value: int, most: int) -> str:
    """A bar as long as the value is large. What is there at all can be seen."""
    if value <= 0 or most <= 0:
        return ""
    eighths = max(1, round(value * _WIDTH * 8 / most))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
