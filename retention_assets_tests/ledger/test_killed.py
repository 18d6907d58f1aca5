"""A writer is killed, with SIGKILL, at one statement that writes after the other; each time the ledger opens, verifies and resumes."""

import contextlib
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import Lease, Ledger, OpenedReport, Settlement, open_ledger
from retention_assets.outcomes import Outcome
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import (
    LATER,
    T0,
    candidates,
    change_leases,
    count_changes,
    ids,
    many,
    marks_of,
    plan_of,
    planned,
    statuses,
    take_lease,
)
from retention_assets_tests.rounds import every

NAMES = [f"T{number}" for number in range(12)]
TODAY = date(2026, 1, 8)
# Every statement that writes and its commit count: 80, and on PostgreSQL some 50. The last writer comes to its end.
SURELY_KILLED, END, LAST = 40, 84, 1000
# At every fourth point on one database or the other.
STEP = every(8)
POINTS = [
    *(("sqlite", last) for last in (*range(0, END, STEP), LAST)),
    *(("postgresql", last) for last in (*range(STEP // 2, END, STEP), LAST)),
]


def works(ledger: Ledger, store: Path) -> None:
    ledger.marks.mark(candidates(NAMES), T0, "evaluation")
    with contextlib.suppress(Refused):
        ledger.unmark.transactions("lake/d", NAMES[:2], "ann", "still needed")
    ledger.reports.open(TODAY, {"lake/d": OpenedReport()}, LATER, "sweeper")
    lease = take_lease(ledger)
    left = ledger.sweeps.left(["lake/d"])["id"].to_pylist()
    ledger.sweeps.settle([lease], [deletes(mark, store) for mark in left], TODAY)
    plan = plan_of(ledger, lease, ids(ledger))
    marks = [row["id"] for row in marks_of(ledger, plan)]
    for first in (0, 5):
        begun = ledger.sweeps.begin([lease], [plan], marks[first : first + 5]).marks
        ledger.sweeps.settle([lease], [deletes(mark, store) for mark in begun], TODAY)
    ledger.sweeps.finish([lease], [plan])
    ledger.reports.finish_done("sweeper", ["lake/d"])


def deletes(mark: int, store: Path) -> Settlement:
    """A store that remembers what it deleted, beyond the death of the writer."""
    file = store / str(mark)
    if file.exists():
        return Settlement(mark, Outcome.ALREADY_GONE, 0)
    file.touch()
    return Settlement(mark, Outcome.DELETED, 10)


def works_until(url: str, store: Path, last: int) -> None:
    ledger = open_ledger(url)
    left = iter(range(last))

    def counts(*_: Any) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    count_changes(ledger, counts)
    works(ledger, store)


@pytest.mark.parametrize(("url", "last"), POINTS, indirect=["url"])
def test_a_killed_writer_leaves_a_ledger_that_goes_on(url: str, tmp_path: Path, last: int) -> None:
    store = tmp_path / "store"
    store.mkdir()
    open_ledger(url).close()
    writer = forking().Process(target=works_until, args=(url, store, last))
    writer.start()
    writer.join()
    ends = {-signal.SIGKILL} if last < SURELY_KILLED else {0} if last == LAST else {0, -signal.SIGKILL}
    assert writer.exitcode in ends
    with open_ledger(url) as ledger:
        assert ledger.verify().faults == ()
        began = ledger.marks.table(statuses=["SWEEPING", "SWEPT"])["id"].to_pylist()
        assert {int(file.name) for file in store.iterdir()} <= set(began)
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        works(ledger, store)
        assert statuses(ledger) == {name: "UNMARKED" if name in NAMES[:2] else "SWEPT" for name in NAMES}
        (report,) = ledger.reports.of(TODAY)
        assert report["deleted"] + report["already_gone"] == len(NAMES) - 2 == len(list(store.iterdir()))
        assert ledger.verify().faults == ()


SIDE = 10
PER_DATASET = 300


def takes_back(ledger: Ledger, number: int, start: Barrier) -> set[str]:
    tens = list(range(number * PER_DATASET, (number + 1) * PER_DATASET, 20))
    random.Random(number).shuffle(tens)
    got: set[str] = set()
    start.wait()
    for first in tens:
        names = [f"T{row}" for row in range(first, first + 10)]
        try:
            ledger.unmark.transactions(f"lake/d{number}", names, f"unmarker {number}", "race")
        except Refused:
            continue
        got.update(names)
    return got


def sweeps(ledger: Ledger, number: int, start: Barrier) -> set[str]:
    lease, plan, marks = planned(ledger, f"lake/d{number}", f"sweeper {number}")
    names = {row["id"]: row["transaction"] for row in marks_of(ledger, plan)}
    deleted: set[str] = set()
    start.wait()
    for first in range(0, len(marks), 25):
        begun = ledger.sweeps.begin([lease], [plan], marks[first : first + 25]).marks
        deleted |= {names[mark] for mark in begun}
        ledger.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, 10) for mark in begun])
    ledger.sweeps.finish([lease], [plan])
    return deleted


def test_of_unmarkers_and_sweepers_one_gets_each_mark(ledger: Ledger) -> None:
    total = SIDE * PER_DATASET
    ledger.marks.mark(many(total, PER_DATASET), T0, "evaluation")
    start = Barrier(2 * SIDE)
    with ThreadPoolExecutor(2 * SIDE) as pool:
        sweepers = [pool.submit(sweeps, ledger, number, start) for number in range(SIDE)]
        unmarkers = [pool.submit(takes_back, ledger, number, start) for number in range(SIDE)]
        deleted = set[str]().union(*(future.result() for future in sweepers))
        taken_back = set[str]().union(*(future.result() for future in unmarkers))
    table = ledger.marks.table()
    ended = dict(zip(table["transaction"].to_pylist(), table["status"].to_pylist(), strict=True))
    assert len(ended) == total
    assert set(ended.values()) <= {"UNMARKED", "SWEPT"}
    assert deleted == {name for name, status in ended.items() if status == "SWEPT"}
    assert taken_back == {name for name, status in ended.items() if status == "UNMARKED"}
    assert min(len(deleted), len(taken_back)) > 0, "no race took place"
    assert ledger.verify().faults == ()


def test_of_sweepers_that_want_one_dataset_one_gets_it(ledger: Ledger) -> None:
    start = Barrier(SIDE)

    def takes(number: int) -> Lease | None:
        start.wait()
        return ledger.leases.take(["lake/d"], f"sweeper {number}").leases.get("lake/d")

    with ThreadPoolExecutor(SIDE) as pool:
        leases = [lease for lease in pool.map(takes, range(SIDE)) if lease]
    assert [lease.token for lease in leases] == [1]
    assert ledger.leases.holder_of("lake/d") == leases[0]
