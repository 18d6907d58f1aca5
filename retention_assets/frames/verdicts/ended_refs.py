"""Branches and tags past the age that their dataset gives them, and the scopes without them.

Only a policy with `expired_refs: drop` drops them; for every other policy they are refs like any other.
"""

from collections.abc import Mapping
from datetime import datetime

import numpy as np

from retention_assets.frames.arrays import NEVER, Ints
from retention_assets.frames.log import Log
from retention_assets.frames.verdicts.table_windows import Windows, windows_of
from retention_assets.frames.views.history import History, Refs
from retention_assets.frames.views.scope import ScopeTable
from retention_assets.policy.durations import micros

FOREVER = np.iinfo(np.int64).max
# An age beyond every instant, and far from where microseconds would wrap around.
_OLDEST_MS = 2**52


def ref_ends(history: History, windows: Windows) -> tuple[Ints, Ints]:
    """The instant from which on each branch and each tag is over, FOREVER for one that never is.

    Iceberg keeps a ref that is exactly as old as it may become, and counts in milliseconds.
    """
    return _ends(history, history.branches, "branch", windows), _ends(history, history.tags, "tag", windows)


def _ends(history: History, refs: Refs, kind: str, windows: Windows) -> Ints:
    ends = np.full(len(refs.position), FOREVER)
    for place, (dataset, rank) in enumerate(zip(refs.dataset.tolist(), refs.rank.tolist(), strict=True)):
        said = windows.get(history.names[dataset])
        age = said.ref_age_of(kind, refs.names[rank]) if said else None
        made = int(history.closed[refs.position[place]])
        if age is not None and age < _OLDEST_MS and made != NEVER:
            ends[place] = made + (age + 1) * 1000
    return ends


def remaining_scopes(history: History, windows: Windows, as_of: datetime) -> ScopeTable:
    """The scopes as they are once every ref is dropped that is over."""
    branches, tags = (ends > micros(as_of) for ends in ref_ends(history, windows))
    return ScopeTable(history, branches, tags)


def next_ref_ends(history: History, windows: Windows, as_of: datetime) -> Ints:
    """For each dataset when the next of its refs is over, FOREVER if none ever is."""
    least = np.full(len(history.starts), FOREVER)
    for refs, ends in zip((history.branches, history.tags), ref_ends(history, windows), strict=True):
        later = ends > micros(as_of)
        np.minimum.at(least, refs.dataset[later], ends[later])
    return least


def ended_refs(log: Log, as_of: datetime) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The names of the branches and tags that are over, by the dataset and the transaction that they are on."""
    if not len(log.transactions):
        return {}
    history = History(log.transactions, micros(as_of))
    ids = log.transactions["transaction"]
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for refs, ends in zip((history.branches, history.tags), ref_ends(history, windows_of(log.datasets)), strict=True):
        for place in np.flatnonzero(ends <= micros(as_of)).tolist():
            key = history.names[int(refs.dataset[place])], ids[int(history.rows[refs.position[place]])].as_py()
            found[key] = (*found.get(key, ()), refs.names[int(refs.rank[place])])
    return found
