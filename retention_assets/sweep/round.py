"""The rounds of a share: some datasets of one store under their leases, in the order that design section 7 gives.

The intent is in the ledger before the act, the outcome right after it; before each batch the store, holds and realms are asked
whether the re-check still stands, and readers are told what goes. The ledger is read and written once for all datasets of the
share; the store is asked dataset by dataset.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, Withheld
from retention_assets.frames.log import by_dataset
from retention_assets.ledger.batches import PLANNED_ROWS, Moved, Planned, Settlement
from retention_assets.ledger.schema import ASIDE, OPEN
from retention_assets.ledger.trash import AskedBy
from retention_assets.outcomes import IN_PLACE, Order, Outcome
from retention_assets.stores.protocol import Store
from retention_assets.sweep.checked import Checked, Targets
from retention_assets.sweep.dataset_sweep import ActiveDatasets, DatasetSweep, SweepContext, datasets_of
from retention_assets.sweep.execute import Batch, cut_batches
from retention_assets.sweep.opening import openings_of
from retention_assets.sweep.permit import ProtectionsChanged
from retention_assets.sweep.read import among_asked
from retention_assets.sweep.recheck import rows_of_marks
from retention_assets.sweep.verdicts import Fate

_LOG = logging.getLogger(__name__)
# shorter waits between batches are not logged
_LOGGED_FROM = timedelta(seconds=5)
# changes of holds and realms tolerated while one dataset is swept
_ROUNDS = 20
# Marks that are checked, prepared and planned before the first of them goes: neither memory nor that time grows with a dataset.
# The first slice is small: faults show early, and the first deletion comes soon.
FIRST_SLICE, SLICE = 5_000, 50_000
_ANY_TIME = datetime(9999, 1, 1, tzinfo=UTC)


def sweep_share(context: SweepContext, store: Store, share: Sequence[DatasetSweep], is_first: bool = True) -> None:
    """Sweep datasets: what an earlier sweep left, then everything that is due; and again whatever is left when holds or realms
    change. `is_first`: the first share of the sweep.
    """
    waiting = list(share)
    for round_ in range(_ROUNDS):
        first = FIRST_SLICE if is_first and not round_ else SLICE
        datasets = ActiveDatasets(context, waiting)
        waiting = _Round(context, store, datasets, Checked(context, store, datasets), min(first, SLICE)).run()
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
    datasets: ActiveDatasets
    checked: Checked
    first_slice: int
    # datasets whose report of the day is open
    opened: set[str] = field(default_factory=set)

    def run(self) -> list[DatasetSweep]:
        """Sweep; return the datasets that need another round."""
        ledger = self.context.ledger
        self._ask_permits()
        self.checked.read_fresh()
        # a dataset that is not there has nothing to sweep but its trash
        absent = {sweep.dataset: sweep for sweep in self.datasets.sweeps() if sweep.reading.token is None}
        begun_in_vain = self._finish_left(absent.keys())
        self._sweep_trash()
        self._sweep_due(absent.keys())
        for name, sweep in absent.items():
            if name in begun_in_vain or any(row.marks for row in ledger.marks.to_sweep(self.context.as_of, [name])):
                self.checked.refuse_unsound(sweep)
        if opened := sorted(self.opened & self.datasets.keys()):
            ledger.reports.finish_done(self.datasets.holder, opened)
        return self.datasets.again

    def _ask_permits(self) -> None:
        protections = self.context.ledger.leases.protections()
        for sweep in self.datasets.sweeps():
            with self.datasets.alone(sweep):
                sweep.permit.check_against(protections)
                sweep.permit()

    # --- begun by an earlier sweep, or by a person ---

    def _finish_left(self, absent: Set[str]) -> Set[str]:
        """Finish what was begun; return the absent datasets of which it can't be finished."""
        only, names, sweeps = self.context.only, self.context.names, self.context.ledger.sweeps
        left = self.datasets.undone(sweeps.planned(begun_in=sorted(self.datasets), names=names))
        is_absent = pc.is_in(left["dataset"], pa.array([*absent], pa.string()))
        in_vain = pc.and_(is_absent, pc.not_equal(left["order"], Order.DELETE_ASIDE))
        begun_in_vain, left = datasets_of(left.filter(in_vain)), left.filter(pc.invert(in_vain))
        if only is None:
            is_aside, is_replay = pc.equal(left["status"], "SWEPT"), pc.equal(left["order"], Order.REPLAY)
            self._finish_begun(self._sweepable(left.filter(pc.invert(pc.or_(is_aside, is_replay)))))
            self._finish_begun(left.filter(is_replay))
            self._finish_begun(left.filter(is_aside))
        else:
            self._finish_begun(left.filter(pc.equal(left["order"], only)))
        return begun_in_vain

    def _finish_begun(self, begun: pa.Table) -> None:
        if not len(begun := self.datasets.rows(begun)):
            return
        self._open_reports(begun)
        for name, rows in by_dataset(begun).items():
            self.datasets[name].begun_earlier = frozenset(rows["id"].to_pylist())
            replays = rows.filter(pc.equal(rows["order"], Order.REPLAY)).select(["id", "changed_at"]).to_pydict()
            self.datasets[name].swept_at = dict(zip(replays["id"], replays["changed_at"], strict=True))
        self.checked.check(begun)
        self._leave_aside(begun, self.checked.verdicts.reasons(Fate.KEPT, Fate.COMES_BACK, Fate.WAITS))
        going = self.datasets.rows(begun, self.checked.verdicts.go)
        self._settle_expired(going)
        # what waits to expire gets its time once more: the sweep that began it may have died before giving it
        for batch, targets in self._justified_batches(self.datasets.undone(going), begun):
            self._carry_out(batch, targets)

    def _leave_aside(self, begun: pa.Table, reasons: Mapping[int, str]) -> None:
        stays: dict[str, list[Settlement]] = {}
        for row in begun.filter(rows_of_marks(begun, reasons)).select(["id", "dataset"]).to_pylist():
            answer = Settlement(row["id"], Outcome.FAILED, error=f"It stays set aside. {reasons[row['id']]}")
            stays.setdefault(row["dataset"], []).append(answer)
        self.datasets.settle(stays)

    def _settle_expired(self, going: pa.Table) -> None:
        expired: dict[str, list[Settlement]] = {}
        for name, rows in by_dataset(going).items():
            sweep = self.datasets[name]
            with self.datasets.alone(sweep):
                # The trash is known by itself, wherever its dataset is. What is replayed may be where a backup was accepted.
                is_there = pc.or_(pc.equal(rows["status"], "SWEPT"), pc.equal(rows["order"], Order.REPLAY))
                planned = rows.filter(pc.invert(is_there))
                sweep.places = frozenset(planned["place"].to_pylist()) or frozenset({None})
                sweep.check_places()
                sweep.result.planned += len(rows)
                expired[name] = sweep.settle_expired(rows)
        self.datasets.settle(expired)
        for sweep in self.datasets.sweeps(expired):
            sweep.done |= {answer.mark for answer in expired[sweep.dataset]}

    # --- set aside: what is protected anew comes back, in each run and before its time is over; what is over is deleted ---

    def _sweep_trash(self) -> None:
        for ids in self._slices(ASIDE, _ANY_TIME, SLICE, self.datasets):
            aside = self.datasets.undone(self.context.ledger.sweeps.planned(ids))
            if not len(aside):
                continue
            self.checked.check(aside)
            self._sweep_aside(aside, self.checked.verdicts.back, Order.RESTORE)
            where = (sorted(self.datasets), self.context.as_of, self.context.names, ASIDE)
            over = self.context.ledger.sweeps.due(*where).tolist()
            self._sweep_aside(aside, self.checked.verdicts.go.intersection(over), Order.DELETE_ASIDE)

    def _sweep_aside(self, aside: pa.Table, marks: Collection[int], order: Order) -> None:
        rows = self.datasets.rows(aside, marks)
        if not len(rows):
            return
        rows = rows.set_column(rows.column_names.index("order"), "order", pa.array([order] * len(rows), pa.string()))
        self._open_reports(rows)
        for name, own in by_dataset(rows).items():
            tried = self.context.ledger.trash.ever_deleted(own["id"].to_pylist()) if order is Order.DELETE_ASIDE else ()
            sweep = self.datasets[name]
            sweep.begun_earlier, sweep.has_failed, sweep.places = frozenset(), frozenset(tried), frozenset({None})
            sweep.result.planned += len(own)
        for batch, targets in self._justified_batches(rows, aside):
            self._carry_out(batch, self._begin(batch, targets))

    # --- due ---

    def _sweep_due(self, absent: Set[str]) -> None:
        for ids in self._slices(OPEN, self.context.as_of, self.first_slice, self.datasets.keys() - absent):
            due = self._sweepable(self.context.ledger.marks.by_ids(ids, ["MARKED"]))
            if len(due):
                self._open_reports(due)
                self.checked.read_chains(due)
                self._sweep_slice(self.datasets.rows(due))

    def _sweep_slice(self, due: pa.Table) -> None:
        if not len(due):
            return
        self.checked.check(due)
        planned = self._plan(self.datasets.rows(due, self.checked.verdicts.go))
        for batch, targets in self._justified_batches(planned, due) if planned is not None else ():
            self._carry_out(batch, self._begin(batch, targets))
            for sweep in self.datasets.with_again():
                if sweep.dataset in batch.targets:
                    self.context.on_progress(sweep.result)
        if self.context.stop.is_set():
            return
        sweeps = self.datasets.with_again()
        if plans := [(sweep.lease, sweep.plan) for sweep in sweeps if sweep.plan is not None]:
            self.datasets.lose(self.context.ledger.sweeps.finish([lease for lease, _ in plans], [plan for _, plan in plans]))
        for sweep in sweeps:
            sweep.plan = None

    def _plan(self, rows: pa.Table) -> pa.Table | None:
        """Record a plan; return the rows of what was planned, with notes and orders."""
        ledger = self.context.ledger
        prepared: dict[str, dict[int, Planned]] = {}
        for name, marks in by_dataset(rows).items():
            with self.datasets.alone(self.datasets[name]):
                prepared[name] = self.datasets[name].prepare(marks)
        planned = {mark: entry for name in prepared for mark, entry in prepared[name].items() if name in self.datasets}
        # where the store knows nothing any more, an earlier plan's note stands
        for mark, note in ledger.sweeps.notes(mark for mark, entry in planned.items() if not entry.note).items():
            planned[mark] = planned[mark]._replace(note=note)
        places = {sweep.dataset: next(iter(sweep.places)) for sweep in self.datasets.sweeps(prepared)}
        if not places:
            return None
        plans = ledger.sweeps.plan(self.datasets.leases(places), planned, self.context.as_of, places)
        self.datasets.lose(plans.lost)
        for sweep in self.datasets.sweeps(plans.plans):
            sweep.plan = plans.plans[sweep.dataset]
            sweep.result.planned += sweep.plan.marks
        rows = self.datasets.rows(rows, plans.marks)
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

    # --- slices and batches ---

    def _slices(self, state: str, until: datetime, first: int, datasets: Collection[str]) -> Iterator[list[int]]:
        if self.context.only is not None or not datasets:
            return
        every = self.context.ledger.sweeps.due(sorted(datasets), until, self.context.names, state)
        # what shares data is checked together
        first = max(first, len(every)) if self.store.shares_data else first
        for begin, end in pairwise([0, *range(first, len(every), SLICE), len(every)]):
            if self.context.stop.is_set() or not self.datasets or begin == end:
                return
            yield every[begin:end].tolist()
            for sweep in self.datasets.with_again():
                sweep.done_before.extend(sweep.done)
                sweep.done = set()

    def _sweepable(self, rows: pa.Table) -> pa.Table:
        rows = among_asked(self.datasets.undone(rows), [sweep.reading for sweep in self.datasets.sweeps()])
        waits = {mark for name, marks in by_dataset(rows).items() for mark in self.datasets[name].waiting(marks)}
        return rows.filter(pc.invert(rows_of_marks(rows, waits))) if waits else rows

    def _justified_batches(self, rows: pa.Table, marks: pa.Table) -> Iterator[tuple[Batch, Targets]]:
        # Before each batch of the rows: if anything changed, all marks at hand are checked again; places are compared, stores
        # are told what was swept, and readers what goes.
        self.checked.begin_batches(rows)
        for batch in self._batches(rows):
            self.checked.check_if_changed(batch, marks)
            for sweep in self.datasets.sweeps(batch.targets):
                with self.datasets.alone(sweep):
                    sweep.check_places()
                    sweep.tell_swept()
            targets = self.checked.targets_of(batch)
            if not batch.order.starts_in_trash:
                self.checked.tell_readers(marks, targets)
            yield batch, targets

    def _batches(self, rows: pa.Table) -> Iterator[Batch]:
        # at the pace of their policies, until a stop
        shares, together = self.store.shares_data, dict[int, int]()
        for mark in rows["id"].to_pylist():
            if first := self.checked.verdicts.by_mark[mark].together or (mark if shares else None):
                together[mark] = first
        for batch in cut_batches(rows, self.context.recheck.sweeps_of(rows), together):
            if self.context.stop.is_set() or not batch.targets.keys() & self.datasets.keys():
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

    def _begin(self, batch: Batch, targets: Targets) -> Targets:
        """Return the targets on which the ledger lets the sweep begin."""
        for sweep in self.datasets.sweeps(targets):
            with self.datasets.alone(sweep):
                sweep.permit()
        ledger, datasets = self.context.ledger, self.datasets.sweeps(targets)
        plans = [sweep.plan for sweep in datasets if sweep.plan]
        marks = [mark for sweep in datasets for mark in targets[sweep.dataset]]
        leases = [sweep.lease for sweep in datasets]
        if not marks:
            begun = Moved({}, {})
        elif batch.order is Order.RESTORE:
            why = self.checked.verdicts.back[marks[0]]
            begun = ledger.trash.begin(leases, marks, batch.order, AskedBy(self.datasets.holder, why))
        elif batch.order is Order.DELETE_ASIDE:
            begun = ledger.trash.begin(leases, marks, batch.order)
        else:
            begun = ledger.sweeps.begin(leases, plans, marks, batch.until)
        self.datasets.lose(begun.lost)
        # a hold from before they began is seen here at the latest, not only with the next beat
        protections = ledger.leases.protections()
        for sweep in self.datasets.sweeps(targets):
            sweep.permit.notice(protections)
        return {
            sweep.dataset: {mark: target for mark, target in targets[sweep.dataset].items() if mark in begun.marks}
            for sweep in self.datasets.sweeps(targets)
        }

    def _carry_out(self, batch: Batch, targets: Targets) -> None:
        # where a permit was refused meanwhile, the sweep of that dataset ends, or it is checked again
        answers: dict[str, list[Settlement]] = {}
        datasets, stale = self.datasets.sweeps(targets), set[str]()
        for number, sweep in enumerate(datasets):
            if number:
                # earlier datasets of this batch may have taken long
                stale |= self.checked.changed_meanwhile([later.dataset for later in datasets[number:]])
            if sweep.dataset in stale:
                answers[sweep.dataset] = [Settlement(mark, Outcome.WITHHELD) for mark in targets[sweep.dataset]]
            elif sweep.dataset in self.datasets:
                answers[sweep.dataset] = [*map(self._with_witness, sweep.execute(targets[sweep.dataset], batch))]
        self.datasets.settle(answers)
        for sweep in self.datasets.sweeps(answers):
            restored = {answer.mark for answer in answers[sweep.dataset] if answer.outcome is Outcome.RESTORED}
            if back := restored & self.checked.verdicts.back.keys():
                sweep.hold_restored({mark: batch.targets[sweep.dataset][mark][0] for mark in back})
            withheld = {answer.mark: answer.error for answer in answers[sweep.dataset] if answer.outcome is Outcome.WITHHELD}
            sweep.done |= batch.targets[sweep.dataset].keys() - withheld.keys()
            if not withheld:
                continue
            with self.datasets.alone(sweep):
                try:
                    sweep.permit()
                except ProtectionsChanged:
                    raise
                except Withheld:
                    sweep.result.outcomes[Outcome.WITHHELD] += len(withheld)
                    raise
                if batch.order not in IN_PLACE and (fault := next(filter(None, withheld.values()), None)):
                    # by the store: what it begins is known by its folder in the trash, so it may not fail
                    raise Refused(f"what was begun of {sweep.dataset} could not be finished: {fault}")
                self.datasets.once_more(sweep)

    def _with_witness(self, answer: Settlement) -> Settlement:
        why = self.checked.verdicts.back.get(answer.mark) if answer.outcome is Outcome.RESTORED else None
        return replace(answer, error=why) if why else answer

    # --- reports ---

    def _open_reports(self, rows: pa.Table) -> None:
        ledger, as_of = self.context.ledger, self.context.as_of
        new = datasets_of(rows) - self.opened
        self.opened |= new
        if names := sorted(new - ledger.reports.opened(as_of.date(), new)) if new else []:
            rules, readings = (
                self.context.rulebook.rules(names, as_of),
                [sweep.reading for sweep in self.datasets.sweeps(names)],
            )
            openings, logs = openings_of(ledger, self.checked.log_of(names), readings, rules, as_of)
            ledger.reports.open(as_of.date(), openings, as_of, self.datasets.holder, logs)
