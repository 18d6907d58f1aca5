"""The looks of a sweep as stages: tasks find what stores must know of all that is due, once for the run.

Tasks leave their results in a folder of the warehouse. Neither keys nor rows come to the driver.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from retention_assets.clock import moment
from retention_assets.datasets import by_store
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.pipeline.file_systems import inside, place_of
from retention_assets.pipeline.tasks import SparkTasks, cut, repeated
from retention_assets.pipeline.warehouse import remove_folder
from retention_assets.settings.model import Settings
from retention_assets.stores.protocol import LookingStore, StoreFailed
from retention_assets.sweep.looks import take_look

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retention_assets.ledger import Ledger

_LOG = logging.getLogger(__name__)
# marks per task and between two questions whether to stop
_MARKS = 1 << 20
_SECONDS = 2.0


def other_ledger(place: str, found: str, known: str) -> Refused:
    return Refused(
        f"A task finds another ledger at {place} than its run has: {found} and not {known}. Give the ledger an address that"
        " leads to the same database from every machine."
    )


@dataclass(frozen=True)
class DueInLedger:
    """Due transactions of datasets; a part is read where its task runs."""

    settings: Settings
    # the ledger's id: another one at the same address knows nothing of these marks
    ledger: str
    as_of: datetime
    shares: tuple[tuple[str, ...], ...]

    @property
    def parts(self) -> int:
        return len(self.shares)

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        with Environment(self.settings).ledger() as ledger:
            if ledger.id != self.ledger:
                raise other_ledger(self.settings.ledger, ledger.id, self.ledger)
            yield from ledger.sweeps.concerned_names(self.shares[part], self.as_of)


@dataclass
class StopFile:
    """A stop signal as a file that every task reaches. Looks at most every other second."""

    folder: str
    _asked: float | None = field(default=None, compare=False)
    _said: bool = field(default=False, compare=False)

    def __call__(self) -> bool:
        running = moment().running
        if not self._said and (self._asked is None or running - self._asked >= _SECONDS):
            self._asked = running
            files, place = place_of(self.folder)
            self._said = files.get_file_info(f"{place}/stop").type is pafs.FileType.File
        return self._said

    def say(self) -> None:
        if self._said:
            return
        files, place = place_of(self.folder)
        files.create_dir(place, recursive=True)
        with files.open_output_stream(f"{place}/stop") as stream:
            stream.write(b"stop")
        self._said = True


@contextmanager
def looks_in_tasks(
    spark: "SparkSession",
    settings: Settings,
    ledger: "Ledger",
    as_of: datetime | None,
    marks: Mapping[str, int],
    folder: str,
    stop: threading.Event,
) -> Iterator[dict[str, object]]:
    """Take the look of each store that needs one before anything of it is swept. The folder lasts as long as the block."""
    at = ledger.clock.due_by(as_of)
    looks: dict[str, object] = {}
    mine = by_store(sorted(marks))
    root = inside(folder, "looks")
    try:
        for name, store in Environment(settings).stores(mine).items():
            if isinstance(store, LookingStore) and not stop.is_set():
                due = DueInLedger(settings, ledger.id, at, tuple(cut(mine[name], marks, _MARKS)))
                # a store that can't be opened raises in the tasks as well
                with suppress(StoreFailed), _stop_file(inside(root, name), stop) as stop_file:
                    tasks = SparkTasks(spark)
                    looks[name] = take_look(store, due, ledger, at, tasks, stop_file.folder, place_of, stop_file)
        yield looks
    finally:
        try:
            remove_folder(root)
        except OSError as fault:
            _LOG.warning("The folder of a look is left to a later run to remove: %s", fault)


@contextmanager
def _stop_file(folder: str, stop: threading.Event) -> Iterator[StopFile]:
    """Passes the run's stop on to tasks at work."""
    stop_file = StopFile(folder)
    with repeated("the stop of a look", _SECONDS / 4, lambda: stop_file.say() if stop.is_set() else None):
        yield stop_file
