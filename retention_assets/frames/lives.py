"""Tell a reused id from the transaction that was marked or swept, by opening and closing time to the microsecond.

Databases reuse ids, and so may a rewritten log.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, as_micros, flags, keys_of

TIMES = ("opened_at", "closed_at")


def is_same_life(marks: pa.Table, rows: pa.Table) -> Bools:
    """For each mark, tell whether the row beside it is the transaction that was marked.

    A mark without both times counts as a mark of whatever is there.
    """
    noted, found = ([as_micros(table[name]) for name in TIMES] for table in (marks, rows))
    unknown: Bools = np.logical_and.reduce([times == NEVER for times in noted])
    same: Bools = np.logical_and.reduce([before == now for before, now in zip(noted, found, strict=True)])
    return unknown | same


def is_in_log(marks: pa.Table, log: pa.Table) -> Bools:
    """For each mark, tell whether a log still has that transaction; under its id it may have another one."""
    at = pc.index_in(keys_of(marks), value_set=keys_of(log))
    found = flags(pc.is_valid(at))
    rows = log.select(TIMES).take(at.drop_null())
    found[found] = is_same_life(marks.filter(pa.array(found)), rows)
    return found
