"""Chooses what `make test` tries: each line of the package that any test runs is run by two tests, if there are two.

make selection

It has pytest note the lines that each test runs, with this module as its plugin, and writes selection.txt anew: which tests
`make test` tries with some of their cases alone, or with none. A test that is not named there is tried in full.
"""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retention_assets_tests.slowest import times_of

if TYPE_CHECKING:
    from coverage import Coverage

TESTS = Path(__file__).parent
LIST, NOTES = TESTS / "selection.txt", TESTS.parent / ".venv" / "lines"
HEAD = "# How many of its cases `make test` tries of a test. Written by `make selection`; what is not named here is tried in full.\n"
# tests that run each line
TWICE = 2
# Seconds below which a case is always tried; and those that are to be saved, or a test is tried in full.
QUICK, WORTH = 0.05, 0.1
# Tried whatever other tests run: contracts, one Spark job of each asset, kills, one seed of a campaign.
KEPT = (
    "test_contract.", "test_house", "test_architecture.", "test_documents.", "sweep.test_killed.", "sweep.test_campaign.",
    "one_spark_job",
)  # fmt: skip


def read_list() -> dict[str, int]:
    lines = LIST.read_text("utf-8").splitlines() if LIST.exists() else []
    return {name: int(number) for name, _, number in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def name_of(nodeid: str) -> str:
    """Name of a test or of a case, as pytest's report has it: `package.folder.module.Class.test[case]`."""
    test, bracket, case = nodeid.partition("[")
    return test.replace(".py::", ".").replace("::", ".").replace("/", ".") + bracket + case


def without_case(case: str) -> str:
    return case.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Note which test runs which line, in a file for each worker."""
    # Imported here: each start of pytest reads the list.
    from coverage import Coverage

    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None and getattr(session.config.option, "numprocesses", None):
        return (yield)
    NOTES.mkdir(parents=True, exist_ok=True)
    notes = Coverage(str(NOTES / (worker or "main")), source=[str(TESTS.parent / "retention_assets")], config_file=False)
    notes.start()
    session.config.pluginmanager.register(_Contexts(notes))
    try:
        return (yield)
    finally:
        notes.stop()
        notes.save()


class _Contexts:
    def __init__(self, notes: "Coverage") -> None:
        self.notes = notes

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.notes.switch_context(name_of(item.nodeid))
        return (yield)


def lines_by_case(files: Collection[Path]) -> dict[str, set[tuple[str, int]]]:
    from coverage import CoverageData

    found = defaultdict[str, set[tuple[str, int]]](set)
    for file in files:
        data = CoverageData(str(file))
        data.read()
        for module in data.measured_files():
            for line, cases in data.contexts_by_lineno(module).items():
                for case in cases:
                    found[case].add((module, line))
    found.pop("", None)
    return found


def choose(seconds: Mapping[str, float], lines: Mapping[str, Collection[tuple[str, int]]]) -> set[str]:
    """Choose the cases that are tried: all quick ones, and of others those that run most for their time."""
    chosen = {case for case, took in seconds.items() if took <= QUICK or any(part in case for part in KEPT)}
    runs = Counter(line for own in lines.values() for line in own)
    wanted = {line: min(TWICE, number) for line, number in runs.items()}
    for case in chosen:
        for line in lines.get(case, ()):
            wanted[line] -= 1

    def worth(case: str) -> float:
        return sum(wanted[line] > 0 for line in lines[case]) / seconds[case]

    others = [(-worth(case), case) for case in lines.keys() & seconds.keys() - chosen]
    heapify(others)
    # worth only shrinks: where the first is worth nothing, none is
    while others and others[0][0]:
        before, case = others[0]
        now = -worth(case)
        if now > before:
            # others were chosen since, and have taken some of its lines
            heapreplace(others, (now, case))
            continue
        heappop(others)
        chosen.add(case)
        for line in lines[case]:
            wanted[line] -= 1
    return chosen


def write_list(seconds: Mapping[str, float], chosen: Collection[str]) -> None:
    every, tried = Counter(map(without_case, seconds)), Counter(map(without_case, chosen))
    saved = defaultdict[str, float](float)
    for case in seconds.keys() - chosen:
        saved[without_case(case)] += seconds[case]
    left_out = sorted(test for test in every if saved[test] > WORTH)
    LIST.write_text(HEAD + "".join(f"{test} {tried[test]}\n" for test in left_out), "utf-8")


def main(arguments: Sequence[str]) -> None:
    seconds = {case: took for took, case in times_of(Path(*arguments))}
    chosen = choose(seconds, lines_by_case([*NOTES.iterdir()]))
    write_list(seconds, chosen)
    took, before = (sum(seconds[case] for case in cases) for cases in (chosen, seconds))
    sys.stdout.write(f"{len(chosen):,} of {len(seconds):,} cases, {took:,.0f} of {before:,.0f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
