"""Prints results to stdout and notes about the work to stderr; exit codes.

Nothing else in people/ writes to a terminal: names may hold control sequences, which are escaped here.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from retention_assets.render.page import Table
from retention_assets.render.text import visible, visible_json, visible_note
from retention_assets.settings.secrets import masked

if TYPE_CHECKING:
    from retention_assets.render.terminal import Indented

# settings file that --config names, in the notes that the contexts of one call share
CONFIG_NOTE = "retention_assets.config"


class ExitCode(IntEnum):
    DONE = 0
    # refused, or failed: a store that is away, a scan or a target that failed
    FAILED = 1
    # also no settings where a command needs them
    BAD_INPUT = 2
    # only of commands that look ahead: there is something to do
    TO_DO = 3
    # done, but for datasets that were refused
    REFUSED = 4
    # by Ctrl-C, or another signal that asks for an end
    STOPPED = 130


def echo(words: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people; on stdout if it is the result."""
    click.echo(visible(masked(words) if err else words), err=err, nl=nl)


def echo_json(text: str) -> None:
    """Print a piece of a result that is JSON already."""
    click.echo(visible_json(text), nl=False)


def print_parts(parts: "Iterable[str | Table | Indented]", *, err: bool = False) -> None:
    """Print sentences and tables of a result. A terminal folds a sentence between words."""
    from retention_assets.render.terminal import console, draw

    for part in parts:
        if not isinstance(part, Table) or part.rows or part.empty:
            console(sys.stderr if err else None).print(draw(part))


def say(words: str) -> None:
    click.echo(visible_note(masked(words)), err=True)


def is_on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, *, err: bool = False, detail: "Callable[[], Iterable[Table]] | None" = None) -> bool:
    """Ask; an answer d prints the detail, and the question stands there again."""
    if detail is None:
        return click.confirm(visible(question), default=False, err=err)
    answers = click.Choice(["y", "n", "d"], case_sensitive=False)
    while (
        answer := click.prompt(f"{visible(question)} [y/N]", "n", err=err, type=answers, show_default=False, show_choices=False)
    ) == "d":
        print_parts(detail(), err=err)
    return bool(answer == "y")


@contextmanager
def progress(activity: str) -> Iterator[None]:
    """Show on a terminal what is being done; elsewhere nothing."""
    if not (activity and sys.stderr.isatty()):
        yield
        return
    from retention_assets.render.terminal import console, status_text

    with console(sys.stderr).status(status_text(activity)):
        yield
