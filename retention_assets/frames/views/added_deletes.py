"""Branches follow the DELETE transactions that a sweep added to them.

A sweep inside a latest view only ever appends to a log, so the line that says where a branch stands is older than the
DELETE above it. Every reader of a log moves the branch in this way; what a person committed meanwhile wins.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.log import LINES

# attribute of a transaction that a sweep added, and the attribute that names its branch
PROVENANCE = {"provenance": "retention"}
BRANCH = "branch"


def move_heads(lines: pa.Table) -> pa.Table:
    """The lines, with each branch on the last of the DELETE transactions that were added at its head."""
    next_of = _added(lines)
    if not next_of:
        return lines
    at = pc.and_(pc.is_valid(lines["branch"]), pc.is_in(lines["dataset"], pa.array({dataset for dataset, _, _ in next_of})))
    refs = lines.select(["dataset", "branch", "head"]).filter(at).to_pylist()
    heads = pa.array([_moved(next_of, **ref) for ref in refs], pa.string())
    moved = pc.replace_with_mask(lines["head"].combine_chunks(), pc.fill_null(at, False).combine_chunks(), heads)
    return lines.set_column(LINES.names.index("head"), LINES.field("head"), moved)


def _added(lines: pa.Table) -> dict[tuple[str, str, str], str]:
    """DELETEs of sweeps, by dataset, branch and parent; of two in one place the first."""
    here = pc.and_(pc.equal(lines["type"], "DELETE"), pc.equal(lines["status"], "COMMITTED"))
    here = pc.and_(here, pc.and_(pc.is_valid(lines["attributes"]), pc.is_valid(lines["parent"])))
    found: dict[tuple[str, str, str], str] = {}
    for line in lines.select(["dataset", "parent", "transaction", "attributes"]).filter(here).to_pylist():
        said = dict(line["attributes"])
        if line["transaction"] and said.items() >= PROVENANCE.items() and BRANCH in said:
            found.setdefault((line["dataset"], said[BRANCH], line["parent"]), line["transaction"])
    return found


def _moved(next_of: Mapping[tuple[str, str, str], str], dataset: str, branch: str, head: str | None) -> str | None:
    seen = set()
    # A cycle of parents is a fault of the dataset, which is not found here.
    while head is not None and head not in seen:
        seen.add(head)
        head = next_of.get((dataset, branch, head), head)
    return head
