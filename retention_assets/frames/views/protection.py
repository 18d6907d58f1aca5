"""Who is protected. One function answers; marking, the check of marks and the sweep all call it.

Belongs here: nothing else. A transaction is protected in the latest view of any live branch, and in the view that a live tag
pins. Policies cannot lift this, save `latest_view: allow` for latest views, which is said where a verdict is made.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Ints
from retention_assets.frames.views.scope import FAR, ScopeTable, in_latest_view


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
