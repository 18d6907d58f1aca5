"""Rehearses a run, or one a day, on a copy of the ledger, over stores that record instead of deleting.

Marking, re-check and sweep are a run's own code, so a rehearsal finds what a run does.
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import DatasetFilter, store_of
from retention_assets.environment import Environment
from retention_assets.errors import Refused, did_you_mean
from retention_assets.evaluation.keepers import Keepers
from retention_assets.evaluation.rules_in_force import Rulebook, RulesInForce, load_rules
from retention_assets.frames.arrays import join_chunks, keys_of
from retention_assets.frames.log import KNOWN_ROWS, LIVING, Log, by_dataset, is_in_log, known_rows, sums_by
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.decisions import new_marks
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.evaluations import Objection
from retention_assets.ledger.ledger import copy_due_marks, copy_times_of_file_holds
from retention_assets.ledger.mark_rows import MARK_ROWS
from retention_assets.ledger.marking import CANDIDATES, PendingSweep
from retention_assets.outcomes import Order
from retention_assets.people.idle_rules import idle_rules
from retention_assets.policy.sentences import there_again
from retention_assets.policy.sizes import size_of
from retention_assets.settings.model import Settings
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.logs import ChosenDatasets, choose_datasets
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store, StoreFailed, call_store, data_finder, error_text, rows_with_data
from retention_assets.stores.remembered import RememberingStore
from retention_assets.sweep.admission import Admission, Door, Question, Refusal
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper

_ACTOR = "rehearsal"


@dataclass(frozen=True)
class Amount:
    """Number of transactions, and their bytes."""

    transactions: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.transactions + other.transactions, self.bytes + other.bytes)

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def text(self, none: str = "") -> str:
        return f"{self.transactions:,} ({size_of(self.bytes)})" if self.transactions else none


NOTHING = Amount()


def amounts_by(rows: pa.Table, columns: Sequence[str]) -> dict[tuple[str, ...], Amount]:
    """Sum rows by some columns, sorted."""
    if not len(rows):
        return {}
    sums = sums_by(rows, columns)
    return dict(sorted((tuple(row[name] for name in columns), Amount(row["transactions"], row["bytes"])) for row in sums))


def amount_of(rows: pa.Table) -> Amount:
    return amounts_by(rows, ()).get((), NOTHING)


@dataclass(frozen=True)
class Rehearsal:
    """Copy of the ledger, the recording stores, and the chosen datasets."""

    settings: Settings
    source: Ledger | None
    copy: Ledger
    rulebook: Rulebook
    stores: Mapping[str, RecordingStore]
    datasets: DatasetFilter
    chosen: Sequence[ChosenDatasets]
    # why a store could not be asked, by its name
    away: Mapping[str, str]
    # instant of the run that is rehearsed; None: the present
    as_of: datetime | None = None
    # the scan of a store would fail
    is_unscanned: bool = False
    # datasets that an earlier day has refused
    unsound: Set[str] = frozenset()
    # by dataset: sentences about what was deleted and is there again
    _back: dict[str, str] = field(default_factory=dict)
    # ids of marks that an earlier day has spared
    _spared: set[int] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        return [name for choice in self.chosen for name in choice.datasets]

    def known(self, log: Log) -> pa.Table:
        """Transactions of the datasets of a log that are marked or swept: what the copy has, it knows better."""
        names, again = log.datasets["dataset"].to_pylist(), self.settings.hidden_again
        copied = self.copy.marks.table(names)
        rows = [copied.filter(pc.is_in(copied["status"], value_set=pa.array(LIVING)))]
        if self.source:
            # a mark that is only hidden, and is to be marked again, is neither open nor swept
            marks = pa.Table.from_batches(self.source.marks.read(names, LIVING, hidden_again=again), MARK_ROWS)
            rows.append(marks.filter(pc.invert(pc.is_in(marks["id"], value_set=join_chunks(copied["id"])))))
        return pa.Table.from_batches(known_rows(batch for part in rows for batch in part.to_batches()), KNOWN_ROWS)

    def candidates(self, log: Log, known: pa.Table, rules: RulesInForce, at: datetime) -> pa.Table:
        """New marks of an evaluation of a log."""
        verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, at, known)
        marks = new_marks(verdicts, log.transactions, rules.policies, rules.versions).cast(CANDIDATES)
        still = known.filter(pa.array(is_in_log(known, marks)))
        return marks.filter(pc.invert(pc.is_in(keys_of(marks), value_set=keys_of(still))))

    def stored(self, log: Log, known: pa.Table) -> Amount:
        """Amount in a log that was not swept. What was swept and is there again is noted."""
        rows, swept = log.transactions, known.filter(known["swept"])
        gone = swept.filter(pa.array(is_in_log(swept, rows)))
        there = rows_with_data(gone, lambda name: data_finder(self.stores.get(store_of(name)), name))
        for name, rows_back in by_dataset(there).items():
            self._back[name] = f"{name}: {there_again(name, sorted(rows_back['transaction'].to_pylist()))}."
        return amount_of(rows.filter(pc.invert(pc.is_in(keys_of(rows), value_set=keys_of(gone)))).select(["bytes"]))

    def marking_time(self) -> datetime:
        """Start of a mark made now. Refused by a clock that is behind the newest mark, as marking is."""
        clock, present = self.settings.clock, self.copy.clock.present(self.as_of)
        self.copy.clock.check(present, None, clock.max_ahead, clock.max_skew, self._other_clocks)
        newest = self.copy.clock.times().newest_mark_at
        return max(present, newest) if newest else present

    def mark(self, candidates: pa.Table) -> None:
        self.copy.marks.mark(candidates, self.copy.clock.present(self.as_of), _ACTOR)

    def due(self) -> list[PendingSweep]:
        """Chosen datasets on which a sweep of the copy has something to do."""
        due = {row.dataset: row for row in self.copy.marks.to_sweep(self.copy.clock.due_by(self.as_of))}
        # a store that can't even be opened is reported once, and not for each of its datasets
        opened = {name for name in due if store_of(name) in self.stores or store_of(name) not in self.away}
        return [due[name] for name in self.datasets.select(sorted(opened - self.unsound))]

    def admit(self, environment: Environment, due: Sequence[PendingSweep], waived: Collection[Question]) -> Admission:
        """Ask the door as a run does."""
        if self.is_unscanned and not self.names:
            return Admission((Refusal(Question.PLACE, None, Refused("No dataset can be read.")),))
        due_by, stores = self.copy.clock.due_by(self.as_of), {name: recording.store for name, recording in self.stores.items()}
        if self.source:
            door = Door(environment, self.source, self.rulebook, stores, due_by, self.as_of, rehearsed=self.copy)
        else:
            # before the first evaluation nobody knows how much there is
            brake = self.settings.brake and self.settings.brake.model_copy(update={"share": None})
            first = replace(environment, settings=self.settings.model_copy(update={"brake": brake}))
            door = Door(first, self.copy, self.rulebook, stores, due_by, self.as_of)
        return door.admit(Order.DELETE, due, waived)

    def sweep_copy(self, datasets: Sequence[str]) -> Iterator[SweepResult]:
        """Sweep the copy. The stores record what they would delete."""
        clocks, wait, given = self._other_clocks, lambda *_: None, (self.copy, self.stores, self.rulebook, self.as_of, _ACTOR)
        return Sweeper(*given, wait=wait, clocks=clocks, real_ledger=self.source).run(datasets)

    def waiting(self) -> Amount:
        return sum((Amount(group.marks, group.bytes) for group in self.copy.pending.waiting()), NOTHING)

    def due_after(self, instant: datetime) -> Amount:
        """Open marks of the chosen datasets that the copy leaves out, because no run of the rehearsal reaches them."""
        groups = [group for group in self.source.pending.waiting() if group.due_at > instant] if self.source else []
        chosen = {*self.datasets.select({group.dataset for group in groups})}
        left_out = (group for group in groups if group.dataset in chosen and not group.sweeping)
        return sum((Amount(group.marks, group.bytes) for group in left_out), NOTHING)

    def next_day(self, unsound: Collection[str]) -> "Rehearsal":
        """Let logs lose what was recorded. A log that is not sound stays so: it is not read again."""
        for store in self.stores.values():
            store.end_day()
        if not unsound:
            return self
        chosen = [replace(one, datasets=tuple(name for name in one.datasets if name not in unsound)) for one in self.chosen]
        return replace(self, chosen=chosen, unsound=self.unsound | {*unsound})

    def notes(self, environment: Environment, told: Iterable[str]) -> list[str]:
        """Sentences about a ledger that is missing, checks that failed, and rules without effect."""
        return [
            *([] if self.source else [environment.no_ledger]),
            *(f"Unless this check passes in the run, {fault}" for fault in told),
            *idle_rules(self.rulebook.files, self.source),
            *self._back.values(),
        ]

    def objections(self, due: Iterable[PendingSweep]) -> list[Objection]:
        return self.source.objections.standing({row.dataset for row in due}) if self.source else []

    def accepted_cascades(self) -> dict[str, str]:
        """Sentences about accepted cascades, by the name of each store that would have deleted something."""
        stores = [recording.store for recording in self.stores.values() if recording.recorded]
        return {store.name: sentence for store in stores if (sentence := call_store(store, store.accepted_cascades))}

    def newly_spared(self, marks: pa.Table) -> list[Mapping[str, Any]]:
        """Marks that this run has spared."""
        spared = [row for row in marks.filter(pc.equal(marks["status"], "SPARED")).to_pylist() if row["id"] not in self._spared]
        self._spared.update(row["id"] for row in spared)
        return spared

    def _other_clocks(self) -> Iterator[datetime]:
        # the copy is a file; where the ledger is on a server, the server's clock is a witness for the copy as well
        return filter(None, (self.source.clock.server_time(),) if self.source else ())


@contextmanager
def rehearse(
    environment: Environment, datasets: Sequence[str], at: datetime, as_of: datetime | None = None, days: int = 1
) -> Iterator[Rehearsal]:
    """Copy the ledger, with what runs on some days read of it. Where there is no ledger yet, the copy is empty.

    Stores of objects are scanned once, as of `as_of` or now, without a record. Ahead of the present, where a sweep may not go,
    the copy has a simulated clock.
    """
    settings = environment.settings
    if not settings.stores:
        raise Refused("The settings name no store. Add one to retention.yaml, then run again.")
    wanted, due_by = DatasetFilter(tuple(datasets)), at + timedelta(days=days - 1)
    simulated = settings.clock.simulated or due_by > environment.present()
    with ExitStack() as stack:
        source = stack.enter_context(environment.ledger_if_any())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="retention-rehearsal-"))
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"
        copy = stack.enter_context(open_ledger(url, simulated=None if source else simulated))
        if source:
            due = wanted.select(source.marks.datasets_to_sweep(due_by))
            copy_due_marks(source, copy, due, due_by, simulated)
        scanned, unread = scan_stores(environment, source, wanted, as_of, stack)
        stores, away = dict[str, RecordingStore](), dict[str, str]()
        for name in (store.name for store in settings.stores):
            try:
                store = scanned.get(name) or environment.stores([name])[name]
                # An expired parent leaves its id behind in an Iceberg table, and what follows has no parent.
                begins_anew = isinstance(settings.store(name), IcebergSettings)
                stores[name] = RecordingStore(store) if days == 1 else RememberingStore(store, begins_anew=begins_anew)
            except Exception as fault:  # noqa: BLE001 - a store may be anybody's, and so may what it raises
                away[name] = error_text(fault)
        for name, refusal in environment.place_faults(source, (one.store for one in stores.values())).items() if source else ():
            if not isinstance(refusal, StoreFailed):
                away[name] = str(refusal)
                del stores[name]
        chosen = choose_datasets((one for name, one in stores.items() if name not in unread), wanted)
        away |= {one.store.name: one.fault for one in chosen if one.fault}
        if not (wanted.selects_all or away or unread or any(one.datasets for one in chosen)):
            names = [name for one in choose_datasets(stores.values(), DatasetFilter()) for name in one.datasets]
            guess = did_you_mean(datasets[0], names, most=1) or ""
            raise Refused(f"No store has a dataset of {', '.join(datasets)}. {guess}".rstrip())
        unscanned = {name: fault for name, fault in unread.items() if fault is not None}
        rulebook = load_rules(copy, environment, _ACTOR, record=source)
        if source:
            copy_times_of_file_holds(source, copy)
        away |= {**rulebook.unreadable, **unscanned}
        yield Rehearsal(settings, source, copy, rulebook, stores, wanted, chosen, away, as_of, bool(unscanned))


def scan_stores(
    environment: Environment, source: Ledger | None, wanted: DatasetFilter, as_of: datetime | None, stack: ExitStack
) -> tuple[dict[str, Store], dict[str, str | None]]:
    # A store that can't be scanned is swept all the same, as in a run: the sweep checks by itself.
    settings = environment.settings
    scanned, unread = dict[str, Store](), dict[str, str | None]()
    object_stores = [store for store in settings.stores if isinstance(store, ObjectsSettings)]
    if object_stores:
        # Imported here: it loads everything that scans, and most environments have no scanned store.
        from retention_assets.pipeline.unrecorded_scans import ScannedObjects, UnrecordedScans
        from retention_assets.pipeline.warehouse import Warehouse

        warehouse, spark = Warehouse(str(settings.warehouse)), settings.spark
        keepers = Keepers.of_settings(source, settings)
        scans = UnrecordedScans(source, warehouse, spark.master, spark.conf, keepers.in_force, as_of)
        for store in object_stores:
            if not wanted.may_select_of(store.name):
                unread[store.name] = None
                continue
            try:
                scanned[store.name] = ScannedObjects(store, stack.enter_context(scans.scan(store)))
            except Refused as fault:
                unread[store.name] = str(fault)
    return scanned, unread
