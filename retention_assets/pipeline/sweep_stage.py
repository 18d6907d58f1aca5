"""The sweep as a stage: deals datasets out to tasks, opens ledger and stores where a task runs, and watches while tasks work.

Rows never travel: one line comes back for each dataset. Tasks and their run communicate through the ledger. What stores must
know of all that is due is found by tasks as well, once for the run, and left in a folder of the warehouse.

A task that is run twice does no harm: the second run finds its datasets under the lease of the first. A part of a dataset is
finished by the second run, and the first is refused from then on.
"""

import logging
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import TypeAdapter

from retention_assets.clock import moment
from retention_assets.datasets import by_store, store_of
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Refused
from retention_assets.evaluation.keepers import Keepers, folders_of_policies
from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import DatasetPart
from retention_assets.pipeline.confirmed import read_confirmed
from retention_assets.pipeline.file_systems import inside, place_of
from retention_assets.pipeline.stage import TASKS_PER_SLOT, SparkTasks, cut, distribute, repeated
from retention_assets.pipeline.warehouse import remove_folder
from retention_assets.policy.language import Policies
from retention_assets.settings.model import Settings
from retention_assets.settings.reach import is_local_master
from retention_assets.stores.protocol import Reads, StoreFailed
from retention_assets.sweep.dataset_sweep import MOST_ERRORS, OnProgress, SweepResult
from retention_assets.sweep.engine import Sweeper, cut_datasets
from retention_assets.sweep.read import answer_by, take_look

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# marks per task of a look; between two of them it asks whether to stop
_MARKS = 1 << 20
_LOG = logging.getLogger(__name__)
# limits of a share; between two shares a task checks whether to stop
_MOST_DATASETS, _MOST_MARKS = 256, 5_000
# cost of a dataset by itself, in marks
_DATASET = 10
# rows of a database, or marks and datasets that cost as much, from which local tasks are faster than one program, with their
# start (benchmark `turns`)
_WORTH_TASKS = 55_000
# seconds between a task's checks for a stop, and between its run's looks at the files
_SECONDS = 2.0
# datasets that go together, or a part of one
Share = tuple[str, ...] | DatasetPart
_RESULT = TypeAdapter(SweepResult)


@contextmanager
def _ledger_of_run(settings: Settings, known: str) -> Iterator[Ledger]:
    # another ledger at the same address knows nothing of the run's marks
    with Environment(settings).ledger() as ledger:
        if ledger.id != known:
            raise Refused(
                f"A task finds another ledger at {settings.ledger} than its run: {ledger.id}, not {known}. Give the ledger "
                "an address that leads to the same database on every machine."
            )
        yield ledger


@dataclass(frozen=True)
class DueInLedger:
    """Due transactions of datasets; a part is read where its task runs."""

    settings: Settings
    # its id
    ledger: str
    as_of: datetime
    shares: tuple[tuple[str, ...], ...]

    @property
    def parts(self) -> int:
        return len(self.shares)

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        with _ledger_of_run(self.settings, self.ledger) as ledger:
            yield from ledger.marks.read(self.shares[part], to_sweep_by=self.as_of, columns=("transaction",))


@dataclass
class StopRequest:
    """Asks the ledger whether a run has to stop, at most every two seconds; also in tasks."""

    settings: Settings
    run: str
    _asked: float | None = field(default=None, compare=False)
    _stops: bool = field(default=False, compare=False)

    def __call__(self) -> bool:
        running = moment().running
        if not self._stops and (self._asked is None or running - self._asked >= _SECONDS):
            self._asked = running
            with Environment(self.settings).ledger() as ledger:
                self._stops = ledger.sweep_runs.stop_requested(self.run) is not None
        return self._stops


def is_for_tasks(settings: Settings, marks: Mapping[str, int]) -> bool:
    """Tell whether a sweep of datasets, given with their due marks, is worth tasks.

    A SQLite file has one writer at a time: tasks would wait for each other. On this machine a small sweep is over before tasks
    have begun; on a cluster only the cluster may reach the stores.
    """
    if settings.ledger.startswith("sqlite") or not marks:
        return False
    if not is_local_master(settings.spark.master):
        return True
    # nobody sweeps marks of a store that the settings lack
    mark_costs = {store.name: store.mark_cost for store in settings.stores}
    costs = (mark_costs.get(store_of(dataset), 0) * (amount + _DATASET) for dataset, amount in marks.items())
    return sum(costs) >= _WORTH_TASKS


