"""The engine: one sweep over many datasets, store by store, in the shares that the store reads best.

Belongs here: who is swept in which order, and what is done when a part fails. One failing dataset never stops the others, nor
does a store that is away; a ledger that is gone stops everything, for nothing may be deleted that can't be written down.
Does not belong here: the sweep of one dataset (dataset_sweep.py), deleting (stores), showing progress (tell).
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from retention_assets.errors import Refused
from retention_assets.evaluation.rulebook import Rulebook
from retention_assets.ledger import Ledger
from retention_assets.policy.durations import Duration
from retention_assets.stores.protocol import Store, StoreFailed, call_store
from retention_assets.sweep.batches import pause
from retention_assets.sweep.dataset_sweep import DatasetSweep, OnProgress, SweepContext, SweepResult
from retention_assets.sweep.independent_check import IndependentCheck
from retention_assets.sweep.lease import hold_lease
from retention_assets.sweep.read import DatasetReading, StoreReading, read_fresh
from retention_assets.sweep.recheck import Recheck


@dataclass
class Sweeper:
    """One sweep: the ledger, the stores by name, the rules and the instant. `holder` is who the leases and the record name."""

    ledger: Ledger
    stores: Mapping[str, Store]
    rulebook: Rulebook
    as_of: datetime
    holder: str
    tell: OnProgress = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)
    wait: Callable[[Duration, threading.Event], None] = pause
    _newest: datetime | None = None

    def __post_init__(self) -> None:
        door = Recheck(self.ledger, self.rulebook.settings, self.as_of, self.rulebook.file_holds())
        self._terms = SweepContext(
            self.ledger, self.rulebook, door, IndependentCheck(self.ledger), self.as_of, self.tell, self.stop, self.wait
        )

    def sweep(self, datasets: Sequence[str]) -> Iterator[SweepResult]:
        """Sweep what is due of some datasets, and what an earlier sweep left. One result for each that was looked at."""
        # A sweep that was killed at its very end, or a mark that was taken back since, leaves a report that is done.
        self.ledger.reports.finish_done(self.holder)
        by_store: dict[str, list[str]] = {}
        for dataset in sorted(set(datasets)):
            by_store.setdefault(dataset.partition("/")[0], []).append(dataset)
        for name, mine in by_store.items():
            store = self.stores.get(name)
            if store is None:
                yield from (SweepResult(one, refused=f"the settings have no store named {name}") for one in mine)
                continue
            try:
                yield from self._store(store, mine)
            except StoreFailed as fault:
                yield from (SweepResult(one, refused=str(fault)) for one in mine)

    def _store(self, store: Store, datasets: Sequence[str]) -> Iterator[SweepResult]:
        for share in call_store(store, lambda: store.shares(datasets)):
            if self.stop.is_set():
                return
            try:
                reading = read_fresh(store, share)
                self._guard(reading)
            except Refused as fault:
                yield from (SweepResult(one, refused=str(fault)) for one in share)
                continue
            for look in reading.looks:
                if self.stop.is_set():
                    return
                yield self._dataset(store, look)

    def _guard(self, reading: StoreReading) -> None:
        """Refuse a clock that can't be right by anything that the ledger and the logs of this run have seen so far."""
        seen = [time for time in (self._newest, reading.newest_closed_at) if time]
        self._newest = max(seen, default=None)
        clock = self.rulebook.settings.clock
        self.ledger.clock.check(self.as_of, self._newest, clock.max_ahead, clock.max_skew)

    def _dataset(self, store: Store, look: DatasetReading) -> SweepResult:
        result = SweepResult(look.dataset)
        try:
            with hold_lease(self.ledger, look.dataset, self.holder) as lease:
                DatasetSweep(self._terms, store, lease, look, result).sweep()
        except Refused as fault:
            result.refused = str(fault)
        self.tell(result)
        return result
