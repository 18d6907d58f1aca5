"""A dataset in a summary: what is judged of it now, what is scheduled, and its oldest and newest transactions.

Belongs here: the short answer about one dataset, from its log and the ledger. The complete answer about one of its
transactions is explain.py's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.grouping import selects_dataset
from retention_assets.frames.log import SUMMED, Log
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger import Ledger
from retention_assets.policy.sentences import sentence

_FEW = 5
_ROW = ("transaction", "type", "closed_at", "bytes")
# For each verdict, or status of a mark: how many transactions, and their bytes.
Counts = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SummaryRow:
    """One of the transactions that a summary names, with the reason of its verdict."""

    transaction: str
    type: str
    closed_at: datetime | None
    bytes: int | None
    verdict: str
    why: str


@dataclass(frozen=True)
class DatasetSummary:
    """What there is to say of a dataset in a minute."""

    dataset: str
    as_of: datetime
    # How many its log has, and their bytes; none without a log.
    transactions: int = 0
    bytes: int = 0
    in_log: bool = False
    verdicts: Counts = field(default_factory=dict)
    oldest: tuple[SummaryRow, ...] = ()
    newest: tuple[SummaryRow, ...] = ()
    # Its marks by status, and the rows of those that fall due next.
    marks: Counts = field(default_factory=dict)
    next_due: tuple[dict[str, Any], ...] = ()
    policies: tuple[tuple[str, str], ...] = ()
    holds: tuple[str, ...] = ()


def summarize_dataset(
    dataset: str, log: Log | None, rules: RulesInForce, ledger: Ledger | None, as_of: datetime
) -> DatasetSummary:
    """The summary of a dataset: as its log is judged now, and as the ledger knows it."""
    marks = ledger.marks.table([dataset]) if ledger else None
    waiting = () if marks is None else _next_due(marks)
    counts = {} if marks is None else _count(marks, "status")
    if log is None:
        return DatasetSummary(dataset, as_of, marks=counts, next_due=waiting)
    attributes = dict(log.datasets["attributes"][0].as_py() or ())
    policies = [one for one in rules.policies if selects_dataset(one.datasets, dataset, attributes)]
    live = [one for one in rules.holds if one.until is None or as_of < one.until]
    verdicts = candidate_marks(log.transactions, log.datasets, policies, live, as_of, already_marked(ledger, dataset))
    judged = log.transactions.select(_ROW).append_column("verdict", verdicts["verdict"].cast(pa.string()))
    judged = judged.append_column("reasons", verdicts["reasons"])
    return DatasetSummary(
        dataset=dataset,
        as_of=as_of,
        transactions=len(judged),
        bytes=int(pc.sum(judged["bytes"].cast(SUMMED)).as_py() or 0),
        in_log=True,
        verdicts=_count(judged, "verdict"),
        oldest=_rows(judged.slice(0, _FEW)),
        newest=_rows(judged.slice(max(0, len(judged) - _FEW)))[::-1],
        marks=counts,
        next_due=waiting,
        policies=tuple((one.name, sentence(one)) for one in policies),
        holds=tuple(one.name or "" for one in live if selects_dataset(one.datasets, dataset, attributes)),
    )


def already_marked(ledger: Ledger | None, dataset: str) -> pa.Table | None:
    """What of a dataset is marked or swept: it does not count towards limits again."""
    if ledger is None:
        return None
    rows = ledger.marks.table([dataset], ["MARKED", "SWEEPING", "SWEPT"])
    return rows.select(["dataset", "transaction", "opened_at", "closed_at"])


def _count(rows: pa.Table, by: str) -> dict[str, tuple[int, int]]:
    sized = rows.select([by]).append_column("bytes", rows["bytes"].cast(SUMMED))
    sums = sized.group_by(by).aggregate([([], "count_all"), ("bytes", "sum")]).sort_by(by).to_pylist()
    return {row[by]: (row["count_all"], int(row["bytes_sum"] or 0)) for row in sums}


def _next_due(marks: pa.Table) -> tuple[dict[str, Any], ...]:
    waiting = marks.filter(pc.is_in(marks["status"], pa.array(["MARKED", "SWEEPING"])))
    return tuple(waiting.sort_by([("due_at", "ascending"), ("id", "ascending")]).slice(0, _FEW).to_pylist())


def _rows(judged: pa.Table) -> tuple[SummaryRow, ...]:
    return tuple(
        SummaryRow(
            **{name: row[name] for name in (*_ROW, "verdict")},
            why=" ".join(Reason[one["code"]].text(one["witness"]) or "" for one in row["reasons"]).strip(),
        )
        for row in judged.to_pylist()
    )
