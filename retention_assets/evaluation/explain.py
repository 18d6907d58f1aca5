"""Explain one transaction: its branches and views, each line of each policy, and what protects it; summarise a dataset.

The same frames that judge millions compute it; a test compares both.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from retention_assets.errors import BadInput, Problem, did_you_mean
from retention_assets.evaluation.dataset_log import MOST_COMPARED, only_dataset
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.lives import TransactionLives
from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import NEVER, Bools, Ints
from retention_assets.frames.log import (
    KNOWN_ROWS,
    LIVING,
    Log,
    copied_datasets,
    is_in_log,
    keepers_about,
    known_rows,
    selects_dataset,
    sums_by,
)
from retention_assets.frames.verdicts import selectors as policy_rules
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.table_windows import TableWindows, table_windows
from retention_assets.frames.views.branch_views import protection
from retention_assets.frames.views.forest import subtrees
from retention_assets.frames.views.history import History
from retention_assets.frames.views.scope import FAR, ScopeColumns, ScopeTable, view_roots
from retention_assets.ledger import Ledger
from retention_assets.ledger.histories import UNDELETED, TransactionLife, message_about
from retention_assets.ledger.mark_rows import MARK_ROWS, OPENED
from retention_assets.policy.durations import from_micros, micros, minute_in_utc, text_of
from retention_assets.policy.model import Keeper, Policy
from retention_assets.policy.selection import PERIODS
from retention_assets.policy.sentences import DELETED, SCHEDULED, count, sentence
from retention_assets.stores.protocol import WITNESS, FindData

_MOST_BRANCHES = 50


@dataclass(frozen=True)
class BranchView:
    branch: str
    view: int | None
    newer: int | None
    left_latest_view_at: str | None
    words: str


@dataclass(frozen=True)
class ExplainedLine:
    key: str
    holds: bool
    words: str
    value: str | None = None
    branches: str | None = None


@dataclass(frozen=True)
class PolicyAnswer:
    policy: str
    sentence: str
    selects: bool
    lines: tuple[ExplainedLine, ...]


@dataclass(frozen=True)
class Explanation:
    dataset: str
    transaction: str
    as_of: str
    type: str
    status: str
    closed_at: str | None
    bytes: int | None
    verdict: str
    policy: str | None
    also: tuple[str, ...]
    summary: str
    reasons: tuple[dict[str, str | None], ...]
    branches: tuple[BranchView, ...]
    more_branches: int
    tags: tuple[str, ...]
    policies: tuple[PolicyAnswer, ...]
    # referrers, where its store was asked about it alone
    witnesses: tuple[str, ...] = ()
    # sentences about data that goes with it, and who needs the rest, where its store can tell
    needs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    log: Log, rules: RulesInForce, dataset: str, transaction: str, as_of: datetime, known: pa.Table | None = None
) -> Explanation:
    """Explain a transaction, or say why that is impossible. Marks in `known` do not count towards limits again."""
    read = only_dataset(log, dataset)
    rows, described = read.transactions, read.attributes
    own = table_windows(described)
    row_number = pc.index(rows["transaction"], transaction).as_py()
    if row_number < 0:
        names = rows["transaction"].to_pylist()[:MOST_COMPARED]
        what = f"transaction '{transaction}' is not in the log of {dataset}"
        raise BadInput(Problem(what, remedy=did_you_mean(transaction, names)))
    matching = replace(rules, policies=tuple(p for p in rules.policies if selects_dataset(p.datasets, dataset, described)))
    verdicts = candidate_marks(read.transactions, read.datasets, matching.policies, matching.holds, as_of, known)
    mark = verdicts.slice(row_number, 1).to_pylist()[0]
    history = History(rows, micros(as_of), copied_datasets(read.datasets))
    scopes = ScopeTable(history)
    position = int(history.positions[row_number])
    row = rows.slice(row_number, 1).to_pylist()[0]
    attributes = dict(row["attributes"] or ())
    holders = _holders(history, position).tolist()
    answers = tuple(_answer(policy, scopes, position, as_of, own) for policy in matching.policies)
    # the first line of each policy that does not hold: about periods its words say more than the reason does
    unmet = {answer.policy: line.words for answer in answers for line in reversed(answer.lines) if not line.holds}
    reasons = []
    for reason in mark["reasons"]:
        code, witness = Reason[reason["code"]], reason["witness"]
        reasons.append({**reason, "text": unmet[witness] if code is Reason.WITHIN_PERIODS else code.text(witness)})
    tag = int(protection(scopes).tag[position])
    views = tuple(_branch_view(history, rank, position) for rank in holders[:_MOST_BRANCHES])
    return Explanation(
        dataset=dataset, transaction=transaction, as_of=text_of(as_of), type=row["type"], status=row["status"],
        closed_at=text_of(row["closed_at"]) if row["closed_at"] else None, bytes=row["bytes"],
        verdict=mark["verdict"], policy=mark["policy"], also=tuple(mark["also"]),
        summary=_summary_of_object(row["type"], attributes) or _summary(mark, views), reasons=tuple(reasons), branches=views,
        more_branches=max(0, len(holders) - _MOST_BRANCHES),
        tags=(history.tags.names[tag],) if tag < FAR else (),
        policies=answers,
        witnesses=tuple(attributes.get(WITNESS, "").splitlines()),
    )  # fmt: skip


@dataclass(frozen=True)
class ExplainedTransaction:
    """Transaction as it is judged now, and its life by the ledger. Without an explanation it is in no log any more."""

    dataset: str
    as_of: datetime
    explanation: Explanation | None
    life: TransactionLife

    def as_dict(self) -> dict[str, Any]:
        """For `--format json`: the explanation, the deletion message, and the state of the mark."""
        nothing = dict.fromkeys(field_.name for field_ in fields(Explanation))
        known = {"dataset": self.dataset, "transaction": self.life.transaction, "as_of": text_of(self.as_of)}
        life = self.life.as_dict()
        explained = self.explanation.as_dict() if self.explanation else {**nothing, **known}
        return {**explained, **{name: life[name] for name in ("message", "details", "mark", "due_at", "words")}}


def explain_with_ledger(
    log: Log | None,
    rules: RulesInForce,
    ledger: Ledger | None,
    dataset: str,
    transaction: str,
    as_of: datetime,
    fates: Fates | None = None,
    find_data: FindData | None = None,
) -> ExplainedTransaction:
    """Explain a transaction with what the ledger knows; one that is in no log any more may still be known there."""
    holds = keepers_about(rules.holds, dataset, log.attributes if log else {}, as_of).holds
    known = ledger is not None and bool(ledger.histories.of(dataset, [transaction]))
    explanation = None
    if log is not None and not (known and pc.index(log.transactions["transaction"], transaction).as_py() < 0):
        explanation = explain(log, rules, dataset, transaction, as_of, _already_marked(ledger, dataset))
    (life,) = TransactionLives(dataset, log, ledger, holds, as_of, fates, find_data).named([transaction])
    if explanation is not None and life.mark is not None:
        explanation = replace(explanation, summary=_summary_of_marked(explanation, life))
        if explanation.verdict != "mark" and not life.holds:
            why = explanation.summary.partition(".")[0]
            life = replace(life, said=message_about(dataset, life, as_of, f"{why[:1].lower()}{why[1:]}"))
    return ExplainedTransaction(dataset, as_of, explanation, life)


def _summary(mark: dict[str, Any], views: tuple[BranchView, ...]) -> str:
    verdict, policy = mark["verdict"], mark["policy"]
    if verdict == "open":
        return "It is still being written, so no policy applies."
    if any(reason["code"] == Reason.NO_FILES.name for reason in mark["reasons"]):
        return Reason.NO_FILES.value
    if verdict == "keep":
        return "No policy selects it, so it stays."
    if verdict == "mark":
        return f"Policy '{policy}' selects it and nothing protects it: it will be marked, and swept when its grace is over."
    latest = [view.branch for view in views if view.view == 0]
    older = [view.branch for view in views if view.view]
    if latest and older and any(reason["code"] == "LATEST_VIEW" for reason in mark["reasons"]):
        return (
            f"Policy '{policy}' selects it, and branch '{older[0]}' does not need it. But branch '{latest[0]}' shares it "
            "and has it in its latest view. One branch that needs it is enough to spare it."
        )
    return f"Policy '{policy}' selects it, but something protects it: it is spared."


# by the class of an object: why no policy applies to it
_CLASS_SENTENCES = {
    "young": "It is younger than `min_age` of its store, so no policy applies yet.",
    "unknown_kind": "Its kind is not in `known_kinds` of its store, so no policy applies.",
    "unhandled": "No source of references covers its realm, so no policy applies.",
    "reserved": "Its realm is reserved for the system, so no policy applies.",
}


def _summary_of_object(kind: str, attributes: Mapping[str, str]) -> str | None:
    if kind != "OBJECT":
        return None
    if witnesses := attributes.get(WITNESS):
        first, *more = witnesses.splitlines()
        return f"It is referenced by {first}{f', and {len(more)} more' if more else ''}. It stays as long as that is so."
    return _CLASS_SENTENCES.get(attributes.get("class", ""))


def _summary_of_marked(explanation: Explanation, life: TransactionLife) -> str:
    status = life.mark.status if life.mark else ""
    if status not in LIVING:
        return explanation.summary
    if explanation.verdict != "mark":
        again = " It is marked. The sweep checks again, and spares it if that is still so."
        return explanation.summary + (again if status == "MARKED" else "")
    where = {"MARKED": "it is marked, and swept when its grace is over", "SWEEPING": "it is being swept"}
    return f"Policy '{explanation.policy}' selects it and nothing protects it: {where.get(status, 'it was swept')}."


def _holders(history: History, position: int) -> Ints:
    # Ranks of the branches that hold a position, by subtree, without trying each.
    if history.independent[position]:
        return np.array([], dtype=np.int64)
    anchor = position
    if not history.committed[position]:
        anchor = int(history.anchors[np.searchsorted(history.loose, position)])
    refs = history.branches
    if anchor < 0:
        dataset = np.searchsorted(history.starts, position, side="right") - 1
        return np.sort(refs.rank[refs.dataset == dataset])
    return np.sort(refs.rank[_lie_below(history, refs.position, anchor)])


def _lie_below(history: History, positions: Ints, position: int) -> Bools:
    begin, end = subtrees(history.chains, np.append(positions, position))
    below: Bools = (begin[:-1] >= begin[-1]) & (begin[:-1] < end[-1])
    return below


def _branch_view(history: History, rank: int, position: int) -> BranchView:
    name = history.branches.names[rank]
    scope = ScopeColumns(history, history.branches.rank == rank)
    if not scope.held[position]:
        return BranchView(name, None, None, None, "in no view, because it is not committed")
    view, newer, end = int(scope.view[position]), int(scope.newer[position]), int(scope.superseded_at[position])
    left_at = None if end == NEVER else text_of(from_micros(end))
    words = "in the latest view, which protects it"
    if view:
        left_then = minute_in_utc(from_micros(end))
        words = f"{count(view, 'view')} behind the latest one, which it left at {left_then}; nothing protects it here"
    words += f" ({count(newer, 'newer data transaction')})"
    words += ", and an open transaction follows" if scope.open_after[position] else ""
    return BranchView(name, view, newer, left_at, words)


def _answer(policy: Policy, scopes: ScopeTable, position: int, as_of: datetime, own: TableWindows | None) -> PolicyAnswer:
    answers: dict[tuple[str, str | None], ExplainedLine] = {}
    windows = {} if own is None else dict.fromkeys(scopes.history.names, own)
    for line in policy_rules.lines(policy, scopes, as_of, windows):
        if line.judged is not None and not line.judged[position]:
            continue
        refused = bool(line.refused[position])
        # A window of the dataset is shown by its numbers.
        value = own.words() if own and line.key == "select.from_table" else _written(policy, line)
        if value is None and not refused:
            continue
        reason = _why_kept(policy, line, scopes.history, position) if refused else ""
        explained = ExplainedLine(line.key, not refused, reason, value, line.branches)
        # of several judgements of one line the first that refuses counts
        first = answers.setdefault((line.key, line.branches), explained)
        if first.holds and refused:
            answers[line.key, line.branches] = explained
    lines = tuple(answers.values())
    return PolicyAnswer(policy.name, sentence(policy), all(line.holds for line in lines), lines)


_NAMES = {"hourly": "%Y-%m-%d %H:00", "daily": "%Y-%m-%d", "weekly": "%G-W%V", "monthly": "%Y-%m", "yearly": "%Y"}


def _why_kept(policy: Policy, line: policy_rules.SelectorLine, history: History, position: int) -> str:
    kept = line.kept
    if kept is None or kept.key not in PERIODS:
        return line.reason.text(policy.name)
    view = view_roots(history)
    roots = np.flatnonzero(kept.roots & (view == view[position]))
    roots = roots[_lie_below(history, roots, position)]
    # the nearest state that needs it
    root = int(roots[np.argmin(subtrees(history.chains, roots)[0])])
    shown = from_micros(int(history.closed[root])).astimezone(ZoneInfo(kept.counts.zone or "UTC"))
    period, number = PERIODS[kept.key], count(kept.counts.periods[kept.key], PERIODS[kept.key])
    name = history.log["transaction"][int(history.rows[root])].as_py()
    state = "" if root == position else f"part of the state of {name}, "
    newest = f"the newest of {period} {shown.strftime(_NAMES[kept.key])}"
    return f"It is kept: {state}{newest}, one of {number} of policy '{policy.name}'."


def _written(policy: Policy, line: policy_rules.SelectorLine) -> str | None:
    # the line's value in the policy file; None where it has none
    window = next((window for window in policy.branches.windows if window.match == line.branches), None)
    part: BaseModel | None = window if line.branches is not None else policy
    for name in line.key.split(".")[:-1]:
        part = None if part is None or name not in part.model_fields_set else getattr(part, name)
    name = line.key.split(".")[-1]
    if part is None or name not in part.model_fields_set:
        return None
    value = part.model_dump(mode="json", exclude_none=True)[name]
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{key}: {item}" for key, item in value.items())


_FEW = 5
_ROW = ("transaction", "type", "closed_at", "bytes")
# marked but will be spared: a hold, a branch, a tag or a changed policy keeps it
STAYS = "MARKED, stays"
# by state: what became of the data that a sweep took
_SWEPT_SENTENCES = {
    "SWEPT": DELETED, "SET_ASIDE": "`retention restore` brings it back.", "HIDDEN": "Its place keeps readable versions of it.",
}  # fmt: skip
# transactions and bytes by state
Counts = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SummaryRow:
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
    # rows and bytes of the log; 0 without a log
    transactions: int = 0
    bytes: int = 0
    in_log: bool = False
    states: Counts = field(default_factory=dict)
    # the oldest that are not deleted, and the newest of all
    oldest: tuple[SummaryRow, ...] = ()
    newest: tuple[SummaryRow, ...] = ()
    next_due: tuple[dict[str, Any], ...] = ()  # marks that fall due next
    policies: tuple[tuple[str, str], ...] = ()
    holds: tuple[str, ...] = ()


def summarize_dataset(
    dataset: str, log: Log | None, rules: RulesInForce, ledger: Ledger | None, fates: Fates, as_of: datetime
) -> DatasetSummary:
    marks = _marks(ledger, dataset) if ledger else MARK_ROWS.empty_table()
    if log is None:
        return DatasetSummary(dataset, as_of, states=_count(marks, "status"), next_due=_next_due(marks, fates, ()))
    policies = [policy for policy in rules.policies if selects_dataset(policy.datasets, dataset, log.attributes)]
    about = keepers_about(rules.holds, dataset, log.attributes, as_of)
    keepers: list[Keeper] = [*about.holds, *about.rules]
    verdicts = candidate_marks(log.transactions, log.datasets, policies, keepers, as_of, _already_marked(ledger, dataset))
    states = _states(log.transactions, marks, verdicts["verdict"].cast(pa.string()))
    judged = log.transactions.select(_ROW).append_column("state", states).append_column("reasons", verdicts["reasons"])
    stay = judged.filter(pc.equal(judged["state"], STAYS))["transaction"]
    undeleted = judged.filter(pc.invert(pc.is_in(judged["state"], pa.array(["SWEPT", *UNDELETED]))))
    counts = _count(judged, "state")
    return DatasetSummary(
        dataset=dataset,
        as_of=as_of,
        transactions=len(judged),
        bytes=sum(size for _, size in counts.values()),
        in_log=True,
        states=counts,
        oldest=_rows(undeleted.slice(0, _FEW)) if len(undeleted) > _FEW else (),
        newest=_rows(judged.slice(max(0, len(judged) - _FEW)))[::-1],
        next_due=_next_due(marks, fates, frozenset(stay.to_pylist())),
        policies=tuple((policy.name, sentence(policy)) for policy in policies),
        holds=tuple(keeper.name or "" for keeper in keepers),
    )


def _marks(ledger: Ledger, dataset: str) -> pa.Table:
    # a mark whose data was not deleted stands under its outcome
    marks = ledger.marks.table([dataset], columns=(*MARK_ROWS.names, "outcome"))
    is_there = pc.is_in(marks["outcome"], pa.array(UNDELETED))
    statuses = pc.if_else(is_there, marks["outcome"], marks["status"])
    return marks.set_column(marks.column_names.index("status"), "status", statuses)


def _already_marked(ledger: Ledger | None, dataset: str) -> pa.Table:
    # Marks of a dataset that are open or swept: these do not count towards limits again, and need no data that is shared.
    marks = ledger.marks.read([dataset], LIVING) if ledger else ()
    return pa.Table.from_batches(known_rows(marks), KNOWN_ROWS)


def _states(rows: pa.Table, marks: pa.Table, verdicts: pa.ChunkedArray) -> pa.ChunkedArray:
    # A transaction that reuses the id of something swept counts by its verdict.
    living = marks.filter(pc.is_in(marks["status"], pa.array([*LIVING, *UNDELETED])))
    same = living.filter(pa.array(is_in_log(living, rows), pa.bool_())).sort_by("id")
    # without times on either mark, the newer one counts
    newest = same.take(pa.array(range(len(same) - 1, -1, -1), pa.int64()))
    places = pc.index_in(rows["transaction"], value_set=newest["transaction"].combine_chunks())
    verdict, status = verdicts.combine_chunks(), newest["status"].combine_chunks().take(places.combine_chunks())
    stays = pc.and_(pc.equal(status, "MARKED"), pc.not_equal(verdict, "mark"))
    return pc.coalesce(pc.if_else(stays, STAYS, status), verdict)


def _count(rows: pa.Table, column: str) -> dict[str, tuple[int, int]]:
    sums = sorted(sums_by(rows, [column]), key=lambda row: row[column])
    return {row[column]: (row["transactions"], row["bytes"]) for row in sums}


def _next_due(marks: pa.Table, fates: Fates, stay: Collection[str]) -> tuple[dict[str, Any], ...]:
    waiting = marks.filter(pc.is_in(marks["status"], pa.array(OPENED)))
    batches = waiting.sort_by([("due_at", "ascending"), ("id", "ascending")]).to_batches(1_000)
    rows = (row for batch in batches for row in batch.to_pylist() if row["transaction"] not in stay)
    due = ({**row, "due_at": fate.at} for row in rows if (fate := fates.of(row)).goes)
    return tuple(islice(due, _FEW))


def _rows(judged: pa.Table) -> tuple[SummaryRow, ...]:
    return tuple(SummaryRow(**{name: row[name] for name in (*_ROW, "state")}, why=_why(row)) for row in judged.to_pylist())


def _why(row: Mapping[str, Any]) -> str:
    if (swept := _SWEPT_SENTENCES.get(row["state"])) is not None:
        return swept
    reasons = " ".join(Reason[reason["code"]].text(reason["witness"]) or "" for reason in row["reasons"]).strip()
    return f"{SCHEDULED} {reasons}" if row["state"] in OPENED else reasons
