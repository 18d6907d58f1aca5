"""The rounds of a share: some datasets of one store under their leases, in the order that design section 7 gives.

The intent is in the ledger before the act, the outcome right after it; before each batch the store, holds and realms are asked
whether the re-check still stands, and readers are told what goes. The ledger is read and written once for all datasets of the
share; the store is asked dataset by dataset.

A dataset of which a step fails, whose place moved or whose lease is lost is taken out of the share with its reason. It stops no
other.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import moment
from retention_assets.errors import Refused, Withheld
from retention_assets.frames.arrays import flags, join_chunks, keys_of
from retention_assets.frames.log import Log
from retention_assets.frames.views.branch_views import view_ends
from retention_assets.ledger.batches import PLANNED_ROWS, Moved, Planned, Settlement
from retention_assets.ledger.book import Raise
from retention_assets.ledger.leases import Lease, LeaseLost
from retention_assets.ledger.schema import ASIDE, OPEN
from retention_assets.ledger.trash import AskedBy
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import Reads, Store, StoreFailed, Target
from retention_assets.sweep.dataset_sweep import BEGUN_STILL, DatasetSweep, SweepContext
from retention_assets.sweep.execute import Batch, cut_batches
from retention_assets.sweep.opening import openings_of
from retention_assets.sweep.permit import ProtectionsChanged
from retention_assets.sweep.read import DatasetReading, Wanted, among_asked, by_dataset, current, joined, read_fresh
from retention_assets.sweep.recheck import rows_of_marks
from retention_assets.sweep.verdicts import Fate, Verdicts

_LOG = logging.getLogger(__name__)
# shorter waits between batches are not logged
_LOGGED_FROM = timedelta(seconds=5)
# changes of holds and realms tolerated while one dataset is swept
_ROUNDS = 20
# Marks that are checked, prepared and planned before the first of them goes: neither memory nor that time grows with a dataset.
# The first slice is small: faults show early, and the first deletion comes soon.
FIRST_SLICE, SLICE = 5_000, 50_000
# Seconds after which a store is asked again: in a batch of many datasets before the act, and where it guards its deletions when
# a dataset begins.
ASKED_LATELY = 1.0
# seconds after which a reading is checked before anything is planned by it, although it is checked before anything goes
READ_LATELY = 60.0
_ANY_TIME = datetime(9999, 1, 1, tzinfo=UTC)
Targets = Mapping[str, Mapping[int, Target]]


def sweep_share(context: SweepContext, store: Store, share: Sequence[DatasetSweep], is_first: bool = True) -> None:
    """Sweep datasets: what an earlier sweep left, then everything that is due; and again whatever is left when holds or realms
    change. `is_first`: the first share of the sweep.
    """
    waiting = list(share)
    for round_ in range(_ROUNDS):
        first = FIRST_SLICE if is_first and not round_ else SLICE
        waiting = _Round(context, store, {sweep.dataset: sweep for sweep in waiting}, min(first, SLICE)).run()
        if not waiting:
            return
    for sweep in waiting:
        sweep.result.refuse(
            Refused(f"the sweep of {sweep.dataset} ends here: holds or realms changed {_ROUNDS} times during it")
        )


@dataclass
class _Round:
    """One pass over a share."""

    context: SweepContext
    store: Store
    # datasets still in this round
    active: dict[str, DatasetSweep]
    first_slice: int
    # datasets that need another round, because holds, realms or the log changed
    again: list[DatasetSweep] = field(default_factory=list)
    # result of the re-check of the marks at hand
    checked: Verdicts = field(default_factory=Verdicts)
    # datasets whose readers know what goes by the last re-check
    hidden: set[str] = field(default_factory=set)
    # datasets whose report of the day is open
    opened: set[str] = field(default_factory=set)
    # when the store was last asked whether the readings are current
    _asked: float = 0.0
    _log: tuple[list[DatasetReading], Log] | None = None
    # datasets of the batches that go now, and those of which one has begun
    _planned: Set[str] = frozenset()
    _begun: set[str] = field(default_factory=set)

    def run(self) -> list[DatasetSweep]:
        """Sweep; return the datasets that need another round."""
        ledger = self.context.ledger
        protections = ledger.leases.protections()
        for sweep in self._active():
            with self._alone(sweep):
                sweep.permit.check_against(protections)
                sweep.permit()
        self._read_fresh()
        # a dataset that is not there has nothing to sweep but its trash
        gone = {sweep.dataset: sweep for sweep in self._active() if sweep.reading.token is None}
        left = self._undone(ledger.sweeps.left(sorted(self.active), self.context.names))
        is_gone = pc.is_in(left["dataset"], pa.array([*gone], pa.string()))
        in_vain = pc.and_(is_gone, pc.not_equal(left["order"], Order.DELETE_ASIDE))
        refused, left = {*left.filter(in_vain)["dataset"].to_pylist()}, left.filter(pc.invert(in_vain))
        is_aside, only = pc.equal(left["status"], "SWEPT"), self.context.only
        if only is None:
            self._finish_begun(self._sweepable(left.filter(pc.invert(is_aside))))
        self._finish_begun(left.filter(is_aside if only is None else pc.equal(left["order"], only)))
        # in each run: what is protected anew comes back before its time is over
        for ids in self._slices(ASIDE, _ANY_TIME, SLICE, self.active):
            self._look_at_aside(self._undone(ledger.trash.planned(ids)))
        for ids in self._slices(OPEN, self.context.as_of, self.first_slice, self.active.keys() - gone.keys()):
            self._sweep_due(self._sweepable(ledger.marks.by_ids(ids, ["MARKED"])))
        for sweep in gone.values():
            self._refuse_absent(sweep, sweep.dataset in refused)
        if opened := sorted(self.opened & self.active.keys()):
            ledger.reports.finish_done(self._holder, opened)
        return self.again

    def _slices(self, state: str, until: datetime, first: int, datasets: Collection[str]) -> Iterator[list[int]]:
        where = (sorted(datasets), until, self.context.names, state)
        nothing = self.context.only is not None or not datasets
        every = np.empty(0, np.int64) if nothing else self.context.ledger.sweeps.due(*where)
        # what shares data is checked together
        for ids in _sliced(every, max(first, len(every)) if self.store.shares_data else first):
            if self.context.stop.is_set() or not self.active:
                break
            yield ids.tolist()
            for sweep in (*self.active.values(), *self.again):
                sweep.done_before.extend(sweep.done)
                sweep.done = set()

    # --- fresh reading ---

    def _read_fresh(self) -> None:
        whole = {sweep.dataset for sweep in self._active() if sweep.reading.chains_of is None}
        # A store that guards its deletions is asked again before the first batch in any case, and a token of a large dataset
        # takes a scan of it.
        lately = moment().running - READ_LATELY if self.store.guards else float("inf")
        asked = {name for name in whole if self.active[name].reading.asked_at < lately}
        self._read_again((self._stale(asked) if asked else set()) | (self.active.keys() - whole), whole=True)
        for sweep in self._active():
            if sweep.reading.token is not None or self.context.only is Order.RESTORE:
                self._check_reading(sweep, "nothing of {} is swept")

    def _refuse_absent(self, sweep: DatasetSweep, has_begun: bool) -> None:
        if has_begun or any(row.marks for row in self.context.ledger.marks.to_sweep(self.context.as_of, [sweep.dataset])):
            self._check_reading(sweep, "nothing of {} is swept")

    def _read_again(self, datasets: Collection[str], whole: bool = False) -> None:
        if self.store.reads is Reads.SOME:
            self._read_selected_again(self._active(datasets))
            return
        for sweep in self._active(datasets):
            with self._alone(sweep):
                if sweep.reading.chains_of is not None and not whole:
                    sweep.read_chains(sweep.reading.chains_of)
                else:
                    sweep.take_reading(read_fresh(self.store, [sweep.dataset]).datasets[0])

    def _read_selected_again(self, datasets: Sequence[DatasetSweep]) -> None:
        asked = {sweep.dataset: sweep.reading.asked for sweep in datasets if sweep.reading.asked is not None}
        if not asked:
            return
        try:
            readings = read_fresh(self.store, list(asked), Wanted.of(self.context.ledger, asked)).datasets
        except Refused as fault:
            for sweep in datasets:
                self._take_out(sweep, fault)
            return
        for sweep, reading in zip(datasets, readings, strict=True):
            sweep.take_reading(reading)

    def _read_chains(self, due: pa.Table) -> None:
        # The token of a dataset of which earlier slices have deleted does not tell whether others changed it, and reading it
        # whole for each slice would take quadratic time.
        if self.store.reads is not Reads.BRANCHES:
            return
        for name, rows in by_dataset(due).items():
            if len((sweep := self.active[name]).done_before):
                with self._alone(sweep):
                    sweep.read_chains(join_chunks(rows["transaction"]))
                    self._check_reading(sweep, "the sweep of {} ends here")

    def _check_reading(self, sweep: DatasetSweep, words: str) -> None:
        if fault := sweep.reading.fault:
            self._take_out(sweep, Refused(f"{words.format(sweep.dataset)}: {fault}"))

    def _stale(self, datasets: Collection[str]) -> set[str]:
        asked = self._active(datasets)
        self._asked = moment().running
        try:
            return {sweep.dataset for sweep in asked} - current(self.store, [sweep.reading for sweep in asked])
        except StoreFailed as fault:
            if len(asked) == 1:
                self._take_out(asked[0], fault)
                return set()
        # asked one by one, so that one failure concerns one dataset
        return set[str]().union(*(self._stale([sweep.dataset]) for sweep in asked))

    def _was_asked_lately(self) -> bool:
        return moment().running - self._asked < ASKED_LATELY

    def _log_of(self, datasets: Collection[str]) -> Log:
        readings = [sweep.reading for sweep in self._active(datasets)]
        if self._log is None or [*map(id, self._log[0])] != [*map(id, readings)]:
            self._log = readings, joined(readings)
        return self._log[1]

    # --- what an earlier sweep had begun, and what is due ---

    def _finish_begun(self, left: pa.Table) -> None:
        # by an earlier sweep or a person
        if not len(left := self._rows_of_active(left)):
            return
        self._open_reports(left)
        for name, rows in by_dataset(left).items():
            self.active[name].begun_earlier = frozenset(rows["id"].to_pylist())
        self.checked = Verdicts()
        self._recheck(left)
        stays = self.checked.reasons(Fate.KEPT, Fate.COMES_BACK, Fate.WAITS)
        staying = by_dataset(left.filter(rows_of_marks(left, stays)))
        self._settle({name: [_staying(mark, stays[mark]) for mark in rows["id"].to_pylist()] for name, rows in staying.items()})
        expired: dict[str, list[Settlement]] = {}
        going = self._rows_of_active(left, self.checked.go)
        for name, rows in by_dataset(going).items():
            sweep = self.active[name]
            with self._alone(sweep):
                self._compare_places(sweep, rows)
                sweep.result.planned += len(rows)
                expired[name] = sweep.settle_expired(rows)
        self._settle(expired)
        for sweep in self._active(expired):
            sweep.done |= {answer.mark for answer in expired[sweep.dataset]}
        # what waits to expire gets its time once more: the sweep that began it may have died before giving it
        for batch, targets in self._justified_batches(self._undone(going), left):
            self._finish_batch(batch, targets)

    def _look_at_aside(self, aside: pa.Table) -> None:
        # what is protected anew comes back; what is over is deleted for good
        if not len(aside := self._rows_of_active(aside)):
            return
        self.checked = Verdicts()
        self._recheck(aside)
        back = self._rows_of_active(aside, self.checked.back)
        where = (sorted(self.active), self.context.as_of, self.context.names, ASIDE)
        over = self.checked.go.intersection(self.context.ledger.sweeps.due(*where).tolist() if self.active else ())
        for rows, order in ((back, Order.RESTORE), (self._rows_of_active(aside, over), Order.DELETE_ASIDE)):
            if not len(rows):
                continue
            rows = rows.set_column(rows.column_names.index("order"), "order", pa.array([order] * len(rows), pa.string()))
            self._open_reports(rows)
            for name, own in by_dataset(rows).items():
                tried = self.context.ledger.trash.ever_deleted(own["id"].to_pylist()) if order is Order.DELETE_ASIDE else ()
                self.active[name].begun_earlier, self.active[name].has_failed = frozenset(), frozenset(tried)
                self._compare_places(self.active[name], own)
                self.active[name].result.planned += len(own)
            for batch, targets in self._justified_batches(rows, aside):
                self._finish_batch(batch, self._begin(batch, targets))

    def _compare_places(self, sweep: DatasetSweep, rows: pa.Table) -> None:
        # the trash is known by itself, wherever its dataset is by now
        planned = rows.filter(pc.not_equal(rows["status"], "SWEPT"))
        sweep.places = frozenset(planned["place"].to_pylist()) or frozenset({None})
        sweep.check_places()

    def _sweep_due(self, due: pa.Table) -> None:
        if not len(due):
            return
        self._open_reports(due)
        self._read_chains(due)
        if not len(due := self._rows_of_active(due)):
            return
        self.checked = Verdicts()
        self._recheck(due)
        planned = self._plan(self._rows_of_active(due, self.checked.go))
        for batch, targets in self._justified_batches(planned, due) if planned is not None else ():
            self._finish_batch(batch, self._begin(batch, targets))
            for sweep in (*self.active.values(), *self.again):
                if sweep.dataset in batch.targets:
                    self.context.on_progress(sweep.result)
        if self.context.stop.is_set():
            return
        sweeps = (*self.active.values(), *self.again)
        if plans := [(sweep.lease, sweep.plan) for sweep in sweeps if sweep.plan is not None]:
            self._lose(self.context.ledger.sweeps.finish([lease for lease, _ in plans], [plan for _, plan in plans]))
        for sweep in sweeps:
            sweep.plan = None

    def _sweepable(self, rows: pa.Table) -> pa.Table:
        rows = among_asked(self._undone(rows), [sweep.reading for sweep in self._active()])
        waits = {mark for name, marks in by_dataset(rows).items() for mark in self.active[name].waiting(marks)}
        return rows.filter(pc.invert(rows_of_marks(rows, waits))) if waits else rows

    # --- the re-check: what may still go ---

    def _protections(self) -> tuple[object, ...]:
        # the re-check stands as long as these and the log are the same
        return (self.context.ledger.leases.protections(), self.context.recheck.keepers.in_files())

    def _recheck(self, rows: pa.Table) -> None:
        names = _datasets_of(rows)
        # taken before holds and realms are read: a change in between still refuses the permit
        protections = self._protections()
        for sweep in self._active(names):
            sweep.permit.check_against(str(protections[0]))
            sweep.checked_under = protections
        log = self._log_of(names)
        result = self.context.recheck.check(log, rows, self.store, self._wanted_again(rows))
        self.checked |= result
        self.hidden -= names
        if result.spared:
            self._spare(rows.filter(rows_of_marks(rows, result.spared)), result.spared)
        goes = rows.filter(pc.and_(rows_of_marks(rows, result.go), pc.not_equal(rows["status"], "SWEPT")))
        keepers = self.context.recheck.keepers.in_force(self.context.as_of)
        faults = self.context.independent_check.faults(log, goes, self.store.log_is_complete, self.context.as_of, keepers)
        for sweep in self._active(faults):
            self._take_out(sweep, Refused(faults[sweep.dataset]))
        waits = self.checked.reasons(Fate.WAITS)
        for sweep in self._active(names):
            own = rows.filter(pc.equal(rows["dataset"], sweep.dataset))
            with self._alone(sweep):
                sweep.check_shared(own.filter(rows_of_marks(own, self.checked.go)))
            sweep.note_waiting(own, waits)

    def _wanted_again(self, rows: pa.Table) -> Mapping[tuple[str, str], str]:
        # what is set aside, and its store needs now
        wanted: dict[tuple[str, str], str] = {}
        if "order" not in rows.column_names:
            return wanted  # nothing of it was swept
        aside = pc.and_(pc.equal(rows["status"], "SWEPT"), pc.not_equal(rows["order"], Order.RESTORE))
        for name, own in by_dataset(rows.filter(aside)).items():
            sweep = self.active[name]
            with self._alone(sweep):
                answer = sweep.wanted_again(own["transaction"].to_pylist())
                wanted |= {(name, transaction): why for transaction, why in answer.items()}
        return wanted

    def _recheck_if_changed(self, batch: Batch, rows: pa.Table) -> None:
        unguarded, protections = self._may_be_stale(batch), self._protections()
        changed = {sweep.dataset for sweep in self._active(batch.targets) if sweep.checked_under != protections}
        # a store's log does not change with holds and realms: where reading is slow, only changed datasets are read again
        protected = set() if self.store.reads is Reads.SOME else changed
        stale = self._stale([name for name in unguarded if name in self.active and name not in protected])
        changed |= stale
        if not changed:
            return
        self._read_again(stale | protected)
        for sweep in self._active(changed):
            self._check_reading(sweep, "the sweep of {} ends here")
        # finished marks need no check, and would cost quadratic time where the log grows all the time
        again = self._undone(_rows_of(rows, changed & self.active.keys()))
        if len(again):
            self._recheck(again)

    def _spare(self, rows: pa.Table, needed: Mapping[int, str]) -> None:
        # of those on which a sweep had begun the store says what is left
        if rows["status"][0].as_py() == "SWEEPING":
            answers: dict[str, list[Settlement]] = {}
            for name, begun in by_dataset(rows).items():
                with self._alone(self.active[name]):
                    answers[name] = self.active[name].spare_begun(begun, needed)
            self._settle(answers)
            return
        leases = self._leases(_datasets_of(rows))
        spared = self.context.ledger.sweeps.spare(leases, needed, self.context.as_of.date())
        self._lose(spared.lost)
        for name, amount in Counter(spared.marks.values()).items():
            self.active[name].result.outcomes[Outcome.SPARED] += amount

    # --- plans ---

    def _plan(self, rows: pa.Table) -> pa.Table | None:
        # returns the rows of what was planned, with notes and orders
        ledger = self.context.ledger
        prepared: dict[str, dict[int, Planned]] = {}
        for name, marks in by_dataset(rows).items():
            with self._alone(self.active[name]):
                prepared[name] = self.active[name].prepare(marks)
        planned = {mark: entry for name in prepared for mark, entry in prepared[name].items() if name in self.active}
        # where the store knows nothing any more, an earlier plan's note stands
        for mark, note in ledger.sweeps.notes(mark for mark, entry in planned.items() if not entry.note).items():
            planned[mark] = planned[mark]._replace(note=note)
        places = {sweep.dataset: next(iter(sweep.places)) for sweep in self._active(prepared)}
        if not places:
            return None
        plans = ledger.sweeps.plan(self._leases(places), planned, self.context.as_of, places)
        self._lose(plans.lost)
        for sweep in self._active(plans.plans):
            sweep.plan = plans.plans[sweep.dataset]
            sweep.result.planned += sweep.plan.marks
        rows = self._rows_of_active(rows, plans.marks)
        present = ledger.clock.present(self.context.as_of)
        untils = self.context.recheck.untils_of(rows, present) if self.store.settings.undo_fault is None else {}
        names, ids = rows["dataset"].to_pylist(), rows["id"].to_pylist()
        facts = {
            "note": [planned[mark].note for mark in ids],
            "plan": [plans.plans[name].id for name in names],
            "order": [Order.SET_ASIDE if mark in untils else Order.DELETE for mark in ids],
            "until": [*map(untils.get, ids)],
        }
        for name, values in facts.items():
            rows = rows.append_column(field := PLANNED_ROWS.field(name), pa.array(values, field.type))
        return rows

    # --- batches ---

    def _justified_batches(self, rows: pa.Table, marks: pa.Table) -> Iterator[tuple[Batch, Targets]]:
        # Before each batch of the rows: if anything changed, all marks at hand are checked again; places are compared, stores
        # are told what was swept, and readers what goes.
        self._planned, self._begun = _datasets_of(rows), set()
        for batch in self._batches(rows):
            self._recheck_if_changed(batch, marks)
            for sweep in self._active(batch.targets):
                with self._alone(sweep):
                    sweep.check_places()
                    sweep.tell_swept()
            targets = self._justified(batch)
            if not batch.order.starts_in_trash:
                self._hide(marks, targets)
            yield batch, targets

    def _batches(self, rows: pa.Table) -> Iterator[Batch]:
        # at the pace of their policies, until a stop
        shares, together = self.store.shares_data, dict[int, int]()
        for mark in rows["id"].to_pylist():
            if first := self.checked.by_mark[mark].together or (mark if shares else None):
                together[mark] = first
        for batch in cut_batches(rows, self.context.recheck.sweeps_of(rows), together):
            if self.context.stop.is_set() or not any(name in self.active for name in batch.targets):
                continue
            takes = batch.takes()
            if takes and (wait := self.context.ledger.sweep_runs.reserve(takes)):
                if wait > _LOGGED_FROM:
                    time = timedelta(seconds=round(wait.total_seconds()))
                    _LOG.warning(
                        "The next batch of %s waits %s for the pace of its policy (sweep.every: %s). To go on sooner, stop "
                        "the run, give the policy a shorter `every`, and run again. `retention clock reset` clears all waits.",
                        ", ".join(sorted(batch.policies)), time, batch.sweep.every.words(),
                    )  # fmt: skip
                self.context.wait(wait, self.context.stop)
            if not self.context.stop.is_set():
                yield batch

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

    def _justified(self, batch: Batch) -> Targets:
        verdicts, goes = self.checked.by_mark, (Fate.GOES, Fate.COMES_BACK) if batch.order is Order.RESTORE else (Fate.GOES,)
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
                    aside="" if batch.order is Order.DELETE else f"{plan}/{mark}",
                )
                for mark, (transaction, note, plan) in batch.targets[sweep.dataset].items()
                if verdicts[mark].fate in goes
            }
            for sweep in self._active(batch.targets)
        }

    def _hide(self, rows: pa.Table, targets: Targets) -> None:
        names = {name for name, marks in targets.items() if marks and name in self.active} - self.hidden
        if not names:
            return
        going = _rows_of(rows, names)
        going = going.filter(rows_of_marks(going, self.checked.go))
        rows, why = self._log_of(names).transactions, "what was current before is swept"
        # past every instant that needs some of what goes, before any of it goes
        instants = _visible_from(rows, view_ends(rows, self.context.as_of), going)
        if instants:
            self.context.ledger.visibility.raise_to({name: Raise(at, why) for name, at in instants.items()}, self._holder)
        self.hidden |= names

    def _begin(self, batch: Batch, targets: Targets) -> Targets:
        # returns the targets on which the ledger lets the sweep begin
        for sweep in self._active(targets):
            with self._alone(sweep):
                sweep.permit()
        ledger, datasets = self.context.ledger, self._active(targets)
        plans = [sweep.plan for sweep in datasets if sweep.plan]
        marks = [mark for sweep in datasets for mark in targets[sweep.dataset]]
        leases = [sweep.lease for sweep in datasets]
        if batch.order is Order.RESTORE:
            why = next((self.checked.back[mark] for mark in marks), "")
            begun = ledger.trash.begin(leases, marks, batch.order, AskedBy(self._holder, why)) if marks else Moved({}, {})
        elif batch.order is Order.DELETE_ASIDE:
            begun = ledger.trash.begin(leases, marks, batch.order)
        else:
            begun = ledger.sweeps.begin(leases, plans, marks, batch.until) if marks else Moved({}, {})
        self._lose(begun.lost)
        # a hold from before they began is seen here at the latest, not only with the next beat
        protections = ledger.leases.protections()
        for sweep in self._active(targets):
            sweep.permit.notice(protections)
        return {
            sweep.dataset: {mark: target for mark, target in targets[sweep.dataset].items() if mark in begun.marks}
            for sweep in self._active(targets)
        }

    def _finish_batch(self, batch: Batch, targets: Targets) -> None:
        # where a permit was refused meanwhile, the sweep of that dataset ends, or it is checked again
        answers: dict[str, list[Settlement]] = {}
        datasets, stale = self._active(targets), set[str]()
        for number, sweep in enumerate(datasets):
            if number and not self.store.guards and not self._was_asked_lately():
                # earlier datasets of this batch may have taken long
                stale = self._stale([later.dataset for later in datasets[number:]])
            if sweep.dataset in stale:
                answers[sweep.dataset] = [Settlement(mark, Outcome.WITHHELD) for mark in targets[sweep.dataset]]
            elif sweep.dataset in self.active:
                answers[sweep.dataset] = sweep.execute(targets[sweep.dataset], batch)
        answers = {name: [self._with_witness(answer) for answer in given] for name, given in answers.items()}
        self._settle(answers)
        for sweep in self._active(answers):
            restored = {answer.mark for answer in answers[sweep.dataset] if answer.outcome is Outcome.RESTORED}
            if back := restored & self.checked.back.keys():
                sweep.hold_restored({mark: batch.targets[sweep.dataset][mark][0] for mark in back})
            withheld = {answer.mark: answer.error for answer in answers[sweep.dataset] if answer.outcome is Outcome.WITHHELD}
            sweep.done |= batch.targets[sweep.dataset].keys() - withheld.keys()
            if not withheld:
                continue
            with self._alone(sweep):
                try:
                    sweep.permit()
                except ProtectionsChanged:
                    raise
                except Withheld:
                    sweep.result.outcomes[Outcome.WITHHELD] += len(withheld)
                    raise
                if batch.order is not Order.DELETE and (fault := next(filter(None, withheld.values()), None)):
                    # by the store: what it begins is known by its folder in the trash, so it may not fail
                    raise Refused(f"what was begun of {sweep.dataset} could not be finished: {fault}")
                self._once_more(sweep)

    def _with_witness(self, answer: Settlement) -> Settlement:
        why = self.checked.back.get(answer.mark) if answer.outcome is Outcome.RESTORED else None
        return replace(answer, error=why) if why else answer

    def _settle(self, answers: Mapping[str, Sequence[Settlement]]) -> None:
        # a mark that only has its time now stays begun, until a later look finds it gone
        for sweep in self._active(answers):
            if waiting := sum(answer.outcome is Outcome.EXPIRING for answer in answers[sweep.dataset]):
                sweep.result.outcomes[Outcome.EXPIRING] += waiting
        over = {name: [answer for answer in given if answer.outcome not in BEGUN_STILL] for name, given in answers.items()}
        over = {name: given for name, given in over.items() if given}
        if not over:
            return
        settled = [answer for given in over.values() for answer in given]
        moved = self.context.ledger.sweeps.settle(self._leases(over), settled, self.context.as_of.date())
        self._lose(moved.lost)
        for sweep in self._active(over):
            with self._alone(sweep):
                sweep.count([answer for answer in over[sweep.dataset] if answer.mark in moved.marks])

    def _open_reports(self, rows: pa.Table) -> None:
        ledger, as_of = self.context.ledger, self.context.as_of
        new = _datasets_of(rows) - self.opened
        self.opened |= new
        if names := sorted(new - ledger.reports.opened(as_of.date(), new)) if new else []:
            rules, readings = self.context.rulebook.rules(names, as_of), [sweep.reading for sweep in self._active(names)]
            openings, logs = openings_of(ledger, self._log_of(names), readings, rules, as_of)
            ledger.reports.open(as_of.date(), openings, as_of, self._holder, logs)

    # --- the datasets of the round ---

    def _active(self, datasets: Collection[str] | None = None) -> list[DatasetSweep]:
        return [sweep for name, sweep in self.active.items() if datasets is None or name in datasets]

    def _leases(self, datasets: Collection[str]) -> list[Lease]:
        return [sweep.lease for sweep in self._active(datasets)]

    @property
    def _holder(self) -> str:
        return next(iter(self.active.values())).lease.holder

    @contextmanager
    def _alone(self, sweep: DatasetSweep) -> Iterator[None]:
        try:
            yield
        except ProtectionsChanged:
            self._once_more(sweep)
        except Refused as fault:
            self._take_out(sweep, fault)

    def _take_out(self, sweep: DatasetSweep, fault: Refused) -> None:
        if self.active.pop(sweep.dataset, None):
            sweep.result.refuse(fault)

    def _lose(self, lost: Mapping[str, str]) -> None:
        for sweep in self._active(lost):
            self._take_out(sweep, LeaseLost(lost[sweep.dataset]))

    def _once_more(self, sweep: DatasetSweep) -> None:
        if self.active.pop(sweep.dataset, None):
            # what was planned and not done is counted when it is planned again
            sweep.result.planned = len(sweep.done) + len(sweep.done_before)
            self.again.append(sweep)

    def _rows_of_active(self, rows: pa.Table, marks: Collection[int] | None = None) -> pa.Table:
        rows = _rows_of(rows, self.active)
        return rows if marks is None else rows.filter(rows_of_marks(rows, marks))

    def _undone(self, rows: pa.Table) -> pa.Table:
        rows = _rows_of(rows, self.active)
        done = pa.chunked_array([sweep.everything_done() for sweep in self._active()], pa.int64())
        return rows.filter(pc.invert(pc.is_in(rows["id"], done))) if len(done) else rows


def _staying(mark: int, why: str) -> Settlement:
    return Settlement(mark, Outcome.FAILED, error=f"It stays set aside. {why}")


def _datasets_of(rows: pa.Table) -> Set[str]:
    return frozenset(pc.unique(rows["dataset"]).to_pylist())


def _rows_of(rows: pa.Table, datasets: Collection[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows["dataset"], pa.array(sorted(datasets), pa.string())))


def _sliced(ids: npt.NDArray[np.int64], first: int) -> Iterator[npt.NDArray[np.int64]]:
    if not len(ids):
        return
    for begin, end in pairwise([0, *range(first, len(ids), SLICE), len(ids)]):
        yield ids[begin:end]


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
