"""What is shown of a log: what its columns mean and hold, its largest datasets, and how many branches and tags there are.

Belongs here: statistics (frames/statistics.py) as numbers and tables.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg
import pyarrow as pa

from retention_assets.frames.log import LOG
from retention_assets.frames.statistics import LARGEST, merge_statistics
from retention_assets.frames.verdicts.verdict_table import CANDIDATE_MARKS
from retention_assets.frames.views.branch_views import BRANCH_VIEWS
from retention_assets.policy.durations import from_micros
from retention_assets.render.dagster_tables import bar, size, table

MEANINGS: Mapping[str, str] = {
    "dataset": "store/name, which is the partition as well",
    "transaction": "unique in its dataset",
    "ordinal": "position in the dataset's log, parents before children; order comes from here, never from times",
    "parent_ordinal": "the position of the parent, -1 where there is none",
    "parent": "the transaction that it follows",
    "type": "SNAPSHOT replaces the view, APPEND, UPDATE and DELETE change it; RECORD and OBJECT are in no view",
    "status": "OPEN, COMMITTED or ABORTED",
    "opened_at": "when it began",
    "closed_at": "when it was committed or aborted; none while it is open",
    "archived_at": "when a record was archived",
    "bytes": "how much it holds, where the store knows",
    "files": "how many files it holds, where the store knows",
    "file_names": "which files, where the log says so",
    "heads": "branches that point at it",
    "tags": "tags that point at it",
    "tag_expiries": "until when each of the tags pins",
    "attributes": "what policies may ask for besides",
    "branches": "how many live branches hold it; 0: no branch reaches it",
    "view": "the newest view index over its branches; 0: in the latest view of one of them",
    "newer": "the fewest newer data transactions on any of its branches",
    "superseded_at": "when it left the latest view of the last branch that had it",
    "view_closed_at": "when the newest view that holds it got its newest transaction",
    "open_after": "an open transaction follows it on a branch that has it in its latest view",
    "protected_by": "the branch or tag that protects it",
    "verdict": "mark, spare, keep or open",
    "policy": "the policy that has the credit",
    "also": "other policies that select it as well",
    "reasons": "why: codes with the branch, tag, hold or policy that each is about",
}

_INSTANTS = frozenset(field.name for field in LOG if pa.types.is_timestamp(field.type))
_COLUMNS = {
    "column": "string", "nulls": "int", "least": "string", "most": "string", "distinct": "int", "total": "string",
    "words": "string",
}  # fmt: skip
_ABOUT = {
    "nulls": "rows without a value; of lists, empty ones",
    "total": "the sum of numbers, or the entries of all lists",
    "distinct": "how many different values there are, where that is cheap to know",
}


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """The columns of an asset, each with what it means."""
    return dg.TableSchema([dg.TableColumn(field.name, _kind(field.type), description=MEANINGS[field.name]) for field in schema])


def _kind(kind: pa.DataType) -> str:
    """A type in few words: how it is encoded is nobody's concern who reads the page."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_list(kind):
        return f"list<{_kind(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<{}>".format(", ".join(f"{field.name}: {_kind(field.type)}" for field in kind))
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)


LOG_COLUMNS, VIEW_COLUMNS, VERDICT_COLUMNS = (column_schema(schema) for schema in (LOG, BRANCH_VIEWS, CANDIDATE_MARKS))


def log_metadata(statistics: pa.Table, largest: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers over time, and the tables of columns and of the largest datasets."""
    columns = list(merge_statistics(statistics))
    totals = {row["column"]: row["total"] or 0 for row in columns}
    return {
        "bytes": totals.get("bytes", 0),
        "branches": totals.get("heads", 0),
        "tags": totals.get("tags", 0),
        "columns": table(_COLUMNS, map(_column, columns), _ABOUT),
        "largest_datasets": _largest(largest),
    }


def _column(row: Mapping[str, Any]) -> dict[str, Any]:
    ends = (
        from_micros(row[end]) if row["column"] in _INSTANTS and row[end] is not None else row[end] for end in ("least", "most")
    )
    least, most = ("" if end is None else f"{end:,}" if isinstance(end, int) else f"{end:%Y-%m-%d %H:%M}" for end in ends)
    total = row["total"]
    said = "" if total is None else size(total) if row["column"] == "bytes" else f"{total:,}"
    # Names of datasets are not words of a language: a few of thousands say nothing.
    words = "" if row["column"] == "dataset" else ", ".join(row["words"])
    return {**row, "least": least, "most": most, "total": said, "words": words}


def _largest(found: Iterable[Mapping[str, Any]]) -> dg.MetadataValue:
    rows = sorted(found, key=lambda row: (-row["bytes"], -row["transactions"], row["dataset"]))[:LARGEST]
    most = int(rows[0]["bytes"]) if rows else 0
    columns = {"dataset": "string", "transactions": "int", "size": "string", "share": "string", "bytes": "int"}
    return table(
        columns,
        (
            {**row, "bytes": int(row["bytes"]), "size": size(int(row["bytes"])), "share": bar(int(row["bytes"]), most)}
            for row in rows
        ),
    )
