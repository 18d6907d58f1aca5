"""A sweep is killed, with SIGKILL, at one write or deletion after the other, over all stores and both ledgers.

Only what changes something is counted: who dies before it reads leaves what he leaves who dies before his next write. Whenever it dies: nothing outside the plan is gone, what stays reads back, the ledger verifies; the next sweep completes, and the
report says what really happened.
"""

import itertools
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.sweep.engine import Sweeper
from retention_assets_tests.clocks import open_simulated
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import change_leases, count_changes
from retention_assets_tests.rounds import every
from retention_assets_tests.sweep.datasets import DUE, Files, Iceberg, Objects, SweptDataset
from retention_assets_tests.sweep.lakes import OLD, Lake

DATASETS: Mapping[str, Callable[[Path], SweptDataset]] = {"files": Files, "iceberg": Iceberg, "objects": Objects}
# There are about a hundred writes and deletions in either dataset. The last sweeper comes to its end.
SURELY_KILLED, END, LAST = 70, 100, 10_000
STEP = every(8)


def points(first: int, times: int = 1) -> list[int]:
    return [*range(first % STEP, END, times * STEP), LAST]


# Each store and each ledger is once in what is killed at every eighth point; the other pairs are at points in between.
PAIRS = {
    ("files", "postgresql"): points(0),
    ("iceberg", "sqlite"): points(3),
    ("files", "sqlite"): points(1, 4),
    ("iceberg", "postgresql"): points(4, 4),
    # One deletion is one file: what is between two of them is what it is with files. Before 47 and 59 some are gone already.
    ("objects", "sqlite"): [5, 28, 47, 59, 74, LAST],
}
POINTS = points(0)


def sweeps_until(dataset: "SweptDataset | Share", url: str, last: int, acts: Any = None) -> None:
    """The sweep, in a program that kills itself before its so-manyth write or deletion. `acts`: where it says how many it did."""
    counted = itertools.count()

    def counts(*_: Any, **__: Any) -> None:
        if (act := next(counted)) >= last:
            os.kill(os.getpid(), signal.SIGKILL)
        if acts is not None:
            acts.value = act + 1

    def counting(act: Any) -> Any:
        def counted_act(*arguments: Any, **named: Any) -> Any:
            counts()
            return act(*arguments, **named)

        return counted_act

    ledger = open_simulated(url)
    count_changes(ledger, counts)
    os.unlink, os.rmdir = counting(os.unlink), counting(os.rmdir)
    PyArrowFileIO.delete = counting(PyArrowFileIO.delete)  # type: ignore[method-assign]
    SqlCatalog.commit_table = counting(SqlCatalog.commit_table)  # type: ignore[method-assign]
    dataset.sweeps(ledger)


@pytest.fixture(scope="module")
def sweepers() -> Any:
    """Where sweepers are forked from: a program that has loaded everything and holds no connection."""
    return forking()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SweptDataset]:
    """Each dataset, built once. A fixture that is parametrized together with the ledger would be made anew for each test."""
    return cache(lambda name: DATASETS[name](tmp_path_factory.mktemp("dataset") / "w"))


@pytest.fixture
def dataset(request: pytest.FixtureRequest, built: Callable[[str], SweptDataset]) -> SweptDataset:
    """A dataset, which is restored for each sweep."""
    return built(request.param)


@pytest.mark.parametrize(
    ("dataset", "url", "last"),
    [(*pair, last) for pair, points in PAIRS.items() for last in points],
    indirect=["dataset", "url"],
)
def test_a_killed_sweep_loses_nothing_and_is_finished_by_the_next(
    dataset: SweptDataset, url: str, sweepers: Any, last: int
) -> None:
    dataset.restore()
    before = dataset.files()
    with open_simulated(url) as ledger:
        dataset.marks(ledger)
    sweeper = sweepers.Process(target=sweeps_until, args=(dataset, url, last))
    sweeper.start()
    sweeper.join()
    ends = {-signal.SIGKILL} if last < SURELY_KILLED else {0} if last == LAST else {0, -signal.SIGKILL}
    assert sweeper.exitcode in ends
    with open_simulated(url) as ledger:
        assert ledger.verify().faults == ()
        dataset.is_whole()
        begun = ledger.marks.table([dataset.name], ["SWEEPING", "SWEPT"])
        swept = begun.filter(pa.compute.equal(begun["status"], "SWEPT"))["transaction"].to_pylist()
        left = dataset.files()
        assert all(left[name] == text for name, text in before.items() if name in left)
        assert before.keys() - left.keys() <= set().union(*(dataset.going[one] for one in begun["transaction"].to_pylist()))
        assert not left.keys() & files_of_all(dataset, swept)
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        dataset.sweeps(ledger)
        dataset.is_whole()
        dataset.is_clean()
        statuses = ledger.marks.table([dataset.name]).select(["transaction", "status"]).to_pylist()
        assert {row["transaction"]: row["status"] for row in statuses} == dict.fromkeys(dataset.going, "SWEPT")
        (report,) = ledger.reports.of(DUE.date())
        assert report["to_delete"] == len(dataset.going) == report["deleted"] + report["already_gone"]
        assert (report["failed"], report["spared"]) == (0, 0)
        assert report["finished_at"] is not None
        freed = sum(len(text) for name, text in before.items() if name not in dataset.files())
        assert report["bytes_freed"] <= freed
        # What a killed sweep freed is known of folders and objects; what it took of files that several share is not.
        assert not (last == LAST or isinstance(dataset, Files | Objects)) or report["bytes_freed"] == freed
        assert ledger.verify().faults == ()


