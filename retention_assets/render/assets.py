"""Tables and numbers of the assets' pages: what was read, judged, marked, swept and is to come; what matters stands first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from retention_assets.evaluation.fates import Fate
from retention_assets.frames.log import fault_sentence
from retention_assets.frames.statistics import LARGEST, merge_reason_counts
from retention_assets.frames.verdicts.decisions import VERDICTS
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger.evaluations import SWEPT_BEFORE, SweptBefore, VerdictCount
from retention_assets.ledger.states import FreedGroup, PendingGroup, SparedGroup, Totals, Waiting
from retention_assets.ledger.stores import ScanRecord
from retention_assets.outcomes import Outcome
from retention_assets.policy.book import Stored, item_of, sentence_of
from retention_assets.policy.durations import minute_in_utc
from retention_assets.policy.loading import BookDecision, LoadOutcome
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import ALL, Column, Count, Day, Medium, Minute, Number, Size, Table, amounts_of
from retention_assets.render.summaries import LOADED, NOW, waiting_numbers, who_of
from retention_assets.render.text import visible_line

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
# words for people, and numbers for programs
_BYTES = Number("bytes", media=Medium.RUN)
_SIZE = (Size("size", "bytes", ALL & ~Medium.RUN), Column("size", lambda row: size_of(_BYTES.read(row)), Medium.RUN), _BYTES)
# rows that a person has to look at stand first, should the table be cut
_LOAD_OUTCOMES = (LoadOutcome.DRIFTED, LoadOutcome.ABSENT, LoadOutcome.WRITTEN, LoadOutcome.SKIPPED)

# --- policies, logs and branches --------------------------------------------------------------------------------------


def policy_table(decisions: Sequence[BookDecision], in_force: Sequence[Stored]) -> Table:
    """Effect of loading on each policy: one row per entry, in the order of the files within each outcome."""
    stored = {one.name: one for one in in_force}
    rows = sorted(decisions, key=lambda one: _LOAD_OUTCOMES.index(one.outcome))
    columns = (
        Column("policy", "name", ALL, key="policy"),
        Column("sentence", lambda row: _policy_sentence(stored.get(row.name))),
        Column("file", lambda row: LOADED.get(row.outcome.value.lower(), row.outcome.value.lower()), ALL & ~Medium.RUN),
        Column("outcome", lambda row: row.outcome.value.lower(), Medium.RUN),
        Number("version", lambda row: stored[row.name].version if row.name in stored else None),
        # the outcome already says that book and file are equal
        Column("reason", lambda row: "" if row.outcome is LoadOutcome.SKIPPED else row.reason, ALL),
    )
    return Table("policies", columns, rows, "policies")


def _policy_sentence(stored: Stored | None) -> str:
    if stored is None:
        return "It is not in force."
    item = item_of(stored.name, stored.content)
    return sentence_of(item) if item else "This release can't read it."


_DATASET = Column("dataset", media=ALL)
_LARGEST_DATASETS = (_DATASET, Count("transactions", media=ALL), *_SIZE)


def largest_table(largest: Iterable[Mapping[str, Any]]) -> Table:
    exact = [{**row, "bytes": int(row["bytes"])} for row in largest]
    rows = sorted(exact, key=lambda row: (-row["bytes"], -row["transactions"], row["dataset"]))[:LARGEST]
    return Table("largest", _LARGEST_DATASETS, rows, "largest_datasets")


UNREAD = (_DATASET, Column("fault"), Column("fault", fault_sentence, Medium.SHORT), "transaction")
# each scanned store has numbers of its own
_SCANS = "scans/"
SCANNED = (Column("what", lambda row: row[0].removeprefix(_SCANS)), Count("value", lambda row: row[1]))


def scan_numbers(scans: Sequence[tuple[ScanRecord, Sequence[Mapping[str, Any]]]]) -> dict[str, Any]:
    """Numbers of scans: by store the sums of classes and references, and each source's counts."""
    shown: dict[str, Any] = {}
    for scan, sources in scans:
        group = f"{_SCANS}{visible_line(scan.store)}/"
        shown |= {f"{group}scan": scan.id, f"{group}status": scan.status.value}
        shown |= {f"{group}{name}": number for name, number in scan.totals.items()}
        if scan.reason:
            shown[f"{group}reason"] = scan.reason
        for source in sources:
            label = visible_line(source["label"])
            shown |= {f"{group}sources/{label}/{name}": source[name] for name in ("rows", "distinct", "seconds")}
    return shown


