"""Checks with a small task per slot whether a cluster can do what a run will ask of it, before anything else is done."""

import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.fs import FileSelector

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Refused
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.stage import SparkTasks
from retention_assets.settings.model import Settings
from retention_assets.stores.protocol import Store, StoreFailed, call_store, error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# tasks where the number of slots is unknown
_SAMPLE = 4
_PAGE = "See docs/cluster.md."
# Spark's messages about an unsuitable Python, with remedies
_KNOWN = (
    (
        re.compile(r"No module named '?([\w.]+)"),
        "the Python of the executors has no {0}: give them one with this package by spark.pyspark.python, or send one by "
        "spark.archives",
    ),
    (
        re.compile(r'Cannot run program "([^"]+)"'),
        "the executors have no program {0}: name their Python by spark.pyspark.python in spark.conf",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH.*?(\d+\.\d+)", re.DOTALL),
        "the Python of the executors is {0}, not that of this program: name one of the same release by "
        "spark.pyspark.python in spark.conf",
    ),
)


@dataclass(frozen=True)
class PreflightTask:
    """Checks that a slot has this package and reaches the warehouse, the ledger and each store."""

    settings: Settings
    # the run's ledger: a task that opens another one would delete by another record
    ledger: str
    # folder of this run in the warehouse, where each task leaves a file
    folder: str
    version: str = field(default_factory=lambda: _version())

    def __call__(self, number: int) -> Iterator[tuple[str, str | None, str]]:
        """Yield faults: the host, the store if it is about one, and the sentence."""
        host = socket.gethostname()
        return ((host, store, fault) for store, fault in self._faults(number))

    def _faults(self, number: int) -> Iterator[tuple[str | None, str]]:
        if self.version != _version():
            yield None, f"has retention_assets {_version()}, but this run has {self.version}: give both the same release"
        try:
            files, root = place_of(self.folder)
            files.create_dir(root, recursive=True)
            with files.open_output_stream(f"{root}/{number}") as stream:
                stream.write(self.ledger.encode())
        except (OSError, pa.ArrowException) as fault:
            yield None, f"can't write to the warehouse: {error_text(fault)}. Give executors the keys or the mount for it"
        try:
            with Environment(self.settings).ledger_if_any() as ledger:
                if ledger is None or ledger.id != self.ledger:
                    yield None, "finds another ledger: give the ledger an address that leads to the same database everywhere"
        except (Refused, BadInput) as fault:
            yield None, f"can't open the ledger: {error_text(fault)}"
        for name, store in Environment(self.settings).stores().items():
            if (why := _fault_of(store)) is not None:
                yield name, f"can't read a store that this program can read: {why}"


def _version() -> str:
    # not imported by name: the package imports Dagster definitions, which import this module
    return str(vars(sys.modules[__name__.partition(".")[0]])["__version__"])


def check_cluster(spark: "SparkSession", task: PreflightTask) -> None:
    """Raise Refused, in one sentence, if a slot of the cluster can't do its work."""
    tasks = SparkTasks(spark)
    # a Connect server does not tell how many slots it has
    number = _SAMPLE if task.settings.spark.master.startswith("sc://") else tasks.slots
    try:
        faults = tasks.collect(task, number)
    except Exception as fault:  # noqa: BLE001 - Spark raises many types; nothing was done yet
        raise Refused(f"The cluster can't run this package: {_explained(str(fault))}. {_PAGE}") from None
    stores = Environment(task.settings).stores()
    for host, store, sentence in faults:
        # a store that this program can't read either is refused by itself later
        if store is None or _fault_of(stores[store]) is None:
            raise Refused(f"An executor on {host} {sentence}. {_PAGE}")
    files, root = place_of(task.folder)
    if (signs := len(files.get_file_info(FileSelector(root, allow_not_found=True)))) != number:
        raise Refused(
            f"Executors left {number} signs in the warehouse, but only {signs} are there: its folder is not the same on "
            f"every machine. Give the warehouse a place that all machines reach. {_PAGE}"
        )


def _fault_of(store: Store) -> str | None:
    try:
        call_store(store, store.datasets)
    except StoreFailed as fault:
        return str(fault)
    return None


def _explained(text: str) -> str:
    for pattern, sentence in _KNOWN:
        if match := pattern.search(text):
            return sentence.format(match[1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line.startswith("at ")), "no reason given")
