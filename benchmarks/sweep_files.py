"""Deleting small files: the `files` store beside a bare loop, and a whole sweep through the engine with its time split up.

Belongs here: trees of small files with a log over them, both sides of the deletion, and a store that is watched while it works.
The bare side is given the folders and asks nobody: it lists each, unlinks what is in it and removes it, in as many threads.
What both delete is made before the clock runs; that nothing and nobody else's is left or gone is looked up afterwards.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import TypeVar

import pyarrow as pa

from benchmarks.measures import timed
from retention_assets.outcomes import Outcome
from retention_assets.policy import text_of
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import Only, Permit, PreparedTarget, Store, SweptTarget, Target, always
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import DUE, Lake

BATCH, THREADS = 500, 8
_CONTENT = b"x" * 64
_POLICY = (
    "{name: all, datasets: {include: ['lake/*']}, select: {beyond: {transactions: 1}},"
    f" sweep: {{every: 0s, batch: {BATCH}, parallelism: {THREADS}}}}}"
)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Tree:
    """One dataset below a folder: transactions with some files each, and a log that knows them."""

    folder: Path
    transactions: int
    files: int

    @property
    def names(self) -> list[str]:
        """The transactions."""
        return [f"T{number}" for number in range(self.transactions)]

    def grown(self) -> "Tree":
        """Write it anew."""
        rmtree(self.folder, ignore_errors=True)
        (self.folder / "log").mkdir(parents=True)
        write_log(self.folder / "log" / "d.jsonl", "lake/d", self.names)
        for name in self.names:
            fill(self.folder / "data" / "d" / name, self.files)
        return self

    @property
    def left(self) -> int:
        """Folders that are still there."""
        return len(list((self.folder / "data" / "d").iterdir()))

    def store(self) -> FilesStore:
        """The store over it."""
        said = {"name": "lake", "log": "log", "data": "data/{dataset}/{transaction}"}
        return FilesStore(FilesSettings.model_validate(said, context={"folder": str(self.folder)}))


def by_store(tree: Tree) -> float:
    """Seconds in which the store deletes everything, in batches as a sweep does."""
    store, names = tree.store(), tree.names

    def batches() -> None:
        for at in range(0, len(names), BATCH):
            swept = store.sweep("lake/d", [Target(name) for name in names[at : at + BATCH]], THREADS)
            assert all(one.outcome is Outcome.DELETED for one in swept), swept

    return timed(batches)


def by_loop(tree: Tree) -> float:
    """Seconds in which a loop does."""
    folders = [str(tree.folder / "data" / "d" / name) for name in tree.names]

    def loop() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(_emptied, folders):
                pass

    return timed(loop)


def _emptied(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            os.unlink(entry.path)
    os.rmdir(folder)


def lake(folder: Path, datasets: int, transactions: int) -> Lake:
    """A lake in which all but the newest transaction of each dataset, one file in each, is marked and due."""
    rmtree(folder, ignore_errors=True)
    made = Lake(folder, policies=_POLICY)
    for number in range(datasets):
        names = [f"T{one}" for one in range(transactions + 1)]
        write_log(folder / "log" / f"{number}.jsonl", f"lake/d{number}", names)
        for name in names:
            fill(folder / "data" / f"d{number}" / name, 1)
    assert made.marks() == datasets * transactions
    return made


def write_log(file: Path, dataset: str, names: Sequence[str]) -> None:
    """Each transaction a state of its own, so that none but the last is in the latest view."""
    at = text_of(AS_OF.replace(year=AS_OF.year - 1))
    common = {"dataset": dataset, "type": "SNAPSHOT", "status": "COMMITTED", "opened_at": at, "closed_at": at, "bytes": 64}
    lines = [{**common, "transaction": name, "parent": above} for above, name in zip([None, *names], names, strict=False)]
    said = [*lines, {"dataset": dataset, "branch": "main", "head": names[-1]}]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in said))


def fill(folder: Path, files: int) -> None:
    """The data of a transaction."""
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"{number}.parquet").write_bytes(_CONTENT)


class Watched(RecordingStore):
    """Stands before a store and counts the seconds that it takes, for each of the words in which it is spoken to."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.seconds: dict[str, float] = {}

    def datasets(self) -> list[str]:
        """The store's datasets."""
        return self._timed("look", self.store.datasets)

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """How the store wants them read."""
        return self._timed("look", lambda: self.store.shares(datasets))

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        """What the store says of them now."""
        return self._timed("look", lambda: self.store.read(datasets, only))

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """The store's own tokens."""
        return self._timed("look", lambda: self.store.tokens(datasets))

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """What the store wants written down."""
        return self._timed("prepare", lambda: self.store.prepare(dataset, transactions))

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        """What the store deletes."""
        return self._timed("delete", lambda: self.store.sweep(dataset, targets, parallelism, permit))

    def _timed(self, word: str, ask: Callable[[], _Answer]) -> _Answer:
        begin = perf_counter()
        try:
            return ask()
        finally:
            self.seconds[word] = self.seconds.get(word, 0.0) + perf_counter() - begin


@dataclass
class Whole:
    """A whole sweep of a lake, and how much of it each part took."""

    lake: Lake
    parts: dict[str, float] = field(default_factory=dict)

    def run(self) -> float:
        """Sweep everything that is due; what is left over after the store's parts is the ledger and the re-check."""
        store = Watched(self.lake.stores["lake"])
        begin = perf_counter()
        done = self.lake.sweeps(DUE, stores={"lake": store})
        whole = perf_counter() - begin
        assert not [one for one in done.values() if one.refused or one.errors]
        self.parts = {**store.seconds, "rest": whole - sum(store.seconds.values())}
        return whole
