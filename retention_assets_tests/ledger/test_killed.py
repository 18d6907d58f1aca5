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
from retention_assets.ledger import DatasetPart, Lease, Ledger, OpenedReport, Settlement, open_ledger
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
    statuses,
    take_lease,
)
from retention_assets_tests.rounds import deaths, every, rounds

pytestmark = pytest.mark.dialect

NAMES = [f"T{number}" for number in range(12)]
TODAY = date(2026, 1, 8)
# Every statement that writes and its commit count: 80, and on PostgreSQL some 50. The last writer comes to its end.
SURELY_KILLED, END, LAST = 40, 84, 1000
# At every fourth point on one database or the other.
STEP = every(16)
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
    left = ledger.sweeps.planned(begun_in=["lake/d"])["id"].to_pylist()
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


@pytest.mark.parametrize(("url", "last"), deaths(POINTS, [("sqlite", 16), ("sqlite", 32)]), indirect=["url"])
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


SIDE = 20
PER_SWEEPER = rounds(200)
NAMED = 10


def takes_back(ledger: Ledger, names: list[str], dataset: str, start: Barrier) -> set[str]:
    """Take back every other ten by name, in any order."""
    tens = list(range(0, len(names), 2 * NAMED))
    random.Random(names[0]).shuffle(tens)
    got: set[str] = set()
    start.wait()
    for first in tens:
        ten = names[first : first + NAMED]
        try:
            ledger.unmark.transactions(dataset, ten, "unmarker", "race")
        except Refused:
            continue
        got.update(ten)
    return got


def sweeps(ledger: Ledger, lease: Lease, names: list[str], start: Barrier) -> set[str]:
    plan = plan_of(ledger, lease, ids(ledger, *names, dataset=lease.dataset))
    by_mark = {row["id"]: row["transaction"] for row in marks_of(ledger, plan)}
    marks, deleted = [*by_mark], set[str]()
    start.wait()
    for first in range(0, len(marks), 50):
        # Told twice, as by a task that was not answered.
        asked = marks[first : first + 50]
        begun = ledger.sweeps.begin([lease], [plan], asked).marks
        assert not ledger.sweeps.begin([lease], [plan], asked).marks
        deleted |= {by_mark[mark] for mark in begun}
        settlements = [Settlement(mark, Outcome.DELETED, 10) for mark in begun]
        assert ledger.sweeps.settle([lease], settlements).marks.keys() == begun.keys()
        assert not ledger.sweeps.settle([lease], settlements).marks
    ledger.sweeps.finish([lease], [plan])
    return deleted


def sweepers(ledger: Ledger, names: list[str], in_parts: bool) -> list[tuple[Lease, list[str]]]:
    """Leases with the names that each sweeps: of a dataset each, or of the parts of one."""
    if not in_parts:
        each = [names[at : at + PER_SWEEPER] for at in range(0, len(names), PER_SWEEPER)]
        return [(take_lease(ledger, f"lake/d{number}", f"sweeper {number}"), own) for number, own in enumerate(each)]
    whole = take_lease(ledger, "lake/d0")
    found: list[tuple[Lease, list[str]]] = []
    for number, among in enumerate(ledger.parts.cut("lake/d0", LATER, len(names), SIDE, "")):
        own = [name for name in names if (among.first or "") <= name and (among.end is None or name < among.end)]
        found.append((ledger.parts.join(DatasetPart(whole, number, among, len(own))).lease, own))
    return found


@pytest.mark.parametrize("by_policy", [False, True], ids=["by name", "by policy"])
@pytest.mark.parametrize("in_parts", [False, True], ids=["datasets", "parts"])
def test_of_unmarkers_and_sweepers_one_gets_each_mark(ledger: Ledger, in_parts: bool, by_policy: bool) -> None:
    names = [f"T{number}" for number in range(SIDE * PER_SWEEPER)]
    ledger.marks.mark(many(len(names), len(names) if in_parts else PER_SWEEPER), T0, "evaluation")
    sides = sweepers(ledger, names, in_parts)
    assert len(sides) == SIDE
    start = Barrier(SIDE + (1 if by_policy else SIDE))

    def takes_back_the_rest() -> None:
        start.wait()
        # When a good part is swept, and batches are open.
        while sum(status == "SWEPT" for status in ledger.marks.table()["status"].to_pylist()) < len(names) // 10:
            pass
        ledger.unmark.all_of("unmarker", "race", policy="p")

    with ThreadPoolExecutor(2 * SIDE) as pool:
        swept = [pool.submit(sweeps, ledger, lease, own, start) for lease, own in sides]
        if by_policy:
            pool.submit(takes_back_the_rest).result()
            by_name = []
        else:
            by_name = [pool.submit(takes_back, ledger, own, lease.dataset, start) for lease, own in sides]
        deleted = set[str]().union(*(future.result() for future in swept))
        taken_back = set[str]().union(*(future.result() for future in by_name))
    table = ledger.marks.table()
    ended = dict(zip(table["transaction"].to_pylist(), table["status"].to_pylist(), strict=True))
    assert len(ended) == len(names)
    assert set(ended.values()) <= {"UNMARKED", "SWEPT"}
    assert deleted == {name for name, status in ended.items() if status == "SWEPT"}
    assert by_policy or taken_back == {name for name, status in ended.items() if status == "UNMARKED"}
    assert 0 < len(deleted) < len(names), "no race took place"
    assert ledger.verify().faults == ()


def test_parts_settle_a_batch_that_an_earlier_sweep_left(ledger: Ledger) -> None:
    names = [f"T{number}" for number in range(400)]
    ledger.marks.mark(many(len(names), len(names)), T0, "evaluation")
    earlier = take_lease(ledger, "lake/d0", "earlier")
    marks = ids(ledger, dataset="lake/d0")
    assert len(ledger.sweeps.begin([earlier], [plan_of(ledger, earlier, marks)], marks).marks) == len(names)
    ledger.leases.give_up([earlier])
    parts = sweepers(ledger, names, in_parts=True)
    start = Barrier(len(parts))

    def settles(lease: Lease, own: list[str]) -> int:
        begun = ids(ledger, *own, dataset="lake/d0")
        start.wait()
        return sum(len(ledger.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, 10)]).marks) for mark in begun)

    with ThreadPoolExecutor(len(parts)) as pool:
        settled = [pool.submit(settles, lease, own) for lease, own in parts]
        assert sum(future.result() for future in settled) == len(names)
    assert set(statuses(ledger, "lake/d0").values()) == {"SWEPT"}
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
