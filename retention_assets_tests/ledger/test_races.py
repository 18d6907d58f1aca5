"""Real races: unmarkers against sweepers, and sweepers against each other for the lease."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from retention_assets.errors import Refused
from retention_assets.ledger import Lease, Ledger, Settlement
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import T0, many, marks_of, planned

SIDE = 10
PER_DATASET = 300


def takes_back(ledger: Ledger, number: int, start: Barrier) -> set[str]:
    """One unmarker: tries every other ten of the transactions of its dataset and says which it got."""
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
    """One sweeper: sweeps its dataset in batches and says what its store was told to delete."""
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
