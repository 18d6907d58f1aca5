"""Whole sweeps through the engine, with a ledger in PostgreSQL: rows of aspects, units of work, files, snapshots, small datasets.

Belongs here: the five environments, each made and marked before the clock runs, and what one mark, table or dataset then costs.
Beside it the store alone is told to note and to delete the same, batch by batch, with nobody who checks or writes it down: the
speed of a machine changes by the hour, and what stays is how many times as long a sweep takes. A sweep is given in seconds that
cores work for it as well, in this Python and in the server. With Spark it runs in tasks as a run has them.
Does not belong here: the stores alone (sweeping.py, aspects.py, records.py), and other ledgers (ledger.py).
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from benchmarks.aspects import AS_OF as HUB_DAY
from benchmarks.aspects import Hub
from benchmarks.environments import AS_OF as TABLES_DAY
from benchmarks.ledger import Places, postgresql, server_of
from benchmarks.measures import Times, timed, worked
from benchmarks.records import AS_OF as DEPOT_DAY
from benchmarks.records import Depot
from benchmarks.sweep_files import fill, write_log
from benchmarks.sweep_iceberg import Apart
from retention_assets.datasets import DatasetFilter, store_of
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.outcomes import Outcome
from retention_assets.pipeline.read_logs import read_stores
from retention_assets.pipeline.sweep_stage import SweepTask, SweepWatch, is_for_tasks, sweep_in_tasks
from retention_assets.policy import Sweep
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.logs import choose_datasets
from retention_assets.stores.protocol import Target
from retention_assets.sweep import Sweeper, SweepResult
from retention_assets_tests.clocks import CLOCK, open_simulated
from retention_assets_tests.histories import AS_OF as LAKE_DAY
from retention_assets_tests.sweep.datasets import evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.sections import Bench

_BATCH = 2_000
# As many as a policy says that says nothing.
_PARALLELISM = Sweep().parallelism
_RUN, _ALONE, _TASKS = "benchmark", "in one Python", "in Spark's tasks"
# The parts of a run that is asked for so many rows: a full run has 10,000,000.
_SHARES = {"aspects": 50, "records": 100, "files": 50_000, "tables": 5_000, "small": 1_000}
# Sizes of a full run from which a run of ours sweeps in tasks (pipeline/sweep_stage.py).
_TURNS, _FULL = {"aspects": 78_000, "records": 55_000, "files": 100, "tables": 204, "small": 1_000}, 10_000_000


@dataclass(frozen=True)
class Due:
    """An environment in which everything that may go is marked and due at a moment."""

    folder: Path
    ledger_url: str
    stores: Sequence[dict[str, Any]]
    select: dict[str, Any]
    as_of: datetime
    batch: int = _BATCH

    def marked(self) -> int:
        """Write settings and rules, and mark; how many marks there are."""
        (self.folder / "policies").mkdir(parents=True, exist_ok=True)
        policy = {
            "name": "all", "datasets": {"include": ["*"]}, "select": self.select, "grace": "0s", "confirm": "no-grace",
            "sweep": {"every": "0s", "batch": self.batch},
        }  # fmt: skip
        (self.folder / "policies" / "p.yaml").write_text(json.dumps({"policies": [policy]}))
        stores = json.loads(json.dumps(self.stores).replace("$", "$$"))
        settings = {"ledger": self.ledger_url.replace("$", "$$"), "clock": CLOCK, "stores": stores}
        places = {"policies": "policies", "warehouse": "warehouse"}
        # JSON is YAML.
        (self.folder / "retention.yaml").write_text(json.dumps(settings | places))
        with self.ledger() as ledger:
            return evaluate(ledger, Environment(self.settings).stores().values(), self.settings, self.as_of)

    @property
    def settings(self) -> Settings:
        """As a run reads them."""
        return load_settings(self.folder / "retention.yaml")

    def ledger(self) -> Ledger:
        """Opened."""
        return open_simulated(self.ledger_url)

    def by_stores(self) -> list[SweepResult]:
        """Have the stores delete everything, which nobody checks and nobody writes down."""
        with self.ledger() as ledger:
            marks = ledger.marks.table()
        stores, results = Environment(self.settings).stores(), []
        for dataset in marks["dataset"].unique().to_pylist():
            store, result = stores[store_of(dataset)], SweepResult(dataset)
            names = marks.filter(pc.equal(marks["dataset"], dataset))["transaction"].to_pylist()
            noted = store.prepare(dataset, names)
            for first in range(0, len(noted), self.batch):
                targets = [Target(one.transaction, one.note, place_known=True) for one in noted[first : first + self.batch]]
                result.outcomes.update(one.outcome for one in store.sweep(dataset, targets, _PARALLELISM))
            results.append(result)
        return results

    def by_engine(self) -> list[SweepResult]:
        """Sweep everything in this Python."""
        with self.ledger() as ledger:
            rules = load_rulebook(ledger, self.settings, _RUN)
            stores = Environment(self.settings).stores()
            sweeper = Sweeper(ledger, stores, rules, self.as_of, _RUN)
            return list(sweeper.run(ledger.marks.datasets_to_sweep(self.as_of)))

    def read(self, spark: "SparkSession") -> None:
        """Read everything in Spark's tasks, as a run has done by the time it sweeps."""
        chosen = choose_datasets(Environment(self.settings).stores().values(), DatasetFilter())
        read_stores(spark, chosen, str(self.folder / "read"))

    def amounts(self, ledger: Ledger) -> dict[str, int]:
        """Due marks by dataset."""
        return {one.dataset: one.marks for one in ledger.marks.to_sweep(self.as_of)}

    def in_tasks(self, spark: "SparkSession") -> list[SweepResult]:
        """Sweep everything in Spark's tasks, as a run does."""
        with self.ledger() as ledger:
            rules = load_rulebook(ledger, self.settings, _RUN)
            due = self.amounts(ledger)
            task = SweepTask(self.settings, rules.files, ledger.id, self.as_of, _RUN, str(self.folder / "run"))
            return sweep_in_tasks(spark, task, due, SweepWatch(ledger, rules, _RUN, threading.Event()))


