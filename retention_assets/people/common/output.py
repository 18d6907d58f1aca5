"""What commands print: results to stdout, notes about the work to stderr.

Belongs here: the few ways to print, and the exit codes. Nothing else in the commands writes to a terminal, so that no text of
others reaches it as it came: names may hold orders to a terminal. How a table looks is said in render/.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING

import click

from retention_assets.render.text import visible, visible_json, visible_note
from retention_assets.settings.secrets import masked

if TYPE_CHECKING:
    from rich.table import Table

# Each write flushes, so a row is not a write of its own.
_AT_ONCE = 1_000


class ExitCode(IntEnum):
    """What a program learns of a command."""

    DONE = 0
    # Refused, or failed: a store that is away, a scan or a target that failed.
    FAILED = 1
    # Also no settings where a command needs them.
    BAD_INPUT = 2
    # Only of what looks ahead: there is something to do.
    TO_DO = 3
    # Done, but for datasets that were refused.
    REFUSED = 4


def finish(
    *,
    bad_input: Sequence[str] = (),
    failed: Sequence[str] = (),
    refused: Sequence[str] = (),
    strict: bool = False,
    to_do: bool = False,
) -> ExitCode:
    """Say what went wrong, and what that makes of the command: of several codes the first of 2, 1, 4 and 3."""
    for words in (*bad_input, *failed, *refused):
        say(words)
    if bad_input:
        return ExitCode.BAD_INPUT
    if failed or (strict and refused):
        return ExitCode.FAILED
    if refused:
        return ExitCode.REFUSED
    return ExitCode.TO_DO if to_do else ExitCode.DONE


def echo(words: str, *, err: bool = False, nl: bool = True) -> None:
    """A text for people, on stdout if it is the result."""
    click.echo(visible(masked(words) if err else words), err=err, nl=nl)


def echo_json(text: str, *, nl: bool = True) -> None:
    """A piece of a result that is JSON already."""
    click.echo(visible_json(text), nl=nl)


def print_json(value: object) -> None:
    """A result as one JSON value."""
    echo_json(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def print_rows(rows: Iterable[object], head: Mapping[str, object] | None = None, key: str = "rows") -> None:
    """Rows as one JSON array, each written soon after it was found: a million of them are never in memory at once.

    With a `head` the array stands in that object, under a key of its own.
    """
    left, opening = iter(rows), f"{_compact(head)[:-1]}, {_compact(key)}: [" if head else "["
    echo_json(opening, nl=False)
    separator = "\n"
    while some := [_compact(row) for row in islice(left, _AT_ONCE)]:
        echo_json(separator + ",\n".join(some), nl=False)
        separator = ",\n"
    echo_json(("]" if separator == "\n" else "\n]") + ("}" if head else ""))


def print_tables(tables: Iterable["Table"]) -> None:
    """Results for people."""
    from retention_assets.render.terminal import console

    for made in tables:
        console().print(made)


def print_words(words: str) -> None:
    """A sentence of a result, which a terminal folds between words."""
    from retention_assets.render.terminal import console

    console().print(words)


def say(words: str) -> None:
    """A note about the work."""
    click.echo(visible_note(masked(words)), err=True)


def is_on_terminal() -> bool:
    """Whether a person sees what is printed and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: str, *, err: bool = False) -> bool:
    """Whether the person at the terminal says yes; an empty answer is a no."""
    return click.confirm(visible(question), default=False, err=err)


def say_next(words: str) -> None:
    """What comes after an act, as its last line. Who asked for JSON is a program, and is told nothing."""
    say(f"Next: {words}")


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show on a terminal what is being done; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from retention_assets.render.terminal import console, status_text

    with console(sys.stderr).status(status_text(what)):
        yield


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    """Instants in their one text form; durations and everything else as they are written."""
    from datetime import datetime

    from retention_assets.policy.durations import text_of

    return text_of(value) if isinstance(value, datetime) else str(value)
