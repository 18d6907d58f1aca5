"""`retention simulate`: the cycle day by day on a copy, for who wants to see it without waiting.

Belongs here: arguments and what is printed. What happens on a day is people/simulate.py's.
"""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from retention_assets.people.common.options import FORMAT, STRICT, InstantParam, examples
from retention_assets.people.common.output import ExitCode, finish, print_json, print_tables, print_words, progress
from retention_assets.people.common.sources import find_environment

if TYPE_CHECKING:
    from retention_assets.people.amounts import Amount
    from retention_assets.people.simulate import Simulation

# The amounts of a day, as their columns are called.
_SAID = {"newly_marked": "newly marked", "due": "due", "deleted": "deleted", "spared": "spared", "waiting": "then waiting"}


@examples("retention simulate --days 8", "retention simulate --days 30 -d 'lake/raw.*'")
@click.command()
@click.option("--days", type=int, required=True, help="How many days, the first of them included.")
@click.option("-d", "--dataset", "datasets", multiple=True, metavar="GLOB", help="Only these datasets; may be repeated.")
@click.option("--from", "begin", type=InstantParam(), help="Begin at this instant; at the present when left out.")
@FORMAT
@STRICT
def simulate(days: int, datasets: tuple[str, ...], begin: datetime | None, format_: str, strict: bool) -> ExitCode:
    """Live through the next days on a copy: see marks come due and a sweep, without waiting and without a byte deleted.

    Policies, graces, holds, tags and realms are as they are. So is the history: nothing new arrives in it. Neither the ledger,
    the warehouse nor a store is written to, and there need not be a ledger yet.
    """
    from retention_assets.people.simulate import SimulationRequest
    from retention_assets.people.simulate import simulate as run_simulation

    request = SimulationRequest(days=days, begin=begin, datasets=datasets or ("*",))
    with progress(f"living through {days:,} days"):
        found = run_simulation(request, find_environment())
    if format_ == "json":
        print_json(found.as_dict())
    else:
        _print(found)
    return finish(
        failed=[f"{name}/* was not read: {why}" for name, why in found.away.items()],
        refused=[f"{name} was refused: {why}" for name, why in found.refused.items()],
        strict=strict,
    )


def _print(found: "Simulation") -> None:
    from retention_assets.render.terminal import table
    from retention_assets.render.text import size_of

    marked, deleted, spared = (found.total(name) for name in ("newly_marked", "deleted", "spared"))
    print_words(
        f"In {len(found.days):,} days: {marked.transactions:,} marked, {deleted.transactions:,} deleted"
        f" ({size_of(deleted.bytes)}), {spared.transactions:,} spared. This was a simulation: nothing was changed. What will"
        " arrive later is not in it."
    )

    amounts = [name for name in _SAID if found.total(name).transactions]
    rows = [
        (
            one.as_of.date().isoformat(),
            *(_count(getattr(one, name)) for name in amounts),
            size_of(one.deleted.bytes) if one.deleted.transactions else "",
        )
        for one in found.days
        if not one.is_quiet
    ]
    columns = ("day", *(_SAID[name] for name in amounts), "freed")
    quiet = len(found.days) - len(rows)
    title = f"Day by day, without {quiet:,} on which nothing happens" if quiet else "Day by day"
    tables = [table(title, columns, rows, columns[1:])] if rows else []
    if found.reasons:
        why = [(f"{count:,}", words) for words, count in found.reasons.items()]
        tables.append(table("Why marks were spared", ("marks", "why"), why, ("marks",)))
    print_tables(tables)


def _count(amount: "Amount") -> str:
    return f"{amount.transactions:,}" if amount.transactions else ""
