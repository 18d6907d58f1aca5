"""Independent check of marks against latest views, by a walk back from each head.

It shares no code with what decides who is protected, so that a fault there is not repeated here. Each transaction is walked
over once, however many branches have it.
"""

from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.policy.realms import realm_of

# columns of a log that the walk needs
COLUMNS = ("dataset", "transaction", "ordinal", "parent_ordinal", "type", "status", "heads", "closed_at")

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
_MAX_REF_AGE = "max-ref-age-ms"


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
    branch_of = np.full(len(log), _NONE, dtype=np.int32)
    for branch, row in enumerate(heads):
        # An earlier walk went on from here as this one would.
        while not walked[row]:
            walked[row] = True
            if committed[row]:
                branch_of[row] = branch
            if (committed[row] and snapshot[row]) or parent[row] < 0:
                break
            row += int(parent[row]) - int(ordinal[row])
    return branch_of, [log["heads"][head][0].as_py() for head in heads]


def without_ended(log: pa.Table, datasets: pa.Table, as_of: datetime) -> pa.Table:
    """Remove the branches that are past the age that their dataset gives them; `main` never is."""
    ages = {row["dataset"]: dict(row["attributes"] or ()) for row in datasets.select(["dataset", "attributes"]).to_pylist()}
    ages = {name: own for name, own in ages.items() if any(key.endswith(_MAX_REF_AGE) for key in own)}
    if not ages:
        return log
    heads = [
        [name for name in row["heads"] or () if not _is_over(ages.get(row["dataset"], {}), name, row["closed_at"], as_of)]
        for row in log.select(["dataset", "heads", "closed_at"]).to_pylist()
    ]
    return log.set_column(log.column_names.index("heads"), "heads", pa.array(heads, pa.list_(pa.string())))


def _is_over(attributes: dict[str, str], branch: str, made: datetime | None, as_of: datetime) -> bool:
    text = attributes.get(
        f"history.expire.branch.{branch}.{_MAX_REF_AGE}", attributes.get(f"history.expire.{_MAX_REF_AGE}", "")
    )
    # An age of more digits ends after all times that there are.
    if branch == "main" or made is None or not (text.isascii() and text.isdecimal() and len(text) < 15 and int(text)):
        return False
    return (as_of - made) // timedelta(milliseconds=1) > int(text)


def rows_in_views(log: pa.Table) -> pa.Table:
    """Return the keys of rows in a latest view, each with a branch that has it."""
    branch_of, branches = latest_views(log)
    there = np.flatnonzero(branch_of != _NONE)
    rows = log.select(["dataset", "transaction"]).take(pa.array(there))
    named = pa.DictionaryArray.from_arrays(pa.array(branch_of[there], pa.int32()), pa.array(branches, pa.string()))
    return pa.table({"key": _keys(rows), "branch": named})


def needed_marks(
    marks: pa.Table,
    allowed: Collection[tuple[str, int]],
    dropping: Collection[tuple[str, int]],
    views: Callable[[], pa.Table],
    remaining: Callable[[], pa.Table],
) -> pa.Table:
    """Marks (columns of a new mark) that lie in a latest view and may not, by dataset; `views` are the `rows_in_views`.

    A mark may if its reason says so and its policy version is one of `allowed`, or if it purges a realm. A mark whose reason is
    an ended ref, by a version of `dropping`, is checked against the views `remaining` without ended branches.
    """
    versions = zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True)
    says_over = pc.equal(marks["reason"], Reason.EXPIRED_REF.name).to_pylist()
    drops = pa.array(
        [is_over and version in dropping for is_over, version in zip(says_over, versions, strict=True)], pa.bool_()
    )
    parts = [(views, marks.filter(pc.invert(drops))), (remaining, marks.filter(drops))]
    needed = [row for view, part in parts if len(part) for row in _needed(view(), part, allowed)]
    counts: dict[str, int] = {}
    for row in needed:
        counts[row["dataset"]] = counts.get(row["dataset"], 0) + 1
    first = {row["dataset"]: row for row in reversed(needed)}
    return pa.Table.from_pylist([{**row, "marks": counts[name]} for name, row in reversed(first.items())], schema=NEEDED)


def _needed(views: pa.Table, marks: pa.Table, allowed: Collection[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    at = pc.index_in(views["key"], value_set=_keys(marks).combine_chunks())
    branches = views["branch"].filter(pc.is_valid(at)).to_pylist()
    for branch, mark in zip(branches, marks.take(at.drop_null()).to_pylist(), strict=True):
        if realm_of(mark["policy"]) is not None:
            continue
        if mark["reason"] == Reason.LATEST_VIEW_ALLOWED.name and (mark["policy"], mark["policy_version"]) in allowed:
            continue
        yield {**{name: mark[name] for name in ("dataset", "transaction", "policy")}, "branch": branch}


def _keys(table: pa.Table) -> pa.ChunkedArray:
    # No name holds the separator.
    return pc.binary_join_element_wise(table["dataset"].cast(pa.string()), table["transaction"], "\0")
