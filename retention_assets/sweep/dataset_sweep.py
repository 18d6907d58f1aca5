"""The sweep of one dataset under its lease, in the order that design section 7 gives.

Belongs here: that order. The intent is in the ledger before the act, the outcome right after it; before each batch the store,
holds and realms are asked whether the re-check still stands.
Does not belong here: the parts (read, recheck, independent_check, execute) and what the ledger writes.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, Withheld
from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import Lease
from retention_assets.ledger.sweeps import Plan, Planned, Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Sweep
from retention_assets.stores.protocol import Remains, Store, Target, call_store
from retention_assets.sweep.execute import Batch, cut_batches, execute_deletion, execute_expiry
from retention_assets.sweep.independent_check import IndependentCheck
from retention_assets.sweep.permit import ProtectionsChanged, SweepPermit
from retention_assets.sweep.places import check_places, find_place, remains_of
from retention_assets.sweep.read import DatasetReading, is_current, read_fresh
from retention_assets.sweep.recheck import Recheck, RecheckResult
from retention_assets.sweep.report_classes import opening_of
from retention_assets.sweep.visibility import hide_swept

# What is said first of what is needed again after a sweep had begun on it.
_BEGUN = {
    Remains.ALL: "A sweep had begun on it, and it has deleted nothing of it. ",
    Remains.SOME: "A sweep had begun on it, and some of it is gone. ",
    Remains.NOTHING: "It was deleted before it was needed again. ",
    Remains.UNKNOWN: "A sweep had begun on it, so some of its bytes may be gone already. ",
}
# How often holds and realms may change while one dataset is swept.
_ROUNDS = 20
_MOST_ERRORS = 5
# What has not come to its end by these is not settled.
_BEGUN_STILL = (Outcome.EXPIRING, Outcome.WITHHELD)
# How many pieces a batch is cut into that no policy says how to sweep.
_PARALLELISM = 8


@dataclass
class SweepResult:
    """What a sweep did to one dataset."""

    dataset: str
    planned: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    bytes_freed: int = 0
    # What is not listed any more and can still be read.
    bytes_hidden: int = 0
    # Files of what was swept that stay.
    left: int = 0
    # Why nothing (more) was done, the first errors of what failed, and what the store warned of while it deleted.
    refused: str | None = None
    # It was the store that could not do what it was asked.
    store_failed: bool = False
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


OnProgress = Callable[[SweepResult], None]


@dataclass(frozen=True)
class SweepContext:
    """What all datasets of one sweep have in common."""

    ledger: Ledger
    rulebook: Rulebook
    recheck: Recheck
    independent_check: IndependentCheck
    as_of: datetime
    on_progress: OnProgress
    stop: threading.Event
    wait: Callable[[Duration, threading.Event], None]


@dataclass
class DatasetSweep:
    """One dataset on its way: how the store had it when it was read, and the result so far."""

    context: SweepContext
    store: Store
    lease: Lease
    permit: SweepPermit
    reading: DatasetReading
    result: SweepResult
    # What the re-check found of the marks at hand, and which holds and realms it knew.
    checked: RecheckResult = field(default_factory=RecheckResult)
    protections: tuple[object, ...] = ()
    _done: set[int] = field(default_factory=set)
    # Where the plan at hand has its data, if the store can say that.
    _place: str | None = None
    # What an earlier sweep had begun.
    _begun_earlier: frozenset[int] = frozenset()
    _hidden: RecheckResult | None = None

    def run(self) -> None:
        """What an earlier sweep left, then everything that is due; and what is left of it whenever holds or realms change."""
        for _ in range(_ROUNDS):
            try:
                return self._sweep()
            except ProtectionsChanged:
                # What was planned and not done is counted when it is planned again.
                self.result.planned = len(self._done)
        raise Refused(f"the sweep of {self.lease.dataset} ends here: holds or realms changed {_ROUNDS} times meanwhile")

    def _sweep(self) -> None:
        dataset = self.lease.dataset
        self.permit.check_against(self.context.ledger.leases.protections())
        self.permit()
        if not is_current(self.store, self.reading):
            self._read_again()
        if self.reading.fault:
            raise Refused(f"nothing of {dataset} is swept: {self.reading.fault}")
        left = self._without_done(self._sweepable(self.context.ledger.sweeps.left(dataset)))
        due = self._without_done(self._due())
        if not len(left) and not len(due):
            return
        self._open_report()
        if len(left):
            self._finish_begun(left)
        if len(due) and not self.context.stop.is_set():
            self._sweep_due(due)
        self.context.ledger.reports.finish_done(self.lease.holder, dataset)

    def _finish_begun(self, left: pa.Table) -> None:
        """Marks on which a sweep had begun: deleted to the end, unless somebody needs them now."""
        self._begun_earlier = frozenset(left["id"].to_pylist())
        spare = partial(self._spare_begun, left)
        self._recheck(left, spare)
        rows = left.filter(_among(left, self.checked.go))
        places = set(rows["place"].to_pylist())
        check_places(self.store, self.lease.dataset, places)
        self._place = None if None in places else min(places, default=None)
        self.result.planned += len(rows)
        expired = self._settle_expired(rows)
        self._settle(expired)
        self._done |= {one.mark for one in expired}
        for batch in self._batches(self._without_done(rows), left):
            if self.context.stop.is_set():
                return
            self._recheck_if_changed(left, spare, self.store.capabilities.guards)
            check_places(self.store, self.lease.dataset, places)
            self._hide(left)
            # What waits to expire is given its time once more: whoever began it may not have come to it.
            self._finish_batch(batch, self._execute(self._justified_targets(batch), batch.sweep))

    def _settle_expired(self, rows: pa.Table) -> list[Settlement]:
        """What the store was to expire, and no longer has."""
        gone = rows.filter(pc.invert(pc.is_in(rows["transaction"], join_chunks(self.reading.log.transactions["transaction"]))))
        expires = self._expiring_marks(gone)
        return [Settlement(row["id"], Outcome.DELETED, row["bytes"] or 0) for row in gone.to_pylist() if row["id"] in expires]

    def _expiring_marks(self, marks: pa.Table) -> set[int]:
        """Of some marks those whose rows the store expires by itself, as their policy version says."""
        return {mark for mark, how in self.context.recheck.sweeps_of(marks).items() if how.mode == "ttl"}

    def _sweep_due(self, due: pa.Table) -> None:
        """Marks whose grace is over: checked, planned, and deleted batch by batch."""
        self._recheck(due, self._spare)
        plan = self._plan(due)
        try:
            self._sweep_plan(plan, due)
        except ProtectionsChanged:
            # What has not begun is checked again, and belongs into another plan.
            self.context.ledger.sweeps.finish(self.lease, plan)
            raise

    def _sweep_plan(self, plan: Plan, due: pa.Table) -> None:
        # The notes are younger than the reading: what changed in between, they have as it is now.
        guarded = False
        for batch in self._batches(self.context.ledger.sweeps.planned(plan), due):
            if self.context.stop.is_set():
                return
            self._recheck_if_changed(due, self._spare, guarded)
            guarded = self.store.capabilities.guards
            check_places(self.store, self.lease.dataset, {self._place})
            targets = self._justified_targets(batch)
            self._hide(due)
            self.permit()
            begun = self.context.ledger.sweeps.begin(self.lease, plan, targets)
            # A hold that came before these had begun is seen here at the latest, and not only with the next beat.
            self.permit.notice(self.context.ledger.leases.protections())
            self._finish_batch(batch, self._execute({mark: targets[mark] for mark in begun}, batch.sweep))
            self.context.on_progress(self.result)
        self.context.ledger.sweeps.finish(self.lease, plan)

    def _hide(self, marks: pa.Table) -> None:
        """Tell readers what goes by the last re-check, if they were not told yet."""
        if self._hidden is not self.checked:
            names = marks.filter(_among(marks, self.checked.go))["transaction"].to_pylist()
            hide_swept(self.context.ledger, self.lease, self.reading.log.transactions, names, self.context.as_of)
            self._hidden = self.checked

    def _finish_batch(self, batch: Batch, answers: Sequence[Settlement]) -> None:
        """Write down what became of a batch. If its permit was refused meanwhile, the sweep ends, or is checked again."""
        self._settle(answers)
        withheld = {one.mark for one in answers if one.outcome is Outcome.WITHHELD}
        self._done |= batch.targets.keys() - withheld
        if not withheld:
            return
        try:
            self.permit()
        except Withheld as fault:
            if not isinstance(fault, ProtectionsChanged):
                self.result.outcomes[Outcome.WITHHELD] += len(withheld)
                raise
        raise ProtectionsChanged

    def _without_done(self, marks: pa.Table) -> pa.Table:
        return marks.filter(pc.invert(_among(marks, self._done)))

    def _batches(self, rows: pa.Table, marks: pa.Table) -> Iterator[Batch]:
        """The rows in batches, at the pace of their policies."""
        sweeps = self.context.recheck.sweeps_of(marks)
        for number, batch in enumerate(cut_batches(rows.to_pylist(), sweeps, self.checked.in_latest_view)):
            if number:
                self.context.wait(batch.sweep.every, self.context.stop)
            yield batch

    def _recheck(self, marks: pa.Table, spare: Callable[[Mapping[int, str]], None]) -> None:
        """Hold marks against what the store and people say now; those that are not justified any more are spared."""
        self._check_protections()
        self.checked = self.context.recheck.check(self.reading.log, marks, self.store.capabilities)
        if self.checked.spared:
            spare(self.checked.spared)
        goes = marks.filter(_among(marks, self.checked.go))
        complete = self.store.capabilities.log_is_complete
        if fault := self.context.independent_check.fault(self.reading.log, goes, complete, self.context.as_of):
            raise Refused(fault)

    def _check_protections(self) -> None:
        """From now on the sweep goes by the holds and realms of this moment."""
        # Before they are read: what comes in between is read, and refuses the permit all the same.
        self.permit.check_against(self.context.ledger.leases.protections())
        self.protections = self.context.recheck.protections()

    def _recheck_if_changed(self, marks: pa.Table, spare: Callable[[Mapping[int, str]], None], guarded: bool) -> None:
        """Check again if holds or realms changed since, or the log, unless the store guards by itself what was read."""
        unchanged = self.protections == self.context.recheck.protections()
        if unchanged and (guarded or is_current(self.store, self.reading)):
            return
        self._read_again()
        if self.reading.fault:
            raise Refused(f"the sweep of {self.lease.dataset} ends here: {self.reading.fault}")
        # What is over needs no check any more; a log that is added to all the time would otherwise cost the square of it.
        self._recheck(self._without_done(marks), spare)

    def _spare(self, needed: Mapping[int, str]) -> None:
        spared = self.context.ledger.sweeps.spare(self.lease, needed, self.context.as_of.date())
        self.result.outcomes[Outcome.SPARED] += len(spared)

    def _spare_begun(self, left: pa.Table, needed: Mapping[int, str]) -> None:
        """What of the marks on which a sweep had begun somebody needs. A time that the store was given is taken back first."""
        mine = left.filter(_among(left, needed))
        expires = self._expiring_marks(mine)
        remains = remains_of(self.store, self.lease.dataset, mine.filter(pc.invert(_among(mine, expires))))
        spared = [
            Settlement(
                mark, Outcome.ALREADY_GONE if found is Remains.NOTHING else Outcome.SPARED, error=_BEGUN[found] + needed[mark]
            )
            for mark, found in remains.items()
        ]
        targets = {row["id"]: Target(row["transaction"], row["note"]) for row in mine.to_pylist() if row["id"] in expires}
        then = {mark: Settlement(mark, Outcome.SPARED, error=needed[mark]) for mark in targets}
        self._settle([*spared, *self._clear_expiry(targets, then)])

    def _set_expiry(self, targets: Mapping[int, Target], parallelism: int) -> list[Settlement]:
        """Have the store expire targets. Of what it then left alone or failed at, it may have a time all the same, from now or
        from a sweep before this one: that is taken back before anybody hears of it.
        """
        answers = execute_expiry(self.store, self.lease.dataset, targets, self.context.as_of, parallelism, self.permit)
        unsure = {one.mark: one for one in answers if one.outcome is Outcome.FAILED or self._may_have_time(one)}
        back = self._clear_expiry({mark: targets[mark] for mark in unsure}, unsure)
        return [*(one for one in answers if one.mark not in unsure), *back]

    def _may_have_time(self, one: Settlement) -> bool:
        """What this sweep has begun itself has had no time yet; whose own it may have is not ours to take."""
        return one.outcome is Outcome.SPARED and one.mark in self._begun_earlier

    def _clear_expiry(self, targets: Mapping[int, Target], then: Mapping[int, Settlement]) -> list[Settlement]:
        """Take times back; what is to be said of each target once that is done.

        Of one that still has its time nothing is said: its mark stays begun, so that nobody believes that it is safe.
        """
        said: list[Settlement] = []
        for one in execute_expiry(self.store, self.lease.dataset, targets, None, _PARALLELISM, self.permit) if targets else ():
            if one.outcome is Outcome.FAILED:
                self.result.outcomes[Outcome.FAILED] += 1
                if len(self.result.errors) < _MOST_ERRORS:
                    self.result.errors.append(f"its time to expire could not be taken back: {one.error}")
            else:
                said.append(one if one.outcome in (Outcome.ALREADY_GONE, Outcome.WITHHELD) else then[one.mark])
        return said

    def _justified_targets(self, batch: Batch) -> dict[int, Target]:
        """The targets of a batch that may go by what is known now."""
        latest, ended = self.checked.in_latest_view, self.checked.ended_refs
        return {
            mark: replace(
                one, in_latest_view=mark in latest, place_known=self._place is not None, ended_refs=ended.get(mark, ())
            )
            for mark, one in batch.targets.items()
            if mark in self.checked.go
        }

    def _due(self) -> pa.Table:
        """The marks whose grace is over."""
        return self._sweepable(self.context.ledger.marks.due(self.lease.dataset, self.context.as_of))

    def _sweepable(self, marks: pa.Table) -> pa.Table:
        """Some marks without those whose rows the store should expire and can't."""
        if self.store.capabilities.expiry:
            return marks
        expires = self._expiring_marks(marks)
        for policy in sorted(set(marks.filter(_among(marks, expires))["policy"].to_pylist())):
            self.result.errors.append(
                f"policy {policy} hands expiry to the store (sweep.mode: ttl), and {self.store.name} can't expire anything by"
                " itself: its marks wait. Give the store a `ttl`; or take the mode out of the policy and its marks back"
                f" (`retention unmark --policy {policy}`), so that the next evaluation marks by the version that deletes."
            )
        return marks.filter(pc.invert(_among(marks, expires)))

    def _read_again(self) -> None:
        self.reading = read_fresh(self.store, [self.lease.dataset]).datasets[0]

    def _open_report(self) -> None:
        """The day's report, if this is the first sweep of the day that has to do with the dataset."""
        dataset, day = self.lease.dataset, self.context.as_of.date()
        if any(report["due_by"] for report in self.context.ledger.reports.of(day, dataset)):
            return
        log, as_of = self.reading.log, self.context.as_of
        rules = self.context.rulebook.rules([dataset], as_of)
        verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, as_of)
        marks = self.context.ledger.marks.table([dataset], ["MARKED", "SWEEPING", "SWEPT"])
        opening = opening_of(dataset, log, verdicts, marks, rules, as_of)
        self.context.ledger.reports.open(day, dataset, opening, as_of, self.lease.holder, len(log.transactions))

    def _plan(self, due: pa.Table) -> Plan:
        """Write down what is about to go, with what the store has to know to find it again."""
        rows = due.filter(_among(due, self.checked.go)).select(["id", "transaction"]).to_pylist()
        marks = {row["transaction"]: row["id"] for row in rows}
        prepared = call_store(self.store, lambda: self.store.prepare(self.lease.dataset, list(marks))) if marks else []
        # What an earlier plan wrote down stands where the store knows nothing any more.
        earlier = self.context.ledger.sweeps.notes(marks.values())
        notes = {
            marks[one.transaction]: Planned(one.bytes, one.note or earlier.get(marks[one.transaction])) for one in prepared
        }
        self.permit()
        self._place = find_place(self.store, self.lease.dataset, claim=True) if marks else None
        plan = self.context.ledger.sweeps.plan(self.lease, notes, self.context.as_of, self._place)
        self.result.planned += plan.marks
        return plan

    def _execute(self, targets: Mapping[int, Target], sweep: Sweep) -> list[Settlement]:
        """The store's word on each target, as the policy has it swept."""
        if sweep.mode == "ttl" and targets:
            return self._set_expiry(targets, sweep.parallelism)
        return execute_deletion(self.store, self.lease.dataset, targets, sweep.parallelism, self.permit)

    def _settle(self, settlements: Sequence[Settlement]) -> None:
        """Write outcomes down. What only has its time now stays begun, until a later look finds it gone."""
        over = [one for one in settlements if one.outcome not in _BEGUN_STILL]
        if waiting := sum(one.outcome is Outcome.EXPIRING for one in settlements):
            self.result.outcomes[Outcome.EXPIRING] += waiting
        if not over:
            return
        self.result.outcomes.update(self.context.ledger.sweeps.settle(self.lease, over, self.context.as_of.date()))
        if (fault := self.permit.ledger_fault()) is not None:
            gone = [one.mark for one in over if one.outcome is Outcome.DELETED]
            raise Withheld(
                f"the sweep of {self.lease.dataset} ends here: {fault}. It has just deleted {len(gone)} transactions, of which"
                " there may be no record. Put the ledger back in its place, whole, and run again: what was begun is finished."
            )
        self.result.bytes_freed += sum(one.bytes for one in over if one.outcome is Outcome.DELETED)
        self.result.bytes_hidden += sum(one.bytes_hidden for one in over if one.outcome is Outcome.HIDDEN)
        self.result.left += sum(one.left for one in over)
        done = (Outcome.DELETED, Outcome.ALREADY_GONE)
        for said, outcomes in ((self.result.errors, (Outcome.FAILED,)), (self.result.warnings, done)):
            words = [one.error for one in over if one.outcome in outcomes and one.error]
            said += words[: max(0, _MOST_ERRORS - len(said))]


def _among(marks: pa.Table, ids: Collection[int]) -> pa.Array:
    return pc.is_in(marks["id"], pa.array(ids, pa.int64()))
