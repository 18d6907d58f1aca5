"""The commands about holds: what nobody may mark or sweep, until the hold ends or is released.

Belongs here: `hold` and `release`. Holds of policy files are listed as well; they are ended by editing the file.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from retention_assets.commands.options import ACTOR, FORMAT, REASON, InstantParam, NonEmptyText
from retention_assets.commands.output import print_json, print_tables, say
from retention_assets.commands.sources import (
    find_settings,
    holds_of_files,
    instant,
    ledger_to_change,
    ledger_to_read,
    ledger_to_write,
)
from retention_assets.errors import Refused

if TYPE_CHECKING:
    from retention_assets.policy.model import Hold


@click.command()
@click.option("--list", "lists", is_flag=True, help="List the holds that are in force, and place none.")
@click.option("--name", type=NonEmptyText(), help="What it is called; by this it is released.")
@click.option("--dataset", "datasets", multiple=True, metavar="GLOB", help="What is held; may be repeated.")
@click.option("--transaction", "transactions", multiple=True, metavar="GLOB", help="Only these; may be repeated.")
@click.option("--reason", type=NonEmptyText(), help="Why it is done: the record keeps it.")
@click.option("--owner", type=NonEmptyText(), help="Who answers for it; whoever places it when left out.")
@click.option("--until", type=InstantParam(), help="When it ends by itself; never when left out.")
@ACTOR
@FORMAT
def hold(
    lists: bool,
    name: str | None,
    datasets: tuple[str, ...],
    transactions: tuple[str, ...],
    reason: str | None,
    owner: str | None,
    until: datetime | None,
    actor: str,
    format_: str,
) -> None:
    """Place a hold: nothing that it holds is marked or swept, by any policy. With --list, show the holds in force."""
    if lists:
        if any((name, datasets, transactions, reason, owner, until)):
            raise click.UsageError("--list shows the holds in force and places none: it goes alone.")
        _list(format_)
        return
    for option, value in (("--name", name), ("--dataset", datasets), ("--reason", reason)):
        if not value:
            raise click.UsageError(f"A hold needs {option}. `retention hold --list` shows those in force.")
    settings = find_settings()
    from retention_assets.operations.input import hold_of, unknown_stores

    placed = hold_of(name, datasets, transactions, reason, owner or actor, until, instant(None))
    for words in unknown_stores(placed, [store.name for store in settings.stores]):
        say(words)
    with ledger_to_write(settings) as ledger:
        ledger.holds.place(placed, actor)
    _print(placed, format_)


def _print(placed: "Hold", format_: str) -> None:
    from retention_assets.policy.sentences import hold_sentence

    if format_ == "json":
        print_json(_row(placed, "ledger"))
    else:
        click.echo(f"{placed.name}\n  {hold_sentence(placed)}")


def _row(placed: "Hold", source: str) -> dict[str, Any]:
    return {
        "name": placed.name,
        "source": source,
        "datasets": placed.datasets.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "transactions": placed.transactions,
        "reason": placed.reason,
        "owner": placed.owner,
        "until": placed.until,
    }


def _list(format_: str) -> None:
    settings, now = find_settings(), instant(None)
    rows = [_row(found, "file") for found in holds_of_files(settings) if found.until is None or found.until > now]
    with ledger_to_read(settings) as ledger:
        rows = [_row(found, "ledger") for found in (ledger.holds.in_force(now) if ledger else ())] + rows
    if format_ == "json":
        print_json(rows)
        return
    from retention_assets.render.terminal import hold_table

    print_tables([hold_table(rows)])


@click.command()
@click.argument("name")
@REASON
@ACTOR
@FORMAT
def release(name: str, reason: str, actor: str, format_: str) -> None:
    """Release the hold NAME. What it kept is judged by the policies alone from the next evaluation on."""
    settings = find_settings()
    try:
        with ledger_to_change(settings) as ledger:
            ledger.holds.release(name, actor, reason)
    except Refused:
        if any(held.name == name for held in holds_of_files(settings)):
            raise Refused(f"The hold {name} stands in a policy file: it is released by taking it out of the file.") from None
        raise
    if format_ == "json":
        print_json({"name": name, "released_by": actor, "reason": reason})
    else:
        click.echo(f"{name} is released. What it kept is judged by the policies alone from the next evaluation on.")
