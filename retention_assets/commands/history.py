"""The command that tells the life of each transaction of a dataset.

Belongs here: `history`. What is said of one transaction is lives.py's, what is visible readers.py's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retention_assets.commands.logs import log_if_any, one_dataset
from retention_assets.commands.options import AS_OF, FORMAT, LOG
from retention_assets.commands.output import print_rows, print_tables, say
from retention_assets.commands.sources import find_settings, holds_of_files, instant, ledger_to_read
from retention_assets.errors import BadInput, Problem, nearest
from retention_assets.policy.durations import text_of

if TYPE_CHECKING:
    import pyarrow as pa

    from retention_assets.frames.log import Log
    from retention_assets.ledger import Ledger
    from retention_assets.ledger.marks.history import TransactionLife
    from retention_assets.policy.model import Hold

# Transactions whose lives are in memory together.
_AT_ONCE = 5_000
_KNOWN = ("transaction", "type", "status", "closed_at", "bytes")


@click.command()
@click.argument("dataset")
@click.argument("transactions", nargs=-1)
@LOG
@AS_OF
@click.option("--all", "everything", is_flag=True, help="Also what is older than the visibility mark.")
@FORMAT
@click.option("--most", type=click.IntRange(min=0), default=50, show_default=True, help="How many the table lists.")
def history(
    dataset: str,
    transactions: tuple[str, ...],
    log_path: Path | None,
    as_of: datetime | None,
    everything: bool,
    format_: str,
    most: int,
) -> None:
    """Tell the life of each transaction of DATASET, or of some: marked and due, taken back, spared, swept, held.

    Where the dataset has a visibility mark, what is in no view that can still be read is listed only with --all, or by its
    name; so is what no log lists and was taken back, spared or swept before that mark. Without a log this tells what the
    ledger knows.
    """
    settings, at = find_settings(), instant(as_of)
    log = log_if_any(log_path, settings, dataset)
    log = one_dataset(log, dataset) if log else None
    if log is None:
        say(f"no log of {dataset} was named, and no store of the settings has one: this is what the ledger knows")
    with ledger_to_read(settings) as ledger:
        visible_from = ledger.visibility.of(dataset) if ledger else None
        holds = [*(ledger.holds.in_force(at) if ledger else ()), *holds_of_files(settings)]
        telling = _Telling(dataset, log, ledger, _about(dataset, log, holds, at), at)
        lives = telling.named(transactions) if transactions else telling.all(None if everything else visible_from)
        if format_ == "json":
            head = {"dataset": dataset, "as_of": at, "visible_from": visible_from}
            print_rows((life.as_dict() for life in lives), head, "transactions")
        else:
            _print(dataset, lives, most)
    if telling.hidden and visible_from:
        say(f"{telling.hidden:,} more are in no view that is visible from {text_of(visible_from)} on; --all lists them.")


def _print(dataset: str, lives: "Iterator[TransactionLife]", most: int) -> None:
    from retention_assets.render.ledger_tables import life_table

    first = [life.as_dict() for life in islice(lives, most)]
    print_tables([life_table(dataset, first, len(first) + sum(1 for _ in lives))])


def _about(dataset: str, log: "Log | None", holds: "Sequence[Hold]", as_of: datetime) -> "list[Hold]":
    """The holds in force that are about the dataset. Its attributes only a log knows."""
    from retention_assets.frames.grouping import selects_dataset

    attributes = dict(log.datasets["attributes"][0].as_py() or ()) if log else {}
    live = [hold for hold in holds if hold.until is None or as_of < hold.until]
    for hold in live if log is None else ():
        if hold.datasets.with_:
            say(f"the hold {hold.name} asks for attributes of datasets, which only a log tells: name one with --log")
    return [hold for hold in live if selects_dataset(hold.datasets, dataset, attributes)]


@dataclass
class _Telling:
    """The lives of a dataset's transactions, a batch at a time."""

    dataset: str
    log: "Log | None"
    ledger: "Ledger | None"
    holds: "Sequence[Hold]"
    as_of: datetime
    # Those that were left out, once all were told.
    hidden: int = 0

    def named(self, names: Sequence[str]) -> "Iterator[TransactionLife]":
        """The lives of some transactions, in the order in which they were named."""
        import pyarrow as pa
        import pyarrow.compute as pc

        listed = self._views(None)
        mine = listed.filter(pc.is_in(listed["transaction"], pa.array(names, pa.string())))
        rows = {row["transaction"]: row for row in mine.to_pylist()}
        lives = {life.transaction: life for life in self._lives(rows.get(name, {"transaction": name}) for name in names)}
        unknown = [name for name, life in lives.items() if name not in rows and not life.marks]
        if unknown:
            known = listed["transaction"].slice(0, 100_000).to_pylist()
            raise BadInput([self._unknown(name, known) for name in unknown])
        return iter(lives.values())

    def all(self, visible_from: datetime | None) -> "Iterator[TransactionLife]":
        """First those that the log lists, in its order, then those that only the ledger knows."""
        listed = self._views(visible_from)
        for batch in listed.to_batches(_AT_ONCE):
            yield from self._lives(batch.to_pylist())
        for life in self._lives({"transaction": name} for name in self._gone()):
            if visible_from and life.ended_at and life.ended_at < visible_from:
                self.hidden += 1
            else:
                yield life

    def _views(self, visible_from: datetime | None) -> "pa.Table":
        """What the log says of the transactions that are visible."""
        import pyarrow as pa

        from retention_assets.evaluation.reader_view import visible_rows
        from retention_assets.frames.log import LOG
        from retention_assets.frames.views.branch_views import branch_views

        rows = self.log.transactions if self.log else LOG.empty_table()
        views = branch_views(rows, self.as_of)
        listed = rows.select(_KNOWN).append_column("protected_by", views["protected_by"])
        if visible_from is None:
            return listed
        shown = listed.filter(pa.array(visible_rows(rows, views, visible_from), pa.bool_()))
        self.hidden = len(listed) - len(shown)
        return shown

    def _gone(self) -> list[str]:
        """The transactions that were marked once and that no log lists."""
        import pyarrow.compute as pc

        if self.ledger is None:
            return []
        names = self.ledger.histories.transactions(self.dataset)
        if self.log is not None:
            names = names.filter(pc.invert(pc.is_in(names, self.log.transactions["transaction"].combine_chunks())))
        found: list[str] = names.to_pylist()
        return found

    def _lives(self, rows: "Iterable[dict[str, Any]]") -> "Iterator[TransactionLife]":
        from retention_assets.ledger.marks.history import TransactionLife, life_of

        left = iter(rows)
        while some := list(islice(left, _AT_ONCE)):
            names = [row["transaction"] for row in some]
            stories = self.ledger.histories.of(self.dataset, names) if self.ledger else {}
            for row in some:
                marks = stories.get(row["transaction"], ())
                yield life_of(TransactionLife(**row, in_log="type" in row, marks=marks), self.holds, self.as_of)

    def _unknown(self, name: str, known: Sequence[str]) -> Problem:
        guess = nearest(name, known)
        where = f"the log of {self.dataset}" if self.log else "any log that was named"
        remedy = f"Did you mean {guess}?" if guess else None
        return Problem(f"transaction '{name}' was never marked, and is not in {where}", remedy=remedy)
