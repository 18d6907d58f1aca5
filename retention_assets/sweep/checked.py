"""The marks at hand of a round, checked by logs that are read again whenever they may have changed.

A re-check stands as long as the logs, holds and realms by which it was made. Before each batch they are asked for.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import moment
from retention_assets.errors import Refused
from retention_assets.frames.arrays import flags, join_chunks, keys_of
from retention_assets.frames.log import Log, by_dataset
from retention_assets.frames.views.branch_views import view_ends
from retention_assets.ledger.book import Raise
from retention_assets.outcomes import IN_PLACE, Order
from retention_assets.stores.protocol import Reads, Store, StoreFailed, Target
from retention_assets.sweep.dataset_sweep import ActiveDatasets, DatasetSweep, SweepContext, datasets_of, rows_of_datasets
from retention_assets.sweep.execute import Batch
from retention_assets.sweep.read import DatasetReading, Wanted, current, joined, read_fresh
from retention_assets.sweep.recheck import rows_of_marks
from retention_assets.sweep.verdicts import Fate, Verdicts

# Seconds after which a store is asked again: in a batch of many datasets before the act, and where it guards its deletions when
# a dataset begins.
ASKED_LATELY = 1.0
# seconds after which a reading is checked before anything is planned by it, although it is checked before anything goes
READ_LATELY = 60.0
Targets = Mapping[str, Mapping[int, Target]]


@dataclass
class Checked:
    """Readings of the active datasets, and the verdicts of the marks at hand."""

    context: SweepContext
    store: Store
    datasets: ActiveDatasets
    verdicts: Verdicts = field(default_factory=Verdicts)
    # datasets whose readers know what goes by the last re-check
    _told: set[str] = field(default_factory=set)
    # when the store was last asked whether the readings are current
    _asked: float = 0.0
    _log: tuple[list[DatasetReading], Log] | None = None
    # datasets of the batches that go now, and those of which one has begun
    _planned: Set[str] = frozenset()
    _begun: set[str] = field(default_factory=set)

    # --- readings ---

    def read_fresh(self) -> None:
        """Read what is not read whole, or has changed since."""
        whole = {sweep.dataset for sweep in self.datasets.sweeps() if sweep.reading.chains_of is None}
        # A store that guards its deletions is asked again before the first batch in any case, and a token of a large dataset
        # takes a scan of it.
        lately = moment().running - READ_LATELY if self.store.guards else float("inf")
        asked = {name for name in whole if self.datasets[name].reading.asked_at < lately}
        self._read_again(self._stale(asked) | (self.datasets.keys() - whole), whole=True)
        for sweep in self.datasets.sweeps():
            if sweep.reading.token is not None or self.context.only is Order.RESTORE:
                self.refuse_unsound(sweep)

    def read_chains(self, due: pa.Table) -> None:
        """Read the chains of due marks, where an earlier slice has deleted something of their dataset."""
        # Its token does not tell whether others changed it, and reading it whole for each slice would take quadratic time.
        if self.store.reads is not Reads.BRANCHES:
            return
        for name, rows in by_dataset(due).items():
            if len((sweep := self.datasets[name]).done_before):
                with self.datasets.alone(sweep):
                    sweep.read_chains(join_chunks(rows["transaction"]))
                    self.refuse_unsound(sweep, "the sweep of {} ends here")

    def refuse_unsound(self, sweep: DatasetSweep, words: str = "nothing of {} is swept") -> None:
        if fault := sweep.reading.fault:
            self.datasets.take_out(sweep, Refused(f"{words.format(sweep.dataset)}: {fault}"))

    def log_of(self, datasets: Collection[str]) -> Log:
        readings = [sweep.reading for sweep in self.datasets.sweeps(datasets)]
        if self._log is None or [*map(id, self._log[0])] != [*map(id, readings)]:
            self._log = readings, joined(readings)
        return self._log[1]

    def changed_meanwhile(self, datasets: Collection[str]) -> set[str]:
        """Datasets whose log has changed, where its store does not guard its deletions and was asked long ago."""
        return set() if self.store.guards or self._was_asked_lately() else self._stale(datasets)

    def _read_again(self, datasets: Collection[str], whole: bool = False) -> None:
        if self.store.reads is Reads.SOME:
            self._read_selected_again(datasets)
            return
        for sweep in self.datasets.sweeps(datasets):
            with self.datasets.alone(sweep):
                if sweep.reading.chains_of is not None and not whole:
                    sweep.read_chains(sweep.reading.chains_of)
                else:
                    sweep.take_reading(read_fresh(self.store, [sweep.dataset]).datasets[0])

    def _read_selected_again(self, datasets: Collection[str]) -> None:
        sweeps = self.datasets.sweeps(datasets)
        asked = {sweep.dataset: sweep.reading.asked for sweep in sweeps if sweep.reading.asked is not None}
        if not asked:
            return
        try:
            readings = read_fresh(self.store, list(asked), Wanted.of(self.context.ledger, asked)).datasets
        except Refused as fault:
            for sweep in sweeps:
                self.datasets.take_out(sweep, fault)
            return
        for sweep, reading in zip(sweeps, readings, strict=True):
            sweep.take_reading(reading)

    def _stale(self, datasets: Collection[str]) -> set[str]:
        if not (asked := self.datasets.sweeps(datasets)):
            return set()
        self._asked = moment().running
        try:
            return {sweep.dataset for sweep in asked} - current(self.store, [sweep.reading for sweep in asked])
        except StoreFailed as fault:
            if len(asked) == 1:
                self.datasets.take_out(asked[0], fault)
                return set()
        # asked one by one, so that one failure concerns one dataset
        return set[str]().union(*(self._stale([sweep.dataset]) for sweep in asked))

    def _was_asked_lately(self) -> bool:
        return moment().running - self._asked < ASKED_LATELY

    # --- the re-check: what may still go ---

    def check(self, rows: pa.Table) -> None:
        """Take up marks, and check them."""
        self.verdicts = Verdicts()
        self._recheck(rows)

    def begin_batches(self, rows: pa.Table) -> None:
        self._planned, self._begun = datasets_of(rows), set()

    def check_if_changed(self, batch: Batch, rows: pa.Table) -> None:
        """Check the marks at hand again, of each dataset of a batch whose log, holds or realms have changed."""
        may_be_stale, protections = self._may_be_stale(batch), self._protections()
        changed = {sweep.dataset for sweep in self.datasets.sweeps(batch.targets) if sweep.checked_under != protections}
        # a store's log does not change with holds and realms: where reading is slow, only changed datasets are read again
        protected = set() if self.store.reads is Reads.SOME else changed
        stale = self._stale((may_be_stale & self.datasets.keys()) - protected)
        changed |= stale
        if not changed:
            return
        self._read_again(stale | protected)
        for sweep in self.datasets.sweeps(changed):
            self.refuse_unsound(sweep, "the sweep of {} ends here")
        # finished marks need no check, and would cost quadratic time where the log grows all the time
        again = self.datasets.undone(rows_of_datasets(rows, changed))
        if len(again):
            self._recheck(again)

    def targets_of(self, batch: Batch) -> Targets:
        """Return what of a batch may still go, of datasets that are still active."""
        verdicts, goes = self.verdicts.by_mark, (Fate.GOES, Fate.COMES_BACK) if batch.order is Order.RESTORE else (Fate.GOES,)
        return {
            sweep.dataset: {
                mark: Target(
                    transaction,
                    note,
                    in_latest_view=verdicts[mark].in_latest_view,
                    place_known=None not in sweep.places,
                    ended_refs=verdicts[mark].ended_refs,
                    begun_earlier=mark in sweep.begun_earlier,
                    has_failed=mark in sweep.has_failed,
                    again=sweep.swept_at.get(mark),
                    aside="" if batch.order in IN_PLACE else f"{plan}/{mark}",
                )
                for mark, (transaction, note, plan) in batch.targets[sweep.dataset].items()
                if verdicts[mark].fate in goes
            }
            for sweep in self.datasets.sweeps(batch.targets)
        }

    def tell_readers(self, rows: pa.Table, targets: Targets) -> None:
        """Raise the visibility of datasets past every instant that needs some of what goes, before any of it goes."""
        names = {name for name, marks in targets.items() if marks and name in self.datasets} - self._told
        if not names:
            return
        going = rows_of_datasets(rows, names)
        going = going.filter(rows_of_marks(going, self.verdicts.go))
        log, why = self.log_of(names).transactions, "what was current before is swept"
        if instants := _visible_from(log, view_ends(log, self.context.as_of), going):
            raised = {name: Raise(at, why) for name, at in instants.items()}
            self.context.ledger.visibility.raise_to(raised, self.datasets.holder)
        self._told |= names

    def _may_be_stale(self, batch: Batch) -> Set[str]:
        """Datasets whose log may have changed since it was read."""
        if not self.store.guards:
            return batch.targets.keys()
        # Where the store guards its deletions, notes are younger than the reading and cover changes in between: all datasets
        # are asked before the first batch, and those that have not begun when another one begins, unless it was asked lately.
        is_first, waiting = not self._begun, self._planned - self._begun
        begins = bool(waiting & batch.targets.keys())
        self._begun |= batch.targets.keys()
        return waiting if is_first or (begins and not self._was_asked_lately()) else set()

    def _protections(self) -> tuple[object, ...]:
        # the re-check stands as long as these and the log are the same
        return (self.context.ledger.leases.protections(), self.context.recheck.keepers.in_files())

    def _recheck(self, rows: pa.Table) -> None:
        names, datasets = datasets_of(rows), self.datasets
        # taken before holds and realms are read: a change in between still refuses the permit
        protections = self._protections()
        for sweep in datasets.sweeps(names):
            sweep.permit.check_against(str(protections[0]))
            sweep.checked_under = protections
        log = self.log_of(names)
        result = self.context.recheck.check(log, rows, self.store, self._wanted_again(rows))
        self.verdicts |= result
        self._told -= names
        if result.spared:
            datasets.spare(rows.filter(rows_of_marks(rows, result.spared)), result.spared)
        goes = rows.filter(pc.and_(rows_of_marks(rows, result.go), pc.not_equal(rows["status"], "SWEPT")))
        keepers = self.context.recheck.keepers.in_force(self.context.as_of)
        faults = self.context.independent_check.faults(log, goes, self.store.log_is_complete, self.context.as_of, keepers)
        for sweep in datasets.sweeps(faults):
            datasets.take_out(sweep, Refused(faults[sweep.dataset]))
        waits = self.verdicts.reasons(Fate.WAITS)
        for sweep in datasets.sweeps(names):
            own = rows.filter(pc.equal(rows["dataset"], sweep.dataset))
            with datasets.alone(sweep):
                sweep.check_shared(own.filter(rows_of_marks(own, self.verdicts.go)))
            sweep.note_waiting(own, waits)

    def _wanted_again(self, rows: pa.Table) -> Mapping[tuple[str, str], str]:
        # what is set aside, and its store needs now
        wanted: dict[tuple[str, str], str] = {}
        if "order" not in rows.column_names:
            return wanted  # nothing of it was swept
        aside = pc.and_(pc.equal(rows["status"], "SWEPT"), pc.not_equal(rows["order"], Order.RESTORE))
        for name, own in by_dataset(rows.filter(aside)).items():
            sweep = self.datasets[name]
            with self.datasets.alone(sweep):
                answer = sweep.wanted_again(own["transaction"].to_pylist())
                wanted |= {(name, transaction): why for transaction, why in answer.items()}
        return wanted


def _visible_from(rows: pa.Table, views: pa.Table, going: pa.Table) -> dict[str, datetime]:
    # By dataset, the instant from which nothing current needs what goes. For what is in a latest view, which only a policy that
    # says so may take, the newest transaction of its dataset is the bound: what is current is always visible.
    if views["view"].null_count == len(views):
        return {}
    in_view = flags(pc.is_in(keys_of(rows), value_set=keys_of(going))) & flags(pc.is_valid(views["view"]))
    if not in_view.any():
        return {}
    names = rows["dataset"].cast(pa.string())
    bounds = [pa.table({"dataset": names, "at": views["superseded_at"]}).filter(pa.array(in_view))]
    if (latest := in_view & flags(pc.equal(views["view"], 0))).any():
        here = pc.is_in(names, value_set=pc.unique(names.filter(pa.array(latest))))
        committed = pc.and_(here, pc.equal(rows["status"].cast(pa.string()), "COMMITTED"))
        bounds.append(pa.table({"dataset": names, "at": rows["closed_at"]}).filter(committed))
    newest = pa.concat_tables(bounds).group_by("dataset").aggregate([("at", "max")])
    return {row["dataset"]: row["at_max"] for row in newest.to_pylist() if row["at_max"] is not None}
