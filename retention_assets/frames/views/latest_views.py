"""Latest views once more: computed as naively as can be, to hold marks against.

Belongs here: a walk back from each head, and which marks it meets. It shares nothing with what decides who is protected, so
that a fault there is not repeated here. Each transaction is walked over once, however many branches have it.
Does not belong here: any rule of a policy but the one that lets it select in latest views.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.policy.purge import realm_of

# What the walk needs of a log.
COLUMNS = ("dataset", "transaction", "ordinal", "parent_ordinal", "type", "status", "heads")

# One row per dataset with marks that its readers need: how many, and one of them with the branch that has it.
NEEDED = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("marks", pa.int64()),
        pa.field("transaction", pa.string()),
        pa.field("branch", pa.string()),
        pa.field("policy", pa.string()),
    ]
)

_NONE = -1


def latest_views(log: pa.Table) -> tuple[npt.NDArray[np.int32], list[str]]:
    """For each row of a sound log the number of a live branch with the row in its latest view, or -1; and the branches' names.

    Back from the head over what is COMMITTED, up to and with the SNAPSHOT that began the view, or to the root.
    """
    ordinal, parent = (log[name].to_numpy() for name in ("ordinal", "parent_ordinal"))
    kind, status = (log[name].cast(pa.string()) for name in ("type", "status"))
    in_views = pc.and_(pc.equal(status, "COMMITTED"), pc.invert(pc.is_in(kind, pa.array(["RECORD", "OBJECT"]))))
    committed, snapshot = in_views.to_numpy(), pc.equal(kind, "SNAPSHOT").to_numpy()
    heads = np.flatnonzero(pc.fill_null(pc.list_value_length(log["heads"]), 0).to_numpy()).tolist()
    walked = np.zeros(len(log), dtype=bool)
    found = np.full(len(log), _NONE, dtype=np.int32)
    for branch, row in enumerate(heads):
        # Who walked here before went on from here as this walk would.
        while not walked[row]:
            walked[row] = True
            if committed[row]:
                found[row] = branch
            if (committed[row] and snapshot[row]) or parent[row] < 0:
                break
            row += int(parent[row]) - int(ordinal[row])
    return found, [log["heads"][head][0].as_py() for head in heads]


def needed_marks(log: pa.Table, marks: pa.Table, allowed: Collection[tuple[str, int]]) -> pa.Table:
    """The marks (columns of a new mark) of some sound logs that lie in a latest view and may not, by dataset.

    A mark may if it says so itself and its policy version is one of `allowed`, or if it purges a realm.
    """
    if not len(marks):
        return NEEDED.empty_table()
    found, branches = latest_views(log)
    there = np.flatnonzero(found != _NONE)
    rows = log.select(["dataset", "transaction"]).take(pa.array(there))
    at = pc.index_in(_keys(rows), value_set=_keys(marks).combine_chunks())
    bad: dict[str, dict[str, object]] = {}
    counts: dict[str, int] = {}
    met = np.flatnonzero(pc.is_valid(at).to_numpy())
    for row, mark in zip(there[met].tolist(), marks.take(at.drop_null()).to_pylist(), strict=True):
        if realm_of(mark["policy"]) is not None:
            continue
        if mark["reason"] == Reason.LATEST_VIEW_ALLOWED.name and (mark["policy"], mark["policy_version"]) in allowed:
            continue
        counts[mark["dataset"]] = counts.get(mark["dataset"], 0) + 1
        one = {name: mark[name] for name in ("dataset", "transaction", "policy")}
        bad.setdefault(mark["dataset"], {**one, "branch": branches[found[row]]})
    return pa.Table.from_pylist([{**one, "marks": counts[name]} for name, one in bad.items()], schema=NEEDED)


def _keys(table: pa.Table) -> pa.ChunkedArray:
    """Dataset and transaction as one text. No name holds the character between them."""
    return pc.binary_join_element_wise(table["dataset"].cast(pa.string()), table["transaction"], "\0")
