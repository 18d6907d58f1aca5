"""What is shown of verdicts: how many of each, by policy, and why, with examples that can be looked up.

Belongs here: sums of verdicts and reasons as numbers and tables. The examples are what `retention explain` takes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.verdicts.decisions import VERDICTS
from retention_assets.frames.verdicts.reason_counts import merge_reason_counts
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.render.dagster_tables import MOST_SHOWN, size, table

_SIZED = {"transactions": "int", "bytes": "int", "size": "string"}
_BY_POLICY = {"verdict": "string", "policy": "string", **_SIZED}
_REASONS = {
    "verdict": "string",
    "transactions": "int",
    "size": "string",
    "meaning": "string",
    "reason": "string",
    "bytes": "int",
}
_WHY = dict.fromkeys(("verdict", "dataset", "transaction", "sentence", "policy", "reason", "witness"), "string")


def verdict_metadata(sums: pa.Table) -> dict[str, Any]:
    """The verdicts of a run as numbers that are worth a plot over time, and by policy."""
    total = sums.group_by(["verdict", "policy"]).aggregate([("count_all", "sum"), ("bytes_sum", "sum")])
    rows = [
        {
            "verdict": row["verdict"],
            "policy": row["policy"] or "",
            "transactions": row["count_all_sum"],
            "bytes": int(row["bytes_sum_sum"] or 0),
            "size": size(int(row["bytes_sum_sum"] or 0)),
        }
        for row in total.sort_by([("verdict", "ascending"), ("count_all_sum", "descending")]).to_pylist()
    ]
    numbers: dict[str, Any] = {"dagster/row_count": pc.sum(total["count_all_sum"]).as_py() or 0}
    for verdict in VERDICTS:
        mine = [row for row in rows if row["verdict"] == verdict]
        numbers[verdict] = sum(row["transactions"] for row in mine)
        numbers[f"{verdict}_bytes"] = sum(row["bytes"] for row in mine)
    return {**numbers, "by_policy": table(_BY_POLICY, rows[:MOST_SHOWN])}


def reason_metadata(why: pa.Table) -> dict[str, dg.MetadataValue]:
    """The reasons of all verdicts, and for each some transactions with the sentence about them."""
    rows = merge_reason_counts(why.to_pylist())
    return {"reasons": _reasons(rows), "why": _examples(rows)}


def _reasons(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    return table(
        _REASONS,
        (
            {
                **row,
                "reason": row["code"],
                "size": size(row["bytes"]),
                "meaning": Reason[row["code"]].text("…"),
            }
            for row in rows
        ),
        {"transactions": "one that has several reasons counts for each", "reason": "the code that programs go by"},
    )


def _examples(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    return table(
        _WHY,
        (
            {
                "verdict": row["verdict"],
                "reason": row["code"],
                **{name: one[name] or "" for name in ("dataset", "transaction", "policy", "witness")},
                "sentence": Reason[row["code"]].text(one["witness"]),
            }
            for row in rows
            for one in row["examples"]
        ),
        {"policy": "the one with the credit", "witness": "what the reason is about: a branch, tag, hold or policy"},
    )
