"""The command about realms.

Belongs here: `realm`, and asking before one is purged. What a PURGING realm does to marks is an evaluation's.
"""

import sys
from shlex import quote

import click

from retention_assets.commands.common.options import ACTOR, FORMAT, DurationParam, examples
from retention_assets.commands.common.output import echo, print_json, print_tables, say, say_next
from retention_assets.commands.common.sources import find_environment, ledger_to_read
from retention_assets.errors import Refused
from retention_assets.policy.durations import Duration
from retention_assets.render.text import visible


@examples("retention realm", "retention realm acme --status INACTIVE -r 'the contract has ended'")
@click.command()
@click.argument("name", required=False)
@click.option("-s", "--status", type=click.Choice(["ACTIVE", "INACTIVE", "PURGING"]), help="The status that the realm gets.")
@click.option("--grace", type=DurationParam(), help="The grace of the marks that purging makes; realms.min_grace unless set.")
@click.option("-r", "--reason", help="Why: the record keeps it.")
@click.option("-y", "--yes", is_flag=True, help="Purge without asking first.")
@click.option("--anyway", is_flag=True, help="Purge also a realm that no store knows.")
@ACTOR
@FORMAT
def realm(
    name: str | None,
    status: str | None,
    grace: Duration | None,
    reason: str | None,
    yes: bool,
    anyway: bool,
    actor: str,
    format_: str,
) -> None:
    """List realms, show the realm NAME, or change it with --status.

    ACTIVE and INACTIVE realms are retained. PURGING marks everything of a realm, whatever the policies say; holds still stop
    it. A realm is PURGED once a later run over everything finds nothing of it; what appears in it then is kept, until it is
    ACTIVE again. Names are paths: PURGING acme purges acme/sales as well, and not acme-eu.
    """
    if status is None:
        if grace is not None or reason is not None or yes or anyway:
            raise click.UsageError("--grace, --reason, --yes and --anyway change a realm: they go with --status.")
        _show(name, format_)
        return
    if name is None or reason is None:
        raise click.UsageError("To change a realm, name it and say why: retention realm NAME --status STATUS --reason TEXT.")
    if (yes or anyway) and status != "PURGING":
        raise click.UsageError("--yes and --anyway confirm that a realm is purged: they go with --status PURGING.")
    from retention_assets.operations.realms import RealmRequest, change_realm, note_above, purge_warning, refuse_unknown

    environment = find_environment()
    if status == "PURGING" and not anyway:
        refuse_unknown(name, environment)
    if status == "PURGING" and (yes or sys.stdin.isatty()):
        say(purge_warning(name, grace, environment))
        if not yes and not click.confirm(visible(f"Purge {name}?"), err=True):
            raise Refused("Nothing was changed.")
        yes = True
    request = RealmRequest(actor=actor, reason=reason, name=name, status=status, grace=grace, confirmed=yes, anyway=True)
    changed = change_realm(request, environment)
    if format_ == "json":
        print_json(changed.as_dict())
    else:
        echo(f"{changed.name} is {changed.status}; marks that purging makes have a grace of {changed.grace.words()}.")
        if changed.status == "PURGING":
            way_back = f"retention realm {quote(name)} -s ACTIVE -r …"
            say_next(f"the next `retention run` marks everything of it; `{way_back}` stops that.")
    if note := note_above(name, environment):
        say(note)


def _show(name: str | None, format_: str) -> None:
    from retention_assets.operations.realms import realm_states, unseen_realm
    from retention_assets.render.ledger_tables import realm_table

    with ledger_to_read(find_environment()) as ledger:
        found = realm_states(ledger, name) if ledger else [unseen_realm(name)] if name is not None else []
    if format_ == "json":
        rows = [one.as_dict() for one in found]
        print_json(rows if name is None else rows[0])
    else:
        print_tables([realm_table([(one.realm, one.words) for one in found])])
