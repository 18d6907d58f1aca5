"""Tables of `readable` and `advance` for a terminal."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from retention_assets.policy.durations import text_of
from retention_assets.render.terminal import table


def readable_tables(found: Mapping[str, Any]) -> list[Table]:
    """Start of the readable history; each branch at the instant; transactions that can be read by name."""
    since = f"from {text_of(found['visible_from'])} on" if found["visible_from"] else "as far back as it goes"
    columns = ("branch", "transactions", "readable", "until")
    rows = [
        (one["branch"], _some([row["transaction"] for row in one["transactions"]]), _answer(one), _text(one["until"]))
        for one in found["branches"]
    ]
    head = f"The history of {found['dataset']} may be read {since}. At {text_of(found['at'])}:"
    tables = [table(head, columns, rows)]
    if found["by_name"]:
        named = [(one["transaction"], one["kept_by"]) for one in found["by_name"]]
        tables.append(table("May be read by name, however old", ("transaction", "kept by"), named))
    return tables


def advance_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Outcome for each dataset that the policy files name."""
    columns = ("dataset", "readable from", "before", "")
    said = [
        (
            row["dataset"], _text(row["visible_from"]), _text(row["before"]),
            f"waits until {text_of(row['waits_until'])}" if row["waits_until"] else "raised" if row["raised"] else "as before",
        )
        for row in rows
    ]  # fmt: skip
    return table(
        "Visibility marks" if said else "No entry under `visibility` of the policy files is about any dataset", columns, said
    )


def _answer(one: Mapping[str, Any]) -> str:
    if not one["readable"]:
        return "no"
    return "yes: current" if one["current"] else "yes"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}" if names else "nothing yet"


def _text(instant: datetime | None) -> str:
    return text_of(instant) if instant else ""
