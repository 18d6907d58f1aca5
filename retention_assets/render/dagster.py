"""Metadata of Dagster's pages: one function per step, with numbers to plot over time and tables of what matters most."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.fates import Fate
from retention_assets.frames.log import LOG
from retention_assets.frames.statistics import LARGEST, merge_reason_counts
from retention_assets.frames.verdicts.decisions import CANDIDATE_MARKS, VERDICTS
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.views.branch_views import BRANCH_VIEWS
from retention_assets.ledger.evaluations import SWEPT_BEFORE, SweptBefore, VerdictCount
from retention_assets.ledger.states import FreedGroup, PendingGroup, SparedGroup, Totals, Waiting
from retention_assets.ledger.stores import ScanRecord
from retention_assets.policy.book import Stored, item_of, sentence_of
from retention_assets.policy.durations import minute_in_utc, text_of
from retention_assets.policy.loading import BookDecision, LoadOutcome
from retention_assets.render.markdown import table_of_rows
from retention_assets.render.summaries import NOW, waiting_numbers, who_of
from retention_assets.render.svg import Plot, data_uri
from retention_assets.render.text import cell_size, visible_line

# Longest table of a page: what matters stands first, and all of it is in the warehouse or the ledger.
MOST_SHOWN = 1_000
# Rows that a person has to look at stand first, should the table be cut.
_LOAD_OUTCOMES = (LoadOutcome.DRIFTED, LoadOutcome.ABSENT, LoadOutcome.WRITTEN, LoadOutcome.SKIPPED)

Rows = list[dict[str, Any]]

MEANINGS: Mapping[str, str] = {
    "dataset": "store/name, also the partition",
    "transaction": "unique in its dataset",
    "ordinal": "position in the dataset's log, parents before children; it gives the order, not the times",
    "parent_ordinal": "the position of the parent, or -1",
    "parent": "the transaction that it follows",
    "type": "SNAPSHOT replaces the view; APPEND, UPDATE and DELETE change it; RECORD and OBJECT are in no view",
    "status": "OPEN, COMMITTED or ABORTED",
    "opened_at": "when it began",
    "closed_at": "when it was committed or aborted; empty while open",
    "archived_at": "when a record was archived",
    "bytes": "its size, if the store knows it",
    "files": "its number of files, if the store knows it",
    "file_names": "its files, if the log names them",
    "heads": "branches that point at it",
    "tags": "tags that point at it",
    "tag_expiries": "end of each tag's pin",
    "attributes": "other facts that policies may use",
    "branches": "number of live branches that hold it; 0: unreachable",
    "view": "its newest view index; 0: in the latest view of a branch",
    "newer": "newer data transactions, on the branch with the fewest",
    "superseded_at": "when it left its last latest view",
    "view_closed_at": "when the newest view with it got its last transaction",
    "open_after": "an open transaction follows it on a branch with it in the latest view",
    "protected_by": "the branch or tag that protects it",
    "verdict": "mark, spare, keep or open",
    "policy": "the policy that decided",
    "also": "other policies that select it as well",
    "reasons": "reasons: codes, each with its branch, tag, hold or policy",
}


# entry with all values of a step, for programs
DATA = "data"
# each scanned store has numbers of its own
SCANS = "scans/"


def page(
    summary: str,
    lists: Mapping[str, Rows],
    numbers: Mapping[str, Any],
    data: Mapping[str, Any],
    entries: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Order the metadata of a step: a sentence with a short table, lists on a click, numbers for plots, data for programs.

    A page is narrow, and as wide as its widest table. Dagster plots a number by its name, which has the unit.
    """
    shown = {name: list_metadata(rows) for name, rows in lists.items() if rows}
    return {
        "summary": dg.MetadataValue.md(summary),
        **(entries or {}),
        **shown,
        **numbers,
        DATA: dg.MetadataValue.json(dict(data)),
    }


def list_metadata(rows: Rows) -> dg.MetadataValue:
    return dg.MetadataValue.md(table_of_rows(rows) if rows else "None.")


# --- tables -----------------------------------------------------------------------------------------------------------


def table(
    columns: Mapping[str, str],
    rows: Iterable[Mapping[str, str | int | float | bool | None]],
    meanings: Mapping[str, str] | None = None,
) -> dg.MetadataValue:
    """Columns have their types as Dagster calls them (string, int, …), and a meaning where they need one."""
    meanings = meanings or {}
    schema = dg.TableSchema([dg.TableColumn(name, kind, description=meanings.get(name)) for name, kind in columns.items()])
    return dg.MetadataValue.table([dg.TableRecord({name: row[name] for name in columns}) for row in rows], schema)


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    columns = [dg.TableColumn(field.name, _type_name(field.type), description=MEANINGS[field.name]) for field in schema]
    return dg.TableSchema(columns)


def _type_name(kind: pa.DataType) -> str:
    # The encoding of a type does not matter to readers of the page.
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_list(kind):
        return f"list<{_type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<{}>".format(", ".join(f"{field.name}: {_type_name(field.type)}" for field in kind))
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)


