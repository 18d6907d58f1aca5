"""Data that transactions share: what would go with each of them, who needs the rest, and what has to go together.

A store whose transactions share data writes into its log how long each piece of it lives (LIVES), as a number of rows from the
transaction that adds it. Pieces that something outside of the log needs are left out; CLAIMED names what needs them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, join_chunks, keys_of
from retention_assets.frames.log import SHARED_DATA, attribute_of, bounds_of, is_in_log

# attributes of a transaction: lives of the pieces that it adds, such as `1,3,*`; what else needs data of it; and the number of
# pieces that are not there
LIVES, CLAIMED, MISSING = "data.lives", "data.claimed", "data.missing"
# a piece that lives in the newest transaction
FOR_EVER = "*"


@dataclass(frozen=True)
class SharedData:
    """Pieces of data in the order of a log: the rows from `begin` up to `end` have a piece."""

    begin: Ints
    end: Ints
    # rows of datasets that share data, but for DELETEs, which own none; and those whose data is all there
    rows: Bools
    whole: Bools
    claimed: pa.Array
    transactions: pa.Array
    # by row, a word for a transaction such as `version`; null in datasets that share nothing
    nouns: pa.Array
    # rows that were swept, and those that are marked
    swept: Bools
    marked: Bools

    @classmethod
    def of(cls, log: pa.Table, datasets: pa.Table, known: pa.Table) -> Self | None:
        """Read the pieces of a log, of which `known` are marked or `swept`; None where no dataset shares data."""
        shared = dict(zip(datasets["dataset"].to_pylist(), attribute_of(datasets, SHARED_DATA).to_pylist(), strict=True))
        if not any(shared.values()) or not len(log):
            return None
        swept, marked = known.filter(known["swept"]), known.filter(pc.invert(known["swept"]))
        swept = swept.filter(pa.array(is_in_log(swept, log), pa.bool_()))
        bounds = bounds_of(log)
        sizes, names = np.diff(bounds), log["dataset"].take(pa.array(bounds[:-1])).cast(pa.string()).to_pylist()
        nouns = pa.array([shared.get(name) for name in names], pa.string()).take(np.repeat(np.arange(len(sizes)), sizes))
        lives = pc.split_pattern(attribute_of(log, LIVES), ",")
        begin = pc.list_parent_indices(lives).to_numpy().astype(np.int64)
        texts = pc.list_flatten(lives)
        length = pc.if_else(pc.equal(texts, FOR_EVER), pa.scalar(str(len(log))), texts).cast(pa.int64()).to_numpy()
        end = np.minimum(begin + length, np.repeat(bounds[1:], sizes)[begin])
        is_whole, owns_data = pc.is_null(attribute_of(log, MISSING)), pc.not_equal(log["type"].cast(pa.string()), "DELETE")
        rows, names = flags(pc.and_(pc.is_valid(nouns), owns_data)), join_chunks(log["transaction"])
        states = (flags(pc.is_in(keys_of(log), value_set=keys_of(marks))) for marks in (swept, marked))
        return cls(begin, end, rows, flags(is_whole), attribute_of(log, CLAIMED), names, nouns, *states)

    def retained(self, going: Bools, protected: Bools, is_aside: Bools | None = None) -> Bools:
        """Rows that need their data: all but those that go, are marked, or were swept; of these what is protected, and what was
        deleted and is whole again.
        """
        is_back = self.swept & self.whole & (True if is_aside is None else ~is_aside)
        kept: Bools = self.rows & (~(going | self.marked | self.swept) | protected | is_back)
        return kept

    def frees(self, kept: Bools) -> Bools:
        """Rows with a piece that no kept row has, and all of datasets that share nothing."""
        free = self._free(kept)
        frees: Bools = self._covered(self.begin[free], self.end[free]) | flags(pc.is_null(self.nouns))
        return frees

    def groups(self, kept: Bools, going: Bools) -> Ints:
        """Number the rows that go: those that share a piece which no kept row has get the same number."""
        at, free = np.flatnonzero(going), self._free(kept)
        first, last = np.searchsorted(at, self.begin[free]), np.searchsorted(at, self.end[free]) - 1
        # what has a piece stands together among what goes
        joined = _covered(len(at), first[first < last], last[first < last])
        return np.concatenate([[0], np.cumsum(~joined[:-1])])[: len(at)].astype(np.int64)

    def needers(self, kept: Bools, at: Ints) -> Iterator[str]:
        """Say of each of these rows who needs all of its data, as words within a sentence."""
        for row, holders in zip(at.tolist(), self.holders(kept, at), strict=True):
            claimed = self.claimed[row].as_py()
            needers = [*map(self.name, holders), *([claimed] if claimed else [])]
            verb = "needs" if len(needers) == 1 else "need"
            yield f"{' and '.join(needers)} {verb} all of its files" if needers else "it has no files"

    def name(self, row: int) -> str:
        return f"{self.nouns[row].as_py()} {self.transactions[row].as_py()}"

    def holders(self, kept: Bools, at: Ints) -> Iterator[Sequence[int]]:
        """Yield for each of these rows the kept rows that together have all of its data: one, two, or none if it has none."""
        rows = np.flatnonzero(kept)
        after, before = np.searchsorted(rows, at, side="right"), np.searchsorted(rows, at) - 1
        next_kept = np.append(rows, len(kept))[np.searchsorted(rows, self.begin)]
        last_kept = np.concatenate([[-1], rows])[np.searchsorted(rows, self.end)]
        ends_before_next = self._covered(np.maximum(self.begin, last_kept + 1), self.end)
        begins_after_last = self._covered(self.begin, np.minimum(self.end, next_kept))
        has_data = self._covered(self.begin, self.end)
        for row, newer, older in zip(at.tolist(), after.tolist(), before.tolist(), strict=True):
            if not has_data[row]:
                yield ()
            elif not ends_before_next[row]:
                yield (int(rows[newer]),)
            else:
                yield (int(rows[older]), int(rows[newer])) if begins_after_last[row] else (int(rows[older]),)

    def _free(self, kept: Bools) -> Bools:
        so_far = np.concatenate([[0], np.cumsum(kept)])
        free: Bools = so_far[self.begin] == so_far[self.end]
        return free

    def _covered(self, begin: Ints, end: Ints) -> Bools:
        return _covered(len(self.rows), begin[begin < end], end[begin < end])


def datasets_sharing(datasets: pa.Table) -> frozenset[str]:
    return frozenset(datasets["dataset"].filter(pc.is_valid(attribute_of(datasets, SHARED_DATA))).to_pylist())


def _covered(size: int, begin: Ints, end: Ints) -> Bools:
    change = np.zeros(size + 1, dtype=np.int64)
    np.add.at(change, begin, 1)
    np.add.at(change, end, -1)
    covered: Bools = np.cumsum(change)[:size] > 0
    return covered
