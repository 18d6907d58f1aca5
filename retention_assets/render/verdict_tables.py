"""Tables of a preview and of a comparison of policies.

Each function imports what only it needs, so that no command loads what another one prints.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from retention_assets.render.terminal import table
from retention_assets.render.text import minute_of, size_of

if TYPE_CHECKING:
    from retention_assets.evaluation.preview import Change, Preview

VERDICT_COLOURS = {"mark": "red", "spare": "yellow", "keep": "green", "open": "cyan"}


def preview_tables(result: "Preview", most: int) -> list[Table]:
    """Result of a preview: refused datasets, verdicts, policies, reasons, and the first marks."""
    tables = [_refused_table(result)] if result.refused else []
    tables += [_verdict_table(result), _policy_table(result), _reason_table(result, 10)]
    marked = result.marked
    first = marked.slice(0, most).to_pylist()
    if first:
        rows = [(row["dataset"], row["transaction"], row["policy"], ", ".join(row["also"])) for row in first]
        title = f"To be marked: {len(first):,} of {len(marked):,}"
        tables.append(table(title, ("dataset", "transaction", "policy", "also selected by"), rows, grouped=True))
    return tables


def _refused_table(result: "Preview") -> Table:
    rows = [(name, said["fault"], said["transaction"] or "") for name, said in result.refused.items()]
    title = f"Refused, because the log is not sound: {len(rows):,}. Nothing of these datasets is marked."
    return table(title, ("dataset", "fault", "transaction"), rows[:100], grouped=True)


def _verdict_table(result: "Preview") -> Table:
    from retention_assets.frames.verdicts.decisions import VERDICTS

    sums = {row["verdict"]: row for row in result.sums_by("verdict")}
    found = [(verdict, sums.get(verdict, {"transactions": 0, "bytes": 0})) for verdict in VERDICTS]
    rows = [
        (Text(verdict, VERDICT_COLOURS[verdict]), f"{row['transactions']:,}", size_of(row["bytes"])) for verdict, row in found
    ]
    columns = ("verdict", "transactions", "bytes")
    return table(f"Verdicts at {minute_of(result.as_of)} UTC", columns, rows, columns[1:])


def _policy_table(result: "Preview") -> Table:
    marks = [row for row in result.sums_by("verdict", "policy") if row["verdict"] == "mark"]
    marks.sort(key=lambda row: -row["bytes"])
    rows = [(row["policy"], f"{row['transactions']:,}", size_of(row["bytes"])) for row in marks]
    title = "Marks by policy" if rows else "No policy marks anything"
    return table(title, ("policy", "transactions", "bytes"), rows, ("transactions", "bytes"))


def _reason_table(result: "Preview", most: int) -> Table:
    from retention_assets.frames.verdicts.reasons import Reason

    counts = list(result.count_reasons().items())[:most]
    rows = [(code, f"{count:,}", Reason[code].text("…")) for code, count in counts]
    return table("Reasons", ("code", "transactions", "meaning"), rows, ("transactions",), prose=True)


def compare_tables(changes: "Sequence[Change]") -> list[Table]:
    """Effects of another set of policies."""
    rows = [(one.dataset, one.policy, one.change, f"{one.transactions:,}", size_of(one.bytes)) for one in changes]
    title = "What would change" if rows else "Nothing would change."
    columns = ("dataset", "policy", "change", "transactions", "bytes")
    return [table(title, columns, rows, columns[3:], grouped=True)]
