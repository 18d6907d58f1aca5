"""Protection: one function that marking, the check of marks and the sweep all call.

A transaction is protected in the latest view of any live branch, and in the view that a live tag pins; an OBJECT while a
scan has found a reference to it. Policies cannot lift this, save `latest_view: allow` for latest views, which is decided
with the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Counts, Ints, flags, integers, join_chunks
from retention_assets.frames.log import CLASS
from retention_assets.frames.views.history import TYPES, History
from retention_assets.frames.views.scope import FAR, ScopeTable, in_latest_view

_OBJECT = TYPES.index("OBJECT")
# witness of a reference to an OBJECT whose row names nobody
_A_SCAN = "the last scan"


@dataclass(frozen=True)
class Protection:
    """For each transaction, in chain order, the rank of a branch and of a live tag that protect it; FAR where none does."""

    branch: Ints
    tag: Ints


def protection(scopes: ScopeTable) -> Protection:
    """Ask every live branch, whatever a policy looks at, and every live tag."""
    return Protection(scopes.everywhere.latest, in_latest_view(scopes.history, scopes.tags))


def witnesses(scopes: ScopeTable, found: Protection) -> pa.DictionaryArray:
    """The name of the branch, or else of the tag, that protects each transaction, in the order of the log."""
    names = [*scopes.history.branches.names, *scopes.history.tags.names]
    tag = np.where(found.tag < FAR, found.tag.astype(np.int64) + len(scopes.history.branches.names), -1)
    index = scopes.history.in_log_order(np.where(found.branch < FAR, found.branch, tag)).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), pa.array(names, pa.string()))


@dataclass(frozen=True)
class ScannedReferences:
    """OBJECTs to which a scan found a reference, in chain order, and who refers to them."""

    found: Bools
    names: Sequence[str] = ()
    # index among the names
    witness: Counts | None = None


def references(history: History) -> ScannedReferences:
    """Read the references of scans. Other logs have none, and cost nothing."""
    objects: Bools = history.type == _OBJECT
    if "attributes" not in history.log.column_names or not objects.any():
        return ScannedReferences(np.zeros(len(history), dtype=bool))
    attributes = join_chunks(history.log["attributes"])
    found: Bools = objects & history.column(flags(pc.equal(_said(attributes, CLASS), "referenced")))
    if not found.any():
        return ScannedReferences(found)
    said = _said(attributes, "witness").dictionary_encode()
    names = said.dictionary.to_pylist()
    return ScannedReferences(found, [*names, _A_SCAN], history.column(integers(said.indices, len(names)).astype(np.int32)))


def _said(attributes: pa.Array, key: str) -> pa.Array:
    return pc.map_lookup(attributes, pa.scalar(key), "first")
