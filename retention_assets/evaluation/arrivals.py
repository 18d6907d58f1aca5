"""What arrives in the days to come: each dataset repeats its recent history, again and again.

Belongs here: the rhythm of a dataset, the transactions that follow from it, and the log as it will be on a day. What is assumed
is said in docs/forecast.md. Nothing is random: the same log and instant give the same days.
Does not belong here: what becomes of them (forecast.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Ints, as_micros, flags, from_micros, integers, join_chunks
from retention_assets.frames.grouping import bounds_of
from retention_assets.frames.log import LOG
from retention_assets.policy.fields import INDEPENDENT

DAY = 86_400_000_000
# The recent history is the shortest of these, in weeks, in which so many transactions arrived; else the last of them.
_WEEKS, _ENOUGH = (4, 13, 52), 4
# A dataset that is silent for so many times its longest recent pause has gone quiet.
_PAUSES = 2
# Where these are, they are the trunk: a history is theirs before it is any other branch's, and is never begun anew.
_TRUNKS = ("main", "master")
_MOVED = ("opened_at", "closed_at", "archived_at")


def period_of(times: Ints, as_of: int) -> int | None:
    """After how long a dataset repeats itself, in whole days; None if nothing more is to be expected of it.

    `times` are those at which its transactions arrived, in order, none later than `as_of`.
    """
    if len(times) < 2:
        return None
    windows = [weeks * 7 * DAY for weeks in _WEEKS]
    firsts = np.searchsorted(times, [as_of - window for window in windows]).tolist()
    enough = (number for number, first in enumerate(firsts) if len(times) - first >= _ENOUGH)
    number = next(enough, len(windows) - 1)
    first, window = firsts[number], windows[number]
    # With the pause before the first of them: of a single one it is all that is known.
    pauses = np.diff(times[max(first - 1, 0) :])
    if first == len(times) or as_of - int(times[-1]) > _PAUSES * int(pauses.max()):
        return None
    # A dataset that is younger has no history to repeat from before it was there.
    return min(window, max(-(-(as_of - int(times[0])) // DAY), 1) * DAY)


class _Copies(NamedTuple):
    """Transactions to come: the row that each repeats, how often it was repeated before, when it arrives, and its branch."""

    source: Ints
    turn: Ints
    at: Ints
    branch: Ints


@dataclass
class FutureLog:
    """Whole datasets of a sound log with what will arrive in them, as one table; and what was deleted of it so far.

    `rows` has base rows and those to come, dataset by dataset, parents before children.
    """

    rows: pa.Table
    dataset: Ints
    # NEVER: it is there already.
    arrives: Ints
    parent: Ints
    # By branch its name and the row at its head, -1 where it is still to come; and by row to come the branch that it extends.
    branch_names: list[str]
    heads: Ints
    branch: Ints
    # Where a gap is left by what was deleted, the history begins anew, instead of joining what is left.
    begins_anew: bool = False
    deleted: Bools = field(init=False)
    _present: Bools | None = None
    _table: pa.Table | None = None

    def __post_init__(self) -> None:
        self.deleted = np.zeros(len(self.arrives), dtype=bool)

    def at(self, instant: int) -> tuple[Ints, pa.Table]:
        """The log at an instant, and which of all rows its rows are."""
        present = (self.arrives <= instant) & ~self.deleted
        if self._table is None or self._present is None or not np.array_equal(present, self._present):
            self._present, self._table = present, self._log_of(present, self.arrives <= instant)
        return np.flatnonzero(present), self._table

    def _log_of(self, present: Bools, arrived: Bools) -> pa.Table:
        at = np.flatnonzero(present)
        place = np.cumsum(present) - 1
        dataset = self.dataset[at]
        starts = np.searchsorted(dataset, dataset)
        parent = self._remaining_parents(present)[at]
        table = self.rows if len(at) == len(present) else self.rows.take(pa.array(at)).combine_chunks()
        columns = {
            "ordinal": pa.array((np.arange(len(at)) - starts).astype(np.int32)),
            "parent_ordinal": pa.array(np.where(parent < 0, -1, place[parent] - starts).astype(np.int32)),
            "heads": self._heads_of(present, arrived, at, place),
        }
        for name, column in columns.items():
            table = table.set_column(table.column_names.index(name), LOG.field(name), column)
        return table

    def _remaining_parents(self, present: Bools) -> Ints:
        if not self.deleted.any():
            return self.parent
        if self.begins_anew:
            return np.where((self.parent >= 0) & present[self.parent], self.parent, -1)
        # A place of its own for "no parent", which leads to itself.
        up = np.append(np.where(present, np.arange(len(present)), self.parent), -1)
        while not np.array_equal(further := up[up], up):
            up = further
        return up[self.parent]

    def _heads_of(self, present: Bools, arrived: Bools, at: Ints, place: Ints) -> pa.Array:
        """The branches at each row. One whose head was deleted is gone with it."""
        heads = self.heads.copy()
        new = np.flatnonzero(arrived & (self.branch >= 0))
        np.maximum.at(heads, self.branch[new], new)
        branches = np.flatnonzero((heads >= 0) & present[heads]) if len(heads) else heads
        branches = branches[np.argsort(heads[branches], kind="stable")]
        counts = np.bincount(place[heads[branches]], minlength=len(at))
        names = pa.array(self.branch_names, pa.string()).take(pa.array(branches))
        return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(counts)).astype(np.int32)), names)


def future_log(log: pa.Table, as_of: int, until: int, columns: Iterable[str], begins_anew: bool = False) -> FutureLog:
    """Some datasets (rows of LOG) with what arrives in them after one instant up to another; nothing if that is the same.

    Only the columns named are carried, besides those that every history needs.
    """
    history = _BranchedLog.of(log)
    copies = _join(list(_repeated(history, log, as_of, until)))
    wanted = set(columns)
    table = log.select([name for name in LOG.names if name in wanted])
    if not len(copies.source):
        arrives = np.full(len(log), NEVER)
        return FutureLog(table, history.dataset, arrives, history.parent, history.names, history.heads,
                         np.full(len(log), -1), begins_anew)  # fmt: skip
    branch, names, heads = _begin_branches(history, copies)
    dataset = np.concatenate([history.dataset, history.dataset[copies.source]])
    order = np.argsort(dataset, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    parent = np.concatenate([history.parent, _parents(branch, heads, len(log))])
    parent = np.where(parent < 0, -1, place[parent])[order]
    rows = pa.concat_tables([table, _copied(log, table, copies)]).unify_dictionaries().take(pa.array(order)).combine_chunks()
    none = np.full(len(log), -1)
    return FutureLog(
        rows, dataset[order], np.concatenate([np.full(len(log), NEVER), copies.at])[order], parent, names,
        np.where(heads < 0, -1, place[heads]), np.concatenate([none, branch])[order], begins_anew,
    )  # fmt: skip


@dataclass(frozen=True)
class _BranchedLog:
    """Where each row of a log lies. Rows and parents are numbered through all datasets."""

    bounds: Ints
    dataset: Ints
    parent: Ints
    # By branch.
    names: list[str]
    heads: Ints
    # The branch that each row is repeated on, -1 if none; and whether it belongs to no branch anyway.
    branch: Ints
    independent: Bools
    root: Ints

    @classmethod
    def of(cls, log: pa.Table) -> "_BranchedLog":
        bounds = bounds_of(log)
        sizes = np.diff(bounds)
        dataset = np.repeat(np.arange(len(sizes)), sizes)
        parent = integers(log["parent_ordinal"], -1).astype(np.int64)
        parent = np.where(parent < 0, -1, parent + np.repeat(bounds[:-1], sizes))
        lists = join_chunks(log["heads"])
        heads, names = pc.list_parent_indices(lists).to_numpy().astype(np.int64), lists.flatten().to_pylist()
        independent = flags(pc.is_in(log["type"].cast(pa.string()), pa.array(INDEPENDENT)))
        root = np.where(parent < 0, np.arange(len(parent)), parent)
        while not np.array_equal(further := root[root], root):
            root = further
        aborted = flags(pc.equal(log["status"].cast(pa.string()), "ABORTED")) & (parent >= 0)
        return cls(bounds, dataset, parent, names, heads, _branches(parent, names, heads, aborted), independent, root)

    def begins_again(self, rows: Ints) -> Bools:
        """Of rows that are repeated those whose whole history is: it has a branch of its own, and others are older."""
        trunk = np.array([name in _TRUNKS for name in self.names], dtype=bool)
        roots = np.bincount(self.dataset[(self.parent < 0) & ~self.independent], minlength=len(self.bounds) - 1)
        repeated = np.zeros(len(self.parent), dtype=bool)
        repeated[rows] = True
        mine = repeated[self.root[rows]] & (roots[self.dataset[rows]] > 1) & ~self.independent[rows]
        mine[mine] &= ~trunk[self.branch[rows[mine]]]
        return mine


def _branches(parent: Ints, names: list[str], heads: Ints, aborted: Bools) -> Ints:
    """The branch of each row: the trunk before others, then by name. What was aborted lies where its parent does."""
    above = parent.tolist()
    found = [-1] * len(above)
    for number in sorted(range(len(names)), key=lambda number: (names[number] not in _TRUNKS, names[number])):
        row = int(heads[number])
        while row >= 0 and found[row] < 0:
            found[row] = number
            row = above[row]
    for row in np.flatnonzero(aborted).tolist():
        if found[row] < 0:
            found[row] = found[above[row]]
    return np.array(found, dtype=np.int64)


def _repeated(history: _BranchedLog, log: pa.Table, as_of: int, until: int) -> Iterator[_Copies]:
    """What arrives in each dataset. What is not closed has not arrived, and what no branch holds is not repeated."""
    closed = np.where(flags(pc.equal(log["status"].cast(pa.string()), "OPEN")), NEVER, as_micros(log["closed_at"]))
    arrived = (closed != NEVER) & (closed <= as_of) & (history.independent | (history.branch >= 0))
    for begin, end in zip(history.bounds[:-1].tolist(), history.bounds[1:].tolist(), strict=True):
        rows = begin + np.flatnonzero(arrived[begin:end])
        rows = rows[np.argsort(closed[rows], kind="stable")]
        period = period_of(closed[rows], as_of)
        if period is None:
            continue
        # Of both ends of the period one: what arrived at its very beginning would also arrive now.
        ends_now = closed[rows[-1]] == as_of
        mine = rows[closed[rows] > as_of - period] if ends_now else rows[closed[rows] >= as_of - period]
        turns = np.repeat(np.arange(1, (until - as_of) // period + 2), len(mine))
        source = np.tile(mine, len(turns) // len(mine))
        at = closed[source] + turns * period
        due = np.flatnonzero((at > as_of) & (at <= until))
        yield _Copies(source[due], turns[due], at[due], history.branch[source[due]])


def _join(parts: list[_Copies]) -> _Copies:
    nothing = np.array([], dtype=np.int64)
    return _Copies(*(np.concatenate(columns) for columns in zip(_Copies(*[nothing] * 4), *parts, strict=True)))


def _begin_branches(history: _BranchedLog, copies: _Copies) -> tuple[Ints, list[str], Ints]:
    """The branch of each copy, and all branches with those that begin."""
    again = history.begins_again(copies.source)
    keys = copies.branch[again] * (int(copies.turn.max()) + 1) + copies.turn[again]
    new, which = np.unique(keys, return_inverse=True)
    branch = copies.branch.copy()
    branch[again] = len(history.names) + which
    old, turns = np.divmod(new, int(copies.turn.max()) + 1)
    names = [f"{history.names[number]}+{turn}" for number, turn in zip(old.tolist(), turns.tolist(), strict=True)]
    return branch, history.names + names, np.append(history.heads, np.full(len(new), -1))


def _parents(branch: Ints, heads: Ints, base: int) -> Ints:
    """The parent of each copy: the one before it on its branch, or the head of today. Copies are numbered from `base`."""
    order = np.argsort(branch, kind="stable")
    mine = branch[order]
    follows = np.append(False, mine[1:] == mine[:-1])
    before = np.where(follows, base + np.append(-1, order[:-1]), np.append(heads, -1)[mine])
    parent = np.empty(len(branch), dtype=np.int64)
    parent[order] = np.where(mine < 0, -1, before)
    return parent


def _copied(log: pa.Table, table: pa.Table, copies: _Copies) -> pa.Table:
    """The copies as rows: what they repeat, under names of their own, at their time, with nothing pointing at them."""
    made = table.take(pa.array(copies.source))
    turn = pa.array(copies.turn).cast(pa.string())
    columns = {"transaction": pc.binary_join_element_wise(made["transaction"], turn, "+")}
    moved = copies.at - as_micros(log["closed_at"])[copies.source]
    for name in _MOVED:
        if name in made.column_names:
            times = as_micros(made[name])
            columns[name] = from_micros(np.where(times == NEVER, NEVER, times + moved))
    if "file_names" in made.column_names:
        columns["file_names"] = _renamed(log, copies)
    for name in ("heads", "tags", "tag_expiries"):
        offsets = pa.array(np.zeros(len(made) + 1, dtype=np.int32))
        columns[name] = pa.ListArray.from_arrays(offsets, pa.array([], LOG.field(name).type.value_type))
    for name, column in columns.items():
        made = made.set_column(made.column_names.index(name), table.schema.field(name), column)
    return made


def _renamed(log: pa.Table, copies: _Copies) -> pa.Array:
    """The files of copies. What only the repeated history has is a new file each time; what is older is written over."""
    lists = join_chunks(log["file_names"])
    files = pa.table({"row": pc.list_parent_indices(lists), "name": lists.flatten()})
    repeated = np.zeros(len(lists), dtype=bool)
    repeated[copies.source] = True
    dataset = pc.take(join_chunks(log["dataset"]).indices.cast(pa.string()), files["row"])
    keys = join_chunks(pc.binary_join_element_wise(dataset, files["name"], "/"))
    older = pc.is_in(keys, value_set=keys.filter(pa.array(~repeated[files["row"].to_numpy()])))
    lengths = integers(pc.list_value_length(lists), 0).astype(np.int32)
    offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    is_older = pa.ListArray.from_arrays(offsets, older, mask=lists.is_null()).take(pa.array(copies.source))
    made = lists.take(pa.array(copies.source))
    turn = pa.array(copies.turn[pc.list_parent_indices(made).to_numpy()]).cast(pa.string())
    names = made.flatten()
    words = pc.if_else(is_older.flatten(), names, pc.binary_join_element_wise(names, turn, "+"))
    ends = np.cumsum(integers(pc.list_value_length(made), 0))
    return pa.ListArray.from_arrays(pa.array(np.append(0, ends).astype(np.int32)), words, mask=made.is_null())
