"""The engine of a sweep: reads datasets in the shares that each store reads best, sweeps them in the shares that the ledger
writes best, and cuts large ones into parts for several tasks.

A failing dataset or an unavailable store never stops the others. A ledger that is gone stops everything, because nothing may be
deleted that can't be recorded.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from types import FrameType

import pyarrow as pa

from retention_assets.datasets import by_store, store_of
from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import ALL_NAMES, SECONDS, DatasetPart, NameRange
from retention_assets.outcomes import Order
from retention_assets.policy.book import item_of
from retention_assets.policy.model import Policy
from retention_assets.stores.concurrency import set_aside_what_is_loaded
from retention_assets.stores.protocol import Reads, Store, StoreFailed, call_store, outside_times
from retention_assets.sweep.admission import store_fault
from retention_assets.sweep.dataset_sweep import DatasetSweep, OnProgress, SweepContext, SweepResult, refused_results
from retention_assets.sweep.execute import pause
from retention_assets.sweep.independent_check import IndependentCheck
from retention_assets.sweep.permit import LedgerFailed, hold_leases, hold_part
from retention_assets.sweep.read import DatasetReading, DueHere, StoreReading, Wanted, among_looked_at, looking, read_fresh
from retention_assets.sweep.recheck import Recheck
from retention_assets.sweep.round import SLICE, sweep_share

# limits of a share that is swept together: datasets, due marks, rows of their logs
_MOST_DATASETS, _MOST_MARKS, _MOST_ROWS = 256, 50_000, 500_000
# least marks per part: as many as are planned together; a dataset smaller than two parts stays whole
PART = SLICE
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Sweeper:
    """One sweep: ledger, stores by name, rules, and the instant up to which it goes, if any.

    `holder` is the name in the leases and the record.
    """

    ledger: Ledger
    stores: Mapping[str, Store]
    rulebook: Rulebook
    as_of: datetime | None
    holder: str
    on_progress: OnProgress = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)
    wait: Callable[[timedelta, threading.Event], None] = pause
    lease_seconds: float = SECONDS
    # other clocks, besides those of the stores' servers
    clocks: Callable[[], Iterable[datetime]] = tuple
    # what a person has confirmed, if asked: nothing else is deleted
    confirmed: pa.Table | None = None
    # tasks that sweep side by side; a policy's parallelism is divided among them
    tasks: int = 1
    # nothing but what began by this order is finished
    only: Order | None = None
    # the real ledger in a rehearsal, which `ledger` copies without what was swept or is not due
    real_ledger: Ledger | None = None
    _newest: datetime | None = None
    _has_begun: bool = False

    def __post_init__(self) -> None:
        settings, files, keepers = self.rulebook.settings, self.rulebook.files, self.rulebook.keepers
        at = self.ledger.clock.due_by(self.as_of)
        self._recheck = Recheck(self.ledger, settings, at, keepers, self.confirmed, files, real_ledger=self.real_ledger)
        self._independent_check = IndependentCheck(self.ledger)

    def run(self, datasets: Sequence[str], part: DatasetPart | None = None) -> Iterator[SweepResult]:
        """Sweep datasets, and finish what an earlier sweep left."""
        set_aside_what_is_loaded()
        # a sweep killed at its very end, or a mark taken back since, leaves a report that is done
        self.ledger.reports.finish_done(self.holder)
        for name, names in by_store(sorted(set(datasets))).items():
            store = self.stores.get(name)
            if store is None:
                yield from refused_results(dict.fromkeys(names, Refused(f"The settings have no store named {name}.")))
                continue
            try:
                paced = store.among(self.tasks)
                with looking(paced, DueHere(self.ledger, names, self._recheck.as_of), self.stop.is_set):
                    yield from self._sweep_store(paced, names, part)
            except StoreFailed as fault:
                yield from refused_results(dict.fromkeys(names, fault))

    def _sweep_store(self, store: Store, datasets: Sequence[str], part: DatasetPart | None) -> Iterator[SweepResult]:
        at, names = self._recheck.as_of, ALL_NAMES if part is None else part.names
        # a single dataset is a share, whatever there is to do
        amounts = {one.dataset: one.marks for one in self.ledger.marks.to_sweep(at, datasets)} if len(datasets) > 1 else {}
        waiting: list[DatasetReading] = []
        for share in call_store(store, partial(store.shares, datasets)):
            if self.stop.is_set():
                return
            try:
                if self.only is not Order.RESTORE and (fault := store_fault(self.rulebook, store.name)):
                    raise Refused(fault)
                reads_some = call_store(store, lambda: store.reads) is Reads.SOME
                wanted = among_looked_at(store, Wanted.by(self.ledger, share, at, names)) if reads_some else None
                reading = read_fresh(store, share, wanted)
                if self.only is not Order.RESTORE:
                    self._check_clock(reading)
            except Refused as refusal:
                yield from refused_results(dict.fromkeys(share, refusal))
                continue
            for dataset in reading.datasets:
                if waiting and _is_full([*waiting, dataset], amounts):
                    yield from self._sweep_share(store, waiting, part)
                    waiting = []
                waiting.append(dataset)
        yield from self._sweep_share(store, waiting, part)

    def _check_clock(self, reading: StoreReading) -> None:
        present, clock = self.ledger.clock.present(self.as_of), self.rulebook.settings.clock
        times = [time for time in (self._newest, reading.newest_closed_at(present)) if time]
        self._newest = max(times, default=None)
        if why := self.ledger.clock.check(present, self._newest, clock.max_ahead, clock.max_skew, self._outside):
            raise Refused(why)

    def _outside(self) -> Iterator[datetime]:
        yield from self.clocks()
        yield from outside_times(self.stores.values())

    def _sweep_share(self, store: Store, readings: Sequence[DatasetReading], part: DatasetPart | None) -> Iterator[SweepResult]:
        if not readings or self.stop.is_set():
            return
        results = {reading.dataset: SweepResult(reading.dataset) for reading in readings}
        if part is None:
            leases = hold_leases(self.ledger, results, self.holder, self.lease_seconds)
        else:
            leases = hold_part(self.ledger, part, self.stop, self.lease_seconds)
        try:
            with leases as held:
                for name, why in held.others.items():
                    results[name].skipped = why
                # once a lease is taken more may be due, and holds and tags may be over
                at, names = self.ledger.clock.due_by(self.as_of), ALL_NAMES if part is None else part.names
                context = SweepContext(
                    self.ledger, self.rulebook, replace(self._recheck, as_of=at), self._independent_check, at, self.on_progress,
                    self.stop, self.wait, self.tasks, names, self.only,
                )  # fmt: skip
                datasets = [
                    DatasetSweep(context, store, held.leases[name], held.permits[name], reading, results[name])
                    for reading in readings
                    if (name := reading.dataset) in held.leases
                ]
                sweep_share(context, store, datasets, is_first=not self._has_begun)
                self._has_begun = True
        except LedgerFailed:
            # other datasets could not be recorded either
            raise
        except Refused as fault:
            for result in results.values():
                if result.refused is None and result.skipped is None:
                    result.refuse(fault)
        for result in results.values():
            # after a stop, untouched datasets have nothing to report
            if result.is_touched or not self.stop.is_set():
                self.on_progress(result)
                yield result


def _is_full(readings: Sequence[DatasetReading], amounts: Mapping[str, int]) -> bool:
    return (
        len(readings) > _MOST_DATASETS
        or sum(amounts.get(reading.dataset, 0) for reading in readings) > _MOST_MARKS
        or sum(len(reading.log.transactions) for reading in readings) > _MOST_ROWS
    )


@dataclass(frozen=True)
class CutDatasets:
    """Parts of the datasets that were cut, and for datasets that are locked, who sweeps them."""

    parts: tuple[DatasetPart, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    def left_of(self, marks: Mapping[str, int]) -> dict[str, int]:
        cut = {part.dataset for part in self.parts} | self.others.keys()
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
        together = store.parts_at if store is not None and amount >= 2 * PART and amount > fair else None
        if together is None or (store is not None and not _may_be_shared(ledger, store, name, at)):
            continue
        bounds = ledger.parts.cut(name, at, amount, -(-amount // fair), together)
        if len(bounds) > 1:
            ranges[name] = bounds
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
    # false if a policy of its due marks may take anything out of a latest view: readers are told of that in the log, by one
    # sweep after the other. A store that guards its deletions has no readers to tell.
    if store.guards:
        return True
    for name, version in ledger.parts.policies(dataset, as_of):
        stored = next((entry for entry in ledger.policy_book.versions(name) if entry.version == version), None)
        item = item_of(stored.name, stored.content) if stored else None
        if not isinstance(item, Policy) or item.latest_view:
            return False
    return True


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that is set when a signal asks the program to end. Only the main thread hears signals."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def hear(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in _SIGNALS:
        signal.signal(number, hear)
    try:
        yield stop
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