def aspects_due(folder: Path, places: Places, rows: int) -> Due:
    """Six of ten versions of each aspect, in twenty datasets."""
    hub = Hub(places("hub"), rows)
    return Due(folder, places("aspects_ledger"), [hub.settings], {"older_than": "30d"}, HUB_DAY)


def records_due(folder: Path, places: Places, units: int) -> Due:
    """Units of work in one dataset, with five tables of two rows each."""
    shop = Depot(places("shop"), units)
    return Due(folder, places("records_ledger"), [shop.settings], {"older_than": {"age": "P2Y", "align": "day"}}, DEPOT_DAY)


def files_due(folder: Path, places: Places, datasets: int, transactions: int) -> Due:
    """Transactions of one file each; all but the newest of a dataset are due."""
    (folder / "log").mkdir(parents=True)
    for number in range(datasets):
        names = [f"T{one}" for one in range(transactions + 1)]
        write_log(folder / "log" / f"{number}.jsonl", f"lake/d{number}", names)
        for name in names:
            fill(folder / "data" / f"d{number}" / name, 1)
    store = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
    return Due(folder, places(f"files_ledger_{transactions}"), [store], {"beyond": {"transactions": 1}}, LAKE_DAY)


def tables_due(folder: Path, places: Places, tables: int) -> Due:
    """Tables of ten overwrites each; the older five are due."""
    store = Apart(folder / "ice", tables).made()
    return Due(folder, places("tables_ledger"), [store], {"beyond": {"transactions": 5}}, TABLES_DAY)


Way = Callable[[Due], list[SweepResult]]


@dataclass(frozen=True)
class Case:
    """One environment: how it is made in a folder, and whether its rate is counted by dataset or by mark."""

    what: str
    make: Callable[[Path, Places, int], Due]
    by_dataset: bool = False


