"""History that readers may see: states as of an instant, what the visibility mark hides, and the lives of transactions.

Visibility marks rise by the entries of the policy book. The longest retention that was in force at any time of the past week
counts, and nothing rises while a part of that week had none: a new or shortened entry hides nothing for 7 days, while somebody
may still take it back, and a longer one holds at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, did_you_mean
from retention_assets.evaluation.dataset_log import MOST_COMPARED, read_dataset
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.keepers import Keepers
from retention_assets.frames.arrays import Bools, as_micros, flags, integers, join_chunks, keys_of
from retention_assets.frames.log import LIVING, LOG, Log, is_in_log, keepers_about, selects_dataset
from retention_assets.frames.views.branch_views import branch_views
from retention_assets.ledger import Ledger
from retention_assets.ledger.book import Raise, raise_by
from retention_assets.ledger.histories import TransactionLife, life_of
from retention_assets.ledger.mark_rows import STATUSES
from retention_assets.policy.book import Stored, item_of
from retention_assets.policy.durations import Duration, micros, text_of
from retention_assets.policy.globs import protecting
from retention_assets.policy.model import VISIBILITY_PREFIX, Hold, VisibilityRule, named_holds
from retention_assets.policy.selection import BRANCHED
from retention_assets.stores.protocol import FindData

# time that reading is expected to last
READING = Duration(seconds=600)


@dataclass(frozen=True)
class ViewRow:
    """Transaction that a reader sees."""

    transaction: str
    type: str
    closed_at: datetime
    bytes: int | None


@dataclass(frozen=True)
class BranchAsOf:
    """Transactions that a branch shows at an instant, oldest first; `current` if it shows the same now."""

    branch: str
    current: bool
    rows: tuple[ViewRow, ...]


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

    The answer holds until its `until`: whoever reads later asks again. `as_of` asks as if it were then. Raises Refused
    where the log is not sound or can't be read.
    """
    lines = read_dataset(environment, dataset, log)
    with environment.ledger_if_any() as ledger:
        now = as_of or (ledger.clock.present() if ledger else environment.present())
        marks = _KnownMarks.of(ledger.marks.table([dataset], LIVING) if ledger else None, lines.transactions)
        # Read last: a sweep raises the visibility mark before it deletes.
        visible_from = ledger.visibility.of(dataset) if ledger else None
        keepers = Keepers.of_settings(ledger, environment.settings).in_force(now)
        holds = named_holds(keepers_about(keepers, dataset, lines.attributes, now))
    instant = at or now
    branches = []
    for view in views_at(lines.transactions, instant, branch):
        until = min((marks.due[row.transaction] for row in view.rows if row.transaction in marks.due), default=None)
        why = _why_not(view, instant, visible_from, marks, until, lasting.after(now), dataset)
        branches.append(ReadableBranch(view.branch, view.current, why is None, why, until, view.rows))
    named = () if visible_from is None else tuple(_by_name(lines.transactions, holds, marks, now))
    return Readable(dataset, instant, visible_from, tuple(branches), named)


@dataclass(frozen=True)
class _KnownMarks:
    """Transactions of a log that sweeps have deleted or will delete."""

    # by transaction: deleted or being deleted; or its due time
    gone: frozenset[str]
    due: Mapping[str, datetime]
    # closing times of deleted transactions that the log no longer has
    unlisted: tuple[datetime, ...]

    @classmethod
    def of(cls, marks: pa.Table | None, rows: pa.Table) -> "_KnownMarks":
        if marks is None:
            return cls(frozenset(), {}, ())
        there = pa.array(is_in_log(marks, rows))
        begun = pc.is_in(marks["status"], pa.array(["SWEEPING", "SWEPT"]))
        gone = marks.filter(pc.and_(begun, there))["transaction"].to_pylist()
        open_marks = marks.filter(pc.equal(marks["status"], "MARKED")).select(["transaction", "due_at"]).to_pylist()
        listed = pc.is_in(marks["transaction"], value_set=rows["transaction"].combine_chunks())
        closed = marks.filter(pc.and_(begun, pc.invert(listed)))["closed_at"].drop_null().to_pylist()
        return cls(frozenset(gone), {row["transaction"]: row["due_at"] for row in open_marks}, tuple(closed))


def _why_not(
    view: BranchAsOf,
    at: datetime,
    visible_from: datetime | None,
    marks: _KnownMarks,
    until: datetime | None,
    needed_until: datetime,
    dataset: str,
) -> str | None:
    if visible_from is not None and at < visible_from and not view.current:
        return _hidden_sentence(dataset, visible_from)
    for row in view.rows:
        if row.transaction in marks.gone:
            return f"{row.transaction} of this view is swept or being swept."
    newest = max((row.closed_at for row in view.rows), default=None)
    if not view.current and any((newest is None or newest < closed) and closed <= at for closed in marks.unlisted):
        return f"A transaction that may have been current at {text_of(at)} is swept."
    if until is not None and until <= needed_until and not view.current:
        return f"Part of this view is due for deletion at {text_of(until)}."
    return None


