"""A sweep is killed, with SIGKILL, at one write or deletion after the other, over several stores and both ledgers.

Only what changes something is counted: who dies before it reads leaves what he leaves who dies before his next write. Whenever
it dies: nothing outside the plan is gone, what stays reads back, the ledger verifies; the next sweep completes, and the report
says what really happened.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from retention_assets_tests.clocks import open_simulated
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.rounds import deaths, every
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.delta.environments import SharedTables
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse, Warehouse, content
from retention_assets_tests.stores.iceberg.test_contract import IcebergTables
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.sweep.datasets import DUE
from retention_assets_tests.sweep.lakes import OLD, Lake
from retention_assets_tests.sweep.marked import MarkedStore, sweep_store, sweep_until

# There are about a hundred writes and deletions in a dataset, fewer where one batch has all of it. The last sweeper comes to its
# end.
SURELY_KILLED, END, LAST = 60, 100, 10_000
STEP = every(16)


def points(first: int, times: int = 1) -> list[int]:
    return [*range(first % STEP, END, times * STEP), LAST]


# Each store and each ledger is once in what is killed at every eighth point; the other pairs are at points in between.
PAIRS = {
    ("files", "postgresql"): points(0),
    ("iceberg", "sqlite"): points(3),
    ("files", "sqlite"): points(1, 4),
    ("iceberg", "postgresql"): points(4, 4),
    # One deletion is one file: what is between two of them is what it is with files. From 40 on some are gone already.
    ("objects", "sqlite"): [5, 28, 40, 53, 66, LAST],
    ("delta", "sqlite"): points(6, 2),
    ("delta", "postgresql"): points(2, 2),
}
POINTS = points(0)
# Two of each store: one with nothing or little gone, one in the middle of the deletions.
ALWAYS = [
    *(("files", "sqlite", last) for last in (1, 65)),
    *(("iceberg", "sqlite", last) for last in (19, 51)),
    *(("objects", "sqlite", last) for last in (28, 53)),
    *(("delta", "sqlite", last) for last in (6, 38)),
]


class Kept(IcebergTables):
    """Eight snapshots of a table, of which a tag, a branch and the head keep three; the last one is appended to another."""

    def __init__(self, warehouse: Warehouse, names: dict[str, str]) -> None:
        super().__init__(warehouse)
        self.names, self.datasets = names, self.datasets[:1]

    def write(self, dataset: str, drawing: str) -> dict[str, str]:  # noqa: ARG002 - it has a history of its own
        return self.names

    def reads(self) -> dict[str, list[int]]:
        return {str(snapshot): rows for snapshot, rows in content(self._table(self.datasets[0])).items()}


@pytest.fixture
def marked(
    request: pytest.FixtureRequest, url: str, kept: KeptWarehouse[dict[str, str]], tmp_path: Path
) -> Iterator[MarkedStore]:
    (tmp_path / "store").mkdir()
    environment: Environment
    with ExitStack() as stack:
        if request.param == "iceberg":
            names = kept.made
            environment = Kept(stack.enter_context(kept.opened()), names)
        elif request.param == "files":
            environment = LocalFiles(tmp_path / "store")
        elif request.param == "delta":
            environment = SharedTables(tmp_path / "store")
        else:
            environment = LocalObjects(tmp_path / "store")
            environment.refers("a/T05", "a/T06")
        yield MarkedStore(environment, url, tmp_path / "settings", 7 if request.param == "objects" else 5)


def killed(sweepers: Any, last: int, *given: Any) -> int:
    sweeper = sweepers.Process(target=sweep_until, args=(last, *given))
    sweeper.start()
    sweeper.join()
    return int(sweeper.exitcode)


@pytest.mark.parametrize(
    ("marked", "url", "last"),
    deaths([(*pair, last) for pair, points in PAIRS.items() for last in points], ALWAYS),
    indirect=["marked", "url"],
)
def test_a_killed_sweep_loses_nothing_and_is_finished_by_the_next(marked: MarkedStore, sweepers: Any, last: int) -> None:
    # a version of the Delta table has no file of its own
    assert len(marked.due) == 5 - isinstance(marked.environment, SharedTables)
    environment = marked.environment
    ends = {-signal.SIGKILL} if last < SURELY_KILLED else {0} if last == LAST else {0, -signal.SIGKILL}
    assert killed(sweepers, last, marked.url, environment.store(), marked.settings) in ends
    marked.check()
    with marked.opened() as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        assert [(one.refused, one.errors) for one in sweep_store(ledger, environment.store(), marked.settings)] in (
            [],
            [(None, [])],
        )
    marked.is_done()
    # What a killed sweep freed is known of folders and objects; what it took of files that several share is not.
    if environment.recounts or last == LAST:
        assert marked.report()["bytes_freed"] == marked.freed()


@pytest.mark.parametrize("last", deaths([3, 37, 43, 48, 60, 71, 79, 92], [43, 71]))
def test_a_share_that_is_killed_loses_nothing_and_is_finished_by_the_next(tmp_path: Path, sweepers: Any, last: int) -> None:
    """Three datasets that go together, of two marks each; a batch has three."""
    lake, names = Lake(tmp_path / "lake", policies=OLD.replace("batch: 2", "batch: 3")), ("lake/a", "lake/b", "lake/c")
    lake.has("main: S1:SNAPSHOT@90d - S2:SNAPSHOT@80d - S3:SNAPSHOT@1d", *names)
    assert lake.marks() == 6
    assert killed(sweepers, last, lake.ledger_url, lake.stores["lake"], lake.settings) in (-signal.SIGKILL, 0)
    assert lake.verified() == ()
    for name in names:
        begun = {one for one, status in lake.statuses(name).items() if status != "MARKED"}
        assert {"S1", "S2", "S3"} - lake.there(name) <= begun
        assert not lake.there(name) & {one for one, status in lake.statuses(name).items() if status == "SWEPT"}
    with open_simulated(lake.ledger_url) as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
    assert not any(one.refused or one.errors for one in lake.sweeps(DUE).values())
    for name in names:
        report = lake.report(DUE, name)
        assert lake.there(name) == {"S3"}
        assert (report["to_delete"], report["deleted"] + report["already_gone"]) == (2, 2)
        assert report["finished_at"] is not None
    assert lake.verified() == ()


@pytest.mark.kill
@pytest.mark.parametrize(("marked", "url"), PAIRS, indirect=True)
def test_the_points_reach_from_the_first_write_to_the_last(marked: MarkedStore, sweepers: Any) -> None:
    """A sweep that writes more, or is not counted any more, would be killed in part of its work only, or never."""
    acts = sweepers.Value("i", 0)
    assert killed(sweepers, LAST, marked.url, marked.environment.store(), marked.settings, None, acts) == 0
    before_the_end = [point for point in POINTS if point < acts.value]
    assert before_the_end[0] == 0
    assert acts.value > SURELY_KILLED
    assert acts.value - before_the_end[-1] <= STEP, acts.value
    assert len(before_the_end) >= SURELY_KILLED // STEP
