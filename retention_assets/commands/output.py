"""What commands print: results to stdout, notes about the work to stderr.

Belongs here: the few ways to print. How a table looks is said in render/.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

# Each write flushes, so a row is not a write of its own.
_AT_ONCE = 1_000


def print_json(value: object) -> None:
    """A result as one JSON value."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def print_rows(rows: Iterable[object], head: Mapping[str, object] | None = None, key: str = "rows") -> None:
    """Rows as one JSON array, each written soon after it was found: a million of them are never in memory at once.

    With a `head` the array stands in that object, under a key of its own.
    """
    left, opening = iter(rows), f"{_compact(head)[:-1]}, {_compact(key)}: [" if head else "["
    click.echo(opening, nl=False)
    separator = "\n"
    while some := [_compact(row) for row in islice(left, _AT_ONCE)]:
        click.echo(separator + ",\n".join(some), nl=False)
        separator = ",\n"
    click.echo(("]" if separator == "\n" else "\n]") + ("}" if head else ""))


def print_tables(tables: Iterable["Table"]) -> None:
    """Results for people."""
    from retention_assets.render.terminal import console

    for made in tables:
        console().print(made)


def say(words: str) -> None:
    """A note about the work."""
    click.echo(words, err=True)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show on a terminal what is being done; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    """Instants in their one text form; durations and everything else as they are written."""
    from datetime import datetime

    from retention_assets.policy.durations import text_of

    return text_of(value) if isinstance(value, datetime) else str(value)