def _hidden_sentence(dataset: str, visible_from: datetime) -> str:
    return (
        f"The history of {dataset} before {text_of(visible_from)} can't be read: parts of it may be gone. Ask for that time "
        "or a later one."
    )


def refuse_hidden(dataset: str, at: datetime, visible_from: datetime | None, views: Sequence[BranchAsOf]) -> None:
    """Refuse an instant before the visibility mark, unless what was current then is current now."""
    if visible_from is None or at >= visible_from or (views and all(view.current for view in views)):
        return
    raise Refused(_hidden_sentence(dataset, visible_from))


def _by_name(rows: pa.Table, holds: Sequence[Hold], marks: _KnownMarks, now: datetime) -> Iterator[NamedState]:
    names, tags, expiries = (rows[name].to_pylist() for name in ("transaction", "tags", "tag_expiries"))
    held = _held_rows(rows, holds)
    for name, own, ends, is_held in zip(names, tags, expiries, held, strict=True):
        if name in marks.gone:
            continue
        for tag, end in zip(own or (), ends or (None,) * len(own or ()), strict=True):
            if end is None or now < end:
                yield NamedState(name, f"tag {tag}")
        if is_held:
            yield NamedState(name, "a hold")


# --- views ------------------------------------------------------------------------------------------------------------


def views_at(rows: pa.Table, at: datetime, branch: str | None = None) -> list[BranchAsOf]:
    """Views of the live branches, or of one, at an instant, in the order of their names.

    A view is what was committed by then, back to the newest SNAPSHOT.
    """
    lists = join_chunks(rows["heads"])
    heads = zip(pc.list_flatten(lists).to_pylist(), pc.list_parent_indices(lists).to_pylist(), strict=True)
    committed = _is(rows["status"], "COMMITTED") & np.isin(rows["type"].cast(pa.string()).to_numpy(False), BRANCHED)
    closed = as_micros(rows["closed_at"]) <= micros(at)
    # Plain lists: the walk asks for one row at a time.
    parents: list[int] = integers(rows["parent_ordinal"], -1).tolist()
    is_committed, is_closed, is_snapshot = committed.tolist(), closed.tolist(), _is(rows["type"], "SNAPSHOT").tolist()
    views = []
    for name, row in sorted(heads):
        if branch not in (None, name):
            continue
        view, current = list[int](), True
        while row >= 0:
            if is_committed[row] and is_closed[row]:
                view.append(row)
                if is_snapshot[row]:
                    break
            elif is_committed[row]:
                current = False
            row = parents[row]
        columns = rows.select(["transaction", "type", "closed_at", "bytes"]).take(pa.array(view[::-1], pa.int64()))
        views.append(BranchAsOf(name, current, tuple(ViewRow(**one) for one in columns.to_pylist())))
    return views


def _visible_rows(rows: pa.Table, views: pa.Table, visible_from: datetime) -> Bools:
    # Transactions that a reader who keeps to the visibility mark can still read, given the dataset's `branch_views`. In a view:
    # visible if it is current on some live branch at an instant not before the mark. Pinned by a tag or OPEN: visible. In no
    # view (ABORTED, on no branch, a RECORD or OBJECT): visible if it closed, or was opened and never closed, at the mark or
    # later.
    mark = micros(visible_from)
    in_view = flags(pc.is_valid(views["view"]))
    current = in_view & flags(pc.equal(views["view"], 0))
    since = in_view & (as_micros(views["superseded_at"]) > mark)
    loose = ~in_view & (as_micros(pc.coalesce(rows["closed_at"], rows["opened_at"])) >= mark)
    visible: Bools = current | since | loose | flags(pc.is_valid(views["protected_by"])) | _is(rows["status"], "OPEN")
    return visible


def readable_but_swept(views: pa.Table, swept: pa.Table, visible_from: Mapping[str, datetime]) -> pa.Table:
    """Find swept transactions, still listed, that were current at a time which readers may still ask for."""
    old = views.filter(pc.greater(views["view"], 0)).select(["dataset", "transaction", "superseded_at"])
    again = old.filter(pc.is_in(keys_of(old), value_set=keys_of(swept)))
    marks = [visible_from.get(name) for name in again["dataset"].to_pylist()]
    return again.filter(pc.greater(again["superseded_at"], pa.array(marks, again.schema.field("superseded_at").type)))


def _held_rows(rows: pa.Table, holds: Sequence[Hold]) -> Bools:
    held: Bools = np.zeros(len(rows), dtype=bool)
    names = rows["transaction"].to_pylist() if any(hold.transactions is not None for hold in holds) else []
    for hold in holds:
        held |= True if hold.transactions is None else np.array(protecting(names, hold.transactions), dtype=bool)
    return held


