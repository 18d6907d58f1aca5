"""Remarks of stores: what a person should know before a store is used, told where a run reads or sweeps it.

Belongs here: asking all stores, so that one which is away hides no other's remarks; it will say so itself when it is read.
Does not belong here: what a store remarks (stores).
"""

from collections.abc import Iterable

import dagster as dg

from retention_assets.errors import Refused
from retention_assets.stores.protocol import Store, call_store


def report_store_warnings(stores: Iterable[Store], log: dg.DagsterLogManager) -> None:
    """Each remark as a warning of the run."""
    for store in stores:
        try:
            found = call_store(store, store.warnings)
        except Refused:
            continue
        for words in found:
            log.warning(f"{store.name}: {words}")
