"""The options that several commands have, and the types of their values.

Belongs here: click options and parameter types. Does not belong here: what a command does with a value.
"""

import getpass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from retention_assets.policy.durations import Duration


class InstantParam(click.ParamType[datetime]):
    """An instant that names its zone."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read the instant, or fail with what was expected."""
        from retention_assets.policy.durations import EXPECTED_INSTANT, LONGEST_YEARS, parse_instant

        if isinstance(value, datetime):
            return value
        try:
            instant = parse_instant(value)
            if instant.year <= LONGEST_YEARS + 1:
                raise OverflowError("no age may lead to an instant before the first one")
            return instant
        except OverflowError:
            self.fail(f"'{value}' is out of range; expected {EXPECTED_INSTANT}", param, ctx)
        except ValueError as fault:
            self.fail(f"'{value}' {fault}; expected {EXPECTED_INSTANT}", param, ctx)


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
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("This machine does not know who you are. Say it with --actor NAME.") from None


FORMAT = click.option(
    "--format", "format_", type=click.Choice(["json", "table"]), default="table", help="Print a table, or JSON."
)
LOG = click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path),
    help="Read this log, a file or folder in the exchange format, instead of the stores.",
)
POLICIES = click.option(
    "--policies",
    "policy_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Use this policy file or folder instead of those of the settings; may be repeated.",
)
AS_OF = click.option("--as-of", type=InstantParam(), help="Judge as of this instant; the present when left out.")
ACTOR = click.option(
    "--actor", default=_user, envvar="RETENTION_ACTOR",
    show_default="RETENTION_ACTOR, or the machine's user", help="Who does this: the record keeps it.",
)  # fmt: skip
STRICT = click.option("--strict", is_flag=True, help="Exit with 1 instead of 4 where datasets were refused.")
REASON = click.option("--reason", required=True, help="Why: the record keeps it.")
