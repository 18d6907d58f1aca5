"""What was read of the datasets of a share, and whether the store still says so.

Belongs here: when the store is asked, and what is read anew: a dataset whole, the chains of a slice, or what is wanted of it.
Does not belong here: reading itself (sweep/read.py), and what a change means for marks (rounds.py).
"""

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

# A store that was asked so long ago, in seconds, is asked once more: in the middle of a batch of many datasets before the act,
# and one that guards its deletions when a dataset begins.
ASKED_LATELY = 1.0
# What was read so long ago, in seconds, is asked about before anything is planned by it, although it is before anything goes.
READ_LATELY = 60.0


@dataclass
class ShareReadings:
    """The readings of the datasets that go. One that can't be read is taken out."""

    ledger: Ledger
    store: Store
    datasets: ShareDatasets
    # When the store was asked last whether what was read still stands.
    _asked: float = 0.0
    _log: tuple[list[DatasetReading], Log] | None = None

    def begin_round(self) -> None:
        """What was read of each dataset is the whole of it, and stands."""
        whole = {one.dataset for one in self.datasets.each() if one.reading.chains_of is None}
        # A store that guards its deletions is asked again before the first batch, whatever it says now; and to ask about a
        # large dataset takes a look at all of it.
        lately = moment().running - READ_LATELY if self.store.capabilities.guards else float("inf")
        asked = {name for name in whole if self.datasets[name].reading.asked_at < lately}
        self.read_again((self.stale(asked) if asked else set()) | (self.datasets.going.keys() - whole), whole=True)
        for one in self.datasets.each():
            self.check(one, "nothing of {} is swept")

    def stale(self, datasets: Collection[str]) -> set[str]:
        """Those of some datasets of which the store says something else than what was read."""
        mine = self.datasets.each(datasets)
        self._asked = moment().running
        try:
            return {one.dataset for one in mine} - current(self.store, [one.reading for one in mine])
        except StoreFailed as fault:
            if len(mine) == 1:
                self.datasets.take_out(mine[0], fault)
                return set()
        # One that can't be asked keeps no other from being asked.
        return set[str]().union(*(self.stale([one.dataset]) for one in mine))

    def asked_lately(self) -> bool:
        """Whether the store was asked within the last second."""
        return moment().running - self._asked < ASKED_LATELY

    def unguarded(self, batch: Batch, names: Set[str], began: set[str]) -> Set[str]:
        """The datasets of which the store is asked before a batch whether anything changed.

        Its own; or, where the store guards its deletions, all `names` before the first batch, and those that have not begun
        when another of them begins, unless it was asked lately. Of these the notes are younger than the reading: what changed
        in between, they have as it is now.
        """
        if not self.store.capabilities.guards:
            return batch.targets.keys()
        is_first, waiting = not began, names - began
        begins = bool(waiting & batch.targets.keys())
        began.update(batch.targets)
        return waiting if is_first or (begins and not self.asked_lately()) else set()

    def read_again(self, datasets: Collection[str], whole: bool = False) -> None:
        """Read what was read of datasets, or `whole` what there is of them."""
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
        """Of datasets of which earlier slices have deleted, the chains of what is due: their tokens no longer tell whether
        others changed anything, and to read them whole for each slice would cost the square of them.
        """
        if not isinstance(self.store, ChainReadingStore):
            return
        for name, mine in by_dataset(due).items():
            if len((one := self.datasets[name]).done_before):
                with self.datasets.alone(one):
                    one.read_chains(self.store, join_chunks(mine["transaction"]))
                    self.check(one, "the sweep of {} ends here")

    def _read_selected_again(self, some: Sequence[DatasetSweep]) -> None:
        """The same transactions of datasets, all with one look at whatever the store has to look at."""
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
        """Take out a dataset that can't be judged."""
        if fault := one.reading.fault:
            self.datasets.take_out(one, Refused(f"{words.format(one.dataset)}: {fault}"))

    def log_of(self, datasets: Collection[str]) -> Log:
        """What was read of some datasets, as one log."""
        readings = [one.reading for one in self.datasets.each(datasets)]
        known = self._log[0] if self._log else []
        if self._log is None or len(known) != len(readings) or any(a is not b for a, b in zip(known, readings, strict=True)):
            self._log = readings, joined(readings)
        return self._log[1]
