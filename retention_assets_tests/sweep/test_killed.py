"""A sweep is killed, with SIGKILL, at one write or deletion after the other, over several stores and both ledgers.

Only what changes something is counted: who dies before it reads leaves what he leaves who dies before his next write. Whenever
it dies: nothing outside the plan is gone, what stays reads back, the ledger verifies; the next sweep completes, and the report
says what really happened.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.rounds import deaths, every
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.delta.environments import SharedTables
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse, Warehouse
from retention_assets_tests.stores.iceberg.test_contract import IcebergTables
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.sweep.cycle import Cycle, sweep_store, sweep_until

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


@contextmanager
def opened(
    kind: str, folder: Path, url: str, kept: KeptWarehouse[dict[str, str]], transactions: int = 5, undo: str = ""
) -> Iterator[Cycle]:
    """A store in which five are marked."""
    (folder / "store").mkdir(parents=True)
    with ExitStack() as stack:
        environment: Environment
        if kind == "iceberg":
            names = kept.made
            environment = Kept(stack.enter_context(kept.opened()), names)
        elif kind == "objects":
            environment = LocalObjects(folder / "store")
            environment.refers(*(f"a/T{number:02}" for number in range(5, transactions)))
        else:
            environment = LocalFiles(folder / "store") if kind == "files" else SharedTables(folder / "store")
        yield Cycle(environment, url, folder / "settings", transactions, undo)


@pytest.fixture
def marked(request: pytest.FixtureRequest, url: str, kept: KeptWarehouse[dict[str, str]], tmp_path: Path) -> Iterator[Cycle]:
    with opened(request.param, tmp_path, url, kept, 7 if request.param == "objects" else 5) as cycle:
        yield cycle


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
def test_a_killed_sweep_loses_nothing_and_is_finished_by_the_next(marked: Cycle, sweepers: Any, last: int) -> None:
    # a version of the Delta table has no file of its own
    assert len(marked.due) == 5 - isinstance(marked.kept, SharedTables)
    environment = marked.kept
    ends = {-signal.SIGKILL} if last < SURELY_KILLED else {0} if last == LAST else {0, -signal.SIGKILL}
    assert killed(sweepers, last, marked.url, environment.store(), marked.settings) in ends
    marked.check()
    with marked.opened() as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        results = sweep_store(ledger, environment.store(), marked.settings)
        assert [(one.refused, one.errors) for one in results] in ([], [(None, [])])
        # what a killed sweep had deleted is nothing to report; of a Delta table it is said which files stay for others
        assert isinstance(environment, SharedTables) or not any(one.warnings for one in results)
    marked.is_done()
    # What a killed sweep freed is known of folders and objects; what it took of files that several share is not.
    if environment.recounts or last == LAST:
        assert marked.report()["bytes_freed"] == marked.freed()


@pytest.mark.kill
@pytest.mark.parametrize(("marked", "url"), PAIRS, indirect=True)
def test_the_points_reach_from_the_first_write_to_the_last(marked: Cycle, sweepers: Any) -> None:
    """A sweep that writes more, or is not counted any more, would be killed in part of its work only, or never."""
    acts = sweepers.Value("i", 0)
    assert killed(sweepers, LAST, marked.url, marked.kept.store(), marked.settings, None, acts) == 0
    before_the_end = [point for point in POINTS if point < acts.value]
    assert before_the_end[0] == 0
    assert acts.value > SURELY_KILLED
    assert acts.value - before_the_end[-1] <= STEP, acts.value
    assert len(before_the_end) >= SURELY_KILLED // STEP