CASES: Mapping[str, Case] = {
    "aspects": Case("rows of aspects", aspects_due),
    "records": Case("units of work", records_due),
    "files": Case("file transactions, 100 a dataset", lambda folder, places, size: files_due(folder, places, size, 100)),
    "tables": Case("tables, five of ten snapshots", tables_due, by_dataset=True),
    "small": Case("datasets of one mark", lambda folder, places, size: files_due(folder, places, size, 1), by_dataset=True),
}


class Measured(NamedTuple):
    """Seconds, seconds that cores worked, how many rows or datasets these are of, and whether a run would sweep them in tasks."""

    seconds: float
    cpu: float
    rows: int
    is_for_tasks: bool


def wholes(bench: "Bench") -> None:
    """Each environment deleted by its store alone, swept in this Python, and in Spark's tasks; each time made anew."""
    sizes = {name: max(bench.sizes.rows // share, 2) for name, share in _SHARES.items()}
    for name, measured in _measured_in_turn(bench, sizes, {"the store alone": Due.by_stores, **_ways(bench)}).items():
        notes = {
            way: f"{bench.sizes.cores * one.rows / one.cpu:,.0f}/s by {bench.sizes.cores} cores"
            for way, one in measured.items()
        }
        _add(bench, "wholes", CASES[name].what, measured, notes)


def turns(bench: "Bench") -> None:
    """Each environment at half and at twice the size from which a run sweeps in tasks: the faster way is to be the chosen one."""
    for factor in (0.5, 2.0):
        sizes = {name: max(int(size * factor * bench.sizes.rows / _FULL), 2) for name, size in _TURNS.items()}
        for name, measured in _measured_in_turn(bench, sizes, _ways(bench)).items():
            chosen = _TASKS if next(iter(measured.values())).is_for_tasks else _ALONE
            _add(bench, "turns", f"{CASES[name].what} ({sizes[name]:,})", measured, {chosen: "a run's way"})


def _ways(bench: "Bench") -> dict[str, Way]:
    return {_ALONE: Due.by_engine, _TASKS: lambda due: due.in_tasks(bench.spark)}


def _measured_in_turn(bench: "Bench", sizes: Mapping[str, int], ways: Mapping[str, Way]) -> Mapping[str, dict[str, Measured]]:
    measured: dict[str, dict[str, Measured]] = {name: {} for name in CASES}
    # One way after the other: idle workers of Spark end without telling anybody what they worked.
    for way in ways:
        for name in CASES:
            measured[name][way] = _measured(bench, name, sizes[name], way, ways[way])
    return measured


def _add(bench: "Bench", section: str, what: str, measured: Mapping[str, Measured], notes: Mapping[str, str]) -> None:
    first = next(iter(measured.values())).seconds
    times = {way: Times((one.seconds,), (one.seconds / first,), (one.cpu,)) for way, one in measured.items()}
    bench.report.add(section, what, times, {way: one.rows for way, one in measured.items()}, notes=notes)


def _measured(bench: "Bench", name: str, size: int, way: str, sweep: Way) -> Measured:
    case, folder = CASES[name], bench.folder / f"wholes_{name}"
    folder.mkdir(mode=0o700)
    with postgresql(folder / "server") as places:
        due = case.make(folder / "due", places, size)
        bench.say(f"{case.what}, {size:,}, {way}")
        marks, server, results = due.marked(), server_of(folder / "server"), list[SweepResult]()
        with due.ledger() as ledger:
            in_tasks = is_for_tasks(due.settings, due.amounts(ledger))
        # Neither its start nor that of Python in its tasks is part of a sweep.
        if way == _TASKS:
            due.read(bench.spark)
        before = worked(server)
        seconds = timed(partial(_kept, results, sweep, due))
        cpu = worked(server) - before
    bench.report.agree(f"{case.what}, {size:,}, that a sweep left, {way}", marks, marks - _deleted(results))
    bench.clear(folder.name)
    return Measured(seconds, cpu, len(results) if case.by_dataset else marks, in_tasks)


def _kept(results: list[SweepResult], sweep: Callable[[Due], list[SweepResult]], due: Due) -> None:
    results += sweep(due)


def _deleted(results: Sequence[SweepResult]) -> int:
    return sum(one.outcomes[Outcome.DELETED] for one in results)
