"""The command that keeps something for good: its marks are taken back and it is held.

Belongs here: `keep`. Either alone is `unmark` (marks.py) and `hold` (holds.py).
"""

from datetime import datetime

import click

from retention_assets.commands.common.options import ACTOR, FORMAT, REASON, InstantParam, NonEmptyText, examples
from retention_assets.commands.common.output import echo, print_json, say
from retention_assets.commands.common.sources import find_environment, instant


@examples(
    "retention keep lake/raw.orders T17 -r 'the audit of 2026 needs it'",
    "retention keep lake/raw.orders -r 'a dispute' --until 'in 90d'",
)
@click.command()
@click.argument("dataset")
@click.argument("transactions", nargs=-1)
@click.option("--until", type=InstantParam(), help="When the hold ends by itself; never when left out.")
@click.option("--name", type=NonEmptyText(), help="The name of the hold; one is found when left out.")
@REASON
@ACTOR
@FORMAT
def keep(
    dataset: str,
    transactions: tuple[str, ...],
    until: datetime | None,
    name: str | None,
    reason: str,
    actor: str,
    format_: str,
) -> None:
    """Keep TRANSACTIONs of DATASET for good, or all of it: their marks are taken back, and a hold is placed on them.

    Both happen at once, so that no policy marks them again. Refused, and nothing is changed, where one of the transactions is
    being swept or was swept. Once more is no harm: what is kept already stays as it is.
    """
    from retention_assets.operations.keep import KeepRequest, keep

    request = KeepRequest(
        actor=actor, reason=reason, dataset=dataset, transactions=transactions, name=name, until=until, at=instant(None)
    )
    done = keep(request, find_environment())
    for warning in done.warnings:
        say(warning)
    if format_ == "json":
        print_json(done.as_dict())
        return
    echo(done.headline)
    for words in done.words():
        echo(f"  {words}")