LOG_COLUMNS, VIEW_COLUMNS, VERDICT_COLUMNS = (column_schema(schema) for schema in (LOG, BRANCH_VIEWS, CANDIDATE_MARKS))


# --- policies, logs and branches --------------------------------------------------------------------------------------


def policy_metadata(decisions: Sequence[BookDecision], in_force: Sequence[Stored]) -> Rows:
    """Effect of loading on each policy: one row per entry, in the order of the files within each outcome."""
    stored = {one.name: one for one in in_force}
    return [
        {
            "policy": one.name,
            "sentence": _policy_sentence(stored.get(one.name)),
            "outcome": one.outcome.value.lower(),
            "version": stored[one.name].version if one.name in stored else None,
            # The outcome already says that book and file are equal.
            "reason": "" if one.outcome is LoadOutcome.SKIPPED else one.reason,
        }
        for one in sorted(decisions, key=lambda one: _LOAD_OUTCOMES.index(one.outcome))[:MOST_SHOWN]
    ]


def _policy_sentence(stored: Stored | None) -> str:
    if stored is None:
        return "It is not in force."
    item = item_of(stored.name, stored.content)
    return sentence_of(item) if item else "This release can't read it."


def log_metadata(sums: pa.Table, largest: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    totals = {name: int(pc.sum(sums[name]).as_py() or 0) for name in sums.column_names}
    exact = [(int(row["bytes"]), row["transactions"], row["dataset"]) for row in largest]
    shown = sorted(exact, key=lambda row: (-row[0], -row[1], row[2]))[:LARGEST]
    rows = [
        {"dataset": dataset, "transactions": transactions, "size": cell_size(size), "bytes": size}
        for size, transactions, dataset in shown
    ]
    return {**totals, "largest_datasets": rows}


def scan_metadata(scans: Sequence[tuple[ScanRecord, Sequence[Mapping[str, Any]]]]) -> dict[str, Any]:
    """Numbers of scans: by store the sums of classes and references, and each source's counts."""
    shown: dict[str, Any] = {}
    for scan, sources in scans:
        group = f"{SCANS}{visible_line(scan.store)}/"
        shown |= {f"{group}scan": scan.id, f"{group}status": scan.status.value}
        shown |= {f"{group}{name}": number for name, number in scan.totals.items()}
        if scan.reason:
            shown[f"{group}reason"] = scan.reason
        for source in sources:
            label = visible_line(source["label"])
            shown |= {f"{group}sources/{label}/{name}": source[name] for name in ("rows", "distinct", "seconds")}
    return shown


def branch_metadata(ends: pa.Table) -> Rows:
    """Branches with the largest latest views, largest first: readers keep these."""
    order = [("transactions", "descending"), ("dataset", "ascending"), ("branch", "ascending")]
    shown = ends.sort_by(order).slice(0, MOST_SHOWN).select(["dataset", "branch", "views", "transactions", "newest_close"])
    return [{**row, "newest_close": text_of(row["newest_close"]) if row["newest_close"] else ""} for row in shown.to_pylist()]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def verdict_metadata(sums: pa.Table, swept: SweptBefore) -> dict[str, Any]:
    """Sum the verdicts of a run over its parts, with a table by policy. What was swept before counts as no mark."""
    total = sums.group_by(["verdict", "policy"]).aggregate([("count_all", "sum"), ("bytes_sum", "sum")])
    gone, gone_bytes = Counter[str](), Counter[str]()
    for (_, policy), (amount, freed) in swept.items():
        gone[policy] += amount
        gone_bytes[policy] += freed
    counts = [VerdictCount(SWEPT_BEFORE, policy, gone[policy], gone_bytes[policy]) for policy in sorted(gone)]
    for row in total.to_pylist():
        verdict, policy = row["verdict"], row["policy"] or ""
        less, freed = (gone[policy], gone_bytes[policy]) if verdict == "mark" else (0, 0)
        if row["count_all_sum"] > less:
            counts.append(VerdictCount(verdict, policy, row["count_all_sum"] - less, int(row["bytes_sum_sum"] or 0) - freed))
    numbers: dict[str, Any] = {"by_policy": _by_policy(counts)}
    for verdict in VERDICTS:
        numbers[verdict] = sum(counted.transactions for counted in counts if counted.verdict == verdict)
        numbers[f"{verdict}_bytes"] = sum(counted.bytes for counted in counts if counted.verdict == verdict)
    return {**numbers, "dagster/row_count": pc.sum(total["count_all_sum"]).as_py() or 0}


def totals_metadata(totals: Totals) -> dict[str, Any]:
    numbers: dict[str, Any] = {"by_verdict": _by_policy(totals.counts)}
    for name, verdict in {"spared": "spare", "kept": "keep", "open": "open", "swept": SWEPT_BEFORE}.items():
        numbers[name] = sum(counted.transactions for counted in totals.counts if counted.verdict == verdict)
    shown = {"datasets": totals.datasets, "refused": len(totals.refused)}
    return {**numbers, "transactions": totals.transactions, "bytes": totals.bytes, **shown}


def _by_policy(counts: Iterable[VerdictCount]) -> Rows:
    # Marks first, by policy; last what was swept before and is still in the log.
    order = [*VERDICTS, SWEPT_BEFORE]
    rows = sorted(counts, key=lambda counted: (order.index(counted.verdict), -counted.transactions, counted.policy))
    return [{**counted._asdict(), "size": cell_size(counted.bytes)} for counted in rows[:MOST_SHOWN]]


def reason_metadata(counts: pa.Table) -> dict[str, Rows]:
    """Reasons of all verdicts, and for each some transactions with their sentence, for `retention explain`."""
    rows = merge_reason_counts(counts.to_pylist())
    reasons = [
        {
            "verdict": row["verdict"],
            "transactions": row["transactions"],
            "size": cell_size(row["bytes"]),
            "meaning": Reason[row["code"]].text("…"),
            "reason": row["code"],
            "bytes": row["bytes"],
        }
        for row in rows
    ]
    examples = [
        {
            "verdict": row["verdict"],
            "dataset": example["dataset"] or "",
            "transaction": example["transaction"] or "",
            "sentence": Reason[row["code"]].text(example["witness"]),
            "policy": example["policy"] or "",
            "reason": row["code"],
            "witness": example["witness"] or "",
        }
        for row in rows
        for example in row["examples"]
    ]
    return {"reasons": reasons, "why": examples}


# --- marks ------------------------------------------------------------------------------------------------------------


def pending_metadata(waiting: Sequence[PendingGroup], as_of: datetime) -> dict[str, Any]:
    """All open marks of the ledger, whatever datasets the run was about: only so are the numbers comparable over time."""
    in_grace = [group for group in waiting if group.goes and not group.is_due(as_of)]
    return {
        "due_by_day": due_by_day(waiting, as_of),
        **waiting_numbers(Waiting.of(waiting, as_of)),
        "waiting": sum(group.marks for group in in_grace),
        "waiting_bytes": sum(group.bytes for group in in_grace),
    }


def due_by_day(waiting: Sequence[PendingGroup], as_of: datetime) -> Rows:
    due = [group for group in waiting if group.is_due(as_of)]
    days = {NOW: due} if due else {}
    for group in sorted(waiting, key=lambda group: group.due_at):
        if group.goes and not group.is_due(as_of):
            days.setdefault(group.due_at.astimezone(UTC).date().isoformat(), []).append(group)
    bytes_of = {day: sum(group.bytes for group in groups) for day, groups in days.items()}
    return [
        {
            "due": day,
            "marks": sum(group.marks for group in groups),
            "size": cell_size(bytes_of[day]),
            "policies": ", ".join(sorted({group.policy for group in groups})),
            "bytes": bytes_of[day],
        }
        for day, groups in list(days.items())[:MOST_SHOWN]
    ]


def upcoming_rows(marks: Iterable[tuple[Mapping[str, Any], Fate]]) -> Rows:
    """Transactions that go next, by name, in the order in which they fall due."""
    going = sorted(((fate.at, row) for row, fate in marks if fate.goes), key=lambda mark: mark[0])
    return [
        {
            "due": minute_in_utc(at),
            "dataset": row["dataset"],
            "transaction": row["transaction"],
            "size": cell_size(row["bytes"]),
            "policy": row["policy"],
        }
        for at, row in going
    ]


def week_rows(freed: Iterable[FreedGroup]) -> Rows:
    """Deletions by day, policy and order, newest first."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for group in freed:
        key = group.as_of.astimezone(UTC).date().isoformat(), group.policy, who_of(group.ordered_by)
        total = sums.setdefault(key, [0, 0])
        total[0] += group.transactions
        total[1] += group.bytes
    rows = sorted(sums.items(), key=lambda item: (item[0][0], item[1][0]), reverse=True)[:MOST_SHOWN]
    return [
        {"day": day, "policy": policy, "deleted": deleted, "size": cell_size(size), "bytes": size, "ordered_by": actor}
        for (day, policy, actor), (deleted, size) in rows
    ]


def spared_metadata(spared: Sequence[SparedGroup]) -> Rows:
    """Spared marks of a sweep: one row per dataset and reason, most marks first."""
    rows = sorted(spared, key=lambda row: (-row.marks, row.dataset, row.why))[:MOST_SHOWN]
    return [{"dataset": row.dataset, "marks": row.marks, "why": row.why, "for_example": row.transaction} for row in rows]


# --- plots ------------------------------------------------------------------------------------------------------------


def plot_metadata(plot: Plot) -> dg.MetadataValue:
    """Plot, shown on a click on [Show Markdown], with its answer for those who can't see it."""
    # Brackets would end the link text too early.
    words = visible_line(plot.title).translate({ord("["): "(", ord("]"): ")"})
    return dg.MetadataValue.md(f"![{words}]({data_uri(plot)})")
