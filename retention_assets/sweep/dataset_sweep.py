"""Datasets in a sweep: questions and orders to the store of one, its result so far, and those of a round that are still swept.

A dataset of which a step fails, whose place moved or whose lease is lost is taken out of its round with the reason. It stops no
other.
"""

import threading
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, Withheld
from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import LIVING, by_dataset
from retention_assets.ledger import Ledger
from retention_assets.ledger.batches import Plan, Planned, Settlement
from retention_assets.ledger.leases import Lease, LeaseLost, NameRange
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.model import Datasets, Hold
from retention_assets.policy.realms import RESERVED
from retention_assets.policy.sentences import count
from retention_assets.stores.logs import tell_swept
from retention_assets.stores.protocol import (
    Remains,
    Store,
    StoreFailed,
    Target,
    call_store,
    is_same_place,
)
from retention_assets.sweep.execute import Batch, execute_expiry, execute_order
from retention_assets.sweep.independent_check import REMEDY, IndependentCheck
from retention_assets.sweep.permit import ProtectionsChanged, SweepPermit
from retention_assets.sweep.read import DatasetReading, counted_along_lines, read_chains
from retention_assets.sweep.recheck import Recheck, rows_of_marks

# first sentence about a mark that is needed again after a sweep had begun on it
_BEGUN = {
    Remains.ALL: "A sweep had begun on it, but has deleted nothing of it. ",
    Remains.SOME: "A sweep had begun on it, and some of it is gone. ",
    Remains.NOTHING: "It was deleted before it was needed again. ",
    Remains.FREED: "It was deleted before it was needed again. ",
    Remains.UNKNOWN: "A sweep had begun on it, so some of its bytes may be gone already. ",
}
_WITHOUT_TTL = (
    "Give the store a `ttl`. Or remove the mode from the policy and take its marks back (`retention unmark --policy {}`): the "
    "next evaluation marks again, for deletion."
)
# errors, and warnings, reported per dataset
MOST_ERRORS = 5
# outcomes that do not settle a mark
BEGUN_STILL = (Outcome.EXPIRING, Outcome.WITHHELD)
# parallelism where no policy sets it
_PARALLELISM = 8


@dataclass
class SweepResult:
    """Result of a sweep for one dataset."""

    dataset: str
    planned: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    bytes_freed: int = 0
    bytes_set_aside: int = 0
    # no longer listed, but still readable
    bytes_hidden: int = 0
    # files of swept transactions that stay
    left: int = 0
    # why nothing (more) was done, the first errors, and the store's warnings while it deleted
    refused: str | None = None
    # who else sweeps it at the moment: nothing was done, and nothing is wrong
    skipped: str | None = None
    # the store could not answer
    store_failed: bool = False
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, fault: Refused) -> None:
        self.refused, self.store_failed = str(fault), isinstance(fault, StoreFailed)

    @property
    def is_touched(self) -> bool:
        return bool(self.planned or self.outcomes or self.refused or self.skipped or self.errors)


OnProgress = Callable[[SweepResult], None]


def refused_results(faults: Mapping[str, Refused]) -> list[SweepResult]:
    return [SweepResult(name, refused=str(why), store_failed=isinstance(why, StoreFailed)) for name, why in faults.items()]


@dataclass(frozen=True)
class SweepContext:
    """Values shared by all datasets of one sweep."""

    ledger: Ledger
    rulebook: Rulebook
    recheck: Recheck
    independent_check: IndependentCheck
    as_of: datetime
    on_progress: OnProgress
    stop: threading.Event
    wait: Callable[[timedelta, threading.Event], None]
    # tasks at work; a policy's parallelism is divided among them
    tasks: int
    # transactions of its datasets to sweep: those of a part, or all
    names: NameRange
    # nothing but what began by this order is finished
    only: Order | None = None


