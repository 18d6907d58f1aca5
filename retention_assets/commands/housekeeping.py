"""The command that postpones what a store would expire too early.

Belongs here: `housekeeping`: what is printed of the result.
"""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from retention_assets.commands.common.options import ACTOR, AS_OF, FORMAT, examples
from retention_assets.commands.common.output import ExitCode, finish, print_json, print_tables, progress, say_next
from retention_assets.commands.common.sources import find_environment, holds_of_files
from retention_assets.errors import Refused

if TYPE_CHECKING:
    from retention_assets.operations.housekeeping import HousekeepingResult


@examples("retention housekeeping --dry-run", "retention housekeeping -s ods")
@click.command()
@click.option(
    "-s", "--store", "name", metavar="NAME", help="Only this store; every store that expires rows by itself when left out."
)
@AS_OF
@click.option("--dry-run", is_flag=True, help="Show what would be postponed, and change nothing.")
@ACTOR
@FORMAT
def housekeeping(name: str | None, as_of: datetime | None, dry_run: bool, actor: str, format_: str) -> ExitCode:
    """Postpone what a store would expire too early, and show what expires tomorrow.

    Too early is what is unfinished, held, or not archived though a policy asks for it. The settings of the store (`ttl`) say
    how many days ahead housekeeping looks, and for how long it postpones.
    """
    from retention_assets.operations.housekeeping import HousekeepingRequest, preview_housekeeping, run_housekeeping

    environment = find_environment()
    request = HousekeepingRequest(
        actor=actor, as_of=as_of, stores=(name,) if name else (), holds=holds_of_files(environment.settings)
    )
    with progress("reading what expires"):
        found = (preview_housekeeping if dry_run else run_housekeeping)(request, environment)
    if format_ == "json":
        print_json(found.as_dict())
    else:
        _print(found)
        if dry_run and any(one.postponed for one in found.datasets):
            say_next("`retention housekeeping` postpones it.")
    if found.troubles:
        raise Refused("\n".join(found.troubles))
    return finish(to_do=dry_run and any(one.postponed for one in found.datasets))


def _print(found: "HousekeepingResult") -> None:
    from retention_assets.render.terminal import table
    from retention_assets.render.text import minute_of

    rows = [
        (one.dataset, minute_of(one.within), minute_of(one.until), f"{one.postponed:,}", f"{one.left:,}")
        for one in found.datasets
        if not one.refused
    ]
    title = "What would be postponed. Nothing was changed." if found.dry_run else "What was postponed"
    columns = ("dataset", "what expires until", "postponed to", "transactions", "left for the next time")
    tables = [table(title if rows else "No store expires anything by itself", columns, rows, columns[3:])]
    tomorrow = [
        (one.dataset, kind.type or "", f"{kind.transactions:,}", f"{kind.unfinished:,}", f"{kind.unarchived:,}")
        for one in found.datasets
        for kind in one.tomorrow
    ]
    if tomorrow:
        columns = ("dataset", "type", "transactions", "unfinished", "not archived")
        tables.append(table("What expires tomorrow", columns, tomorrow, columns[2:]))
    print_tables(tables)
