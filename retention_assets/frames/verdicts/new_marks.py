"""Project verdicts to new marks: transaction, version of the policy, reason and grace. The ledger knows what is marked
already.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.lives import TIMES
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.policy.model import Policy


def new_marks(verdicts: pa.Table, log: pa.Table, policies: Sequence[Policy], versions: Mapping[str, int]) -> pa.Table:
    """One row per transaction whose verdict is `mark`, with its times and its size as the log has them, beside its verdict.

    A policy of no version can't be named in a mark, and is a fault.
    """
    is_mark = pc.equal(join_chunks(verdicts["verdict"]).cast(pa.string()), "mark")
    rows = verdicts.filter(is_mark)
    names = join_chunks(rows["policy"]).cast(pa.string())
    about = pa.array([policy.name for policy in policies], pa.string())
    place = pc.index_in(names, value_set=about)
    numbers = pa.array([versions[policy.name] for policy in policies], pa.int32())
    graces = pa.array([str(policy.grace) for policy in policies], pa.string())
    return pa.table(
        {
            "dataset": rows["dataset"].cast(pa.string()),
            "transaction": rows["transaction"],
            "policy": names,
            "policy_version": numbers.take(place),
            "reason": _code(rows),
            "grace": graces.take(place),
            **{name: log[name].filter(is_mark) for name in ("bytes", *TIMES)},
        }
    )


def _code(rows: pa.Table) -> pa.Array:
    """The last reason of a mark says more than that the policy selects it."""
    lists = join_chunks(rows["reasons"])
    ends = lists.offsets.to_numpy()[1:] - 1
    codes = join_chunks(lists.values.field("code")).cast(pa.string()).take(pa.array(ends.astype(np.int64)))
    said = pa.array([Reason.LATEST_VIEW_ALLOWED.name, Reason.EXPIRED_REF.name])
    return pc.if_else(pc.is_in(codes, said), codes, pa.scalar(Reason.SELECTED.name)).cast(pa.string())
