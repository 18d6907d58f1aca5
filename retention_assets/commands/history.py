"""The command about the life of each transaction of a dataset.

Belongs here: `history`: what it works on, and how it is printed. The lives come from evaluation/transaction_lives.py.
"""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retention_assets.people.common.logs import read_one_if_any
from retention_assets.people.common.options import AS_OF, FORMAT, LOG, examples
from retention_assets.people.common.output import ExitCode, finish, print_rows, print_tables, say
from retention_assets.people.common.sources import find_environment, holds_of_files, instant, ledger_to_read
from retention_assets.policy.durations import text_of

if TYPE_CHECKING:
    from retention_assets.ledger.marks.history import TransactionLife


@examples("retention history lake/raw.orders", "retention history lake/raw.orders T1 -f json")
@click.command()
@click.argument("dataset")
@click.argument("transactions", nargs=-1)
@LOG
@AS_OF
@click.option("--all", "everything", is_flag=True, help="List also what is older than the visibility mark.")
@FORMAT
@click.option(
    "-n", "--most", type=click.IntRange(min=0), default=50, show_default=True, help="How many transactions the table lists."
)
def history(
    dataset: str,
    transactions: tuple[str, ...],
    log_path: Path | None,
    as_of: datetime | None,
    everything: bool,
    format_: str,
    most: int,
) -> ExitCode:
    """Show the life of each transaction of DATASET, or of some: marked and due, taken back, spared, swept, held.

    Without a log it shows what the ledger knows. Where the dataset has a visibility mark, two kinds of transactions are listed
    only with --all or by their names: those in no view that can still be read, and those in no log whose marks were over before
    that time.
    """
    from retention_assets.evaluation.dataset_log import find_data
    from retention_assets.evaluation.rules_in_force import holds_about
    from retention_assets.evaluation.transaction_lives import TransactionLives
    from retention_assets.people.history import fates_of

    environment, at = find_environment(needed=log_path is None), instant(as_of)
    log, away = read_one_if_any(log_path, environment, dataset)
    if log is None and not away:
        say(f"no log of {dataset} was named, and no store of the settings has one: this is what the ledger knows")
    with ledger_to_read(environment) as ledger:
        visible_from = ledger.visibility.of(dataset) if ledger else None
        in_force = [*(ledger.holds.in_force(at) if ledger else ()), *holds_of_files(environment.settings)]
        holds, unclear = holds_about(dataset, log, in_force, at)
        for name in unclear:
            say(f"the hold {name} asks for attributes of datasets, which only a log has: name one with --log")
        fates = fates_of(environment, ledger, at) if ledger else None
        found = TransactionLives(
            dataset, log, ledger, holds, at, fates, find_data(environment, dataset) if log_path is None else None
        )
        lives = found.named(transactions) if transactions else found.all(None if everything else visible_from)
        if format_ == "json":
            head = {"dataset": dataset, "as_of": at, "visible_from": visible_from}
            print_rows((life.as_dict() for life in lives), head, "transactions")
        else:
            _print(dataset, lives, most)
    if found.hidden and visible_from:
        say(f"{found.hidden:,} more are in no view that is visible from {text_of(visible_from)} on; --all lists them.")
    return finish(failed=[f"{words} This is what the ledger knows." for words in away])


def _print(dataset: str, lives: "Iterator[TransactionLife]", most: int) -> None:
    from retention_assets.render.ledger_tables import history_table

    first = [life.as_dict() for life in islice(lives, most)]
    print_tables([history_table(dataset, first, len(first) + sum(1 for _ in lives))])