@dataclass
class Share:
    """Three datasets of a lake that go together, of two marks each."""

    folder: Path

    @property
    def lake(self) -> Lake:
        """Opened, with a batch for three marks."""
        return Lake(self.folder, policies=OLD.replace("batch: 2", "batch: 3"))

    def sweeps(self, ledger: Ledger) -> None:
        """Sweep what is due."""
        lake = self.lake
        sweeper = Sweeper(ledger, lake.stores, load_rulebook(ledger, lake.settings, "test"), DUE, "test")
        for result in sweeper.run(ledger.marks.datasets_to_sweep(DUE)):
            assert (result.refused, result.errors) == (None, [])


@pytest.mark.parametrize("last", [3, 37, 43, 48, 60, 71, 79, 92])
def test_a_share_that_is_killed_loses_nothing_and_is_finished_by_the_next(tmp_path: Path, sweepers: Any, last: int) -> None:
    share, names = Share(tmp_path / "lake"), ("lake/a", "lake/b", "lake/c")
    lake = share.lake
    for name in names:
        lake.has("main: S1:SNAPSHOT@90d - S2:SNAPSHOT@80d - S3:SNAPSHOT@1d", name)
    assert lake.marks() == 6
    sweeper = sweepers.Process(target=sweeps_until, args=(share, lake.ledger_url, last))
    sweeper.start()
    sweeper.join()
    assert sweeper.exitcode in (-signal.SIGKILL, 0)
    assert lake.verified() == ()
    for name in names:
        begun = {one for one, status in lake.statuses(name).items() if status != "MARKED"}
        assert {"S1", "S2", "S3"} - lake.there(name) <= begun
        assert not lake.there(name) & {one for one, status in lake.statuses(name).items() if status == "SWEPT"}
    with open_simulated(lake.ledger_url) as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        share.sweeps(ledger)
    for name in names:
        report = lake.report(DUE, name)
        assert lake.there(name) == {"S3"}
        assert (report["to_delete"], report["deleted"] + report["already_gone"]) == (2, 2)
        assert report["finished_at"] is not None
    assert lake.verified() == ()


def files_of_all(dataset: SweptDataset, swept: list[str]) -> set[str]:
    """The files that only these transactions, all of them together or some, had need of."""
    others = set().union(*(files for name, files in dataset.going.items() if name not in swept))
    return set().union(*(dataset.going[name] for name in swept)) - others


@pytest.mark.parametrize(("dataset", "url"), PAIRS, indirect=True)
def test_the_points_reach_from_the_first_write_to_the_last(dataset: SweptDataset, url: str, sweepers: Any) -> None:
    """A sweep that writes more, or is not counted any more, would be killed in part of its work only, or never."""
    dataset.restore()
    with open_simulated(url) as ledger:
        dataset.marks(ledger)
    acts = sweepers.Value("i", 0)
    sweeper = sweepers.Process(target=sweeps_until, args=(dataset, url, LAST, acts))
    sweeper.start()
    sweeper.join()
    before_the_end = [point for point in POINTS if point < acts.value]
    assert sweeper.exitcode == 0
    assert before_the_end[0] == 0
    assert acts.value > SURELY_KILLED
    assert acts.value - before_the_end[-1] <= STEP, acts.value
    assert len(before_the_end) >= SURELY_KILLED // STEP
