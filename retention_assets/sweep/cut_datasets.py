"""Cuts large datasets into parts for several tasks, and holds their leases while tasks are at work.

The driver takes the lease of each dataset that it cuts, and extends it until all tasks have answered: if the driver dies, the
lease runs out, and with it the permit of every task. A store that is read whole is read whole for each part; that is cheap
beside deleting what is in it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from retention_assets.datasets import store_of
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import DatasetPart, NameRange
from retention_assets.policy.book import item_of
from retention_assets.policy.model import Policy
from retention_assets.stores.protocol import Store
from retention_assets.sweep.lease import hold_leases
from retention_assets.sweep.round import SLICE

# marks; a part has at least as many as are checked and planned together, and a smaller dataset than two parts stays whole
PART = SLICE


@dataclass(frozen=True)
class CutDatasets:
    """Parts of the datasets that were cut, and for datasets that are locked, who sweeps them."""

    parts: tuple[DatasetPart, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    def left_of(self, marks: Mapping[str, int]) -> dict[str, int]:
        cut = {one.dataset for one in self.parts} | self.others.keys()
        return {name: amount for name, amount in marks.items() if name not in cut}


@contextmanager
def cut_datasets(
    ledger: Ledger, stores: Mapping[str, Store], marks: Mapping[str, int], tasks: int, as_of: datetime | None, holder: str
) -> Iterator[CutDatasets]:
    """Cut the datasets that have more due marks than one task's even share, and hold their leases meanwhile."""
    fair = max(PART, sum(marks.values()) // max(1, tasks))
    at, ranges = ledger.clock.due_by(as_of), dict[str, list[NameRange]]()
    for name, amount in marks.items():
        store = stores.get(store_of(name))
        together = store.capabilities.parts_at if store is not None and amount >= 2 * PART and amount > fair else None
        if together is None or (store is not None and not _may_be_shared(ledger, store, name, at)):
            continue
        found = ledger.parts.cut(name, at, amount, -(-amount // fair), together)
        if len(found) > 1:
            ranges[name] = found
    if not ranges:
        yield CutDatasets()
        return
    with hold_leases(ledger, ranges, holder) as held:
        parts = [
            DatasetPart(lease, number, names, marks[dataset] // len(ranges[dataset]))
            for dataset, lease in held.leases.items()
            for number, names in enumerate(ranges[dataset])
        ]
        yield CutDatasets(tuple(parts), held.others)


def _may_be_shared(ledger: Ledger, store: Store, dataset: str, as_of: datetime) -> bool:
    """False if a policy of its due marks may take anything out of a latest view: readers are told of that in the log, by one
    sweep after the other. A store that guards its deletions has no readers to tell.
    """
    if store.capabilities.guards:
        return True
    for name, version in ledger.parts.policies(dataset, as_of):
        stored = next((one for one in ledger.policy_book.versions(name) if one.version == version), None)
        item = item_of(stored.name, stored.content) if stored else None
        if not isinstance(item, Policy) or item.latest_view:
            return False
    return True
