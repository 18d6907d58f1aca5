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

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.candidate_marks import candidate_marks
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import Lease
from retention_assets.ledger.sweeps import Plan, Planned, Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy.instants import Duration
from retention_assets.problems import Refused
from retention_assets.rulebook import Rulebook
from retention_assets.stores.protocol import Store, Swept, Target
from retention_assets.sweep.batches import Batch, batches
from retention_assets.sweep.classes import opening_of
from retention_assets.sweep.door import Checked, Door
from retention_assets.sweep.fresh import Look, StoreFailed, asked, is_current, read

_BEGUN = "A sweep had begun on it, so some of its bytes may be gone already. "
_MOST_SAID = 5


@dataclass
class Result:
    """What a sweep did to one dataset."""

    dataset: str
    planned: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    bytes_freed: int = 0
    # Why nothing (more) was done, the first errors of what failed, and what the store has to say of what it deleted.
    refused: str | None = None
    errors: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


Tell = Callable[[Result], None]


@dataclass
class OneDataset:
    """One dataset on its way: what it is worked on with, the look that was taken at it, and the result so far."""

    ledger: Ledger
    store: Store
    rulebook: Rulebook
    door: Door
    as_of: datetime
    lease: Lease
    look: Look
    result: Result
    tell: Tell
    stop: threading.Event
    wait: Callable[[Duration, threading.Event], None]
    # What the door said of the marks at hand, and what people said when it was asked.
    checked: Checked = field(default_factory=Checked)
    said: tuple[object, ...] = ()
    _done: set[int] = field(default_factory=set)

    def sweep(self) -> None:
        """What an earlier sweep left, then everything that is due."""
        dataset = self.lease.dataset
        if not is_current(self.store, self.look):
            self._look_again()
        if self.look.fault:
            raise Refused(f"nothing of {dataset} is swept: {self.look.fault}")
        left, due = self.ledger.sweeps.left(dataset), self._due()
        if not len(left) and not len(due):
            return
        self._open_report()
        if len(left):
            self._finish(left)
        if len(due) and not self.stop.is_set():
            self._begin(due)
        self.ledger.reports.finish_done(self.lease.holder, dataset)

    def _finish(self, left: pa.Table) -> None:
        """Marks on which a sweep had begun: deleted to the end, unless somebody needs them now."""
        self._check(left, self._spare_begun)
        rows = left.filter(_among(left, self.checked.go))
        self.result.planned += len(rows)
        for batch in self._batches(rows, left):
            if self.stop.is_set():
                return
            self._current(left, self._spare_begun)
            self._settle(self._deleted(self._still(batch), batch.sweep.parallelism))
            self._done |= batch.targets.keys()

    def _begin(self, due: pa.Table) -> None:
        """Marks whose grace is over: checked, planned, and deleted batch by batch."""
        self._check(due, self._spare)
        plan = self._plan(due)
        for batch in self._batches(self.ledger.sweeps.planned(plan), due):
            if self.stop.is_set():
                return
            self._current(due, self._spare)
            targets = self._still(batch)
            begun = self.ledger.sweeps.begin(self.lease, plan, targets)
            self._settle(self._deleted({mark: targets[mark] for mark in begun}, batch.sweep.parallelism))
            self._done |= batch.targets.keys()
            self.tell(self.result)
        self.ledger.sweeps.finish(self.lease, plan)

    def _batches(self, rows: pa.Table, marks: pa.Table) -> Iterator[Batch]:
        """The rows in batches, at the pace of their policies."""
        for number, batch in enumerate(batches(rows.to_pylist(), self.door.sweeps_of(marks), self.checked.in_latest_view)):
            if number:
                self.wait(batch.sweep.every, self.stop)
            yield batch

    def _check(self, marks: pa.Table, spare: Callable[[Mapping[int, str]], None]) -> None:
        """Hold marks against what the store and people say now; those that are not justified any more are spared."""
        self.said = self.door.said()
        self.checked = self.door.check(self.look.log, marks, self.store.abilities.log_is_complete)
        if self.checked.spared:
            spare(self.checked.spared)

    def _current(self, marks: pa.Table, spare: Callable[[Mapping[int, str]], None]) -> None:
        """Check again if the store or people say something new since."""
        if self.said == self.door.said() and is_current(self.store, self.look):
            return
        self._look_again()
        if self.look.fault:
            raise Refused(f"the sweep of {self.lease.dataset} ends here: {self.look.fault}")
        # What is over needs no check any more; a log that is added to all the time would otherwise cost the square of it.
        self._check(marks.filter(pc.invert(_among(marks, self._done))), spare)

    def _spare(self, needed: Mapping[int, str]) -> None:
        spared = self.ledger.sweeps.spare(self.lease, needed, self.as_of.date())
        self.result.outcomes[Outcome.SPARED] += len(spared)

    def _spare_begun(self, needed: Mapping[int, str]) -> None:
        self._settle([Settlement(mark, Outcome.SPARED, error=_BEGUN + why) for mark, why in needed.items()])

    def _still(self, batch: Batch) -> dict[int, Target]:
        """The targets of a batch that may go by what is known now."""
        latest = self.checked.in_latest_view
        return {
            mark: replace(one, in_latest_view=mark in latest) for mark, one in batch.targets.items() if mark in self.checked.go
        }

    def _due(self) -> pa.Table:
        """The marks whose grace is over, without those whose rows the store should expire and can't."""
        due = self.ledger.marks.due(self.lease.dataset, self.as_of)
        if self.store.abilities.expiry:
            return due
        expiring = {mark for mark, how in self.door.sweeps_of(due).items() if how.mode == "ttl"}
        for policy in sorted(set(due.filter(_among(due, expiring))["policy"].to_pylist())):
            self.result.errors.append(
                f"policy {policy} hands expiry to the store (sweep.mode: ttl), and {self.store.name} can't expire anything by"
                " itself: its marks wait. Take the key out of the policy to have them deleted."
            )
        return due.filter(_among(due, set(due["id"].to_pylist()) - expiring))

    def _look_again(self) -> None:
        self.look = read(self.store, [self.lease.dataset]).looks[0]

    def _open_report(self) -> None:
        """The day's report, if this is the first sweep of the day that has to do with the dataset."""
        dataset, day = self.lease.dataset, self.as_of.date()
        if any(report["due_by"] for report in self.ledger.reports.of(day, dataset)):
            return
        log, as_of = self.look.log, self.as_of
        rules = self.rulebook.rules([dataset], as_of)
        verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, as_of)
        marks = self.ledger.marks.table([dataset], ["MARKED", "SWEEPING", "SWEPT"])
        opening = opening_of(dataset, log, verdicts, marks, rules, as_of)
        self.ledger.reports.open(day, dataset, opening, as_of, self.lease.holder, len(log.transactions))

    def _plan(self, due: pa.Table) -> Plan:
        """Write down what is about to go, with what the store has to know to find it again."""
        rows = due.filter(_among(due, self.checked.go)).select(["id", "transaction"]).to_pylist()
        marks = {row["transaction"]: row["id"] for row in rows}
        prepared = asked(self.store, lambda: self.store.prepare(self.lease.dataset, list(marks))) if marks else []
        # What an earlier plan wrote down stands where the store knows nothing any more.
        earlier = self.ledger.sweeps.notes(marks.values())
        notes = {
            marks[one.transaction]: Planned(one.bytes, one.note or earlier.get(marks[one.transaction])) for one in prepared
        }
        plan = self.ledger.sweeps.plan(self.lease, notes, self.as_of)
        self.result.planned += plan.marks
        return plan

    def _deleted(self, targets: Mapping[int, Target], parallelism: int) -> list[Settlement]:
        """The store's word on each target. What it says nothing of, or says by raising, has failed."""
        if not targets:
            return []
        why, found = "the store said nothing of it", dict[str, Swept]()
        try:
            swept = asked(self.store, lambda: self.store.sweep(self.lease.dataset, list(targets.values()), parallelism))
            found = {one.transaction: one for one in swept}
        except StoreFailed as fault:
            why = str(fault)
        answers = {
            mark: found.get(one.transaction) or Swept(one.transaction, Outcome.FAILED, error=why)
            for mark, one in targets.items()
        }
        return [Settlement(mark, one.outcome, one.bytes, one.error) for mark, one in answers.items()]

    def _settle(self, settlements: Sequence[Settlement]) -> None:
        if not settlements:
            return
        self.result.outcomes.update(self.ledger.sweeps.settle(self.lease, settlements, self.as_of.date()))
        self.result.bytes_freed += sum(one.bytes for one in settlements if one.outcome is Outcome.DELETED)
        for said, outcome in ((self.result.errors, Outcome.FAILED), (self.result.remarks, Outcome.DELETED)):
            words = [one.error for one in settlements if one.outcome is outcome and one.error]
            said += words[: max(0, _MOST_SAID - len(said))]


def _among(marks: pa.Table, ids: Collection[int]) -> pa.Array:
    return pc.is_in(marks["id"], pa.array(ids, pa.int64()))
