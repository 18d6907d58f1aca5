"""Lines of what lies on no branch: RECORDs, OBJECTs, and a log without live branches (design section 4).

A log is a line by the order of its rows; RECORDs and OBJECTs by their closing, those of one instant by name.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, join_chunks
from retention_assets.frames.log import CLASS
from retention_assets.frames.views.history import COMMITTED, DELETE, TYPES, History

OBJECT = TYPES.index("OBJECT")
# The classes of a scan whose OBJECTs are their line, at any size of the store.
_ON_LINE = ("unreferenced", "realm_purge")


class Line:
    """The lines of a batch, in chain order. `live` are the rows on a live branch."""

    def __init__(self, history: History, live: Bools) -> None:
        self._history = history
        bare = ~np.logical_or.reduceat(live, history.starts)
        self.rows: Bools = history.independent | history.per_dataset(bare)

    @cached_property
    def committed(self) -> Bools:
        """Rows that count where every commit does. An OBJECT in another class of a scan is on no line."""
        history = self._history
        committed: Bools = self.rows & (history.status == COMMITTED)
        if (history.type == OBJECT).any() and "attributes" in history.log.column_names:
            said = pc.map_lookup(join_chunks(history.log["attributes"]), pa.scalar(CLASS), "first")
            elsewhere = history.column(~flags(pc.or_(pc.is_null(said), pc.is_in(said, value_set=pa.array(_ON_LINE)))))
            committed &= ~(elsewhere & (history.type == OBJECT))
        return committed

    @cached_property
    def data(self) -> Bools:
        data: Bools = self.committed & (self._history.type != DELETE)
        return data

    def newer(self, counted: Bools) -> Ints:
        """Number of newer rows that count; meaningless for rows that do not count."""
        history = self._history
        at = np.flatnonzero(counted)
        kind = np.where(history.independent, history.type, 0)
        line = (history.per_dataset(np.arange(len(history.starts))) * len(TYPES) + kind)[at]
        time = np.where(history.independent, history.closed, history.rows)[at]
        order = np.lexsort((time, line))
        equal = (np.diff(line[order]) == 0) & (np.diff(time[order]) == 0)
        if equal.any():
            tied = order[np.append(equal, False) | np.append(False, equal)]
            name = np.zeros(len(at), dtype=np.int64)
            names = history.log["transaction"].take(pa.array(history.rows[at[tied]]))
            name[tied[np.asarray(pc.sort_indices(names))]] = np.arange(len(tied))
            order = np.lexsort((name, time, line))
        ends = np.searchsorted(line[order], line[order], side="right")
        newer = np.zeros(len(history), dtype=np.int64)
        newer[at[order]] = ends - 1 - np.arange(len(at))
        return newer
