"""The commands about holds: what nobody may mark or sweep, until the hold ends or is released.

Belongs here: `hold` and `release`. Holds of policy files are listed as well; they are ended by editing the file.
"""

from datetime import datetime
from shlex import quote

import click

from retention_assets.commands.common.options import ACTOR, FORMAT, REASON, InstantParam, NonEmptyText, examples
from retention_assets.commands.common.output import ExitCode, echo, print_json, print_tables, say, say_next
from retention_assets.commands.common.sources import find_environment, holds_of_files, instant, ledger_to_read


@examples(
    "retention hold --list",
    "retention hold --name audit -d 'lake/raw.*' -r 'the auditors asked' --until 'in 90d'",
)
@click.command()
@click.option("--list", "lists", is_flag=True, help="List the holds in force, and place none.")
@click.option("--name", type=NonEmptyText(), help="The name of the hold; it is released by this name.")
@click.option("-d", "--dataset", "datasets", multiple=True, metavar="GLOB", help="Hold these datasets; may be repeated.")
@click.option(
    "-x", "--transaction", "transactions", multiple=True, metavar="GLOB", help="Only these transactions; may be repeated."
)
@click.option("-r", "--reason", help="Why: the record keeps it.")
@click.option("--owner", type=NonEmptyText(), help="Who answers for the hold; the actor when left out.")
@click.option(
    "-u",
    "--until",
    type=InstantParam(),
    help="When the hold ends by itself, such as 2027-01-01 or 'in 90d'; never when left out.",
)
@click.option("--anyway", is_flag=True, help="Exit with 0 also where the hold is about nothing that was judged.")
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
    anyway: bool,
    actor: str,
    format_: str,
) -> ExitCode:
    """Place a hold: no policy marks or sweeps what it holds. With --list, list the holds in force.

    It says how many datasets and transactions of the last evaluation the hold is about. One that is about none is placed as
    well; the exit code is then 1, unless --anyway is given.
    """
    if lists:
        if any((name, datasets, transactions, reason, owner, until, anyway)):
            raise click.UsageError("--list lists the holds in force and places none: give it alone.")
        _list(format_)
        return ExitCode.DONE
    if not (name and datasets and reason):
        missing = next(key for key, value in (("--name", name), ("--dataset", datasets), ("--reason", reason)) if not value)
        raise click.UsageError(f"A hold needs {missing}. `retention hold --list` lists those in force.")
    from retention_assets.operations.holds import HoldRequest, place_hold
    from retention_assets.policy.sentences import hold_sentence

    request = HoldRequest(
        actor=actor, reason=reason, name=name, datasets=datasets, transactions=transactions, owner=owner, until=until,
        at=instant(None),
    )  # fmt: skip
    placed = place_hold(request, find_environment())
    for warning in placed.warnings:
        say(warning)
    if format_ == "json":
        print_json(placed.as_dict())
    else:
        echo(f"{placed.hold.name}\n  {hold_sentence(placed.hold)}")
        if placed.reach.datasets is not None:
            about = f"{placed.reach.datasets:,} datasets and {placed.reach.transactions:,} transactions"
            echo(f"  It is about {about} of the last evaluation.")
        say_next(f"`retention release {quote(placed.hold.name or '')} --reason …` ends it.")
    return ExitCode.FAILED if placed.reach.is_empty and not anyway else ExitCode.DONE


def _list(format_: str) -> None:
    from retention_assets.operations.holds import hold_row
    from retention_assets.render.ledger_tables import hold_table

    environment, now = find_environment(), instant(None)
    of_files = list(holds_of_files(environment.settings))
    with ledger_to_read(environment) as ledger:
        # Other folders of policies have brought more.
        of_files += [one for one in (ledger.holds.of_files() if ledger else ()) if one not in of_files]
        rows = [hold_row(one, "ledger") for one in (ledger.holds.in_force(now) if ledger else ())]
    rows += [hold_row(one, "file") for one in of_files if one.is_live(now)]
    if format_ == "json":
        print_json(rows)
    else:
        print_tables([hold_table(rows)])


@examples("retention release audit -r 'the audit is over'")
@click.command()
@click.argument("name")
@REASON
@ACTOR
@FORMAT
def release(name: str, reason: str, actor: str, format_: str) -> None:
    """Release the hold NAME. From the next evaluation on, policies alone decide about what it held."""
    from retention_assets.operations.holds import release_hold
    from retention_assets.operations.request import NamedRequest

    released = release_hold(NamedRequest(actor=actor, reason=reason, name=name), find_environment())
    if format_ == "json":
        print_json(released.as_dict())
    else:
        echo(f"{name} is released. From the next evaluation on, policies alone decide about what it held.")
        say_next("`retention preview` shows what policies decide.")
