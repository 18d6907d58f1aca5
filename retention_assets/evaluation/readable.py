"""History that readers may see: the state of each branch at an instant, or why it can't be read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.environment import Environment
from retention_assets.evaluation.dataset_log import read_dataset
from retention_assets.evaluation.keepers import Keepers
from retention_assets.evaluation.lives import held_rows
from retention_assets.evaluation.past_views import BranchAsOf, ViewRow, hidden_sentence, views_at
from retention_assets.frames.log import LIVING, is_in_log, keepers_about
from retention_assets.policy.durations import Duration, text_of
from retention_assets.policy.model import Hold

# time that reading is expected to last
READING = Duration(seconds=600)


@dataclass(frozen=True)
class ReadableBranch:
    """State of a branch at an instant; whether it may be read, or why not; and until when it surely can be."""

    branch: str
    current: bool
    readable: bool
    why: str | None
    until: datetime | None
    transactions: tuple[ViewRow, ...]


@dataclass(frozen=True)
class NamedState:
    """Transaction that can be read by name, however old it is, and the tag or hold that keeps it."""

    transaction: str
    kept_by: str


@dataclass(frozen=True)
class Readable:
    """Answer about a dataset at an instant. `visible_from` is None where nothing of its history was ever hidden."""

    dataset: str
    at: datetime
    visible_from: datetime | None
    branches: tuple[ReadableBranch, ...]
    by_name: tuple[NamedState, ...]

    @property
    def readable(self) -> bool:
        return all(branch.readable for branch in self.branches)

    @property
    def why(self) -> str | None:
        return next((branch.why for branch in self.branches if branch.why), None)

    @property
    def until(self) -> datetime | None:
        """Time until which all of it surely can be read; None where nothing of it is marked."""
        return min((branch.until for branch in self.branches if branch.until), default=None)

    def as_dict(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "at": self.at,
            "visible_from": self.visible_from,
            "readable": self.readable,
            "why": self.why,
            "until": self.until,
            "branches": [asdict(branch) for branch in self.branches],
            "by_name": [asdict(state) for state in self.by_name],
        }


def readable(
    environment: Environment,
    dataset: str,
    at: datetime | None = None,
    *,
    branch: str | None = None,
    lasting: Duration = READING,
    log: Path | None = None,
    as_of: datetime | None = None,
) -> Readable:
    """Answer for a dataset at an instant (default: now), for as long as reading will last.

    It holds up to its `until`. `as_of` asks as if it were then. Raises Refused where the log is not sound or can't be read.
    """
    lines = read_dataset(environment, dataset, log)
    with environment.ledger_if_any() as ledger:
        now = as_of or (ledger.clock.present() if ledger else environment.present())
        marks = _KnownMarks.of(ledger.marks.table([dataset], LIVING) if ledger else None, lines.transactions)
        # Read last: a sweep raises the visibility mark before it deletes.
        visible_from = ledger.visibility.of(dataset) if ledger else None
        keepers = Keepers.of_settings(ledger, environment.settings).in_force(now)
        holds = keepers_about(keepers, dataset, lines.attributes, now).holds
    question = _Question(dataset, at or now, lasting.after(now), visible_from)
    branches = [_answer(question, view, marks) for view in views_at(lines.transactions, question.instant, branch)]
    named = () if visible_from is None else tuple(_by_name(lines.transactions, holds, marks, now))
    return Readable(dataset, question.instant, visible_from, tuple(branches), named)


@dataclass(frozen=True)
class _Question:
    """Instant that is asked about, and until when the reader needs its data."""

    dataset: str
    instant: datetime
    needed_until: datetime
    # the dataset's visibility mark
    visible_from: datetime | None


@dataclass(frozen=True)
class _KnownMarks:
    """Transactions of a log that sweeps have deleted or will delete."""

    # by transaction: deleted or being deleted; or its due time
    deleted: frozenset[str]
    due: Mapping[str, datetime]
    # closing times of deleted transactions that the log no longer has
    unlisted: tuple[datetime, ...]

    @classmethod
    def of(cls, marks: pa.Table | None, rows: pa.Table) -> "_KnownMarks":
        if marks is None:
            return cls(frozenset(), {}, ())
        is_listed = pa.array(is_in_log(marks, rows))
        is_begun = pc.is_in(marks["status"], pa.array(["SWEEPING", "SWEPT"]))
        deleted = marks.filter(pc.and_(is_begun, is_listed))["transaction"].to_pylist()
        open_marks = marks.filter(pc.equal(marks["status"], "MARKED")).select(["transaction", "due_at"]).to_pylist()
        has_name = pc.is_in(marks["transaction"], value_set=rows["transaction"].combine_chunks())
        closed = marks.filter(pc.and_(is_begun, pc.invert(has_name)))["closed_at"].drop_null().to_pylist()
        return cls(frozenset(deleted), {row["transaction"]: row["due_at"] for row in open_marks}, tuple(closed))


def _answer(question: _Question, view: BranchAsOf, marks: _KnownMarks) -> ReadableBranch:
    until = min((marks.due[row.transaction] for row in view.rows if row.transaction in marks.due), default=None)
    why = _why_not(question, view, marks, until)
    return ReadableBranch(view.branch, view.current, why is None, why, until, view.rows)


def _why_not(question: _Question, view: BranchAsOf, marks: _KnownMarks, until: datetime | None) -> str | None:
    at, visible_from = question.instant, question.visible_from
    if visible_from is not None and at < visible_from and not view.current:
        return hidden_sentence(question.dataset, visible_from)
    for row in view.rows:
        if row.transaction in marks.deleted:
            return f"{row.transaction} of this view is swept or being swept."
    newest = max((row.closed_at for row in view.rows), default=None)
    if not view.current and any((newest is None or newest < closed) and closed <= at for closed in marks.unlisted):
        return f"A transaction that may have been current at {text_of(at)} is swept."
    if until is not None and until <= question.needed_until and not view.current:
        return f"Part of this view is due for deletion at {text_of(until)}."
    return None


def _by_name(rows: pa.Table, holds: Sequence[Hold], marks: _KnownMarks, now: datetime) -> Iterator[NamedState]:
    names, tags, expiries = (rows[name].to_pylist() for name in ("transaction", "tags", "tag_expiries"))
    held = held_rows(rows, holds)
    for name, own, ends, is_held in zip(names, tags, expiries, held, strict=True):
        if name in marks.deleted:
            continue
        for tag, end in zip(own or (), ends or (None,) * len(own or ()), strict=True):
            if end is None or now < end:
                yield NamedState(name, f"tag {tag}")
        if is_held:
            yield NamedState(name, "a hold")
