"""The commands about the clock guard, which refuses to mark and sweep by a clock that can't be right.

Belongs here: `clock` and `clock accept`. What time it is only retention_assets/clock.py says.
"""

from dataclasses import asdict
from datetime import datetime

import click

from retention_assets.commands.options import ACTOR, FORMAT, REASON, InstantParam
from retention_assets.commands.output import print_json, print_tables
from retention_assets.commands.sources import find_settings, ledger_to_read, ledger_to_write

_TIMES = ("newest_mark_at", "newest_seen_at", "accepted_until")


@click.group(invoke_without_command=True)
@FORMAT
@click.pass_context
def clock(context: click.Context, format_: str) -> None:
    """Show the times that the ledger knows: the newest mark, the newest seen, and until when the clock was accepted."""
    if context.invoked_subcommand is not None:
        return
    with ledger_to_read(find_settings()) as ledger:
        times = asdict(ledger.clock.times()) if ledger else dict.fromkeys(_TIMES)
    _print(times, format_)


@clock.command()
@click.option("--as-of", type=InstantParam(), required=True, help="As late as this it is right to mark and sweep.")
@REASON
@ACTOR
@FORMAT
def accept(as_of: datetime, reason: str, actor: str, format_: str) -> None:
    """Say that it is as late as that: up to there no as_of is too far ahead. It only rises."""
    with ledger_to_write(find_settings()) as ledger:
        ledger.clock.accept(as_of, actor, reason)
        times = asdict(ledger.clock.times())
    _print(times, format_)


def _print(times: dict[str, datetime | None], format_: str) -> None:
    if format_ == "json":
        print_json(times)
        return
    from retention_assets.render.ledger_tables import clock_table

    print_tables([clock_table(times)])
