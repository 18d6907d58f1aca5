"""The readings of a share's datasets: when the store is asked whether they are current, and what is read again."""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa

from retention_assets.clock import moment
from retention_assets.errors import Refused
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import Log
from retention_assets.ledger import Ledger
from retention_assets.stores.protocol import ChainReadingStore, SelectiveStore, Store, StoreFailed
from retention_assets.sweep.dataset_sweep import DatasetSweep
from retention_assets.sweep.execute import Batch
from retention_assets.sweep.read import DatasetReading, by_dataset, current, joined, read_fresh
from retention_assets.sweep.share.datasets import ShareDatasets
from retention_assets.sweep.wanted import Wanted

# Seconds after which a store is asked again: in a batch of many datasets before the act, and where it guards its deletions when
# a dataset begins.
ASKED_LATELY = 1.0
# seconds after which a reading is checked before anything is planned by it, although it is checked before anything goes
READ_LATELY = 60.0


@dataclass
class ShareReadings:
    """Readings of the datasets in the round. One that can't be read is taken out."""

    ledger: Ledger
    store: Store
    datasets: ShareDatasets
    # when the store was last asked whether the readings are current
    _asked: float = 0.0
    _log: tuple[list[DatasetReading], Log] | None = None

    def begin_round(self) -> None:
        """Make every reading whole and current."""
        whole = {one.dataset for one in self.datasets.each() if one.reading.chains_of is None}
        # A store that guards its deletions is asked again before the first batch in any case, and a token of a large dataset
        # takes a scan of it.
        lately = moment().running - READ_LATELY if self.store.capabilities.guards else float("inf")
        asked = {name for name in whole if self.datasets[name].reading.asked_at < lately}
        self.read_again((self.stale(asked) if asked else set()) | (self.datasets.going.keys() - whole), whole=True)
        for one in self.datasets.each():
            self.check(one, "nothing of {} is swept")

    def stale(self, datasets: Collection[str]) -> set[str]:
        """Datasets whose token changed since they were read."""
        mine = self.datasets.each(datasets)
        self._asked = moment().running
        try:
            return {one.dataset for one in mine} - current(self.store, [one.reading for one in mine])
        except StoreFailed as fault:
            if len(mine) == 1:
                self.datasets.take_out(mine[0], fault)
                return set()
        # one that can't be asked keeps no other from being asked
        return set[str]().union(*(self.stale([one.dataset]) for one in mine))

    def asked_lately(self) -> bool:
        return moment().running - self._asked < ASKED_LATELY

    def unguarded(self, batch: Batch, names: Set[str], began: set[str]) -> Set[str]:
        """Return the datasets whose tokens are checked before a batch.

        The batch's own. Where the store guards its deletions: all `names` before the first batch, and those that have not begun
        when another one begins, unless it was asked lately. Their notes are younger than the reading, so they cover changes in
        between.
        """
        if not self.store.capabilities.guards:
            return batch.targets.keys()
        is_first, waiting = not began, names - began
        begins = bool(waiting & batch.targets.keys())
        began.update(batch.targets)
        return waiting if is_first or (begins and not self.asked_lately()) else set()

    def read_again(self, datasets: Collection[str], whole: bool = False) -> None:
        """Read the same again, or datasets as a `whole`."""
        if isinstance(self.store, SelectiveStore):
            self._read_selected_again(self.datasets.each(datasets))
            return
        for one in self.datasets.each(datasets):
            with self.datasets.alone(one):
                if isinstance(self.store, ChainReadingStore) and one.reading.chains_of is not None and not whole:
                    one.read_chains(self.store, one.reading.chains_of)
                else:
                    one.take_reading(read_fresh(self.store, [one.dataset]).datasets[0])

    def read_chains(self, due: pa.Table) -> None:
        """Read the chains of what is due in datasets of which earlier slices have deleted: their tokens no longer tell whether
        others changed anything, and reading them whole for each slice would take quadratic time.
        """
        if not isinstance(self.store, ChainReadingStore):
            return
        for name, mine in by_dataset(due).items():
            if len((one := self.datasets[name]).done_before):
                with self.datasets.alone(one):
                    one.read_chains(self.store, join_chunks(mine["transaction"]))
                    self.check(one, "the sweep of {} ends here")

    def _read_selected_again(self, some: Sequence[DatasetSweep]) -> None:
        """Re-read the same transactions, all with one look."""
        asked = {one.dataset: one.reading.asked for one in some if one.reading.asked is not None}
        if not asked:
            return
        try:
            read = read_fresh(self.store, list(asked), Wanted.of(self.ledger, asked)).datasets
        except Refused as fault:
            for one in some:
                self.datasets.take_out(one, fault)
            return
        for one, reading in zip(some, read, strict=True):
            one.take_reading(reading)

    def check(self, one: DatasetSweep, words: str) -> None:
        if fault := one.reading.fault:
            self.datasets.take_out(one, Refused(f"{words.format(one.dataset)}: {fault}"))

    def log_of(self, datasets: Collection[str]) -> Log:
        """Join the readings to one log."""
        readings = [one.reading for one in self.datasets.each(datasets)]
        known = self._log[0] if self._log else []
        if self._log is None or len(known) != len(readings) or any(a is not b for a, b in zip(known, readings, strict=True)):
            self._log = readings, joined(readings)
        return self._log[1]
