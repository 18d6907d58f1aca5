"""The sections about stores and the sweep: which contenders meet over what is read from a store and deleted through it.

Belongs here: what is compared with what, and how large it is by the rows that a run is asked for.
Does not belong here: the contenders themselves (sweep_iceberg.py, sweep_files.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks import iceberg
from benchmarks.measures import Contender
from benchmarks.sweep_files import Tree, Whole, by_loop, by_store, lake
from benchmarks.sweep_iceberg import BATCH, Expiry, Long, Many
from retention_assets.frames import sound_log
from retention_assets.pipeline.read_logs import read_stores
from retention_assets.pipeline.stage import read_output
from retention_assets.stores.logs import ChosenDatasets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.sections import Bench

_FILES, _PER_DATASET = 50, 100


@dataclass(frozen=True)
class Amounts:
    """How much of everything there is, in proportion to the rows of a run."""

    rows: int

    @property
    def snapshots(self) -> tuple[int, int, int]:
        """Of a usual table, of a long one and of a very long one: 1,000, 10,000 and 100,000 in a full run."""
        return max(self.rows // 10_000, 10), max(self.rows // 1_000, 20), max(self.rows // 100, 40)

    @property
    def tables(self) -> int:
        """Of a catalog: 2,000."""
        return max(self.rows // 5_000, 4)

    @property
    def folders(self) -> int:
        """Transactions that are deleted by the store alone: 2,000."""
        return max(self.rows // 5_000, 4)

    @property
    def datasets(self) -> int:
        """Of a lake that is swept whole: 200."""
        return max(self.rows // 50_000, 2)


def expiring(bench: "Bench") -> None:
    """Half of a table's snapshots with their files."""
    amount = Amounts(bench.sizes.rows).snapshots[0]
    bench.say(f"making a table of {amount:,} overwrites")
    expiry = Expiry(bench.folder / "expiring" / "table", amount)
    left: dict[str, set[str]] = {}

    def seen(name: str, run: Callable[[], float]) -> float:
        seconds = run()
        left[name] = expiry.left()
        return seconds

    contenders: dict[str, Contender] = {
        "pyiceberg and unlink": partial(seen, "told", expiry.by_pyiceberg),
        "pyiceberg that finds the files": partial(seen, "found", partial(expiry.by_pyiceberg, looks=True)),
        "store": partial(seen, "store", expiry.by_store),
    }
    bench.meet("expiring", f"{amount // 2:,} of {amount:,} snapshots with their files", contenders, amount // 2)
    for name in ("told", "found"):
        bench.report.agree(f"store and pyiceberg, {name}", len(left[name]), len(left["store"] ^ left[name]))
    bench.clear("expiring")


def metadata(bench: "Bench") -> None:
    """What a snapshot costs in short metadata and in very long: reading it, judging it, taking it out."""
    tables = {}
    for amount in Amounts(bench.sizes.rows).snapshots:
        bench.say(f"making metadata of {amount:,} snapshots")
        tables[f"{amount:,}"] = Long(bench.folder / "metadata" / str(amount), amount)
    rows = {name: table.snapshots for name, table in tables.items()}
    bench.meet("metadata", "read", {name: partial(_read_lines, table) for name, table in tables.items()}, rows)
    logs = {name: table.read() for name, table in tables.items()}
    bench.meet("metadata", "judge", {name: partial(_judged, log) for name, log in logs.items()}, rows)
    one_batch = {name: partial(table.commit, min(BATCH, table.snapshots // 2)) for name, table in tables.items()}
    bench.meet("metadata", f"commit that expires {BATCH}", one_batch, rows)
    few, many, _ = tables.values()
    bench.meet(
        "metadata", "commit that expires half",
        {f"{table.snapshots:,}": partial(table.commit, table.snapshots // 2) for table in (few, many)}, rows,
    )  # fmt: skip
    half = few.snapshots // 2
    both = {"pyiceberg, by_ids": few.commit_by_pyiceberg, "store": few.commit}
    left = {}
    for name, commit in both.items():
        commit(half)
        left[name] = few.left()
    theirs, mine = left.values()
    bench.report.agree("commits of store and pyiceberg", few.snapshots, len(theirs ^ mine))
    # It copies the whole metadata for each id, which takes many seconds already here.
    contenders = {name: partial(commit, half) for name, commit in both.items()}
    bench.meet("metadata", f"commit that expires half of {few.snapshots:,}", contenders, half, 1)
    bench.clear("metadata")


def _read_lines(table: Long) -> None:
    table.read()


def _judged(lines: pa.Table) -> None:
    iceberg.verdicts(sound_log(lines), iceberg.RULES["older_than"].policy)


def catalog(bench: "Bench") -> None:
    """Every table of a large catalog in one Spark job."""
    many = Many(bench.folder / "catalog" / "tables", Amounts(bench.sizes.rows).tables)
    bench.say(f"making {many.tables:,} tables")
    many.made()
    log, found = bench.folder / "catalog" / "log", list[int]()
    contenders: dict[str, Contender] = {
        "pyiceberg, load_table alone": lambda: found.append(many.by_pyiceberg()),
        "read_stores": partial(_read, bench.spark, many, log),
    }
    bench.meet("catalog", f"{many.tables:,} tables of {many.snapshots} snapshots", contenders, many.tables)
    rows = len(read_output(str(log), "transactions"))
    bench.report.agree("read_stores and pyiceberg", found[-1], abs(rows - found[-1]))
    bench.clear("catalog")


def _read(spark: "SparkSession", many: Many, log: Path) -> float:
    rmtree(log, ignore_errors=True)
    store = many.store()
    try:
        begin = perf_counter()
        read_stores(spark, [ChosenDatasets(store, tuple(store.datasets()))], str(log))
        return perf_counter() - begin
    finally:
        store.close()


def files(bench: "Bench") -> None:
    """Small files deleted through the store and by a bare loop, each from a tree of its own that is grown anew."""
    tree = Tree(bench.folder / "files", Amounts(bench.sizes.rows).folders, _FILES)
    amount = tree.transactions * tree.files
    contenders: dict[str, Contender] = {
        "floor: list, unlink, rmdir": lambda: by_loop(tree.grown()),
        "store": lambda: by_store(tree.grown()),
    }
    bench.meet("files", f"{amount:,} files in {tree.transactions:,} transactions", contenders, amount)
    bench.report.agree("folders that the store left", tree.transactions, tree.left)
    bench.clear("files")


def whole(bench: "Bench") -> None:
    """A sweep through the engine, and how much of it is whose."""
    datasets = Amounts(bench.sizes.rows).datasets
    folder, parts = bench.folder / "whole", dict[str, float]()

    def swept() -> float:
        sweep = Whole(lake(folder, datasets, _PER_DATASET))
        seconds = sweep.run()
        parts.clear()
        parts.update(sweep.parts)
        return seconds

    def part(name: str) -> float:
        return parts[name]

    contenders: dict[str, Contender] = {
        "sweep": swept,
        "of it: store, tokens and reading": partial(part, "look"),
        "of it: store, prepare": partial(part, "prepare"),
        "of it: store, deleting": partial(part, "delete"),
        "of it: ledger and re-check": partial(part, "rest"),
    }
    bench.meet("sweep", f"{datasets * _PER_DATASET:,} marks of {datasets:,} datasets", contenders, datasets * _PER_DATASET)
    bench.clear("whole")
