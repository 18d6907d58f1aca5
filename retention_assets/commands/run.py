"""`retention run`: all assets from reading to the report, without a UI, through Dagster.

Belongs here: arguments, what is printed of the result, and the exit code. The work is that of the job `cycle`, the same as in
the UI; a dry run is the plan (commands/plan.py).
"""

import sys
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from retention_assets.commands.plan import deletions_of, find_plan, print_deletions, show_plan
from retention_assets.people.common.options import ACCEPT_LARGE, ACTOR, AS_OF, FORMAT, STRICT, examples
from retention_assets.people.common.output import (
    ExitCode,
    ask,
    finish,
    is_on_terminal,
    print_json,
    print_tables,
    say,
    say_next,
)
from retention_assets.people.common.sources import find_environment

if TYPE_CHECKING:
    from retention_assets.dagster.headless import JobResult
    from retention_assets.people.plan import RetentionPlan

# What is shown of each asset, in the order of the work.
_SHOWN = {
    "transaction_log": {"datasets": "datasets read", "dagster/row_count": "transactions", "refused": "datasets refused"},
    "candidate_marks": {
        "newly_marked": "newly marked",
        "marked_before": "marked or swept before",
        "spare": "selected, but protected",
    },
    "swept_transactions": {
        "deleted": "deleted",
        "already_gone": "already gone",
        "hidden": "hidden: versions can still be read",
        "failed": "failed",
        "spared": "spared: needed again",
        "expiring": "left to the store to expire",
        "left": "files left behind",
        "bytes_freed": "bytes freed",
        "bytes_hidden": "bytes hidden",
    },
}

# What is said only where there is something of it.
_SELDOM = ("hidden", "bytes_hidden")


@examples("retention run --dry-run", "retention run", "retention run -d 'lake/raw.*' --mark-only")
@click.command()
@click.option("-d", "--dataset", "datasets", multiple=True, metavar="GLOB", help="Only these datasets; may be repeated.")
@AS_OF
@ACTOR
@FORMAT
@click.option("--mark-only", is_flag=True, help="Read, judge and mark, but sweep nothing.")
@click.option("--dry-run", is_flag=True, help="Show what a run would do, as `retention plan` does; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting. Only a terminal is ever asked.")
@ACCEPT_LARGE
@STRICT
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True,
    help="How much Dagster prints on stderr.",
)  # fmt: skip
def run(
    datasets: tuple[str, ...],
    as_of: datetime | None,
    actor: str,
    format_: str,
    mark_only: bool,
    dry_run: bool,
    yes: bool,
    accept_large: bool,
    strict: bool,
    log_level: str,
) -> ExitCode:
    """Read the stores, judge, mark what may go, sweep what is due, and report.

    On a terminal it shows what it would delete now and asks, before it does anything. After a yes it deletes at most what it
    has shown.
    """
    if mark_only and dry_run:
        raise click.UsageError("--mark-only marks and --dry-run changes nothing: give one of them.")
    environment, globs = find_environment(), datasets or ("*",)
    if dry_run:
        return show_plan(environment, globs, as_of, accept_large, detail=False, format_=format_, strict=strict)
    from retention_assets.evaluation.rules_in_force import read_policies

    # Before anything is started: policies that cannot be accepted are input.
    read_policies(environment.settings)
    # Before Dagster is loaded; each step asks again. A ledger that is none for these settings is refused by being opened.
    environment.instant(as_of)
    with environment.ledger_if_any():
        pass
    with TemporaryDirectory(prefix="retention-run-") as folder:
        confirmed = None
        if is_on_terminal() and not (mark_only or yes):
            # The yes is also for deletions that the brake would stop: they are shown with a warning.
            shown = find_plan(environment, globs, as_of, accept_large=True)
            if not _is_agreed(shown, format_):
                say("Nothing was done: nothing was marked and nothing deleted.")
                return ExitCode.FAILED
            accept_large = True
            confirmed = _write_confirmed(shown, Path(folder))
            if len(shown.deleted):
                with environment.ledger() as ledger:
                    ledger.confirm(actor, _amounts(shown))
        if "dagster" not in sys.modules:
            # Loading it takes as long as starting Spark does.
            environment.start_spark()
        from retention_assets.dagster.headless import run_job

        job, accept_large = ("evaluate", False) if mark_only else ("cycle", accept_large)
        ran = run_job(environment.settings, job, as_of, globs, log_level, confirmed, accept_large, actor)
    if format_ == "json":
        print_json(_as_dict(ran))
    else:
        _print(ran)
        if ran.number("candidate_marks", "newly_marked"):
            say_next("`retention marks` shows what goes and when; `retention keep` takes something out of it for good.")
    if left := ran.number("swept_transactions", "left"):
        say(f"{left:,} files of what was swept stay where they are: `retention history` says of each transaction why.")
    for words in ran.warnings:
        say(words)
    return finish(bad_input=ran.bad_input, failed=ran.failed, refused=ran.refused, strict=strict)


def _is_agreed(found: "RetentionPlan", format_: str) -> bool:
    """Whether a person agrees to what would be deleted, having seen it. Where nothing is due, nobody is asked."""
    for words in (*found.notes, *found.failures, *found.warnings):
        say(words)
    if not len(found.deleted):
        say("This run deletes nothing.")
        return True
    if format_ == "json":
        return ask(f"{deletions_of(found)} Go on?", err=True)
    print_deletions(found)
    return ask("Go on?")


def _amounts(shown: "RetentionPlan") -> dict[str, Any]:
    sizes, datasets = shown.deleted["bytes"].to_pylist(), shown.deleted["dataset"].unique().to_pylist()
    return {"datasets": sorted(datasets), "transactions": len(sizes), "bytes": sum(size or 0 for size in sizes)}


def _write_confirmed(shown: "RetentionPlan", folder: Path) -> Path:
    """What was shown, as a file that bounds the run's sweep."""
    from retention_assets.sweep.confirmed import write_confirmed

    return write_confirmed(shown.deleted, folder / "confirmed.parquet")


def _as_dict(ran: "JobResult") -> dict[str, Any]:
    names = {"dagster/row_count": "rows"}
    assets = {asset: {names.get(name, name): value for name, value in said.items()} for asset, said in ran.said.items()}
    return {
        "run": ran.run_id,
        "as_of": ran.as_of,
        "assets": assets,
        "troubles": list(ran.troubles),
        "warnings": list(ran.warnings),
    }


def _print(ran: "JobResult") -> None:
    from retention_assets.render.terminal import table
    from retention_assets.render.text import size_of

    rows: list[tuple[str, str, str]] = []
    for asset, shown in _SHOWN.items():
        for name, words in shown.items():
            if asset in ran.said:
                number = ran.number(asset, name)
                if name in _SELDOM and not number:
                    continue
                rows.append((asset, words, size_of(number) if name.startswith("bytes_") else f"{number:,}"))
    print_tables([table(f"As of {ran.as_of.isoformat()}", ("asset", "what", "number"), rows, right=("number",))])
