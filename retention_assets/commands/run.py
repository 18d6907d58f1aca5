"""`retention run`: all assets from reading to the report, without a UI, through Dagster.

Belongs here: arguments, what is printed of the result, and the exit code. The work is that of the job `cycle`, the same as in
the UI; a dry run is the operation that previews a sweep.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from retention_assets.commands.options import AS_OF, FORMAT, STRICT, examples
from retention_assets.commands.output import ExitCode, finish, print_json, print_tables, progress, say, say_next
from retention_assets.commands.sources import find_environment

if TYPE_CHECKING:
    from retention_assets.dagster.headless import JobResult
    from retention_assets.environment import Environment
    from retention_assets.sweep.dry_run import DryRun

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
@FORMAT
@click.option("--mark-only", is_flag=True, help="Read, judge and mark, but sweep nothing.")
@click.option("--dry-run", is_flag=True, help="Show what a sweep would delete and spare; mark and delete nothing.")
@STRICT
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True,
    help="How much Dagster prints on stderr.",
)  # fmt: skip
def run(
    datasets: tuple[str, ...],
    as_of: datetime | None,
    format_: str,
    mark_only: bool,
    dry_run: bool,
    strict: bool,
    log_level: str,
) -> ExitCode:
    """Read the stores, judge, mark what may go, sweep what is due, and report."""
    if mark_only and dry_run:
        raise click.UsageError("--mark-only marks and --dry-run changes nothing: give one of them.")
    environment, globs = find_environment(), datasets or ("*",)
    if dry_run:
        return _dry_run(environment, as_of, globs, format_, strict)
    from retention_assets.evaluation.rules_in_force import read_policies

    # Before anything is started: policies that cannot be accepted are input.
    read_policies(environment.settings)
    # Before Dagster is loaded; each step asks again. A ledger that is none for these settings is refused by being opened.
    environment.instant(as_of)
    with environment.ledger_if_any():
        pass
    from retention_assets.dagster.headless import run_job

    ran = run_job(environment.settings, "evaluate" if mark_only else "cycle", as_of, globs, log_level)
    if format_ == "json":
        print_json(_as_dict(ran))
    else:
        _print(ran)
        if ran.number("candidate_marks", "newly_marked"):
            say_next("`retention marks` shows what goes and when; `retention unmark` takes a mark back.")
    if left := ran.number("swept_transactions", "left"):
        say(f"{left:,} files of what was swept stay where they are: `retention history` says of each transaction why.")
    return finish(bad_input=ran.bad_input, failed=ran.failed, refused=ran.refused, strict=strict)


def _as_dict(ran: "JobResult") -> dict[str, Any]:
    names = {"dagster/row_count": "rows"}
    assets = {asset: {names.get(name, name): value for name, value in said.items()} for asset, said in ran.said.items()}
    return {"run": ran.run_id, "as_of": ran.as_of, "assets": assets, "troubles": list(ran.troubles)}


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


def _dry_run(
    environment: "Environment", as_of: datetime | None, globs: tuple[str, ...], format_: str, strict: bool
) -> ExitCode:
    from retention_assets.operations.sweep_preview import SweepPreviewRequest, preview_sweep

    with progress("sweeping a copy"):
        found = preview_sweep(SweepPreviewRequest(as_of=as_of, datasets=globs), environment)
    if found.note:
        say(found.note)
    if format_ == "json":
        print_json(found.as_dict())
    else:
        _print_dry_run(found)
    to_do = bool(found.deleted or found.spared)
    if found.store_failed:
        return finish(failed=found.warnings, to_do=to_do)
    return finish(refused=found.warnings, strict=strict, to_do=to_do)


def _print_dry_run(found: "DryRun", most: int = 50) -> None:
    from retention_assets.render.terminal import table
    from retention_assets.render.text import size_of

    total = size_of(sum(one.bytes or 0 for one in found.deleted))
    rows = [
        (one.dataset, _named(one.transaction, one.refs), "expires by itself" if one.expires else size_of(one.bytes))
        for one in found.deleted[:most]
    ]
    title = f"A sweep would delete {len(found.deleted):,} transactions and free {total}. Nothing was changed."
    tables = [table(title, ("dataset", "transaction", "bytes"), rows, right=("bytes",))]
    if found.spared:
        spared = [(one.dataset, one.transaction, one.why) for one in found.spared[:most]]
        tables.append(table(f"It would spare {len(found.spared):,}", ("dataset", "transaction", "why"), spared))
    if found.cascaded:
        beside = [
            (one.table, "deleted" if one.deletes else "changed", "unknown" if one.rows is None else f"{one.rows:,}", one.path)
            for one in found.cascaded
        ]
        columns = ("table", "rows are", "rows", "because of")
        tables.append(table("With them, as the stores accept it, the databases would touch", columns, beside, right=("rows",)))
    print_tables(tables)


def _named(transaction: str, refs: Sequence[str]) -> str:
    return f"{transaction} (and drop {', '.join(refs)})" if refs else transaction
