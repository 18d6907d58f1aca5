"""The command about realms.

Belongs here: `realm`. What a PURGING realm does to marks is an evaluation's.
"""

import sys

import click

from retention_assets.commands.options import ACTOR, FORMAT, DurationParam, NonEmptyText
from retention_assets.commands.output import print_json, print_tables, say
from retention_assets.commands.sources import find_settings, ledger_to_read, ledger_to_write
from retention_assets.errors import Refused
from retention_assets.policy.durations import Duration


@click.command()
@click.argument("name", required=False)
@click.option("--status", type=click.Choice(["ACTIVE", "INACTIVE", "PURGING"]), help="What it is to become.")
@click.option("--grace", type=DurationParam(), help="The grace of the marks that purging it makes; none unless set.")
@click.option("--reason", type=NonEmptyText(), help="Why it is done: the record keeps it.")
@click.option("--yes", is_flag=True, help="Purge without being asked.")
@ACTOR
@FORMAT
def realm(
    name: str | None, status: str | None, grace: Duration | None, reason: str | None, yes: bool, actor: str, format_: str
) -> None:
    """List realms, show the realm NAME, or change it with --status.

    ACTIVE and INACTIVE realms are retained. PURGING marks everything of a realm, whatever the policies say; holds still stop
    it. A realm is PURGED once a later scan finds nothing of it.
    """
    if status is None:
        if grace is not None or reason is not None or yes:
            raise click.UsageError("--grace, --reason and --yes change a realm: they go with --status.")
        _show(name, format_)
        return
    if name is None or reason is None:
        raise click.UsageError("To change a realm, name it and say why: retention realm NAME --status STATUS --reason TEXT.")
    if yes and status != "PURGING":
        raise click.UsageError("--yes answers what is asked before a realm is purged: it goes with --status PURGING.")
    settings = find_settings()
    if status == "PURGING":
        with ledger_to_read(settings) as known:
            set_before = known.realms.of(name).grace if known else Duration()
        _ask(name, set_before if grace is None else grace, yes)
    with ledger_to_write(settings) as ledger:
        changed = ledger.realms.change(name, status, actor, reason, grace)
    if format_ == "json":
        print_json(vars(changed))
    else:
        click.echo(f"{changed.name} is {changed.status}; marks that purging makes have a grace of {changed.grace.words()}.")


def _ask(name: str, grace: Duration, yes: bool) -> None:
    """Purging takes what no policy selects, so nobody does it in passing."""
    say(
        f"Purging {name}: the next evaluation marks everything of it, whatever the policies say; holds still stop it. The marks"
        f" are due {f'{grace.words()} later' if grace else 'at once'}."
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("Nothing was changed. To purge a realm from a program, say --yes.")
    if not click.confirm(f"Purge {name}?", err=True):
        raise Refused("Nothing was changed.")


def _show(name: str | None, format_: str) -> None:
    with ledger_to_read(find_settings()) as ledger:
        if name is not None:
            from retention_assets.ledger.realms import INITIAL, Realm

            found = [ledger.realms.of(name) if ledger else Realm(name, INITIAL, Duration())]
        else:
            found = list(ledger.realms.all().values()) if ledger else []
    if format_ == "json":
        print_json([vars(one) for one in found] if name is None else vars(found[0]))
        return
    from retention_assets.render.terminal import realm_table

    print_tables([realm_table(found)])
