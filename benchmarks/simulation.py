"""Very many marks through the planner and the ledger, with stores that hold nothing: what a size costs that no machine here has.

Belongs here: a store that computes its histories when it is asked for them, behind a recording store; judging and marking, and a
sweep, at sizes that grow tenfold. What counts is whether seconds per mark and memory stay as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from shutil import rmtree
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.measures import Peaks, Times, forget_peaks, peak, timed, worked
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import LINES
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import Only, Permit, PreparedTarget, Store, SweptTarget, Target, always
from retention_assets.stores.settings import StoreSettings
from retention_assets.sweep import Sweeper
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.datasets import evaluate
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.sections import Bench

# Marks of a dataset, and how many of them are judged and marked together: both do not grow with the whole.
MARKS, _AT_ONCE = 1_000, 100_000
# Of more marks so many are swept, in a ledger that holds them all: the rest would take a night.
_SWEPT = 2_000_000
_RUN = "benchmark"
_POLICY = "{name: all, datasets: {include: ['lake/*']}, select: {beyond: {transactions: 1}}, sweep: {every: 0s, batch: 500, parallelism: 1}}"


class Imagined(Store):
    """Some of the datasets of a store: histories of snapshots on one branch, of which all but the newest may go."""

    log_is_complete = True

    def __init__(self, first: int, count: int) -> None:
        super().__init__(StoreSettings(name="lake", kind="imagined"))
        self.first, self.count = first, count

    def datasets(self) -> list[str]:
        """Their names."""
        return [f"lake/d{number:06d}" for number in range(self.first, self.first + self.count)]

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """A hundred at a time."""
        return [tuple(datasets[at : at + 100]) for at in range(0, len(datasets), 100)]

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - the protocol's
        """Each dataset's transactions, then its branch."""
        return pa.concat_tables([_lines(name) for name in datasets]) if datasets else LINES.empty_table()

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Nothing ever changes."""
        return dict.fromkeys(datasets, "imagined")

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:  # noqa: ARG002 - the protocol's
        """Each is as large as the others."""
        return [PreparedTarget(one, 64) for one in transactions]

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        """There is nothing to delete, and a recording store asks nobody to."""
        raise AssertionError(f"{dataset}: {len(targets)} {parallelism} {permit}")


def _lines(dataset: str) -> pa.Table:
    number = np.arange(MARKS + 1)
    names = pa.array([f"T{one}" for one in range(MARKS + 1)])
    at = pa.array(np.datetime64(AS_OF.replace(tzinfo=None), "us") - (MARKS + 1 - number) * np.timedelta64(3_600_000_000, "us"))
    at = at.cast(LINES.field("opened_at").type)
    rows = MARKS + 1
    transactions = {
        "dataset": pa.repeat(dataset, rows), "transaction": names, "parent": pa.concat_arrays([pa.nulls(1, pa.string()), names[:-1]]),
        "parent_given": pa.repeat(True, rows), "type": pa.repeat("SNAPSHOT", rows), "status": pa.repeat("COMMITTED", rows),
        "opened_at": at, "closed_at": at, "bytes": pa.repeat(64, rows),
    }  # fmt: skip
    branch = {"dataset": [dataset], "branch": ["main"], "head": [f"T{MARKS}"], "parent_given": [False]}
    return pa.concat_tables([_as_lines(transactions, rows), _as_lines(branch, 1)])


def _as_lines(given: Mapping[str, object], rows: int) -> pa.Table:
    columns = [given.get(one.name, pa.nulls(rows, one.type)) for one in LINES]
    return pa.table(columns, names=LINES.names).cast(LINES)


class Counting(RecordingStore):
    """A recording store that counts what it would have written down, and forgets it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.deleted, self.sizes = 0, set[int | None]()

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        """Count what would be deleted."""
        swept = super().sweep(dataset, targets, parallelism, permit)
        self.deleted += len(self.recorded)
        self.sizes |= {one.bytes for one in self.recorded}
        self.recorded.clear()
        self._prepared.clear()
        return swept


def simulation(bench: "Bench") -> None:
    """Marking a hundredth, a tenth and all of the marks, which are a tenth of the rows of a run, and sweeping what is due."""
    whole = max(bench.sizes.rows // 10, MARKS)
    sizes = sorted({max(whole // part // MARKS, 1) * MARKS for part in (100, 10, 1)})
    found: dict[str, list[tuple[int, int, float, float, Peaks]]] = {"marking": [], "sweeping": []}
    for marks in sizes:
        folder = bench.folder / "simulation"
        for case, done, seconds, cpu, high in _one(folder, marks, bench):
            found[case].append((marks, done, seconds, cpu, high))
        rmtree(folder)
    for case, measured in found.items():
        # Seconds by seconds; the report makes ratios per row of them.
        least = measured[0][2]
        names = [f"{marks:,} marks" for marks, *_ in measured]
        times = {name: Times((s,), (s / least,), (cpu,)) for name, (_, _, s, cpu, _) in zip(names, measured, strict=True)}
        rows = {name: one[1] for name, one in zip(names, measured, strict=True)}
        peaks = {name: one[4] for name, one in zip(names, measured, strict=True)}
        bench.report.add("simulation", case, times, rows, peaks)


def _one(folder: "Path", marks: int, bench: "Bench") -> Iterator[tuple[str, int, float, float, Peaks]]:
    # A ledger that others can read would be warned of.
    folder.mkdir(mode=0o700, parents=True)
    lake = Lake(folder, policies=_POLICY)
    datasets, step, swept = marks // MARKS, _AT_ONCE // MARKS, min(marks, _SWEPT)
    store = Counting(Imagined(0, datasets))

    def marking() -> None:
        with lake.opened() as ledger:
            for first in range(0, datasets, step):
                evaluate(ledger, [Imagined(first, min(step, datasets - first))], lake.settings, MARKED)

    def sweeping() -> None:
        with lake.opened() as ledger:
            rules = load_rulebook(ledger, lake.settings, _RUN)
            for one in Sweeper(ledger, {"lake": store}, rules, DUE, _RUN).run(store.datasets()[: swept // MARKS]):
                assert one.refused is None, one
                assert not one.errors, one

    for case, done, run in (("marking", marks, marking), ("sweeping", swept, sweeping)):
        bench.say(f"simulation: {case} {done:,} of {marks:,}")
        forget_peaks()
        before = worked()
        seconds = timed(run)
        yield case, done, seconds, worked() - before, Peaks(peak("self"), None, None, None)
    bench.report.agree(f"simulation, {swept:,} of {marks:,} marks swept", swept, abs(swept - store.deleted))
