"""`retention run`: the five assets from reading to the report, headless, through Dagster.

Belongs here: arguments, what is said of the result, and the exit code. The work is that of the job `cycle`, the same as in the
UI; a dry run is the same sweep over a copy of the ledger's open marks, on stores that write down instead of deleting.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from retention_assets.commands.options import AS_OF, FORMAT
from retention_assets.commands.output import print_json, print_tables, progress
from retention_assets.commands.sources import find_settings, instant, ledger_to_read, policies_of
from retention_assets.datasets import by_store
from retention_assets.errors import Refused

if TYPE_CHECKING:
    from retention_assets.dagster.headless import JobResult
    from retention_assets.settings.model import Settings
    from retention_assets.sweep.dry_run import DryRun

# What is shown of each asset, in the order of the work.
_SHOWN = {
    "transaction_log": {"datasets": "datasets read", "dagster/row_count": "transactions", "refused": "datasets refused"},
    "candidate_marks": {
        "newly_marked": "newly marked",
        "marked_before": "marked or swept before",
        "spare": "spared by protection",
    },
    "swept_transactions": {
        "deleted": "deleted",
        "already_gone": "already gone",
        "failed": "failed",
        "spared": "spared, because needed again",
        "expiring": "left to the store to expire",
        "bytes_freed": "bytes freed",
    },
}


@click.command()
@click.option("--dataset", "datasets", multiple=True, help="A glob over store/name; may be repeated. All when left out.")
@AS_OF
@FORMAT
@click.option("--mark-only", is_flag=True, help="Read, judge and mark; sweep nothing.")
@click.option("--dry-run", is_flag=True, help="Show what a sweep would delete and spare now. Marks nothing, deletes nothing.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True,
    help="How much Dagster says on stderr.",
)  # fmt: skip
def run(
    datasets: tuple[str, ...], as_of: datetime | None, format_: str, mark_only: bool, dry_run: bool, log_level: str
) -> None:
    """Read the stores, judge, mark what may go, sweep what is due, and report."""
    if mark_only and dry_run:
        raise click.UsageError("--mark-only marks and --dry-run changes nothing: give one of them.")
    settings, at, globs = find_settings(), instant(as_of), datasets or ("*",)
    if dry_run:
        _dry(settings, at, globs, format_)
        return
    from retention_assets.dagster.headless import run_job

    ran = run_job(settings, "evaluate" if mark_only else "cycle", at, globs, log_level)
    if format_ == "json":
        print_json(_as_dict(ran))
    else:
        _print(ran)
    if ran.troubles:
        raise Refused("\n".join(ran.troubles))


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
                rows.append((asset, words, size_of(number) if name == "bytes_freed" else f"{number:,}"))
    print_tables([table(f"As of {ran.as_of.isoformat()}", ("asset", "what", "number"), rows, right=("number",))])


def _dry(settings: "Settings", as_of: datetime, globs: Sequence[str], format_: str) -> None:
    from retention_assets.environment import Environment
    from retention_assets.policy.globs import matches
    from retention_assets.sweep.dry_run import DryRun, dry_run

    found = DryRun((), (), ())
    with ledger_to_read(settings) as ledger:
        if ledger is not None:
            names = [name for name in ledger.marks.datasets_to_sweep(as_of) if matches(name, globs)]
            stores = Environment(settings).stores(by_store(names))
            with progress(f"rehearsing the sweep of {len(names):,} datasets"):
                found = dry_run(ledger, stores, settings, policies_of((), settings), as_of, names)
    if format_ == "json":
        rows = {"deleted": [vars(one) for one in found.deleted], "spared": [vars(one) for one in found.spared]}
        refused = {one.dataset: one.refused for one in found.results if one.refused}
        print_json({"as_of": as_of, "dry_run": True, **rows, "refused": refused})
    else:
        _print_dry(found)
    if refused_ones := [f"{one.dataset} would not be swept: {one.refused}" for one in found.results if one.refused]:
        raise Refused("\n".join(refused_ones))


def _print_dry(found: "DryRun", most: int = 50) -> None:
    from retention_assets.render.terminal import table
    from retention_assets.render.text import size_of

    total = size_of(sum(one.bytes or 0 for one in found.deleted))
    rows = [
        (one.dataset, one.transaction, "expires by itself" if one.expires else size_of(one.bytes))
        for one in found.deleted[:most]
    ]
    title = f"A sweep would delete {len(found.deleted):,} transactions and free {total}. Nothing was changed."
    tables = [table(title, ("dataset", "transaction", "bytes"), rows, right=("bytes",))]
    if found.spared:
        spared = [(one.dataset, one.transaction, one.why) for one in found.spared[:most]]
        tables.append(table(f"It would spare {len(found.spared):,}", ("dataset", "transaction", "why"), spared))
    print_tables(tables)