def _is(column: pa.ChunkedArray, word: str) -> Bools:
    return flags(pc.equal(column.cast(pa.string()), word))


# --- visibility marks -------------------------------------------------------------------------------------------------


# time before a new or shortened entry hides anything
WAIT = Duration(days=7)


@dataclass(frozen=True)
class RuleInTime:
    """Version of an entry, and its time in force; without an end it still is."""

    rule: VisibilityRule
    begin: datetime
    end: datetime | None


@dataclass(frozen=True)
class ReadableTime:
    """Time for which a dataset's history stays readable. No mark rises by it before `waits_until`."""

    rule: VisibilityRule
    waits_until: datetime | None = None


@dataclass(frozen=True)
class VisibilityRules:
    """Visibility entries of the book at an instant and in the week before."""

    versions: tuple[RuleInTime, ...]
    at: datetime

    @classmethod
    def of(cls, ledger: Ledger, at: datetime) -> "VisibilityRules":
        return cls(tuple(_in_time(ledger.policy_book.histories(VISIBILITY_PREFIX), at)), at)

    def for_dataset(self, dataset: str, attributes: Mapping[str, str]) -> ReadableTime | None:
        about = [version for version in self.versions if selects_dataset(version.rule.datasets, dataset, dict(attributes))]
        since = self._in_force_since(about)
        if since is None:
            return None
        begin = WAIT.before(self.at)
        counting = [version for version in about if version.begin <= self.at and (version.end is None or version.end > begin)]
        longest = min(counting, key=lambda version: version.rule.retention.before(self.at))
        return ReadableTime(longest.rule, None if since <= begin else WAIT.after(since))

    def _in_force_since(self, about: Iterable[RuleInTime]) -> datetime | None:
        since: datetime | None = None
        for version in sorted(about, key=lambda version: (version.end is None, version.end or version.begin), reverse=True):
            if version.begin > self.at:
                continue
            if version.end is None or (version.end > self.at if since is None else version.end >= since):
                since = version.begin if since is None else min(since, version.begin)
        return since


def _in_time(histories: Iterable[list[Stored]], at: datetime) -> Iterator[RuleInTime]:
    # A version of after the instant counts as in force: the book knows no other present.
    for versions in histories:
        for stored, following in zip(versions, [*versions[1:], None], strict=True):
            item = None if stored.revoked else item_of(stored.name, stored.content)
            if isinstance(item, VisibilityRule):
                yield RuleInTime(item, min(stored.written_at, at), min(following.written_at, at) if following else None)


def raise_visibility(ledger: Ledger, parts: Iterable[tuple[pa.Table, pa.Table]], at: datetime, actor: str) -> int:
    """Raise the marks of some datasets by the book's entries at an instant; return how many rose.

    Each part is some datasets with their `newest_closes`. Nothing is read where the book has no entry.
    """
    rules = VisibilityRules.of(ledger, at)
    parts = parts if rules.versions else ()
    proposed = (raise_ for datasets, newest in parts for raise_ in propose_raises(rules, datasets, newest))
    return sum(before != after for before, after in raise_proposed(ledger, proposed, actor).values())


def raise_proposed(ledger: Ledger, proposed: Iterable["ProposedRaise"], actor: str) -> dict[str, tuple[datetime | None, ...]]:
    """Raise what may rise now. Returns by dataset the marks before and after."""
    raises = {proposal.dataset: proposal.to for proposal in proposed}
    before = ledger.visibility.of_all(raises)
    after = ledger.visibility.raise_to({name: to for name, to in raises.items() if to is not None}, actor)
    return {name: (before.get(name), after.get(name, before.get(name))) for name in raises}


@dataclass(frozen=True)
class ProposedRaise:
    """Raise of a dataset's mark that an entry allows; none while that waits."""

    dataset: str
    to: Raise | None
    waits_until: datetime | None


def propose_raises(rules: VisibilityRules, datasets: pa.Table, newest: pa.Table) -> Iterator[ProposedRaise]:
    """Propose a raise for each dataset that an entry is about and that ever had something to read."""
    if not rules.versions:
        return
    closes = dict(zip(newest["dataset"].to_pylist(), newest["closed_at_max"].to_pylist(), strict=True))
    for row in datasets.select(["dataset", "attributes"]).to_pylist():
        name = row["dataset"]
        readable = rules.for_dataset(name, dict(row["attributes"] or ())) if closes.get(name) else None
        if readable is not None:
            to = raise_by(readable.rule.retention, rules.at, closes[name], f" ({readable.rule.name})")
            yield ProposedRaise(name, None if readable.waits_until else to, readable.waits_until)


# --- lives ------------------------------------------------------------------------------------------------------------


