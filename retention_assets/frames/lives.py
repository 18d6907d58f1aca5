"""Lives: an id may come again, and then it is another transaction than the one that was marked or swept under it.

Belongs here: telling the two apart by when they were opened and closed, to the microsecond. Databases use ids again, and so may
whoever rewrites a log.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, as_micros, flags, keys_of

TIMES = ("opened_at", "closed_at")


def is_same_life(marks: pa.Table, rows: pa.Table) -> Bools:
    """For each mark whether the row of the log beside it is what was marked.

    A mark that knows neither time counts as a mark of whatever is there.
    """
    noted, found = ([as_micros(table[name]) for name in TIMES] for table in (marks, rows))
    unknown: Bools = np.logical_and.reduce([times == NEVER for times in noted])
    same: Bools = np.logical_and.reduce([before == now for before, now in zip(noted, found, strict=True)])
    return unknown | same


def is_in_log(marks: pa.Table, log: pa.Table) -> Bools:
    """For each mark whether a log has what was marked; under its id it may have another one."""
    at = pc.index_in(keys_of(marks), value_set=keys_of(log))
    found = flags(pc.is_valid(at))
    rows = log.select(TIMES).take(at.drop_null())
    found[found] = is_same_life(marks.filter(pa.array(found)), rows)
    return found
