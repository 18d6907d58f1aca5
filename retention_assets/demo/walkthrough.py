"""Run the demonstration: build it, run the whole cycle on three days, and tell what happened and why.

The same jobs as in a real environment do the work.
"""

import os
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from shutil import which

import dagster as dg
from rich.console import Console
from rich.markup import escape

from retention_assets.dagster.headless import JobResult, run_job
from retention_assets.demo import delta, ice, lake
from retention_assets.demo.environment import HOME, build_environment, bytes_in, rows_in
from retention_assets.demo.lake import AS_OF
from retention_assets.errors import Refused
from retention_assets.evaluation.explain import explain
from retention_assets.evaluation.rules_in_force import rules_for
from retention_assets.exchange import read_log
from retention_assets.ledger import open_ledger
from retention_assets.policy.durations import text_of
from retention_assets.policy.language import load_policies
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import Count, Size, Table
from retention_assets.render.report import day_report
from retention_assets.render.tables import explanation
from retention_assets.render.terminal import draw
from retention_assets.settings.model import Settings, load_settings

GRACE = AS_OF + timedelta(days=2)
SWEEP = AS_OF + timedelta(days=8)
ANN = "ann"


def demo(folder: Path, console: Console) -> None:
    """Build the environment, live through nine days of it, and explain the results."""
    settings_file = build_environment(folder)
    settings = load_settings(settings_file)
    os.environ["DAGSTER_HOME"] = str((folder / HOME).resolve())
    # Two of Dagster's programs that open a fresh home at once crash; the UI opens later and finds one that is no longer fresh.
    dg.DagsterInstance.get().dispose()
    before, read_back, rows = bytes_in(folder), ice.rows_of(folder), rows_in(folder)
    _environment(folder, console, before)
    _mark(settings, console)
    rescued = _grace(folder, settings, console)
    _sweep(folder, settings, console, before, rows)
    _kept(folder, settings, console, rescued, read_back)
    _explanation(settings, console)
    _next_steps(settings_file, console)


def _title(console: Console, number: int, words: str, day: datetime | None = None) -> None:
    when = f" [dim]{day:%A, %-d %B %Y}[/]" if day else ""
    console.print(f"\n[bold]{number}. {escape(words)}[/]{when}\n")


def _environment(folder: Path, console: Console, before: Mapping[str, int]) -> None:
    _title(console, 1, "An environment")
    sizes = ", ".join(f"{name} ({size_of(size)})" for name, size in before.items())
    console.print(
        f"{escape(str(folder))} now holds {sizes}: histories with branches and tags, with real files for every step. It "
        "also holds two databases: DataHub's table of aspects, and units of work. The warehouse of the Iceberg tables has "
        "files that no table reaches, of a failed write and of a dropped table. retention.yaml names the stores; the files "
        "in policies/ say what may go. The clock of these settings is [bold]simulated[/], so days pass at once here. With "
        "a real clock nothing goes before its grace is over."
    )


def _mark(settings: Settings, console: Console) -> None:
    _title(console, 2, "Mark", AS_OF)
    console.print(
        "The job `delete_cycle` runs in Dagster on Spark. It reads each history, judges each transaction and marks …\n"
    )
    ran = _run(settings, AS_OF)
    columns = ("verdict", "policy", Count("transactions"), Size("bytes"))
    console.print(draw(Table("What was decided", columns, ran.said["candidate_marks"]["by_policy"])))
    spared = [row for row in ran.said["candidate_marks"]["reasons"] if row["verdict"] == "spare"]
    reasons = ("reason", Count("transactions"), "meaning")
    console.print()
    console.print(draw(Table("Why some that a policy selects are spared", reasons, spared)))
    console.print(
        f"\n{ran.number('candidate_marks', 'newly_marked'):,} transactions are marked. [bold]Nothing is deleted yet[/]: a mark"
        " waits out its grace, seven days here."
    )
    for words in ran.troubles:
        console.print(f"One history is not sound, so nothing of it is touched: {escape(words)}")


def _grace(folder: Path, settings: Settings, console: Console) -> Mapping[str, str]:
    _title(console, 3, "Grace", GRACE)
    console.print("During the grace, people change their minds:\n")
    with open_ledger(settings.ledger) as ledger:
        ledger.unmark.transactions("lake/raw.events", ["S7"], ANN, "the March numbers are being checked again")
        snapshots = sorted(int(name) for name in ledger.marks.table(["ice/shop.orders"])["transaction"].to_pylist())
    console.print(f"  • {ANN} takes a mark back: `retention unmark lake/raw.events S7 --reason …`")
    lake.add_branch(folder, "lake/raw.clicks", "backfill", "S9")
    console.print("  • A user makes the branch backfill on transaction S9 of lake/raw.clicks, which is marked.")
    ice.add_branch(folder, "shop.orders", "dispute", snapshots[0])
    console.print(f"  • A user makes the branch dispute on snapshot {snapshots[0]} of ice/shop.orders, which is marked.")
    return {"lake/raw.clicks S9": "backfill", f"ice/shop.orders {snapshots[0]}": "dispute"}


