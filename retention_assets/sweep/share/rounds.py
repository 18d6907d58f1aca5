"""The rounds of a share: some datasets of one store under their leases, in the order that design section 7 gives.

The intent is in the ledger before the act, the outcome right after it; before each batch the store, holds and realms are asked
whether the re-check still stands. The ledger is read and written once for all datasets of the share; the store is asked dataset
by dataset.

A dataset of which a step fails, whose place moved or whose lease is lost is taken out of the share with its reason. It stops no
other.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, Withheld
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.ledger.sweeps.writes import Moved, Planned, Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy.model import Sweep
from retention_assets.stores.protocol import SelectiveStore, Store, Target
from retention_assets.sweep.dataset_sweep import BEGUN_STILL, DatasetSweep, SweepContext, among
from retention_assets.sweep.execute import Batch, cut_batches
from retention_assets.sweep.permit import ProtectionsChanged
from retention_assets.sweep.places import check_places
from retention_assets.sweep.read import by_dataset
from retention_assets.sweep.recheck import RecheckResult
from retention_assets.sweep.report_classes import classes_judged, opening_of
from retention_assets.sweep.share.datasets import ShareDatasets, names_of, rows_of
from retention_assets.sweep.share.readings import ShareReadings
from retention_assets.sweep.visibility import hide_swept
from retention_assets.sweep.wanted import among_asked

_LOG = logging.getLogger(__name__)
# a wait between batches is reported from here on
_SAID_FROM = timedelta(seconds=5)
# changes of holds and realms tolerated while one dataset is swept
_ROUNDS = 20
# Marks that are checked, prepared and planned before the first of them goes: neither memory nor that time grows with a dataset.
# The first slice is small: faults show early, and the first deletion comes soon.
FIRST_SLICE, SLICE = 5_000, 50_000

Spare = Callable[[pa.Table, Mapping[int, str]], None]


def sweep_share(context: SweepContext, store: Store, share: Sequence[DatasetSweep], is_first: bool = True) -> None:
    """Sweep datasets: what an earlier sweep left, then everything that is due; and again whatever is left when holds or realms
    change. `is_first`: the first share of the sweep.
    """
    waiting = list(share)
    for round_ in range(_ROUNDS):
        datasets = ShareDatasets({one.dataset: one for one in waiting})
        first = FIRST_SLICE if is_first and not round_ else SLICE
        waiting = _Round(context, store, datasets, ShareReadings(context.ledger, store, datasets), min(first, SLICE)).run()
        if not waiting:
            return
    for one in waiting:
        one.refuse(Refused(f"the sweep of {one.dataset} ends here: holds or realms changed {_ROUNDS} times meanwhile"))


@dataclass
class _Round:
    """One pass over a share."""

    context: SweepContext
    store: Store
    datasets: ShareDatasets
    readings: ShareReadings
    first_slice: int
    # result of the re-check of the marks at hand
    checked: RecheckResult = field(default_factory=RecheckResult)
    # datasets whose readers know what goes by the last re-check
    hidden: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)

    def run(self) -> list[DatasetSweep]:
        """Sweep; return the datasets that need another round."""
        ledger, said = self.context.ledger, self.context.ledger.leases.protections()
        for one in self.datasets.each():
            with self.datasets.alone(one):
                one.permit.check_against(said)
                one.permit()
        self.readings.begin_round()
        left = self._sweepable(ledger.sweeps.left(self.datasets.names(), self.context.names))
        if len(left):
            self._open_reports(left)
            self._finish_begun(left)
        about = (self.datasets.names(), self.context.as_of, self.context.names)
        ids = ledger.sweeps.due(*about) if self.datasets else np.empty(0, np.int64)
        for some in _sliced(ids, self.first_slice):
            if self.context.stop.is_set() or not self.datasets:
                break
            due = self._sweepable(ledger.sweeps.due_rows(some.tolist()))
            if len(due):
                self._open_reports(due)
                self.readings.read_chains(due)
                if len(mine := self.datasets.rows(due)):
                    self._sweep_due(mine)
            for one in self.datasets.everyone():
                one.end_slice()
        if self.opened & self.datasets.going.keys():
            ledger.reports.finish_done(self.datasets.holder(), sorted(self.opened & self.datasets.going.keys()))
        return self.datasets.again

    # --- which marks ---

    def _sweepable(self, rows: pa.Table) -> pa.Table:
        """Marks on which anything can be done and is not done yet."""
        rows = self.datasets.undone(self.datasets.rows(rows))
        rows = among_asked(
            rows, ((one.dataset, one.reading.asked) for one in self.datasets.each() if one.reading.asked is not None)
        )
        parts = by_dataset(rows) if not self.store.capabilities.expiry else {}
        waits = {mark for name, mine in parts.items() for mark in self.datasets[name].waiting_without_ttl(mine)}
        return rows.filter(pc.invert(among(rows, waits))) if waits else rows

    # --- what an earlier sweep had begun ---

    def _finish_begun(self, left: pa.Table) -> None:
        """Marks on which a sweep had begun are deleted to the end, unless somebody needs them now."""
        for name, mine in by_dataset(left).items():
            self.datasets[name].begun_earlier = frozenset(mine["id"].to_pylist())
        self.checked = RecheckResult()
        self._recheck(left, self._spare_begun)
        rows = self.datasets.rows(left).filter(among(self.datasets.rows(left), self.checked.go))
        places: dict[str, set[str | None]] = {}
        answers: dict[str, list[Settlement]] = {}
        for name, mine in by_dataset(rows).items():
            one, places[name] = self.datasets[name], set(mine["place"].to_pylist())
            with self.datasets.alone(one):
                check_places(self.store, name, places[name])
                one.place = None if None in places[name] else min(filter(None, places[name]), default=None)
                one.result.planned += len(mine)
                answers[name] = one.settle_expired(mine)
        self._settle(answers)
        for one in self.datasets.each(answers):
            one.done |= {answer.mark for answer in answers[one.dataset]}
        rows = self.datasets.undone(self.datasets.rows(rows))
        names, began = names_of(rows), set[str]()
        for batch in self._batches(rows, left):
            self._recheck_if_changed(batch, left, self._spare_begun, self.readings.unguarded(batch, names, began))
            for one in self.datasets.each(batch.targets):
                with self.datasets.alone(one):
                    check_places(self.store, one.dataset, places[one.dataset])
            targets = self._justified(batch)
            self._hide(left, targets)
            # what waits to expire is given its time once more: the sweep that began it may have died before
            self._finish_batch(batch, targets)

    def _spare_begun(self, rows: pa.Table, needed: Mapping[int, str]) -> None:
        answers: dict[str, list[Settlement]] = {}
        for name, mine in by_dataset(rows.filter(among(rows, needed))).items():
            with self.datasets.alone(self.datasets[name]):
                answers[name] = self.datasets[name].spare_begun(mine, needed)
        self._settle(answers)

    # --- what is due ---

    def _sweep_due(self, due: pa.Table) -> None:
        """Marks whose grace is over: checked, planned, and deleted batch by batch."""
        self.checked = RecheckResult()
        self._recheck(due, self._spare)
        rows = self._plan(self.datasets.rows(due).filter(among(self.datasets.rows(due), self.checked.go)))
        names, began = names_of(rows), set[str]()
        for batch in self._batches(rows, due):
            self._recheck_if_changed(batch, due, self._spare, self.readings.unguarded(batch, names, began))
            for one in self.datasets.each(batch.targets):
                with self.datasets.alone(one):
                    check_places(self.store, one.dataset, {one.place})
            targets = self._justified(batch)
            self._hide(due, targets)
            for one in self.datasets.each(targets):
                with self.datasets.alone(one):
                    one.permit()
            self._begin(batch, {name: mine for name, mine in targets.items() if name in self.datasets})
        if not self.context.stop.is_set():
            self._finish_plans(self.datasets.everyone())

    def _begin(self, batch: Batch, targets: Mapping[str, Mapping[int, Target]]) -> None:
        ledger, plans = self.context.ledger, [one.plan for one in self.datasets.each(targets) if one.plan]
        marks = [mark for mine in targets.values() for mark in mine]
        begun = ledger.sweeps.begin(self.datasets.leases(targets), plans, marks) if marks else Moved({}, {})
        self.datasets.lose(begun.lost)
        # a hold from before they began is seen here at the latest, not only with the next beat
        said = ledger.leases.protections()
        for one in self.datasets.each(targets):
            one.permit.notice(said)
        self._finish_batch(
            batch, {name: {mark: one for mark, one in mine.items() if mark in begun.marks} for name, mine in targets.items()}
        )
        for one in self.datasets.everyone():
            if one.dataset in batch.targets:
                self.context.on_progress(one.result)

    def _plan(self, rows: pa.Table) -> pa.Table:
        """Record what is about to go, with the store's notes; return its rows."""
        ledger = self.context.ledger
        planned: dict[str, dict[int, Planned]] = {}
        for name, mine in by_dataset(rows).items():
            with self.datasets.alone(self.datasets[name]):
                planned[name] = self.datasets[name].prepare(mine)
        mine = {mark: one for name in planned for mark, one in planned[name].items() if name in self.datasets}
        # where the store knows nothing any more, an earlier plan's note stands
        for mark, note in ledger.sweeps.notes(mark for mark, one in mine.items() if not one.note).items():
            mine[mark] = mine[mark]._replace(note=note)
        places = {one.dataset: one.place for one in self.datasets.each(planned)}
        if not places:
            return rows.slice(0, 0).append_column("note", pa.array([], pa.string()))
        made = ledger.sweeps.plan(self.datasets.leases(places), mine, self.context.as_of, places)
        self.datasets.lose(made.lost)
        for one in self.datasets.each(made.plans):
            one.plan = made.plans[one.dataset]
            one.result.planned += one.plan.marks
        rows = self.datasets.rows(rows).filter(among(self.datasets.rows(rows), made.marks))
        return rows.append_column("note", pa.array([mine[mark].note for mark in rows["id"].to_pylist()], pa.string()))

    def _finish_plans(self, some: Iterable[DatasetSweep]) -> None:
        """Finish the plans of datasets that are done, or whose unbegun marks go into another plan."""
        over = [one for one in some if one.plan is not None]
        if over:
            plans = [one.plan for one in over if one.plan is not None]
            self.datasets.lose(self.context.ledger.sweeps.finish([one.lease for one in over], plans))
        for one in over:
            one.plan = None

    def _spare(self, rows: pa.Table, needed: Mapping[int, str]) -> None:
        names = pc.unique(rows.filter(among(rows, needed))["dataset"]).to_pylist()
        spared = self.context.ledger.sweeps.spare(self.datasets.leases(names), needed, self.context.as_of.date())
        self.datasets.lose(spared.lost)
        for name, amount in Counter(spared.marks.values()).items():
            self.datasets[name].result.outcomes[Outcome.SPARED] += amount

    # --- whether it may still go ---

    def _protections(self) -> tuple[object, ...]:
        """The re-check stands as long as these holds and realms and the log are the same."""
        return (self.context.ledger.leases.protections(), self.context.recheck.file_holds())

    def _recheck(self, rows: pa.Table, spare: Spare) -> None:
        """Check marks against the store, holds and realms as they are now; spare those no longer justified."""
        names = names_of(rows)
        # before they are read: a change in between is read, and still refuses the permit
        said = self._protections()
        for one in self.datasets.each(names):
            one.permit.check_against(str(said[0]))
            one.checked_under = said
        log, capabilities = self.readings.log_of(names), self.store.capabilities
        found = self.context.recheck.check(log, rows, capabilities)
        self.checked = self.checked.with_(found, rows["id"].to_pylist())
        self.hidden -= names
        if found.spared:
            spare(rows, found.spared)
        goes = rows.filter(among(rows, found.go))
        faults = self.context.independent_check.faults(log, goes, capabilities.log_is_complete, self.context.as_of)
        for one in self.datasets.each(faults):
            self.datasets.take_out(one, Refused(faults[one.dataset]))

    def _recheck_if_changed(self, batch: Batch, rows: pa.Table, spare: Spare, unguarded: Collection[str]) -> None:
        """Check again if holds, realms or the log changed; the log is skipped where the store guards what was read."""
        said = self._protections()
        changed = {one.dataset for one in self.datasets.each(batch.targets) if one.checked_under != said}
        # holds and realms are nothing that a store knows: one that is slow to read is only read again if it changed itself
        protected = set() if isinstance(self.store, SelectiveStore) else changed
        stale = self.readings.stale([name for name in unguarded if name in self.datasets and name not in protected])
        changed |= stale
        if not changed:
            return
        self.readings.read_again(stale | protected)
        for one in self.datasets.each(changed):
            self.readings.check(one, "the sweep of {} ends here")
        # finished marks need no check; with a log that is added to all the time they would cost quadratic time
        mine = self.datasets.undone(rows_of(rows, changed & self.datasets.going.keys()))
        if len(mine):
            self._recheck(mine, spare)

    def _justified(self, batch: Batch) -> dict[str, dict[int, Target]]:
        latest, ended, go = self.checked.in_latest_view, self.checked.ended_refs, self.checked.go
        return {
            one.dataset: {
                mark: Target(
                    transaction,
                    note,
                    in_latest_view=mark in latest,
                    place_known=one.place is not None,
                    ended_refs=ended.get(mark, ()),
                    begun_earlier=mark in one.begun_earlier,
                )
                for mark, (transaction, note) in batch.targets[one.dataset].items()
                if mark in go
            }
            for one in self.datasets.each(batch.targets)
        }

    def _hide(self, rows: pa.Table, targets: Mapping[str, Mapping[int, Target]]) -> None:
        """Tell readers what goes by the last re-check, once for each."""
        names = {name for name, mine in targets.items() if mine and name in self.datasets} - self.hidden
        if not names:
            return
        mine = rows_of(rows, names)
        mine = mine.filter(among(mine, self.checked.go))
        hide_swept(
            self.context.ledger, self.datasets.holder(), self.readings.log_of(names).transactions, mine, self.context.as_of
        )
        self.hidden |= names

    # --- batches ---

    def _batches(self, rows: pa.Table, marks: pa.Table) -> Iterator[Batch]:
        """The rows in batches, at the pace of their policies, until a stop."""
        sweeps: Mapping[int, Sweep] = self.context.recheck.sweeps_of(marks)
        for batch in cut_batches(rows, sweeps):
            if self.context.stop.is_set() or not any(name in self.datasets for name in batch.targets):
                continue
            takes = batch.takes()
            if takes and (wait := self.context.ledger.sweep_runs.reserve(takes)):
                if wait > _SAID_FROM:
                    time = timedelta(seconds=round(wait.total_seconds()))
                    _LOG.warning(
                        "The next batch of %s waits %s for the pace of its policy (sweep.every: %s). To go on sooner: stop the"
                        " run, give the policy a shorter `every`, and run again; `retention clock reset` forgets all paces.",
                        ", ".join(sorted(batch.policies)), time, batch.sweep.every.words(),
                    )  # fmt: skip
                self.context.wait(wait, self.context.stop)
            if not self.context.stop.is_set():
                yield batch

    def _finish_batch(self, batch: Batch, targets: Mapping[str, Mapping[int, Target]]) -> None:
        """Have a batch deleted and record the outcomes. Where a permit was refused meanwhile, the sweep of that dataset ends,
        or it is checked again.
        """
        answers: dict[str, list[Settlement]] = {}
        waiting, stale = [one.dataset for one in self.datasets.each(targets)], set[str]()
        for one in self.datasets.each(targets):
            if one.dataset != waiting[0] and not self.store.capabilities.guards and not self.readings.asked_lately():
                # earlier datasets of this batch may have taken long
                stale = self.readings.stale(waiting[waiting.index(one.dataset) :])
            if one.dataset in stale:
                answers[one.dataset] = [Settlement(mark, Outcome.WITHHELD) for mark in targets[one.dataset]]
            elif one.dataset in self.datasets:
                answers[one.dataset] = one.execute(targets[one.dataset], batch.sweep)
        self._settle(answers)
        for one in self.datasets.each(answers):
            withheld = {answer.mark for answer in answers[one.dataset] if answer.outcome is Outcome.WITHHELD}
            one.done |= batch.targets[one.dataset].keys() - withheld
            if not withheld:
                continue
            with self.datasets.alone(one):
                try:
                    one.permit()
                except ProtectionsChanged:
                    raise
                except Withheld:
                    one.result.outcomes[Outcome.WITHHELD] += len(withheld)
                    raise
                self.datasets.once_more(one)

    def _settle(self, answers: Mapping[str, Sequence[Settlement]]) -> None:
        """Record outcomes. A mark that only has its time now stays begun, until a later look finds it gone."""
        for one in self.datasets.each(answers):
            if waiting := sum(answer.outcome is Outcome.EXPIRING for answer in answers[one.dataset]):
                one.result.outcomes[Outcome.EXPIRING] += waiting
        over = {name: [one for one in mine if one.outcome not in BEGUN_STILL] for name, mine in answers.items()}
        over = {name: mine for name, mine in over.items() if mine}
        if not over:
            return
        everything = [one for mine in over.values() for one in mine]
        moved = self.context.ledger.sweeps.settle(
            [one.lease for one in self.datasets.each(over)], everything, self.context.as_of.date()
        )
        self.datasets.lose(moved.lost)
        for one in self.datasets.each(over):
            with self.datasets.alone(one):
                one.tell([answer for answer in over[one.dataset] if answer.mark in moved.marks])

    # --- the day's report ---

    def _open_reports(self, rows: pa.Table) -> None:
        """Open the day's reports where this is the day's first sweep that concerns a dataset."""
        ledger, as_of = self.context.ledger, self.context.as_of
        new = names_of(rows) - self.opened
        self.opened |= new
        names = sorted(new - ledger.reports.opened(as_of.date(), new)) if new else []
        if not names:
            return
        log = self.readings.log_of(names)
        rules = self.context.rulebook.rules(names, as_of)
        verdicts = by_dataset(candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, as_of))
        marks = ledger.sweeps.classed(names, as_of)
        counts = ledger.evaluations.counts(one.dataset for one in self.datasets.each(names) if one.reading.asked is not None)
        openings, logs = {}, {}
        for one in self.datasets.each(names):
            name, log = one.dataset, one.reading.log
            mine = marks if len(names) == 1 else marks.filter(pc.equal(marks["dataset"], name))
            found = verdicts.get(name)
            empty = next(iter(verdicts.values())).slice(0, 0) if verdicts else log.transactions
            openings[name] = opening_of(name, log, empty if found is None else found, mine, rules, as_of)
            if one.reading.asked is not None:
                openings[name] = replace(openings[name], classes=classes_judged(counts.get(name, ()), mine))
            logs[name] = sum(openings[name].classes.values()) if one.reading.asked is not None else len(log.transactions)
        ledger.reports.open(as_of.date(), openings, as_of, self.datasets.holder(), logs)


def _sliced(ids: npt.NDArray[np.int64], first: int) -> Iterator[npt.NDArray[np.int64]]:
    if not len(ids):
        return
    for begin, end in pairwise([0, *range(first, len(ids), SLICE), len(ids)]):
        yield ids[begin:end]