# lives in memory at a time
_AT_ONCE = 5_000
_COLUMNS = ("transaction", "type", "status", "opened_at", "closed_at", "bytes")


@dataclass
class TransactionLives:
    """Lives of the transactions of one dataset, in batches. Without a log, those that the ledger knows."""

    dataset: str
    log: Log | None
    ledger: Ledger | None
    holds: Sequence[Hold]
    as_of: datetime
    # None: words for marks go by their own state and the holds.
    fates: Fates | None = None
    # None: nobody looks for data of deleted transactions.
    find_data: FindData | None = None
    # number that the visibility mark left out, once all were read
    hidden: int = 0

    def named(self, names: Sequence[str]) -> Iterator[TransactionLife]:
        listed = self._listed()
        table = listed.filter(pc.is_in(listed["transaction"], pa.array(names, pa.string())))
        rows = {row["transaction"]: row for row in table.to_pylist()}
        lives = {life.transaction: life for life in self._lives(rows.get(name, {"transaction": name}) for name in names)}
        unknown = [name for name, life in lives.items() if name not in rows and not life.marks]
        if unknown:
            known = listed["transaction"].slice(0, MOST_COMPARED).to_pylist()
            raise BadInput([self._unknown(name, known) for name in unknown])
        return iter(lives.values())

    def all(self, visible_from: datetime | None) -> Iterator[TransactionLife]:
        """Yield what the log lists, in its order, then what only the ledger knows."""
        listed = self._listed()
        marked = pa.array([], pa.string())
        if self.ledger:
            marks = self.ledger.marks.table([self.dataset], STATUSES, columns=("id", "transaction"))
            marked = marks.sort_by("id")["transaction"].unique()
        unlisted = marked.filter(pc.invert(pc.is_in(marked, value_set=join_chunks(listed["transaction"]))))
        sure: Bools = np.ones(len(listed), dtype=bool)
        if visible_from is not None:
            # A transaction that the ledger knows is listed unless it ended before the mark. What a hold keeps can be read by
            # name.
            visible = _visible_rows(self._rows, self._views, visible_from) | _held_rows(self._rows, self.holds)
            seen = visible | flags(pc.is_in(listed["transaction"], value_set=marked))
            self.hidden = int((~seen).sum())
            listed, sure = listed.filter(pa.array(seen)), visible[seen]
        for start in range(0, len(listed), _AT_ONCE):
            lives = self._lives(listed.slice(start, _AT_ONCE).to_pylist())
            if visible_from is None:
                yield from lives
            else:
                yield from self._recent(zip(lives, sure[start : start + _AT_ONCE].tolist(), strict=True), visible_from)
        lives = self._lives({"transaction": name} for name in unlisted.to_pylist())
        yield from lives if visible_from is None else self._recent(zip(lives, repeat(False)), visible_from)

    def _recent(self, lives: Iterable[tuple[TransactionLife, bool]], visible_from: datetime) -> Iterator[TransactionLife]:
        for life, is_sure in lives:
            if is_sure or (life.mark is not None and not (life.ended_at and life.ended_at < visible_from)):
                yield life
            else:
                self.hidden += 1

    def _listed(self) -> pa.Table:
        return self._rows.select(_COLUMNS).append_column("protected_by", self._views["protected_by"])

    @cached_property
    def _rows(self) -> pa.Table:
        return self.log.transactions if self.log else LOG.empty_table()

    @cached_property
    def _views(self) -> pa.Table:
        return branch_views(self._rows, self.as_of)

    def _lives(self, rows: Iterable[dict[str, Any]]) -> Iterator[TransactionLife]:
        left = iter(rows)
        while batch := list(islice(left, _AT_ONCE)):
            names = [row["transaction"] for row in batch]
            histories = self.ledger.histories.of(self.dataset, names) if self.ledger else {}
            swept = [name for name, marks in histories.items() if marks[-1].is_deleted]
            there = frozenset(self.find_data(swept)) if self.find_data else ()
            for row in batch:
                life = TransactionLife(**row, in_log="type" in row, marks=histories.get(row["transaction"], ()))
                again = life.in_log and life.mark is not None and life.transaction in there
                life = replace(life, there_again=again)
                fate = self.fates.of({**vars(life.mark), "dataset": self.dataset}) if self.fates and life.mark else None
                if fate and life.mark:
                    life = replace(life, marks=(*life.marks[:-1], replace(life.mark, due_at=fate.at)))
                yield life_of(self.dataset, life, self.holds, self.as_of, fate.spared if fate else None)

    def _unknown(self, name: str, known: Sequence[str]) -> Problem:
        where = f"the log of {self.dataset}" if self.log else "any log that was named"
        return Problem(f"transaction '{name}' was never marked, and is not in {where}", remedy=did_you_mean(name, known))
