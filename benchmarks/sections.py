"""The sections of a run: which contenders meet on which environment.

Belongs here: what is compared with what. Each section leaves its measurements and the agreement of answers in the report.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from benchmarks import (
    aspects,
    cluster,
    delta,
    duck,
    iceberg,
    ledger,
    loop,
    objects,
    ours,
    partitions,
    records,
    simulation,
    sweep_objects,
    sweeping,
    ticks,
    whole_sweeps,
)
from benchmarks.environments import Environment, comb, star, write
from benchmarks.floor import Floor
from benchmarks.measures import Contender, Peaks, forget_peaks, in_turns, peaks, timed
from benchmarks.policies import COUNTING
from benchmarks.preview import preview, write_lines, write_policies
from benchmarks.report import Report
from retention_assets.frames import Log
from retention_assets.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Up to here every row is compared; beyond, all rows of one dataset in fifty.
_COMPARED = 1_000_000
_ARM = 9
# What takes milliseconds is repeated more often.
_CHEAP_ROUNDS = 7


@dataclass(frozen=True)
class Sizes:
    """How large everything is. Rows and datasets are asked for; the rest keeps the proportions of a full run."""

    rows: int = 10_000_000
    datasets: int = 10_000
    branches: int = 4
    rounds: int = 3
    cores: int = 2

    @property
    def transactions(self) -> int:
        """Of one dataset."""
        return max(self.rows // self.datasets, 1)

    @property
    def many_branches(self) -> int:
        """Branches of the dataset that has very many."""
        return max(self.rows // 100, 50)

    @property
    def previewed(self) -> int:
        """Rows of the preview."""
        return max(self.rows // 10, 1_000)

    @property
    def snapshots(self) -> tuple[int, int]:
        """Snapshots of a table, and of a long one."""
        return max(self.rows // 10_000, 100), max(self.rows // 2_000, 200)


class Bench:
    """One run: its sizes, a folder to work in, a warm session and a pool of bare readers, started when first needed."""

    def __init__(self, sizes: Sizes, folder: Path, report: Report, say: Callable[[str], None]) -> None:
        self.sizes, self.folder, self.report, self.say = sizes, folder, report, say
        self._open = ExitStack()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *fault: object) -> None:
        self._open.close()

    @cached_property
    def spark(self) -> "SparkSession":
        """A warm session. Nobody stops it: it belongs to this Python."""
        self.say("starting Spark")
        source = self.environment("warm", Environment(20 * self.sizes.cores, 100), rows_per_part=1_000)
        return ours.warm_session(self.sizes.cores, source, self.folder / "warm" / "ours")

    @cached_property
    def floor(self) -> Floor:
        """Pythons that only read and write."""
        return self._open.enter_context(Floor(self.sizes.cores))

    def environment(self, name: str, environment: Environment, rows_per_part: int | None = None) -> Path:
        """The environment as a clustered log."""
        self.say(f"making {environment.rows:,} rows for {name}")
        log = self.folder / name / "log"
        # At least one part per core, as a real environment has; smaller runs would otherwise be a single task.
        most = rows_per_part or max(1, min(500_000, environment.rows // (2 * self.sizes.cores)))
        write(environment.logs(), log, most)
        return log

    def clear(self, name: str) -> None:
        """Give the disk back."""
        rmtree(self.folder / name, ignore_errors=True)

    def meet(
        self,
        section: str,
        case: str,
        contenders: Mapping[str, Contender],
        rows: int | Mapping[str, int],
        rounds: int | None = None,
    ) -> None:
        """Let contenders meet and note their times and peaks."""
        seen: dict[str, Peaks] = {}
        watched = {name: partial(_watched, name, run, seen) for name, run in contenders.items()}
        self.say(f"{section}: {case}: {', '.join(contenders)}")
        self.report.add(section, case, in_turns(watched, rounds or self.sizes.rounds), rows, seen)


@dataclass(frozen=True)
class Stage:
    """The stage as a contender."""

    spark: "SparkSession"
    source: Path
    target: Path
    outputs: tuple[str, ...] = ours.MARKS

    def __call__(self) -> None:
        ours.judge(self.spark, self.source, self.target, self.outputs)


def _watched(name: str, run: Contender, seen: dict[str, Peaks]) -> float:
    forget_peaks()
    seconds = timed(run)
    now = peaks()
    if not isinstance(run, Stage | objects.Scanned | objects.Joined):
        # The JVM and its workers were idle; what they still hold is not this contender's.
        now = Peaks(now.driver, None, None, None)
    seen[name] = now.joined(seen.get(name, now))
    return seconds


def kernel(bench: Bench) -> None:
    """The stage against DuckDB doing the same, and both against bare reading and writing."""
    sizes = bench.sizes
    environment = Environment(sizes.datasets, sizes.transactions, sizes.branches)
    log = bench.environment("kernel", environment)
    work = bench.folder / "kernel"
    spark, floor = bench.spark, bench.floor
    bench.meet(
        "kernel", "verdicts",
        {
            "stage": Stage(spark, log, work / "ours"),
            "floor: read and write": lambda: floor.seconds(log, work / "ours", work / "floor", ours.MARKS, ours.COLUMNS),
            **{f"duckdb: {way}": partial(_duck, way, log, work, sizes.cores) for way in duck.WAYS},
        },
        environment.rows,
    )  # fmt: skip
    every = 1 if environment.rows <= _COMPARED else 50
    for way in duck.WAYS:
        compared, different = duck.differences(work / "ours" / "candidate_marks", work / way, every, sizes.cores)
        bench.report.agree(f"stage and duckdb: {way}", compared, different)
    bench.meet(
        "kernel", "verdicts and views",
        {
            "stage": Stage(spark, log, work / "both", ours.BOTH),
            "floor: read and write": lambda: floor.seconds(log, work / "both", work / "floor", ours.BOTH, ours.COLUMNS),
            "duckdb: whole": partial(_duck, "whole", log, work, sizes.cores),
        },
        environment.rows,
    )  # fmt: skip
    for output, differ in (("candidate_marks", duck.differences), ("branch_views", duck.views_that_differ)):
        compared, different = differ(work / "both" / output, work / "whole" / output, every, sizes.cores)
        bench.report.agree(f"stage and duckdb: whole, {output}", compared, different)
    bench.clear("kernel")


def _duck(way: str, log: Path, work: Path, cores: int) -> None:
    # What an earlier round wrote may be more files than this one writes, and would be read as part of the answer.
    rmtree(work / way, ignore_errors=True)
    duck.judge(way, log, work / way, cores)


def scale(bench: Bench) -> None:
    """What a row costs in a small environment and in one ten times as large."""
    sizes, spark = bench.sizes, bench.spark
    rows, contenders = {}, {}
    for factor, name in ((0.3, "small"), (3.0, "ten times")):
        environment = Environment(max(int(sizes.datasets * factor), 1), sizes.transactions, sizes.branches)
        log = bench.environment(f"scale/{name}", environment)
        rows[name] = environment.rows
        contenders[name] = Stage(spark, log, bench.folder / "scale" / name)
    bench.meet("scale", "verdicts", contenders, rows)
    bench.clear("scale")


def counts(bench: Bench) -> None:
    """Counts by period and by size, against the plain count of transactions: on one core, mixed histories and long chains."""
    sizes = bench.sizes
    rows = sizes.datasets * sizes.transactions
    for name, environment in (
        ("mixed histories", Environment(sizes.datasets, sizes.transactions, sizes.branches)),
        ("one chain", Environment(1, rows, 1, ("linear",))),
    ):
        log, work = bench.environment(f"counts/{name}", environment), bench.folder / "counts" / "work"
        contenders: dict[str, Contender] = {
            key: partial(ours.judge_here, log, work, (policy,)) for key, policy in COUNTING.items()
        }
        bench.meet("counts", name, contenders, rows)
    bench.clear("counts")


def giant(bench: Bench) -> None:
    """All rows in one dataset, one chain: one task on one core, so one core on many datasets stands beside it."""
    sizes, spark = bench.sizes, bench.spark
    rows = sizes.datasets * sizes.transactions
    work = bench.folder / "giant"
    many = bench.environment("giant/many", Environment(sizes.datasets, sizes.transactions, 1, ("linear",)))
    one = bench.environment("giant/one", Environment(1, rows, 1, ("linear",)))
    contenders: dict[str, Contender] = {
        f"{sizes.datasets:,} datasets, one core, no Spark": lambda: ours.judge_here(many, work / "here"),
        f"{sizes.datasets:,} datasets, stage": Stage(spark, many, work / "many"),
        "one dataset, stage": Stage(spark, one, work / "one"),
    }
    bench.meet("giant", "verdicts", contenders, rows)
    bench.clear("giant")


def branches(bench: Bench) -> None:
    """One dataset with very many branches, leaving at one place or each at its own, beside plain ones of as many rows."""
    spark, count = bench.spark, bench.sizes.many_branches
    plain = Environment(max(count * _ARM // 1_000, 1), min(1_000, count * _ARM), 1, ("linear",))
    logs = {"plain": bench.environment("branches/plain", plain)}
    rows = {"plain": plain.rows}
    for name, made in (("star", star(count, _ARM)), ("comb", comb(count, _ARM))):
        bench.say(f"making {len(made.transactions):,} rows for {name}")
        logs[name] = bench.folder / "branches" / name / "log"
        rows[name] = len(made.transactions)
        write([made], logs[name])
    for case, outputs in (("verdicts", ours.MARKS), ("verdicts and views", ours.BOTH)):
        contenders = {name: Stage(spark, log, log.parent / "ours", outputs) for name, log in logs.items()}
        bench.meet("branches", f"{case}, {count:,} branches", contenders, rows)
    bench.clear("branches")


def expiry(bench: Bench) -> None:
    """PyIceberg's plan of an expiry, against reading the same metadata and judging it."""
    few, many = bench.sizes.snapshots
    # With `by_ids` PyIceberg takes minutes for what it plans in a fraction of a second by age.
    for rule, snapshots in (("older_than", few), ("older_than", many), ("keep_newest", few)):
        of = iceberg.table(snapshots)
        policy, plan = iceberg.RULES[rule].policy, iceberg.RULES[rule].plan
        log = iceberg.log_of([of.metadata])
        theirs, mine = plan(of), iceberg.marked(iceberg.verdicts(log, policy))
        bench.report.agree(f"kernel and pyiceberg: {rule}, {snapshots:,} snapshots", snapshots, len(theirs ^ mine))
        contenders: dict[str, Contender] = {
            "ours, from metadata": partial(_from_metadata, [of], policy),
            "ours, kernel alone": partial(_kernel, log, policy),
            "pyiceberg": partial(_planned, [of], plan),
        }
        rounds = 1 if rule == "keep_newest" else max(bench.sizes.rounds, _CHEAP_ROUNDS)
        bench.meet("iceberg", f"{rule}, one table of {snapshots:,}", contenders, snapshots, rounds)
    tables = [iceberg.table(few, seed) for seed in range(1, 21)]
    rule_of = iceberg.RULES["older_than"]
    bench.meet(
        "iceberg", f"older_than, {len(tables)} tables of {few:,}",
        {
            "ours, from metadata": partial(_from_metadata, tables, rule_of.policy),
            "pyiceberg": partial(_planned, tables, rule_of.plan),
        },
        few * len(tables),
    )  # fmt: skip