# the largest latest views first: readers keep these
BRANCHES_FIRST = [("transactions", "descending"), ("dataset", "ascending"), ("branch", "ascending")]
_LATEST = Count("transactions", media=ALL, meaning="in its latest view")
BRANCHES = (_DATASET, Column("branch", media=ALL), Count("views"), _LATEST, Minute("newest close"))

# --- verdicts ---------------------------------------------------------------------------------------------------------


def verdict_counts(sums: pa.Table, swept: SweptBefore) -> list[VerdictCount]:
    """Sum the verdicts of a run over its parts. What was swept before counts as no mark."""
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
    return counts


def verdict_numbers(counts: Sequence[VerdictCount]) -> dict[str, int]:
    numbers = dict[str, int]()
    for verdict in VERDICTS:
        numbers[verdict] = sum(counted.transactions for counted in counts if counted.verdict == verdict)
        numbers[f"{verdict}_bytes"] = sum(counted.bytes for counted in counts if counted.verdict == verdict)
    return numbers


_VERDICTS = (Column("verdict", media=ALL), Column("policy", media=ALL), Count("transactions", media=ALL), *_SIZE)


def verdict_table(counts: Iterable[VerdictCount], key: str = "by_policy") -> Table:
    # Marks first, by policy; last what was swept before and is still in the log.
    order = [*VERDICTS, SWEPT_BEFORE]
    rows = sorted(counts, key=lambda counted: (order.index(counted.verdict), -counted.transactions, counted.policy))
    return Table("by policy", _VERDICTS, rows, key)


def totals_numbers(totals: Totals) -> dict[str, Any]:
    numbers: dict[str, Any] = {"by_verdict": verdict_table(totals.counts).records(Medium.RUN)}
    for name, verdict in {"spared": "spare", "kept": "keep", "open": "open", "swept": SWEPT_BEFORE}.items():
        numbers[name] = sum(counted.transactions for counted in totals.counts if counted.verdict == verdict)
    shown = {"datasets": totals.datasets, "refused": len(totals.refused)}
    return {**numbers, "transactions": totals.transactions, "bytes": totals.bytes, **shown}


_REASONS = ("verdict", Count("transactions"), *_SIZE, Column("meaning", lambda row: Reason[row["reason"]].text("…")), "reason")
_EXAMPLES = (
    "verdict",
    "dataset",
    "transaction",
    Column("sentence", lambda row: Reason[row["reason"]].text(row["witness"])),
    "policy",
    "reason",
    "witness",
)


def reason_tables(counts: pa.Table) -> list[Table]:
    """Reasons of all verdicts, and for each some transactions with their sentence, for `retention explain`."""
    rows = [{**row, "reason": row["code"]} for row in merge_reason_counts(counts.to_pylist())]
    examples = [{**row, **example} for row in rows for example in row["examples"]]
    return [Table("reasons", _REASONS, rows, "reasons"), Table("why", _EXAMPLES, examples, "why")]


# --- marks ------------------------------------------------------------------------------------------------------------


def pending_numbers(waiting: Sequence[PendingGroup], as_of: datetime) -> dict[str, Any]:
    """All open marks of the ledger, whatever datasets the run was about: only so are the numbers comparable over time."""
    in_grace = [group for group in waiting if group.goes and not group.is_due(as_of)]
    return {
        "due_by_day": due_table(waiting, as_of).records(Medium.RUN),
        **waiting_numbers(Waiting.of(waiting, as_of)),
        "waiting": sum(group.marks for group in in_grace),
        "waiting_bytes": sum(group.bytes for group in in_grace),
    }