def share_out(
    marks: Mapping[str, int], tasks: int, seed: str, parts: Sequence[DatasetPart] = ()
) -> tuple[tuple[Share, ...], ...]:
    """Share out datasets by their due marks, and parts of others, to at most `tasks` tasks: the largest shares first, each to
    the least busy task.

    The order within a task is shuffled differently in each run, so that two programs that sweep the same help each other.
    """
    most_datasets = max(1, min(_MOST_DATASETS, len(marks) // (2 * tasks)))
    most_marks = max(1, min(_MOST_MARKS, sum(marks.values()) // (2 * tasks)))
    whole = [share for names in by_store(sorted(marks)).values() for share in cut(names, marks, most_marks, most_datasets)]
    costs: dict[Share, int] = {share: sum(marks[dataset] + _DATASET for dataset in share) for share in whole}
    costs |= {part: part.marks + _DATASET for part in parts}
    groups = distribute(costs, tasks, names_of)
    chance = random.Random(seed)
    for group in groups:
        chance.shuffle(group)
    return tuple(map(tuple, groups))


def names_of(share: Share) -> tuple[str, ...]:
    return (share.dataset,) if isinstance(share, DatasetPart) else share


@dataclass(frozen=True)
class SweepTask:
    """Payload of a task: settings, rules and names. It opens ledger and stores where it runs, and sweeps there."""

    settings: Settings
    # as the run's driver read them: there may be no files where this runs
    policies: Policies
    # its id
    ledger: str
    as_of: datetime | None
    # name in the leases and the record, and name of the run in the ledger
    holder: str
    # folder for what tasks need of each other, and looks taken there, by store
    folder: str
    # file of confirmed transactions, if a person was asked: nothing else is deleted
    confirmed: str | None = None
    # by task
    shares: tuple[tuple[Share, ...], ...] = ()
    # tasks at work at a time
    tasks: int = 1
    looks: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, number: int) -> Iterator[SweepResult | str]:
        # yielded, not raised: Spark would repeat the task
        try:
            yield from self.results_of(number)
        except (Refused, BadInput) as fault:
            yield str(fault)

    def results_of(self, number: int) -> Iterator[SweepResult]:
        with _ledger_of_run(self.settings, self.ledger) as ledger:
            # A hold that is gone from the files lasts until the run is over: nobody here can know who took it out.
            rulebook = Rulebook(ledger, self.settings, self.policies, Keepers(ledger, lambda: self.policies.holds))
            datasets = sorted({name for share in self.shares[number] for name in names_of(share)})
            confirmed = read_confirmed(self.confirmed, datasets) if self.confirmed else None
            with (
                Environment(self.settings).stores_of_run(self.holder, by_store(datasets)) as stores,
                _reported(ledger, self.holder, number) as (stop, tell),
            ):
                answer_by(stores, self.looks)
                sweeper = Sweeper(
                    ledger, stores, rulebook, self.as_of, self.holder, tell, stop, confirmed=confirmed, tasks=self.tasks
                )
                for share in self.shares[number]:
                    if stop.is_set():
                        return
                    yield from sweeper.run(names_of(share), share if isinstance(share, DatasetPart) else None)


@contextmanager
def _reported(ledger: Ledger, run: str, number: int) -> Iterator[tuple[threading.Event, OnProgress]]:
    stop = threading.Event()
    # a dataset has several where it is swept in parts
    results: dict[int, SweepResult] = {}

    def tell(result: SweepResult) -> None:
        results[id(result)] = result

    def report() -> None:
        progress = total("", list(results.values()))
        if ledger.sweep_runs.report(run, number, _RESULT.dump_json(progress).decode()) is not None:
            stop.set()

    # the run may have been stopped while this task waited for its turn
    report()
    try:
        with repeated(f"task {number} of {run}", _SECONDS, report):
            yield stop, tell
    finally:
        report()


def total(name: str, results: Iterable[SweepResult]) -> SweepResult:
    summed = SweepResult(name)
    for result in results:
        summed.planned += result.planned
        # a copy, because the original may still be counting
        summed.outcomes.update(Counter(dict(result.outcomes)))
        summed.bytes_freed += result.bytes_freed
        summed.bytes_hidden += result.bytes_hidden
        summed.bytes_set_aside += result.bytes_set_aside
        summed.left += result.left
    return summed


def one_of_each(results: Iterable[SweepResult]) -> dict[str, SweepResult]:
    """Return one result for each dataset: its parts are added up, and the first reason for anything stands."""
    parts: dict[str, list[SweepResult]] = {}
    for result in results:
        parts.setdefault(result.dataset, []).append(result)
    return {name: group[0] if len(group) == 1 else _together(name, group) for name, group in parts.items()}


def _together(name: str, parts: Sequence[SweepResult]) -> SweepResult:
    return replace(
        total(name, parts),
        refused=next((part.refused for part in parts if part.refused), None),
        skipped=next((part.skipped for part in parts if part.skipped), None),
        store_failed=any(part.store_failed for part in parts),
        errors=[*dict.fromkeys(message for part in parts for message in part.errors)][:MOST_ERRORS],
        warnings=[*dict.fromkeys(message for part in parts for message in part.warnings)][:MOST_ERRORS],
    )


@dataclass
class SweepWatch:
    """Watches for the driver while tasks are at work: puts policy files and the stop into the ledger, and reads the tasks'
    progress from it.
    """

    ledger: Ledger
    rulebook: Rulebook
    run: str
    stop: threading.Event
    on_progress: OnProgress = lambda _: None
    # fault with which the run has to end
    fault: Exception | None = None
    _last_progress: SweepResult | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.look()

        def look_on() -> None:
            try:
                self.look()
            except Exception as fault:  # noqa: BLE001 - the ledger may be back; if this is silent for long, tasks end
                _LOG.warning("The tasks of the sweep could not be watched: %s", fault)

        with repeated(f"watch of {self.run}", _SECONDS, look_on):
            yield
        self.look()
        if self.fault is not None:
            raise self.fault

    def look(self) -> None:
        """Pass holds, stop requests and a sign of life to the tasks; read their progress."""
        try:
            keepers = (*self.rulebook.keepers.in_files(), *self.rulebook.keepers.kept)
            self.ledger.holds.note_files(keepers, self.run, folders_of_policies(self.rulebook.settings))
        except (BadInput, OSError) as fault:
            # a rule that can't be read could be one that keeps
            self.fault = self.fault or fault
            self.ledger.sweep_runs.stop(self.run, "The policy files can't be read any more.")
        if self.stop.is_set():
            self.ledger.sweep_runs.stop(self.run, "Its program was asked to end.")
        self.ledger.sweep_runs.beat(self.run)
        if self.ledger.sweep_runs.stop_requested(self.run) is not None:
            self.stop.set()
        progress = total(self.run, map(_RESULT.validate_json, self.ledger.sweep_runs.progress(self.run)))
        if progress != self._last_progress and progress.planned:
            self._last_progress = progress
            self.on_progress(progress)


def sweep_in_tasks(spark: "SparkSession", task: SweepTask, marks: Mapping[str, int], watch: SweepWatch) -> list[SweepResult]:
    """Sweep datasets, given with their due marks, in Spark tasks; one result for each that a task came to.

    What a task lost with its executor has left is swept once more, as soon as its lease is over.
    """
    results: list[SweepResult] = []
    with watch.watching(), _looks_in_tasks(spark, task, marks, watch) as looks:
        task = replace(task, looks=looks)
        for wanted in (marks, None):
            abandoned = [] if wanted else watch.ledger.sweep_runs.abandoned(watch.run)
            now = wanted or {name: marks[name] for name in abandoned if name in marks}
            if now and not watch.stop.is_set():
                results += _run(spark, task, now, watch.ledger)
    return list(one_of_each(results).values())


@contextmanager
def _looks_in_tasks(
    spark: "SparkSession", task: SweepTask, marks: Mapping[str, int], watch: SweepWatch
) -> Iterator[dict[str, object]]:
    # looks by store; their folder lasts as long as the block
    at = watch.ledger.clock.due_by(task.as_of)
    looks: dict[str, object] = {}
    names = by_store(sorted(marks))
    root = inside(task.folder, "looks")
    try:
        for name, store in Environment(task.settings).stores(names).items():
            if store.reads is Reads.SOME and not watch.stop.is_set():
                due = DueInLedger(task.settings, task.ledger, at, tuple(cut(names[name], marks, _MARKS)))
                is_stopped = StopRequest(task.settings, watch.run)
                # a store that can't be opened raises in the tasks as well
                with suppress(StoreFailed):
                    looks[name] = take_look(
                        store, due, watch.ledger, at, SparkTasks(spark), inside(root, name), place_of, is_stopped
                    )
        yield looks
    finally:
        try:
            remove_folder(root)
        except OSError as fault:
            _LOG.warning("The folder of a check can't be removed now, so a later run removes it: %s", fault)


def _run(spark: "SparkSession", task: SweepTask, marks: Mapping[str, int], ledger: Ledger) -> Iterator[SweepResult]:
    tasks = SparkTasks(spark)
    most, stores = TASKS_PER_SLOT * tasks.slots, Environment(task.settings).stores(by_store(marks))
    with cut_datasets(ledger, stores, marks, most, task.as_of, task.holder) as parts:
        yield from (SweepResult(name, skipped=why) for name, why in parts.others.items())
        shares = share_out(parts.left_of(marks), most, task.holder, parts.parts)
        answers = tasks.collect(replace(task, shares=shares, tasks=min(tasks.slots, len(shares))), len(shares))
        yield from (answer for answer in answers if isinstance(answer, SweepResult))
        if fault := next((answer for answer in answers if isinstance(answer, str)), None):
            raise Refused(fault)