@dataclass
class DatasetSweep:
    """One dataset of a share. `done`: finished marks of this slice. `done_before`: those of earlier slices, maybe millions."""

    context: SweepContext
    store: Store
    lease: Lease
    permit: SweepPermit
    reading: DatasetReading
    result: SweepResult
    # holds and realms by which its marks were checked
    checked_under: object = None
    done: set[int] = field(default_factory=set)
    done_before: "array[int]" = field(default_factory=lambda: array("q"))
    plan: Plan | None = None
    # places of the data by the plans of the marks at hand; None where a store could not tell
    places: frozenset[str | None] = frozenset({None})
    # marks that an earlier sweep had begun
    begun_earlier: frozenset[int] = frozenset()
    # when marks that are replayed were swept
    swept_at: Mapping[int, datetime] = field(default_factory=dict)
    # set aside marks whose deletion for good has failed before
    has_failed: frozenset[int] = frozenset()
    # deleted since its log was last read
    deleted: int = 0

    @property
    def dataset(self) -> str:
        return self.lease.dataset

    def read_chains(self, transactions: pa.Array) -> None:
        counts = bool(counted_along_lines(self.context.ledger, [self.dataset]))
        self.take_reading(read_chains(self.store, self.reading, transactions, self.deleted, counts))

    def take_reading(self, reading: DatasetReading) -> None:
        self.reading, self.deleted = reading, 0

    def everything_done(self) -> pa.Array:
        here = np.fromiter(self.done, np.int64, len(self.done))
        return pa.array(np.concatenate([here, np.array(self.done_before, np.int64)]))

    def prepare(self, due: pa.Table) -> dict[int, Planned]:
        marks = dict(zip(due["transaction"].to_pylist(), due["id"].to_pylist(), strict=True))
        self.tell_swept()
        prepared = call_store(self.store, partial(self.store.prepare, self.dataset, list(marks)))
        self.permit()
        self.places = frozenset({self._find_place(claim=True)})
        return {marks[target.transaction]: Planned(target.bytes, target.note) for target in prepared}

    def tell_swept(self) -> None:
        """Tell a store whose transactions share data what was swept, by the log as it was last read."""

        def swept() -> pa.Table:
            ledgers = filter(None, (self.context.ledger, self.context.recheck.real_ledger))
            return pa.concat_tables(ledger.marks.swept([self.dataset]) for ledger in ledgers)

        tell_swept(self.store, self.dataset, self.reading.log, swept, self.context.recheck.kept_of)

    def wanted_again(self, transactions: Sequence[str]) -> Mapping[str, str]:
        """Return those of some set aside transactions that the store needs now, and why."""
        store = self.store
        self.tell_swept()
        return call_store(store, partial(store.wanted_again, self.dataset, transactions))

    def check_shared(self, going: pa.Table) -> None:
        """Refuse if something that goes would lose nothing, by a reader of the store that shares no code with the re-check."""
        store, log = self.store, self.reading.log
        going = going.filter(pc.not_equal(going["status"], "SWEPT"))
        if not (store.shares_data and len(going)):
            return
        ledgers = filter(None, (self.context.ledger, self.context.recheck.real_ledger))
        taken = {name for ledger in ledgers for name in ledger.marks.table([self.dataset], LIVING)["transaction"].to_pylist()}
        names = going["transaction"].to_pylist()
        owners = log.transactions.filter(pc.not_equal(log.transactions["type"].cast(pa.string()), "DELETE"))
        retained = [name for name in owners["transaction"].to_pylist() if name not in taken]
        faults = call_store(store, partial(store.check_needs, self.dataset, names, retained))
        if fault := next((f"{name} is marked, but {why}" for name, why in sorted(faults.items())), None):
            raise Refused(f"nothing of {self.dataset} is swept: {fault} ({len(faults)} such marks). {REMEDY}")

    def note_waiting(self, rows: pa.Table, waits: Mapping[int, str]) -> None:
        """Report marks that wait for others, with one example."""
        waiting = [row for row in rows.select(["id", "transaction"]).to_pylist() if row["id"] in waits]
        if waiting:
            more = f" So do {count(len(waiting) - 1, 'more mark')} of it." if len(waiting) > 1 else ""
            message = f"{waiting[0]['transaction']} stays for now. {waits[waiting[0]['id']]}{more}"
            self.result.warnings += [] if message in self.result.warnings else [message]

    def hold_restored(self, transactions: Mapping[int, str]) -> None:
        """Hold marks that came back by themselves, so that no policy takes them again before people have looked."""
        names, first = sorted(transactions.values()), min(transactions)
        hold = Hold(
            # a mark comes back once
            name=f"returned-{self.dataset}-{transactions[first]}"[:150] + f"-{first}",
            datasets=Datasets(include=(escape_glob(self.dataset),)),
            transactions=tuple(map(escape_glob, names)),
            reason="It came back from the trash by itself, because it is protected again.",
            owner=self.lease.holder,
        )
        self.context.ledger.holds.place(hold, self.lease.holder)

    def check_places(self) -> None:
        """Refuse if the data is in another place than the plans say: settings may change after a sweep is killed."""
        planned = sorted(place for place in self.places if place is not None)
        present = self._find_place() if planned else None
        other = next((place for place in planned if present is not None and not is_same_place(place, present)), None)
        if other is None:
            return
        raise Refused(
            f"what was planned of {self.dataset} is not at the place that the settings name. Then: {other}. Now: {present}. "
            "Nothing is deleted there. Set the store back to the first place and run again. If that place is gone for "
            f"good, place a hold on {self.dataset} (`retention hold`) and run again: the run spares what was begun."
        )

    def execute(self, targets: Mapping[int, Target], batch: Batch) -> list[Settlement]:
        """Give the batch's order to the store, or have it expire the targets, if the policy says so; return the outcomes."""
        parallelism = max(1, batch.sweep.parallelism // self.context.tasks)
        if batch.sweep.mode != "ttl" or batch.order is not Order.DELETE or not targets:
            answers = execute_order(self.store, self.dataset, targets, batch.order, parallelism, self.permit)
            # what was changed in the trash stays set aside
            stays = (Outcome.SPARED,) if batch.order.starts_in_trash else ()
            return [replace(answer, outcome=Outcome.FAILED) if answer.outcome in stays else answer for answer in answers]
        answers = execute_expiry(self.store, self.dataset, targets, self.context.as_of, parallelism, self.permit)
        # Those that failed may have a time now, and spared ones one from an earlier sweep: it is taken back first. A time that
        # the row had by itself stays.
        unsure = {
            answer.mark: answer
            for answer in answers
            if answer.outcome is Outcome.FAILED or (answer.outcome is Outcome.SPARED and answer.mark in self.begun_earlier)
        }
        back = self._clear_expiry({mark: targets[mark] for mark in unsure}, unsure)
        return [*(answer for answer in answers if answer.mark not in unsure), *back]

    def settle_expired(self, rows: pa.Table) -> list[Settlement]:
        gone = rows.filter(pc.invert(pc.is_in(rows["transaction"], join_chunks(self.reading.log.transactions["transaction"]))))
        expires = self.context.recheck.expiring(gone)
        return [Settlement(row["id"], Outcome.DELETED, row["bytes"] or 0) for row in gone.to_pylist() if row["id"] in expires]

    def spare_begun(self, rows: pa.Table, needed: Mapping[int, str]) -> list[Settlement]:
        """Settle begun marks that are needed again. A time to expire that the store was given is taken back first."""
        self.tell_swept()
        is_aside = pc.equal(rows["order"], Order.SET_ASIDE)
        back, rows = self._bring_back(rows.filter(is_aside), needed), rows.filter(pc.invert(is_aside))
        expires = self.context.recheck.expiring(rows) if self.store.expiry else set()
        remains = self._remains_of(rows.filter(pc.invert(rows_of_marks(rows, expires))))
        planned = dict(zip(rows["id"].to_pylist(), rows["planned"].to_pylist(), strict=True))
        spared = [
            Settlement(
                mark, Outcome.ALREADY_GONE if left in (Remains.NOTHING, Remains.FREED) else Outcome.SPARED,
                # bytes that a killed sweep had freed are counted nowhere else
                planned[mark] or 0 if left is Remains.FREED else 0, _BEGUN[left] + needed[mark],
            )
            for mark, left in remains.items()
        ]  # fmt: skip
        targets = {row["id"]: Target(row["transaction"], row["note"]) for row in rows.to_pylist() if row["id"] in expires}
        then = {mark: Settlement(mark, Outcome.SPARED, error=needed[mark]) for mark in targets}
        return [*back, *spared, *self._clear_expiry(targets, then)]

    def _bring_back(self, rows: pa.Table, needed: Mapping[int, str]) -> list[Settlement]:
        # what can't come back yet stays begun
        targets = {
            row["id"]: Target(row["transaction"], row["note"], aside=f"{row['plan']}/{row['id']}") for row in rows.to_pylist()
        }
        if not targets:
            return []
        settlements = []
        for answer in execute_order(self.store, self.dataset, targets, Order.RESTORE, _PARALLELISM, self.permit):
            if answer.outcome is Outcome.RESTORED:
                why = f"A sweep had begun to set it aside, and it is back. {needed[answer.mark]}"
                settlements.append(Settlement(answer.mark, Outcome.SPARED, error=why))
            elif len(self.result.errors) < MOST_ERRORS:
                self.result.errors.append(f"what a sweep had begun to set aside could not be brought back: {answer.error}")
        return settlements

    def waiting(self, marks: pa.Table) -> set[int]:
        """Return the marks that the store can't sweep in the way of their policies; reports it once for each policy."""
        recheck, waits = self.context.recheck, set[int]()
        # a purge deletes at once where the store can't set anything aside
        asked = marks.filter(pc.invert(pc.starts_with(marks["policy"], RESERVED)))
        expires = set() if self.store.expiry else {mark for mark, how in recheck.sweeps_of(asked).items() if how.mode == "ttl"}
        untils = recheck.untils_of(asked, self.context.as_of) if self.store.settings.undo_fault else ()
        aside = set(untils)
        for ids, way, remedy in (
            (expires, "lets the store expire rows (sweep.mode: ttl)", _WITHOUT_TTL),
            (aside, "sets aside what it sweeps (undo)", f"Remove `undo`, or exclude {self.store.name}/* from its datasets."),
        ):
            waits |= ids
            for policy in sorted(set(marks.filter(rows_of_marks(marks, ids))["policy"].to_pylist())) if ids else ():
                what = f"policy {policy} {way}, but {self.store.name} can't do that, so its marks wait"
                error = f"{what}. {remedy.format(policy)}"
                if error not in self.result.errors:
                    self.result.errors.append(error)
        return waits

    def count(self, settled: Sequence[Settlement]) -> None:
        self.result.outcomes.update(answer.outcome for answer in settled)
        self.deleted += sum(answer.outcome is Outcome.DELETED for answer in settled)
        done = (Outcome.DELETED, Outcome.ALREADY_GONE)
        if (fault := self.permit.ledger_fault()) is not None:
            gone = [answer.mark for answer in settled if answer.outcome is Outcome.DELETED]
            raise Withheld(
                f"the sweep of {self.dataset} ends here: {fault}. It has just deleted {len(gone)} transactions, which may "
                "not be recorded. Restore the complete ledger and run again: the run finishes what was begun."
            )
        self.result.bytes_freed += sum(answer.bytes for answer in settled if answer.outcome in done)
        self.result.bytes_set_aside += sum(answer.bytes for answer in settled if answer.outcome is Outcome.SET_ASIDE)
        self.result.bytes_hidden += sum(answer.bytes_hidden for answer in settled if answer.outcome is Outcome.HIDDEN)
        self.result.left += sum(answer.left for answer in settled)
        for messages, outcomes in ((self.result.errors, (Outcome.FAILED,)), (self.result.warnings, (*done, Outcome.RESTORED))):
            new = [answer.error for answer in settled if answer.outcome in outcomes and answer.error]
            messages += new[: max(0, MOST_ERRORS - len(messages))]

    def _find_place(self, claim: bool = False) -> str | None:
        store = self.store
        return call_store(store, partial(store.place, self.dataset, claim))

    def _remains_of(self, begun: pa.Table) -> dict[int, Remains]:
        rows, store = begun.to_pylist(), self.store
        present = self._find_place() if rows else None
        here = [row for row in rows if row["place"] is None or (present is not None and is_same_place(row["place"], present))]
        targets = [
            Target(
                row["transaction"], row["note"], place_known=row["place"] is not None, begun_earlier=True,
                again=row["changed_at"] if row["order"] == Order.REPLAY else None,
            )
            for row in here
        ]  # fmt: skip
        remains: Mapping[str, Remains] = {}
        if targets:
            remains = call_store(store, partial(store.remains, self.dataset, targets))
        remains_here = {row["id"]: remains.get(row["transaction"], Remains.UNKNOWN) for row in here}
        return dict.fromkeys(begun["id"].to_pylist(), Remains.UNKNOWN) | remains_here

    def _clear_expiry(self, targets: Mapping[int, Target], then: Mapping[int, Settlement]) -> list[Settlement]:
        # a target that still has its time gets no settlement: its mark stays SWEEPING, because it may expire
        settlements: list[Settlement] = []
        for answer in execute_expiry(self.store, self.dataset, targets, None, _PARALLELISM, self.permit) if targets else ():
            if answer.outcome is Outcome.FAILED:
                self.result.outcomes[Outcome.FAILED] += 1
                if len(self.result.errors) < MOST_ERRORS:
                    self.result.errors.append(f"its time to expire could not be taken back: {answer.error}")
            else:
                settlements.append(answer if answer.outcome in (Outcome.ALREADY_GONE, Outcome.WITHHELD) else then[answer.mark])
        return settlements


class ActiveDatasets(dict[str, DatasetSweep]):
    """Datasets of a round by name. `again`: those that need another round, because holds, realms or the log changed."""

    def __init__(self, context: SweepContext, sweeps: Iterable[DatasetSweep]) -> None:
        super().__init__((sweep.dataset, sweep) for sweep in sweeps)
        self.context = context
        self.again: list[DatasetSweep] = []

    @property
    def holder(self) -> str:
        return next(iter(self.values())).lease.holder

    def sweeps(self, datasets: Collection[str] | None = None) -> list[DatasetSweep]:
        return [sweep for name, sweep in self.items() if datasets is None or name in datasets]

    def leases(self, datasets: Collection[str]) -> list[Lease]:
        return [sweep.lease for sweep in self.sweeps(datasets)]

    def with_again(self) -> list[DatasetSweep]:
        return [*self.values(), *self.again]

    def rows(self, rows: pa.Table, marks: Collection[int] | None = None) -> pa.Table:
        """Keep rows of datasets that are still active, and of some marks."""
        rows = rows_of_datasets(rows, self)
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
        if self.pop(sweep.dataset, None):
            sweep.result.refuse(fault)

    def lose(self, lost: Mapping[str, str]) -> None:
        """Take out the datasets whose lease is lost, with the reasons."""
        for sweep in self.sweeps(lost):
            self.take_out(sweep, LeaseLost(lost[sweep.dataset]))

    def once_more(self, sweep: DatasetSweep) -> None:
        if self.pop(sweep.dataset, None):
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