def _from_metadata(tables: list[Table], policy: Policy) -> None:
    iceberg.verdicts(iceberg.log_of([one.metadata for one in tables]), policy)


def _kernel(log: Log, policy: Policy) -> None:
    iceberg.verdicts(log, policy)


def _planned(tables: list[Table], plan: Callable[[Table], set[int]]) -> None:
    for one in tables:
        plan(one)


def previewing(bench: Bench) -> None:
    """`retention preview` over JSON lines, as a command of its own."""
    sizes = bench.sizes
    environment = Environment(max(sizes.previewed // 1_000, 1), min(1_000, sizes.previewed), sizes.branches)
    folder = bench.folder / "preview"
    folder.mkdir(parents=True)
    bench.say(f"writing {environment.rows:,} JSON lines")
    write_lines(environment.log(), folder / "log.jsonl")
    write_policies(folder / "policies.yaml")
    seen: list[float | None] = []

    def run() -> float:
        seconds, memory = preview(folder / "log.jsonl", folder / "policies.yaml", Path("/dev/null"))
        seen.append(memory)
        return seconds

    bench.say("preview: JSON lines to JSON")
    times = in_turns({"retention preview": run}, sizes.rounds)
    highest = Peaks(max((peak for peak in seen if peak is not None), default=None), None, None, None)
    bench.report.add("preview", "JSON lines to JSON", times, environment.rows, {"retention preview": highest})
    bench.clear("preview")


def recording(bench: Bench) -> None:
    """The ledger's work, against the driver alone doing the least of it."""
    amount = max(bench.sizes.previewed, ledger.DATASETS)
    few, rounds = amount // ledger.DATASETS, min(bench.sizes.rounds, ledger.MOST_ROUNDS)
    for kind, places in ledger.PLACES.items():
        with (
            places(bench.folder / "ledger" / kind) as place,
            closing(ledger.Ours(place, amount)) as mine,
            closing(ledger.Bare(place, amount)) as bare,
        ):
            pairs: tuple[tuple[str, Contender, Contender, int, int], ...] = (
                ("mark", bare.mark, mine.mark, amount, rounds),
                ("mark the same again", bare.again, mine.again, amount, rounds),
                ("read all marks", bare.read, mine.read, amount, rounds),
                ("unmark", bare.unmark, mine.unmark, few, rounds),
                ("begin and settle", bare.sweep, mine.sweep, few, rounds),
                # Of the marks, and of those that were taken back. It takes as long as several of them.
                ("verify", mine.read_all, mine.verify, amount + rounds * few, 1),
            )
            for case, floor, run, rows, times in pairs:
                bench.meet("ledger", f"{kind}: {case}", {"floor: driver alone": floor, "ledger": run}, rows, times)
            found, expected = mine.states(), bare.states()
            different = (found - expected) + (expected - found)
            bench.report.agree(f"ledger and {kind}", amount, different.total())
        bench.clear("ledger")


SECTIONS: Mapping[str, Callable[[Bench], None]] = {
    "kernel": kernel,
    "scale": scale,
    "counts": counts,
    "giant": giant,
    "branches": branches,
    "iceberg": expiry,
    "preview": previewing,
    "ledger": recording,
    "expiring": sweeping.expiring,
    "metadata": sweeping.metadata,
    "catalog": sweeping.catalog,
    "files": sweeping.files,
    "sweep": sweeping.whole,
    "partitions": partitions.partitions,
    "aspects": aspects.aspects,
    "loop": loop.turning,
    "ticks": ticks.ticks,
    "objects": objects.objects,
    "deletion": sweep_objects.deletion,
    "records": records.records,
    "simulation": simulation.simulation,
    "wholes": whole_sweeps.wholes,
    "turns": whole_sweeps.turns,
    "cluster": cluster.clustered,
    "delta": delta.delta,
}
