"""Rehearse a run on a copy of the ledger, over stores that record instead of deleting; or walk over the days to come.

Marking, re-check and sweep are a run's own code, so a rehearsal finds what a run does.
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import DatasetFilter, store_of
from retention_assets.environment import Environment
from retention_assets.errors import Refused, did_you_mean
from retention_assets.evaluation.days import ForecastDays, RecheckAt, WalkTerms, walk
from retention_assets.evaluation.keepers import Keepers
from retention_assets.evaluation.rules_in_force import Rulebook, RulesInForce, load_rules
from retention_assets.frames.arrays import keys_of
from retention_assets.frames.log import DATASETS, KNOWN_ROWS, LIVING, Log, is_in_log, known_rows
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.decisions import new_marks
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.ledger import copy_due_marks
from retention_assets.ledger.mark_rows import MARK_ROWS
from retention_assets.ledger.marking import CANDIDATES, PendingSweep
from retention_assets.pipeline.head_file import place_faults
from retention_assets.pipeline.stage import parts_of
from retention_assets.settings.model import Settings
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.logs import ChosenDatasets, choose_datasets, read_chosen
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import CascadingStore, Store, StoreFailed, call_store, error_text
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper, store_fault
from retention_assets.sweep.preconditions import braked, ledger_faults
from retention_assets.sweep.recheck import Recheck

_ACTOR = "rehearsal"
# transactions per batch of a walk; a longer dataset is a batch by itself
_ROWS_AT_ONCE = 100_000


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

    @property
    def names(self) -> list[str]:
        return [name for choice in self.chosen for name in choice.datasets]

    def candidates(self, log: Log, rules: RulesInForce, at: datetime) -> tuple[pa.Table, pa.Table]:
        """New marks of an evaluation of a log, and its transactions that the ledger has as marked or swept."""
        names = log.datasets["dataset"].to_pylist()
        known = pa.Table.from_batches(known_rows(self._read_marks(names)), KNOWN_ROWS)
        verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, at, known)
        marks = new_marks(verdicts, log.transactions, rules.policies, rules.versions).cast(CANDIDATES)
        still = known.filter(pa.array(is_in_log(known, marks)))
        return marks.filter(pc.invert(pc.is_in(keys_of(marks), value_set=keys_of(still)))), known

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
        return [due[name] for name in self.datasets.select(list(due))]

    def withheld(self, environment: Environment, datasets: Sequence[str], at: datetime) -> str | None:
        """Reason why a run would sweep nothing at all: by what was read, or by a ledger that is not what it was."""
        if self.rulebook.unaccepted:
            return f"Nothing would be swept. {self.rulebook.unaccepted}"
        if self.is_unscanned and not self.names:
            return "Nothing would be swept: no dataset can be read."
        if self.source is None:
            return None
        fault = ledger_fault(environment, self.source, datasets, at)
        return f"Nothing would be swept. {fault}" if fault else None

    def braked(self, due: Sequence[PendingSweep]) -> dict[str, str]:
        """By dataset, why a run would need a person's consent."""
        today = self.copy.clock.due_by(self.as_of).date()
        return braked(self.source, self.settings.brake, due, today) if self.source else {}

    def sweep_copy(self, datasets: Iterable[str]) -> Iterator[SweepResult]:
        """Sweep the copy. The stores record what they would delete."""
        # A store that can't even be opened is reported once, and not for each of its datasets.
        names = [name for name in datasets if store_of(name) in self.stores or store_of(name) not in self.away]
        clocks, wait, given = self._other_clocks, lambda *_: None, (self.copy, self.stores, self.rulebook, self.as_of, _ACTOR)
        return Sweeper(*given, wait=wait, clocks=clocks, real_ledger=self.source).run(names)

    def accepted_cascades(self) -> dict[str, str]:
        """Sentences about accepted cascades, by the name of each store that would have deleted something."""
        stores = [recording.store for recording in self.stores.values() if recording.recorded]
        return {
            store.name: sentence
            for store in stores
            if isinstance(store, CascadingStore) and (sentence := call_store(store, store.accepted_cascades))
        }

    def walk(self, sets: Sequence[tuple[ForecastDays, Rulebook]], as_of: datetime, unswept: Collection[str] = ()) -> pa.Table:
        """Add the days of the chosen datasets under sets of policies; return what logs say of the refused ones.

        Nothing is swept of the stores in `unswept`.
        """
        rechecks = [self._recheck_at(rulebook, as_of) for _, rulebook in sets]
        refused = [DATASETS.empty_table()]
        for choice in (choice for choice in self.chosen if choice.datasets):
            name, can = choice.store.name, call_store(choice.store, partial(getattr, choice.store, "capabilities"))
            # An expired parent leaves its id behind in an Iceberg table, and what follows has no parent.
            begins_anew = isinstance(self.settings.store(name), IcebergSettings)
            terms = WalkTerms(as_of, name, can, self.settings.prices, begins_anew, name not in unswept)
            for log in _batches(read_chosen([choice])):
                refused.append(log.datasets.filter(pc.is_valid(log.datasets["fault"])))
                for rows, datasets in parts_of(log, _ROWS_AT_ONCE):
                    if not len(rows):
                        continue
                    part = Log(rows, datasets.filter(pc.greater(datasets["transactions"], 0)))
                    names = part.datasets["dataset"].to_pylist()
                    marks = pa.Table.from_batches(self._read_marks(names), MARK_ROWS)
                    for (days, rulebook), recheck_at in zip(sets, rechecks, strict=True):
                        walk(days, part, marks, rulebook.rules(names, as_of), recheck_at, terms)
        return pa.concat_tables(refused)

    def _recheck_at(self, rulebook: Rulebook, as_of: datetime) -> RecheckAt:
        keepers, files = replace(rulebook.keepers, ledger=self.copy), rulebook.files
        recheck = Recheck(self.copy, self.settings, as_of, keepers, files=files, book=rulebook.in_force)
        return lambda at: replace(recheck, as_of=at)

    def unswept(self) -> dict[str, str]:
        """Reason why a sweep would refuse a store, by its name."""
        return {name: fault for name in self.stores if (fault := store_fault(self.rulebook, name))}

    def _read_marks(self, datasets: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # a mark that is only hidden, and is to be marked again, is neither open nor swept
        again = self.settings.hidden_again
        return self.source.marks.read(datasets, LIVING, hidden_again=again) if self.source else iter(())

    def _other_clocks(self) -> Iterator[datetime]:
        # the copy is a file; where the ledger is on a server, the server's clock is a witness for the copy as well
        return filter(None, (self.source.clock.server_time(),) if self.source else ())


def ledger_fault(environment: Environment, ledger: Ledger, datasets: Sequence[str], at: datetime) -> str | None:
    """Reason why nothing may be deleted by a ledger: it is not the newest, or differs from its record."""
    try:
        environment.check_heads(ledger)
    except Refused as fault:
        return str(fault)
    return record_fault(ledger, datasets, at)


def record_fault(ledger: Ledger, datasets: Sequence[str], at: datetime) -> str | None:
    """Reason why nothing may be moved by a ledger: what it says of these datasets differs from its record."""
    for check, violation in ledger_faults(ledger, datasets, at):
        return f"{check} fails. {violation.words.removesuffix('.')}. `retention audit verify` names every change."
    return None


@contextmanager
def rehearse(
    environment: Environment,
    datasets: Sequence[str],
    due_by: datetime | None = None,
    *,
    as_of: datetime | None = None,
    scans: bool = True,
) -> Iterator[Rehearsal]:
    """Copy the ledger, with the marks that are due by an instant. Where there is no ledger yet, the copy is empty.

    Stores of objects are scanned once, as of `as_of` or now, without a record; without `scans` they are read in this process,
    and there may be no dataset at all.
    Ahead of the present, where a sweep may not go, the copy has a simulated clock.
    """
    settings = environment.settings
    if not settings.stores:
        raise Refused("The settings name no store. Add one to retention.yaml, then run again.")
    wanted = DatasetFilter(tuple(datasets))
    present = environment.present()
    simulated = settings.clock.simulated or (due_by or present) > present
    with ExitStack() as stack:
        source = stack.enter_context(environment.ledger_if_any())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="retention-rehearsal-"))
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"
        copy = stack.enter_context(open_ledger(url, simulated=None if source else simulated))
        if source:
            due = wanted.select(source.marks.datasets_to_sweep(due_by)) if due_by else ()
            copy_due_marks(source, copy, due, due_by or present, simulated)
        scanned, unread = scan_stores(environment, source, wanted, as_of, stack) if scans else ({}, {})
        stores, away = dict[str, RecordingStore](), dict[str, str]()
        for name in (store.name for store in settings.stores):
            try:
                stores[name] = RecordingStore(scanned.get(name) or environment.stores([name])[name])
            except Exception as fault:  # noqa: BLE001 - a store may be anybody's, and so may what it raises
                away[name] = error_text(fault)
        for name, refusal in place_faults(source, environment.stores(stores).values()).items() if source else ():
            if not isinstance(refusal, StoreFailed):
                away[name] = str(refusal)
                del stores[name]
        chosen = choose_datasets((one for name, one in stores.items() if name not in unread), wanted)
        away |= {one.store.name: one.fault for one in chosen if one.fault}
        if scans and not (wanted.selects_all or away or unread or any(one.datasets for one in chosen)):
            names = [name for one in choose_datasets(stores.values(), DatasetFilter()) for name in one.datasets]
            guess = did_you_mean(datasets[0], names, most=1) or ""
            raise Refused(f"No store has a dataset of {', '.join(datasets)}. {guess}".rstrip())
        unscanned = {name: fault for name, fault in unread.items() if fault is not None}
        rulebook = load_rules(copy, environment, _ACTOR, record=source)
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


def _batches(logs: Iterable[Log]) -> Iterator[Log]:
    waiting: list[Log] = []
    for log in logs:
        waiting.append(log)
        if sum(len(part.transactions) for part in waiting) >= _ROWS_AT_ONCE:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(logs: Sequence[Log]) -> Log:
    rows = pa.concat_tables([log.transactions for log in logs]).unify_dictionaries().combine_chunks()
    return Log(rows, pa.concat_tables([log.datasets for log in logs]))
