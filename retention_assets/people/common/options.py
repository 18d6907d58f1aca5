"""The options that several commands have, the types of their values, and the examples below their help.

Belongs here: click options and parameter types. Does not belong here: what a command does with a value.
"""

import getpass
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from retention_assets.policy.durations import Duration

C = TypeVar("C", bound=click.Command)

# Where a command finds the settings file that --config names: in the notes that the contexts of one call share.
CONFIG_NOTE = "retention_assets.config"


class InstantParam(click.ParamType[datetime]):
    """An instant that names its zone, or one that is so far from the present: `7d` ago, `in 7d`."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read the instant, or fail with what was expected."""
        from retention_assets.clock import now
        from retention_assets.policy.durations import EXPECTED_MOMENT, LONGEST_YEARS, parse_moment

        if isinstance(value, datetime):
            return value
        try:
            instant = parse_moment(value, now())
            if instant.year <= LONGEST_YEARS + 1:
                raise OverflowError("no age may lead to an instant before the first one")
            return instant
        except OverflowError:
            self.fail(f"'{value}' is out of range; expected {EXPECTED_MOMENT}", param, ctx)
        except ValueError as fault:
            self.fail(f"'{value}' {fault}; expected {EXPECTED_MOMENT}", param, ctx)


class DurationParam(click.ParamType["Duration"]):
    """A duration, as policies have it."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Duration":
        """Read the duration, or fail with what was expected."""
        from retention_assets.policy.durations import EXPECTED_DURATION, Duration, parse_duration

        if isinstance(value, Duration):
            return value
        try:
            return parse_duration(value)
        except ValueError as fault:
            self.fail(f"'{value}' {fault}; expected {EXPECTED_DURATION}", param, ctx)


class NonEmptyText(click.ParamType[str]):
    """A text that is not empty."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text without the space around it."""
        text = str(value).strip()
        if not text:
            self.fail("is empty", param, ctx)
        return text


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        raise click.UsageError("This machine does not know who you are. Say it with --actor NAME.") from None


def examples(*lines: str) -> Callable[[C], C]:
    """Show some calls below the help of a command, each as it can be typed."""

    def add(command: C) -> C:
        # \b keeps the lines as they are.
        command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
        return command

    return add


def config_option() -> click.Option:
    """`--config`, for the whole command line and for each command that works on settings; the last one that is given counts."""

    def note(context: click.Context, _: click.Parameter, file: Path | None) -> None:
        if file is not None:
            context.meta[CONFIG_NOTE] = file

    return click.Option(
        ["-c", "--config"], type=click.Path(path_type=Path), expose_value=False, callback=note, metavar="FILE",
        help="Use these settings instead of ./retention.yaml; the same as RETENTION_CONFIG.",
    )  # fmt: skip


FORMAT = click.option(
    "-f", "--format", "format_", type=click.Choice(["json", "table"]), default="table", help="Print a table, or JSON."
)
LOG = click.option(
    "-l",
    "--log",
    "log_path",
    type=click.Path(path_type=Path),
    help="Read this log, a file or folder in the exchange format, instead of the stores.",
)
POLICIES = click.option(
    "-p",
    "--policies",
    "policy_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Use this policy file or folder instead of those of the settings; may be repeated.",
)
DATASETS = click.option("-d", "--dataset", "globs", multiple=True, metavar="GLOB", help="Only these datasets; may be repeated.")
AS_OF = click.option(
    "-t", "--as-of", type=InstantParam(),
    help="Judge as of this instant, such as 2026-03-01, 7d (7 days ago) or 'in 7d'; the present when left out.",
)  # fmt: skip
ACTOR = click.option(
    "--actor", default=_user, envvar="RETENTION_ACTOR",
    show_default="RETENTION_ACTOR, or the machine's user@host", help="Who does this: the record keeps it.",
)  # fmt: skip
ACCEPT_LARGE = click.option(
    "--accept-large", is_flag=True, help="Sweep also where far more would go than on any day of the last 30 (brake)."
)
STRICT = click.option("--strict", is_flag=True, help="Exit with 1 instead of 4 where datasets were refused.")
