"""Summarise a dataset from its log and the ledger: states, next due marks, oldest and newest transactions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.log import Log, holds_dataset, is_in_log, selects_dataset, sums_by
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger import Ledger
from retention_assets.ledger.marking import MARK_ROWS
from retention_assets.policy.sentences import DELETED, SCHEDULED, sentence

_FEW = 5
_ROW = ("transaction", "type", "closed_at", "bytes")
_LIVING = ("MARKED", "SWEEPING", "SWEPT")
# marked but will be spared: a hold, a branch, a tag or a changed policy keeps it
STAYS = "MARKED, stays"
# transactions and bytes by state
Counts = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SummaryRow:
    """Transaction in a summary, with the reasons of its verdict."""

    transaction: str
    type: str
    closed_at: datetime | None
    bytes: int | None
    state: str
    why: str


@dataclass(frozen=True)
class DatasetSummary:
    """Summary of a dataset. A transaction's state is its mark's, if it is marked or swept, else its verdict."""

    dataset: str
    as_of: datetime
    # of the log; none without a log
    transactions: int = 0
    bytes: int = 0
    in_log: bool = False
    states: Counts = field(default_factory=dict)
    # oldest that are not deleted
    oldest: tuple[SummaryRow, ...] = ()
    newest: tuple[SummaryRow, ...] = ()
    # marks that fall due next
    next_due: tuple[dict[str, Any], ...] = ()
    policies: tuple[tuple[str, str], ...] = ()
    holds: tuple[str, ...] = ()


def summarize_dataset(
    dataset: str, log: Log | None, rules: RulesInForce, ledger: Ledger | None, fates: Fates, as_of: datetime
) -> DatasetSummary:
    """Summarise a dataset as its log is judged now and as the ledger knows it."""
    marks = ledger.marks.table([dataset]) if ledger else MARK_ROWS.empty_table()
    if log is None:
        return DatasetSummary(dataset, as_of, states=_count(marks, "status"), next_due=_next_due(marks, fates, ()))
    policies = [one for one in rules.policies if selects_dataset(one.datasets, dataset, log.attributes)]
    live = [one for one in rules.holds if one.is_live(as_of)]
    verdicts = candidate_marks(log.transactions, log.datasets, policies, live, as_of, already_marked(ledger, dataset))
    states = _states(log.transactions, marks, verdicts["verdict"].cast(pa.string()))
    judged = log.transactions.select(_ROW).append_column("state", states).append_column("reasons", verdicts["reasons"])
    stay = judged.filter(pc.equal(judged["state"], STAYS))["transaction"]
    there = judged.filter(pc.not_equal(judged["state"], "SWEPT"))
    counts = _count(judged, "state")
    return DatasetSummary(
        dataset=dataset,
        as_of=as_of,
        transactions=len(judged),
        bytes=sum(size for _, size in counts.values()),
        in_log=True,
        states=counts,
        oldest=_rows(there.slice(0, _FEW)) if len(there) > _FEW else (),
        newest=_rows(judged.slice(max(0, len(judged) - _FEW)))[::-1],
        next_due=_next_due(marks, fates, frozenset(stay.to_pylist())),
        policies=tuple((one.name, sentence(one)) for one in policies),
        holds=tuple(one.name or "" for one in live if holds_dataset(one, dataset, log.attributes)),
    )


def already_marked(ledger: Ledger | None, dataset: str) -> pa.Table | None:
    """Marks of a dataset that are open or swept: these do not count towards limits again."""
    if ledger is None:
        return None
    return ledger.marks.table([dataset], _LIVING).select(["dataset", "transaction", "opened_at", "closed_at"])


def _states(rows: pa.Table, marks: pa.Table, verdicts: pa.ChunkedArray) -> pa.ChunkedArray:
    # A transaction that reuses the id of something swept counts by its verdict.
    living = marks.filter(pc.is_in(marks["status"], pa.array(_LIVING)))
    mine = living.filter(pa.array(is_in_log(living, rows), pa.bool_())).sort_by("id")
    # without times on either mark, the newer one counts
    newest = mine.take(pa.array(range(len(mine) - 1, -1, -1), pa.int64()))
    at = pc.index_in(rows["transaction"], value_set=newest["transaction"].combine_chunks())
    verdict, status = verdicts.combine_chunks(), newest["status"].combine_chunks().take(at.combine_chunks())
    stays = pc.and_(pc.equal(status, "MARKED"), pc.not_equal(verdict, "mark"))
    return pc.coalesce(pc.if_else(stays, STAYS, status), verdict)


def _count(rows: pa.Table, by: str) -> dict[str, tuple[int, int]]:
    sums = sorted(sums_by(rows, [by]), key=lambda row: row[by])
    return {row[by]: (row["transactions"], row["bytes"]) for row in sums}


def _next_due(marks: pa.Table, fates: Fates, stay: Collection[str]) -> tuple[dict[str, Any], ...]:
    waiting = marks.filter(pc.is_in(marks["status"], pa.array(["MARKED", "SWEEPING"])))
    batches = waiting.sort_by([("due_at", "ascending"), ("id", "ascending")]).to_batches(1_000)
    rows = (row for batch in batches for row in batch.to_pylist() if row["transaction"] not in stay)
    going = ({**row, "due_at": fate.at} for row in rows if (fate := fates.of(row)).goes)
    return tuple(islice(going, _FEW))


def _rows(judged: pa.Table) -> tuple[SummaryRow, ...]:
    return tuple(SummaryRow(**{name: row[name] for name in (*_ROW, "state")}, why=_why(row)) for row in judged.to_pylist())


def _why(row: Mapping[str, Any]) -> str:
    if row["state"] == "SWEPT":
        return DELETED
    words = " ".join(Reason[one["code"]].text(one["witness"]) or "" for one in row["reasons"]).strip()
    return f"{SCHEDULED} {words}" if row["state"] in ("MARKED", "SWEEPING") else words
