"""What one may type: the options that several commands have, and the types of their values.

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
    """Words for the record: it keeps them for ever, so they have to say something."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The words without the space around them."""
        text = str(value).strip()
        if not text:
            self.fail("is empty; the record keeps who did what, and why", param, ctx)
        return text


class PersonName(NonEmptyText):
    """Who does it; nobody takes a name that is the system's."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name without the space around it."""
        text = super().convert(value, param, ctx)
        if text.startswith("::"):
            self.fail(f"'{text}' begins with ::, as only the system's names do", param, ctx)
        return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("This machine does not know who you are. Say it: --actor NAME.") from None


FORMAT = click.option(
    "--format", "format_", type=click.Choice(["json", "table"]), default="table", help="How the result is printed."
)
LOG = click.option(
    "--log", "log_path", type=click.Path(path_type=Path), help="A log in the exchange format: a file or a folder."
)
POLICIES = click.option(
    "--policies",
    "policy_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A policy file or folder; may be repeated.",
)
AS_OF = click.option("--as-of", type=InstantParam(), help="The instant at which to judge; the present when left out.")
ACTOR = click.option(
    "--actor", type=PersonName(), default=_user, envvar="RETENTION_ACTOR",
    show_default="RETENTION_ACTOR, or the machine's user", help="Who does it: the record keeps it.",
)  # fmt: skip
REASON = click.option("--reason", type=NonEmptyText(), required=True, help="Why it is done: the record keeps it.")
