"""The datasets of a share: which of them still go through the round, and which go through another one.

Belongs here: taking out a dataset of which something fails, so that it stops no other, and rows of those that are left.
Does not belong here: what is done to them (rounds.py), and one dataset (sweep/dataset_sweep.py).
"""

from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.ledger.sweeps.leases import Lease, LeaseLost
from retention_assets.sweep.dataset_sweep import DatasetSweep
from retention_assets.sweep.permit import ProtectionsChanged


@dataclass
class ShareDatasets:
    """Datasets by name, under their leases."""

    going: dict[str, DatasetSweep]
    # Those that go through another round, because holds, realms or the log changed.
    again: list[DatasetSweep] = field(default_factory=list)

    def __contains__(self, dataset: object) -> bool:
        return dataset in self.going

    def __getitem__(self, dataset: str) -> DatasetSweep:
        return self.going[dataset]

    def __bool__(self) -> bool:
        return bool(self.going)

    def each(self, datasets: Collection[str] | None = None) -> list[DatasetSweep]:
        """Those that go, or of these some."""
        return [one for name, one in self.going.items() if datasets is None or name in datasets]

    def everyone(self) -> list[DatasetSweep]:
        """Those that go, and those that go once more."""
        return [*self.going.values(), *self.again]

    def names(self) -> list[str]:
        """Of those that go."""
        return sorted(self.going)

    def leases(self, datasets: Collection[str] | None = None) -> list[Lease]:
        """Of those that go, or of these some."""
        return [one.lease for one in self.each(datasets)]

    def holder(self) -> str:
        """Who has all of their leases."""
        return next(iter(self.going.values())).lease.holder

    @contextmanager
    def alone(self, one: DatasetSweep) -> Iterator[None]:
        """What fails here takes out this dataset alone."""
        try:
            yield
        except ProtectionsChanged:
            self.once_more(one)
        except Refused as fault:
            self.take_out(one, fault)

    def take_out(self, one: DatasetSweep, fault: Refused) -> None:
        """It goes no further, for this reason."""
        if self.going.pop(one.dataset, None):
            one.refuse(fault)

    def lose(self, lost: Mapping[str, str]) -> None:
        """Take out the datasets whose leases are lost."""
        for one in self.each(lost):
            self.take_out(one, LeaseLost(lost[one.dataset]))

    def once_more(self, one: DatasetSweep) -> None:
        """It goes through another round."""
        if self.going.pop(one.dataset, None):
            # What was planned and not done is counted when it is planned again.
            one.result.planned = len(one.done) + len(one.done_before)
            self.again.append(one)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Of some rows those of the datasets that go."""
        return rows_of(rows, self.going)

    def undone(self, rows: pa.Table) -> pa.Table:
        """Of some marks those of which nothing is done yet."""
        done = pa.chunked_array([one.everything_done() for one in self.each()], pa.int64())
        return rows.filter(pc.invert(pc.is_in(rows["id"], done))) if len(done) else rows


def names_of(rows: pa.Table) -> Set[str]:
    """The datasets of some rows."""
    return frozenset(pc.unique(rows["dataset"]).to_pylist())


def rows_of(rows: pa.Table, datasets: Collection[str]) -> pa.Table:
    """The rows of some datasets."""
    return rows.filter(pc.is_in(rows["dataset"], pa.array(sorted(datasets), pa.string())))