_DUE = (Day("due", media=ALL), Count("marks", media=ALL), *_SIZE, "policies")


def due_table(waiting: Sequence[PendingGroup], as_of: datetime) -> Table:
    due = [group for group in waiting if group.is_due(as_of)]
    days: dict[str | date, list[PendingGroup]] = {NOW: due} if due else {}
    for group in sorted(waiting, key=lambda group: group.due_at):
        if group.goes and not group.is_due(as_of):
            days.setdefault(group.due_at.astimezone(UTC).date(), []).append(group)
    rows = [
        {
            "due": day,
            "marks": sum(group.marks for group in groups),
            "bytes": sum(group.bytes for group in groups),
            "policies": ", ".join(sorted({group.policy for group in groups})),
        }
        for day, groups in days.items()
    ]
    return Table("", _DUE, rows)


_UPCOMING = ("due", "dataset", "transaction", *_SIZE, "policy")


def upcoming_table(marks: Iterable[tuple[Mapping[str, Any], Fate]]) -> Table:
    """Transactions that go next, by name, in the order in which they fall due."""
    going = sorted(((fate.at, row) for row, fate in marks if fate.goes), key=lambda mark: mark[0])
    return Table("next to go", _UPCOMING, [{**row, "due": minute_in_utc(at)} for at, row in going], "next_to_go")


_WEEK = (Day("day", media=ALL), Column("policy", media=ALL), Count("deleted", media=ALL), *_SIZE, "ordered by")


def week_table(freed: Iterable[FreedGroup]) -> Table:
    """Deletions by day, policy and order, newest first."""
    sums: dict[tuple[date, str, str], list[int]] = {}
    for group in freed:
        key = group.as_of.astimezone(UTC).date(), group.policy, who_of(group.ordered_by)
        total = sums.setdefault(key, [0, 0])
        total[0] += group.transactions
        total[1] += group.bytes
    rows = sorted(sums.items(), key=lambda item: (item[0][0], item[1][0]), reverse=True)
    named = [
        {"day": day, "policy": policy, "ordered_by": actor, "deleted": deleted, "bytes": size}
        for (day, policy, actor), (deleted, size) in rows
    ]
    return Table("week in full", _WEEK, named, "last_7_days")


_SPARED = ("dataset", Count("marks"), "why", Column("for example", "transaction", key="for_example"))


def spared_table(spared: Sequence[SparedGroup]) -> Table:
    """Spared marks of a sweep: one row per dataset and reason, most marks first."""
    rows = sorted(spared, key=lambda row: (-row.marks, row.dataset, row.why))
    return Table("spared, why", _SPARED, rows, "spared_at_the_door")


# in the order of a page
SWEEP_COUNTS = ("deleted", "set_aside", "already_gone", "hidden", "restored", "failed", "spared", "expiring")


def _outcome(name: str) -> Column:
    return Count(name.replace("_", " "), lambda result: result.outcomes[Outcome(name.upper())], key=name, rare=True)


_OUTCOME_COUNTS = [_outcome(name) for name in SWEEP_COUNTS]
_AMOUNTS = (
    *_OUTCOME_COUNTS,
    Count("files left", "left", rare=True),
    Size("freed", "bytes_freed", ALL),
    Size("hidden size", "bytes_hidden", rare=True),
    Size("size set aside", "bytes_set_aside", rare=True),
)
SWEPT = (
    Column("dataset", media=ALL),
    *_AMOUNTS,
    Number("done", lambda result: amounts_of(_OUTCOME_COUNTS, result) or "nothing", Medium.SHORT),
    Column("refused", lambda result: result.refused or ""),
    Column("errors", lambda result: "; ".join(result.errors)),
)


def sweep_numbers(results: Sequence[Any]) -> dict[str, int]:
    return {column.field: sum(map(column.read, results)) for column in _AMOUNTS}
