"""The datasets of a round that are still swept, and the ledger's writes about them.

A dataset of which a step fails, whose place moved or whose lease is lost is taken out with its reason. It stops no other.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.ledger.batches import Settlement
from retention_assets.ledger.leases import Lease, LeaseLost
from retention_assets.outcomes import Outcome
from retention_assets.sweep.dataset_sweep import BEGUN_STILL, DatasetSweep, SweepContext
from retention_assets.sweep.permit import ProtectionsChanged
from retention_assets.sweep.read import by_dataset
from retention_assets.sweep.recheck import rows_of_marks


@dataclass
class ActiveDatasets:
    """Datasets of a round by name. `again`: those that need another round, because holds, realms or the log changed."""

    context: SweepContext
    by_name: dict[str, DatasetSweep]
    again: list[DatasetSweep] = field(default_factory=list)

    def __getitem__(self, dataset: str) -> DatasetSweep:
        return self.by_name[dataset]

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def names(self) -> Set[str]:
        return self.by_name.keys()

    @property
    def holder(self) -> str:
        return next(iter(self.by_name.values())).lease.holder

    def sweeps(self, datasets: Collection[str] | None = None) -> list[DatasetSweep]:
        return [sweep for name, sweep in self.by_name.items() if datasets is None or name in datasets]

    def leases(self, datasets: Collection[str]) -> list[Lease]:
        return [sweep.lease for sweep in self.sweeps(datasets)]

    def with_again(self) -> list[DatasetSweep]:
        return [*self.by_name.values(), *self.again]

    def rows(self, rows: pa.Table, marks: Collection[int] | None = None) -> pa.Table:
        """Keep rows of datasets that are still active, and of some marks."""
        rows = rows_of_datasets(rows, self.names)
        return rows if marks is None else rows.filter(rows_of_marks(rows, marks))

    def undone(self, rows: pa.Table) -> pa.Table:
        rows = self.rows(rows)
        done = pa.chunked_array([sweep.everything_done() for sweep in self.sweeps()], pa.int64())
        return rows.filter(pc.invert(pc.is_in(rows["id"], done))) if len(done) else rows

    # --- out of the round ---

    @contextmanager
    def alone(self, sweep: DatasetSweep) -> Iterator[None]:
        """Take a dataset out if its step is refused."""
        try:
            yield
        except ProtectionsChanged:
            self.once_more(sweep)
        except Refused as fault:
            self.take_out(sweep, fault)

    def take_out(self, sweep: DatasetSweep, fault: Refused) -> None:
        if self.by_name.pop(sweep.dataset, None):
            sweep.result.refuse(fault)

    def lose(self, lost: Mapping[str, str]) -> None:
        """Take out the datasets whose lease is lost, with the reasons."""
        for sweep in self.sweeps(lost):
            self.take_out(sweep, LeaseLost(lost[sweep.dataset]))

    def once_more(self, sweep: DatasetSweep) -> None:
        if self.by_name.pop(sweep.dataset, None):
            # what was planned and not done is counted when it is planned again
            sweep.result.planned = len(sweep.done) + len(sweep.done_before)
            self.again.append(sweep)

    # --- records ---

    def spare(self, rows: pa.Table, reasons: Mapping[int, str]) -> None:
        """Spare marks of one status. Of those on which a sweep had begun the store says what is left."""
        if rows["status"][0].as_py() == "SWEEPING":
            answers: dict[str, list[Settlement]] = {}
            for name, begun in by_dataset(rows).items():
                with self.alone(self[name]):
                    answers[name] = self[name].spare_begun(begun, reasons)
            self.settle(answers)
            return
        spared = self.context.ledger.sweeps.spare(self.leases(datasets_of(rows)), reasons, self.context.as_of.date())
        self.lose(spared.lost)
        for name, amount in Counter(spared.marks.values()).items():
            self[name].result.outcomes[Outcome.SPARED] += amount

    def settle(self, answers: Mapping[str, Sequence[Settlement]]) -> None:
        # a mark that only has its time now stays begun, until a later look finds it gone
        for sweep in self.sweeps(answers):
            if waiting := sum(answer.outcome is Outcome.EXPIRING for answer in answers[sweep.dataset]):
                sweep.result.outcomes[Outcome.EXPIRING] += waiting
        over = {name: [answer for answer in given if answer.outcome not in BEGUN_STILL] for name, given in answers.items()}
        over = {name: given for name, given in over.items() if given}
        if not over:
            return
        settled = [answer for given in over.values() for answer in given]
        moved = self.context.ledger.sweeps.settle(self.leases(over), settled, self.context.as_of.date())
        self.lose(moved.lost)
        for sweep in self.sweeps(over):
            with self.alone(sweep):
                sweep.count([answer for answer in over[sweep.dataset] if answer.mark in moved.marks])


def datasets_of(rows: pa.Table) -> Set[str]:
    return frozenset(pc.unique(rows["dataset"]).to_pylist())


def rows_of_datasets(rows: pa.Table, datasets: Collection[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows["dataset"], pa.array(sorted(datasets), pa.string())))
