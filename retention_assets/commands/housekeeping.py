"""The command that keeps house where a database expires rows by itself.

Belongs here: `housekeeping`: which stores are meant, and how the result is printed. What is put off housekeeping.py says.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import click

from retention_assets.commands.options import ACTOR, AS_OF, FORMAT
from retention_assets.commands.output import print_json, print_tables, progress
from retention_assets.commands.sources import find_settings, holds_of_files, instant, ledger_to_write
from retention_assets.errors import BadInput, Problem, Refused, nearest

if TYPE_CHECKING:
    from retention_assets.settings.model import Settings
    from retention_assets.sweep.postpone_expiry import PostponementResult


@click.command()
@click.option("--store", "name", metavar="NAME", help="Only this store; every one that expires rows by itself when left out.")
@AS_OF
@click.option("--dry-run", is_flag=True, help="Change nothing; tell what would be put off.")
@ACTOR
@FORMAT
def housekeeping(name: str | None, as_of: datetime | None, dry_run: bool, actor: str, format_: str) -> None:
    """Put off what a store would expire and must not yet: unfinished, held, or not archived though a policy asks for it.

    How far ahead is looked, and for how long it is put off, the store's settings say (`ttl`). Then tell what expires tomorrow.
    """
    from retention_assets.environment import Environment
    from retention_assets.sweep.postpone_expiry import postpone_expiry, troubles

    settings = find_settings()
    names = _names(settings, name)
    at, holds = instant(as_of), holds_of_files(settings)
    with ledger_to_write(settings) as ledger, progress("looking at what expires"):
        found = postpone_expiry(ledger, Environment(settings).stores(names), at, actor, holds, dry_run)
    if format_ == "json":
        print_json({"as_of": at, "dry_run": dry_run, "datasets": [asdict(one) for one in found]})
    else:
        _print(found, dry_run)
    if left := troubles(found):
        raise Refused("\n".join(left))


def _names(settings: "Settings", name: str | None) -> list[str]:
    """The stores that are meant, all of which expire rows by themselves."""
    able = [store.name for store in settings.stores if getattr(store, "ttl", None)]
    if name is None:
        return able
    known = [store.name for store in settings.stores]
    if name not in known:
        guess = nearest(name, known)
        raise BadInput(
            Problem(
                "is no store of the settings", key="--store", value=name, expected=f"one of {', '.join(known)}",
                remedy=f"Did you mean {guess}?" if guess else None,
            )
        )  # fmt: skip
    if name not in able:
        raise Refused(
            f"The store {name} expires nothing by itself, so there is nothing to put off: its settings have no `ttl`."
        )
    return [name]


def _print(found: "Sequence[PostponementResult]", dry_run: bool) -> None:
    from retention_assets.policy.durations import text_of
    from retention_assets.render.terminal import table

    rows = [
        (one.dataset, text_of(one.within), text_of(one.until), f"{one.postponed:,}", f"{one.left:,}")
        for one in found
        if not one.refused
    ]
    title = "What would be put off; nothing was changed" if dry_run else "What was put off"
    columns = ("dataset", "what expires until", "is put off to", "transactions", "left for the next time")
    tables = [table(title if rows else "No store expires anything by itself", columns, rows, columns[3:])]
    tomorrow = [
        (one.dataset, kind.type or "", f"{kind.transactions:,}", f"{kind.unfinished:,}", f"{kind.unarchived:,}")
        for one in found
        for kind in one.tomorrow
    ]
    if tomorrow:
        columns = ("dataset", "type", "transactions", "unfinished", "not archived")
        tables.append(table("What expires tomorrow", columns, tomorrow, columns[2:]))
    print_tables(tables)