def _sweep(folder: Path, settings: Settings, console: Console, sizes: Mapping[str, int], rows: Mapping[str, int]) -> None:
    _title(console, 4, "Sweep", SWEEP)
    console.print("The grace is over. The job runs again; before each dataset it reads the store again …\n")
    ran = _run(settings, SWEEP)
    columns = ("dataset", Count("deleted"), Count("spared"), Size("bytes freed"))
    console.print(draw(Table("What was swept", columns, ran.said["swept_transactions"]["by_dataset"])))
    for name, size in bytes_in(folder).items():
        console.print(f"{name}: {size_of(sizes[name])} before, {size_of(size)} after")
    for name, count in rows_in(folder).items():
        console.print(f"table {name}: {rows[name]:,} rows before, {count:,} after")
    with open_ledger(settings.ledger) as ledger:
        total = day_report(ledger, SWEEP.date()).total
        verified = ledger.verify()
    names = ("to_delete", "deleted", "spared", "failed")
    numbers = ", ".join(f"{total.counters[name]:,} {name.replace('_', ' ')}" for name in names)
    console.print(f"\nThe day's report: {numbers}. {size_of(total.counters['bytes_freed'])} freed.")
    console.print(f"The record: {verified.rows} rows, each with the hash of the row before; {len(verified.faults)} faults.")


def _kept(folder: Path, settings: Settings, console: Console, rescued: Mapping[str, str], read_back: Mapping[str, int]) -> None:
    _title(console, 5, "What was not swept")
    with open_ledger(settings.ledger) as ledger:
        spared = ledger.marks.table(statuses=["SPARED"]).select(["dataset", "transaction", "why"]).to_pylist()
    columns = ("dataset", "transaction", "why")
    console.print(draw(Table("Marked, but still needed", columns, spared)))
    now = ice.rows_of(folder)
    orphans = ice.orphans_left(folder)
    versions = [*delta.whole_versions(folder)]
    lost = {name for name, count in read_back.items() if now.get(name) != count}
    lost |= {f"lakehouse/sales {number}" for number in delta.RETAINED if number not in versions}
    unsaved = set(rescued) - {f"{row['dataset']} {row['transaction']}" for row in spared}
    if lost or unsaved or orphans or not (folder / "data" / "raw.events" / "S7").is_dir():
        wrong = ", ".join(sorted(lost | unsaved | orphans)) or "lake/raw.events S7"
        raise Refused(f"The demonstration went wrong: {wrong} is not as it should be.")
    console.print(f"\nEvery branch and tag of the Iceberg tables reads back as before: {', '.join(sorted(now))}.")
    console.print(
        f"Versions {', '.join(map(str, versions))} of the Delta table lakehouse/sales can still be read. The table pins version"
        " 1, and version 7 is the newest. It needs all files of 5, so version 5 was spared. Version 6 was"
        " inside the window of its table when it was judged first (TABLE_WINDOW). The small files of version 4, which the"
        " compaction in version 5 replaced, are gone."
    )
    console.print(
        "The files of the failed write and of the dropped table are gone. landing/prices-2019.parquet is outside of its "
        "table's folder, but its table reaches it, so it stays. lake/raw.events S7 stays too. Its policy still selects it, "
        "so it was marked again with a new grace. To keep it, place a hold."
    )


def _explanation(settings: Settings, console: Console) -> None:
    _title(console, 6, "Why")
    console.print("`retention explain` gives the reasons of every verdict. Here is a surprising one:\n")
    log = read_log(Path(str(settings.store("lake").log)))  # type: ignore[union-attr]  # the demonstration's own store
    rules = rules_for(load_policies(settings.policies), log.datasets["dataset"].to_pylist(), settings)
    console.print(explanation(explain(log, rules, "lake/demo.shared_branch", "T1", AS_OF)))


def _next_steps(settings_file: Path, console: Console) -> None:
    _title(console, 7, "Go on")
    later, week = text_of(SWEEP + timedelta(days=1)), text_of(SWEEP + timedelta(days=7))
    # a checkout's program is not on everybody's PATH
    program = "retention" if which("retention") else os.path.relpath(Path(sys.executable).with_name("retention"))
    console.print(f"  export RETENTION_CONFIG={escape(str(settings_file))}", soft_wrap=True)
    for command, words in (
        ("retention history lake/raw.clicks", "what became of each transaction, and when"),
        ("retention report", "the day's report; --html writes it as a page"),
        (f"retention marks --due --as-of {week}", "what the next sweep will look at"),
        (f"retention plan --as-of {week}", "what it would delete, without deleting"),
        ("retention audit verify", "the record, computed again"),
        (f"retention explain lake/raw.models S3 --as-of {later}", "a tag that pins a view"),
        ("make dev", "the Dagster UI with these runs; it asks first, then sweeps what is due"),
    ):
        console.print(f"  {escape(command.replace('retention ', f'{program} ', 1))}\n      {words}", soft_wrap=True)


def _run(settings: Settings, as_of: datetime) -> JobResult:
    ran = run_job(settings, "cycle", as_of, log_level="error")
    if failed := [words for words in ran.troubles if "was refused" not in words]:
        raise Refused("\n".join(failed))
    return ran
