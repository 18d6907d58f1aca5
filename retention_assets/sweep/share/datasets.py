"""The datasets of a share that are still in the round, and taking one out, so that its fault stops no other."""

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
    # need another round, because holds, realms or the log changed
    again: list[DatasetSweep] = field(default_factory=list)

    def __contains__(self, dataset: object) -> bool:
        return dataset in self.going

    def __getitem__(self, dataset: str) -> DatasetSweep:
        return self.going[dataset]

    def __bool__(self) -> bool:
        return bool(self.going)

    def each(self, datasets: Collection[str] | None = None) -> list[DatasetSweep]:
        """Datasets still in this round, or those of `datasets` that are."""
        return [one for name, one in self.going.items() if datasets is None or name in datasets]

    def everyone(self) -> list[DatasetSweep]:
        """Datasets in this round or the next."""
        return [*self.going.values(), *self.again]

    def names(self) -> list[str]:
        return sorted(self.going)

    def leases(self, datasets: Collection[str] | None = None) -> list[Lease]:
        return [one.lease for one in self.each(datasets)]

    def holder(self) -> str:
        return next(iter(self.going.values())).lease.holder

    @contextmanager
    def alone(self, one: DatasetSweep) -> Iterator[None]:
        """A fault in the block takes out this dataset alone."""
        try:
            yield
        except ProtectionsChanged:
            self.once_more(one)
        except Refused as fault:
            self.take_out(one, fault)

    def take_out(self, one: DatasetSweep, fault: Refused) -> None:
        if self.going.pop(one.dataset, None):
            one.refuse(fault)

    def lose(self, lost: Mapping[str, str]) -> None:
        for one in self.each(lost):
            self.take_out(one, LeaseLost(lost[one.dataset]))

    def once_more(self, one: DatasetSweep) -> None:
        if self.going.pop(one.dataset, None):
            # what was planned and not done is counted when it is planned again
            one.result.planned = len(one.done) + len(one.done_before)
            self.again.append(one)

    def rows(self, rows: pa.Table) -> pa.Table:
        return rows_of(rows, self.going)

    def undone(self, rows: pa.Table) -> pa.Table:
        """Drop marks that this sweep has finished."""
        done = pa.chunked_array([one.everything_done() for one in self.each()], pa.int64())
        return rows.filter(pc.invert(pc.is_in(rows["id"], done))) if len(done) else rows


def names_of(rows: pa.Table) -> Set[str]:
    return frozenset(pc.unique(rows["dataset"]).to_pylist())


def rows_of(rows: pa.Table, datasets: Collection[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows["dataset"], pa.array(sorted(datasets), pa.string())))
