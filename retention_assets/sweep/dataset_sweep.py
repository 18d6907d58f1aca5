"""The sweep of one dataset under its lease, in the order that design section 7 gives.

Belongs here: that order. Intent is in the ledger before the act, the outcome right after it; before each batch the store and
people are asked whether what was found still holds.
Does not belong here: the parts (door, fresh, batches), deleting (stores), what the ledger writes.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.evaluation.rulebook import Rulebook
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import Lease
from retention_assets.ledger.sweeps import Plan, Planned, Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Sweep
from retention_assets.stores.protocol import Store, Target, call_store
from retention_assets.sweep.batches import Batch, cut_batches
from retention_assets.sweep.execute import execute_deletion, execute_expiry
from retention_assets.sweep.independent_check import IndependentCheck
from retention_assets.sweep.read import DatasetReading, is_current, read_fresh
from retention_assets.sweep.recheck import Recheck, RecheckResult
from retention_assets.sweep.report_classes import opening_of

_BEGUN = "A sweep had begun on it, so some of its bytes may be gone already. "
_MOST_SAID = 5
# How many pieces a batch is cut into that no policy says how to sweep.
_AT_ONCE = 8


@dataclass
class SweepResult:
    """What a sweep did to one dataset."""

    dataset: str
    planned: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    bytes_freed: int = 0
    # Why nothing (more) was done, the first errors of what failed, and what the store has to say of what it deleted.
    refused: str | None = None
    errors: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


OnProgress = Callable[[SweepResult], None]


@dataclass(frozen=True)
class SweepContext:
    """What all datasets of one sweep have in common: the record, the rules, the instant, and who is told and may say stop."""

    ledger: Ledger
    rulebook: Rulebook
    door: Recheck
    second_look: IndependentCheck
    as_of: datetime
    tell: OnProgress
    stop: threading.Event
    wait: Callable[[Duration, threading.Event], None]


@dataclass
class DatasetSweep:
    """One dataset on its way: the look that was taken at it, and the result so far."""

    terms: SweepContext
    store: Store
    lease: Lease
    look: DatasetReading
    result: SweepResult
    # What the door said of the marks at hand, and what people said when it was asked.
    checked: RecheckResult = field(default_factory=RecheckResult)
    said: tuple[object, ...] = ()
    _done: set[int] = field(default_factory=set)
    # What an earlier sweep had begun.
    _left: frozenset[int] = frozenset()

    def sweep(self) -> None:
        """What an earlier sweep left, then everything that is due."""
        dataset = self.lease.dataset
        if not is_current(self.store, self.look):
            self._look_again()
        if self.look.fault:
            raise Refused(f"nothing of {dataset} is swept: {self.look.fault}")
        left, due = self._sweepable(self.terms.ledger.sweeps.left(dataset)), self._due()
        if not len(left) and not len(due):
            return
        self._open_report()
        if len(left):
            self._finish(left)
        if len(due) and not self.terms.stop.is_set():
            self._begin(due)
        self.terms.ledger.reports.finish_done(self.lease.holder, dataset)

    def _finish(self, left: pa.Table) -> None:
        """Marks on which a sweep had begun: deleted to the end, unless somebody needs them now."""
        self._left = frozenset(left["id"].to_pylist())
        spare = partial(self._spare_begun, left)
        self._check(left, spare)
        rows = left.filter(_among(left, self.checked.go))
        self.result.planned += len(rows)
        expired = self._expired(rows)
        self._settle(expired)
        self._done |= {one.mark for one in expired}
        for batch in self._batches(rows.filter(pc.invert(_among(rows, self._done))), left):
            if self.terms.stop.is_set():
                return
            self._current(left, spare)
            # What waits to expire is given its time once more: whoever began it may not have come to it.
            self._settle(self._acted(self._still(batch), batch.sweep))
            self._done |= batch.targets.keys()

    def _expired(self, rows: pa.Table) -> list[Settlement]:
        """What the store was to expire, and no longer has."""
        gone = rows.filter(pc.invert(pc.is_in(rows["transaction"], join_chunks(self.look.log.transactions["transaction"]))))
        expires = self._expiring(gone)
        return [Settlement(row["id"], Outcome.DELETED, row["bytes"] or 0) for row in gone.to_pylist() if row["id"] in expires]

    def _expiring(self, marks: pa.Table) -> set[int]:
        """Of some marks those whose rows the store expires by itself, as their policy version says."""
        return {mark for mark, how in self.terms.door.sweeps_of(marks).items() if how.mode == "ttl"}

    def _begin(self, due: pa.Table) -> None:
        """Marks whose grace is over: checked, planned, and deleted batch by batch."""
        self._check(due, self._spare)
        plan = self._plan(due)
        for batch in self._batches(self.terms.ledger.sweeps.planned(plan), due):
            if self.terms.stop.is_set():
                return
            self._current(due, self._spare)
            targets = self._still(batch)
            begun = self.terms.ledger.sweeps.begin(self.lease, plan, targets)
            self._settle(self._acted({mark: targets[mark] for mark in begun}, batch.sweep))
            self._done |= batch.targets.keys()
            self.terms.tell(self.result)
        self.terms.ledger.sweeps.finish(self.lease, plan)

    def _batches(self, rows: pa.Table, marks: pa.Table) -> Iterator[Batch]:
        """The rows in batches, at the pace of their policies."""
        sweeps = self.terms.door.sweeps_of(marks)
        for number, batch in enumerate(cut_batches(rows.to_pylist(), sweeps, self.checked.in_latest_view)):
            if number:
                self.terms.wait(batch.sweep.every, self.terms.stop)
            yield batch

    def _check(self, marks: pa.Table, spare: Callable[[Mapping[int, str]], None]) -> None:
        """Hold marks against what the store and people say now; those that are not justified any more are spared."""
        self.said = self.terms.door.said()
        self.checked = self.terms.door.check(self.look.log, marks, self.store.capabilities.log_is_complete)
        if self.checked.spared:
            spare(self.checked.spared)
        goes = marks.filter(_among(marks, self.checked.go))
        if fault := self.terms.second_look.fault(self.look.log, goes, self.store.capabilities.log_is_complete):
            raise Refused(fault)

    def _current(self, marks: pa.Table, spare: Callable[[Mapping[int, str]], None]) -> None:
        """Check again if the store or people say something new since."""
        if self.said == self.terms.door.said() and (self.store.capabilities.guards or is_current(self.store, self.look)):
            return
        self._look_again()
        if self.look.fault:
            raise Refused(f"the sweep of {self.lease.dataset} ends here: {self.look.fault}")
        # What is over needs no check any more; a log that is added to all the time would otherwise cost the square of it.
        self._check(marks.filter(pc.invert(_among(marks, self._done))), spare)

    def _spare(self, needed: Mapping[int, str]) -> None:
        spared = self.terms.ledger.sweeps.spare(self.lease, needed, self.terms.as_of.date())
        self.result.outcomes[Outcome.SPARED] += len(spared)

    def _spare_begun(self, left: pa.Table, needed: Mapping[int, str]) -> None:
        """What of the marks on which a sweep had begun somebody needs. A time that the store was given is taken back first."""
        mine = left.filter(_among(left, needed))
        expires = self._expiring(mine)
        spared = [Settlement(mark, Outcome.SPARED, error=_BEGUN + why) for mark, why in needed.items() if mark not in expires]
        targets = {row["id"]: Target(row["transaction"], row["note"]) for row in mine.to_pylist() if row["id"] in expires}
        then = {mark: Settlement(mark, Outcome.SPARED, error=needed[mark]) for mark in targets}
        self._settle([*spared, *self._taken_back(targets, then)])

    def _given_time(self, targets: Mapping[int, Target], parallelism: int) -> list[Settlement]:
        """Have the store expire targets. Of what it then left alone or failed at, it may have a time all the same, from now or
        from a sweep before this one: that is taken back before anybody hears of it.
        """
        answers = execute_expiry(self.store, self.lease.dataset, targets, self.terms.as_of, parallelism)
        unsure = {one.mark: one for one in answers if one.outcome is Outcome.FAILED or self._is_left_alone(one)}
        back = self._taken_back({mark: targets[mark] for mark in unsure}, unsure)
        return [*(one for one in answers if one.mark not in unsure), *back]

    def _is_left_alone(self, one: Settlement) -> bool:
        """What this sweep has begun itself has had no time yet; whose own it may have is not ours to take."""
        return one.outcome is Outcome.SPARED and one.mark in self._left

    def _taken_back(self, targets: Mapping[int, Target], then: Mapping[int, Settlement]) -> list[Settlement]:
        """Take times back; what is to be said of each target once that is done.

        Of one that still has its time nothing is said: its mark stays begun, so that nobody believes that it is safe.
        """
        said: list[Settlement] = []
        for one in execute_expiry(self.store, self.lease.dataset, targets, None, _AT_ONCE) if targets else ():
            if one.outcome is Outcome.FAILED:
                self.result.outcomes[Outcome.FAILED] += 1
                if len(self.result.errors) < _MOST_SAID:
                    self.result.errors.append(f"its time to expire could not be taken back: {one.error}")
            else:
                said.append(one if one.outcome is Outcome.ALREADY_GONE else then[one.mark])
        return said

    def _still(self, batch: Batch) -> dict[int, Target]:
        """The targets of a batch that may go by what is known now."""
        latest = self.checked.in_latest_view
        return {
            mark: replace(one, in_latest_view=mark in latest) for mark, one in batch.targets.items() if mark in self.checked.go
        }

    def _due(self) -> pa.Table:
        """The marks whose grace is over."""
        return self._sweepable(self.terms.ledger.marks.due(self.lease.dataset, self.terms.as_of))

    def _sweepable(self, marks: pa.Table) -> pa.Table:
        """Some marks without those whose rows the store should expire and can't."""
        if self.store.capabilities.expiry:
            return marks
        expires = self._expiring(marks)
        for policy in sorted(set(marks.filter(_among(marks, expires))["policy"].to_pylist())):
            self.result.errors.append(
                f"policy {policy} hands expiry to the store (sweep.mode: ttl), and {self.store.name} can't expire anything by"
                " itself: its marks wait. Give the store a `ttl`; or take the mode out of the policy and its marks back"
                f" (`retention unmark --policy {policy}`), so that the next evaluation marks by the version that deletes."
            )
        return marks.filter(pc.invert(_among(marks, expires)))

    def _look_again(self) -> None:
        self.look = read_fresh(self.store, [self.lease.dataset]).looks[0]

    def _open_report(self) -> None:
        """The day's report, if this is the first sweep of the day that has to do with the dataset."""
        dataset, day = self.lease.dataset, self.terms.as_of.date()
        if any(report["due_by"] for report in self.terms.ledger.reports.of(day, dataset)):
            return
        log, as_of = self.look.log, self.terms.as_of
        rules = self.terms.rulebook.rules([dataset], as_of)
        verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, as_of)
        marks = self.terms.ledger.marks.table([dataset], ["MARKED", "SWEEPING", "SWEPT"])
        opening = opening_of(dataset, log, verdicts, marks, rules, as_of)
        self.terms.ledger.reports.open(day, dataset, opening, as_of, self.lease.holder, len(log.transactions))

    def _plan(self, due: pa.Table) -> Plan:
        """Write down what is about to go, with what the store has to know to find it again."""
        rows = due.filter(_among(due, self.checked.go)).select(["id", "transaction"]).to_pylist()
        marks = {row["transaction"]: row["id"] for row in rows}
        prepared = call_store(self.store, lambda: self.store.prepare(self.lease.dataset, list(marks))) if marks else []
        # What an earlier plan wrote down stands where the store knows nothing any more.
        earlier = self.terms.ledger.sweeps.notes(marks.values())
        notes = {
            marks[one.transaction]: Planned(one.bytes, one.note or earlier.get(marks[one.transaction])) for one in prepared
        }
        plan = self.terms.ledger.sweeps.plan(self.lease, notes, self.terms.as_of)
        self.result.planned += plan.marks
        return plan

    def _acted(self, targets: Mapping[int, Target], sweep: Sweep) -> list[Settlement]:
        """The store's word on each target, as the policy has it swept."""
        if sweep.mode == "ttl" and targets:
            return self._given_time(targets, sweep.parallelism)
        return execute_deletion(self.store, self.lease.dataset, targets, sweep.parallelism)

    def _settle(self, settlements: Sequence[Settlement]) -> None:
        """Write outcomes down. What only has its time now stays begun, until a later look finds it gone."""
        over = [one for one in settlements if one.outcome is not Outcome.EXPIRING]
        if waiting := len(settlements) - len(over):
            self.result.outcomes[Outcome.EXPIRING] += waiting
        if not over:
            return
        self.result.outcomes.update(self.terms.ledger.sweeps.settle(self.lease, over, self.terms.as_of.date()))
        self.result.bytes_freed += sum(one.bytes for one in over if one.outcome is Outcome.DELETED)
        for said, outcome in ((self.result.errors, Outcome.FAILED), (self.result.remarks, Outcome.DELETED)):
            words = [one.error for one in over if one.outcome is outcome and one.error]
            said += words[: max(0, _MOST_SAID - len(said))]


def _among(marks: pa.Table, ids: Collection[int]) -> pa.Array:
    return pc.is_in(marks["id"], pa.array(ids, pa.int64()))
