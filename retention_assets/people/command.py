"""Makes a command of an operation: an option for each field of its request, and its result as sentences, tables or JSON."""

import getpass
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.people.operation import Kind, Only, Operation, Request, RequestField, Result, fields_of
from retention_assets.people.output import CONFIG_NOTE, ExitCode, echo_json, print_parts, progress, say
from retention_assets.policy.durations import Duration
from retention_assets.policy.sentences import first_of
from retention_assets.settings.model import FILE, VARIABLE, load_settings

_OF_A_DATASET = re.compile(r"(.+?) (was refused|was not swept|would not be swept): (.+)", re.DOTALL)
C = TypeVar("C", bound=click.Command)
# values as they are typed; the request reads them
_METAVARS = {datetime: "INSTANT", Duration: "DURATION", date: "DATE"}


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        raise click.UsageError("This machine has no user name. Give yours with --actor NAME.") from None


FORMAT = click.option(
    "-f", "--format", "format_", type=click.Choice(["json", "table"]), default="table", help="Print a table, or JSON."
)
ACTOR = click.option(
    "--actor", default=_user, envvar="RETENTION_ACTOR",
    show_default="RETENTION_ACTOR, else user@host of this machine", help="Your name for the record.",
)  # fmt: skip


def examples(*lines: str) -> Callable[[C], C]:
    """Show some calls below the help of a command, each as it can be typed."""

    def add(command: C) -> C:
        # \b keeps the lines as they are.
        command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
        return command

    return add


def find_environment(*, needed: bool = True) -> Environment:
    """Environment of --config, or of the settings where the program runs; of the defaults where none are needed."""
    context = click.get_current_context(silent=True)
    config: Path | None = context.meta.get(CONFIG_NOTE) if context else None
    if needed and config is None and not os.environ.get(VARIABLE) and not Path(FILE).exists():
        remedy = "Run `retention init` to write some, or name another file with --config FILE."
        raise BadInput(Problem("there are no settings here", file=FILE, expected="a settings file", remedy=remedy))
    return Environment(load_settings(config))


def command(operation: Operation[Any], name: str) -> click.Command:
    """Make a command that takes a request, runs the operation and shows its result."""

    def run(format_: str, **given: Any) -> ExitCode:
        return ask_and_show(operation, format_, **given)

    result = click.command(name, help=operation.help)(options(operation.request)(FORMAT(run)))
    return examples(*operation.examples)(result)


def options(request: type[Request], *, optional: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option or argument for each field of a request. `optional`: none is required."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function = ACTOR(function) if "actor" in request.model_fields else function
        for field in reversed(fields_of(request)):
            if field.only is not Only.FORM:
                function = _parameter(field, optional)(function)
        return function

    return add


def group(operation: Operation[Any], name: str, *commands: click.Command) -> click.Group:
    default = command(operation, name)

    @click.pass_context
    def run(context: click.Context, /, **given: Any) -> Any:
        return default.callback(**given) if default.callback and context.invoked_subcommand is None else None

    result = click.Group(name, commands, callback=run, params=default.params, help=default.help, invoke_without_command=True)
    return examples(*operation.examples)(result)


def given_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value not in (None, ())}


def ask_and_show(operation: Operation[Any], format_: str, **given: Any) -> ExitCode:
    """Run an operation with what was typed, and print its result while that is valid."""
    request = operation.request(**given_fields(given))
    environment = find_environment(needed=request.needs_settings)
    with ExitStack() as stack:
        with progress(operation.progress.format_map(vars(request))):
            looks = operation.kind is Kind.LOOK
            result = stack.enter_context(operation.open(request, replace(environment, upgrades=not looks)))
        return show(request, result, format_)


def show(request: Request, result: Result, format_: str) -> ExitCode:
    """Print a result, and say by the exit code what went wrong. What comes next is for people alone."""
    for sentence in result.notes:
        say(sentence)
    if format_ == "json":
        for piece in result.json():
            echo_json(piece)
    else:
        print_parts(filter(None, (result.headline, *result.sentences)))
        print_parts(result.tables())
    for sentence in _once((*result.closing(), *result.bad_input, *result.failures, *result.refusals)):
        say(sentence)
    if result.next and format_ != "json":
        say(f"Next: {result.next}")
    if result.bad_input:
        return ExitCode.BAD_INPUT
    if result.failures or (result.refusals and getattr(request, "strict", False)):
        return ExitCode.FAILED
    if result.refusals:
        return ExitCode.REFUSED
    return ExitCode.TO_DO if result.to_do else ExitCode.DONE


def _once(sentences: Iterable[str]) -> Iterator[str]:
    """Say each sentence once, with its number; and a reason that many datasets share once, with their names."""
    groups: dict[tuple[str, str], list[str]] = {}
    for sentence in sentences:
        match = _OF_A_DATASET.fullmatch(sentence)
        name, *reason = match.groups() if match else ("", "", sentence)
        groups.setdefault((reason[0], reason[1]), []).append(name)
    for (verb, why), names in groups.items():
        if not verb:
            yield why if len(names) == 1 else f"{why} ({len(names):,} times)"
        elif len(names) == 1:
            yield f"{names[0]} {verb}: {why}"
        else:
            yield f"{len(names):,} datasets {verb.replace('was', 'were')}: {why} ({first_of(names)})"


def _parameter(field: RequestField, optional: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    names = field.flags.names
    if field.type is bool:
        return click.option(*names, field.name, is_flag=True, help=field.help)
    kind: Any = {int: click.INT, Path: click.Path(path_type=Path)}.get(field.type, click.STRING)
    if issubclass(field.type, Enum):
        kind = click.Choice([member.value for member in field.type])
    required = (field.required or field.flags.required) and not optional
    kwargs: dict[str, Any] = {"type": kind, "metavar": field.flags.metavar or _METAVARS.get(field.type), "required": required}
    if not names:
        return click.argument(field.name, nargs=-1 if field.many else 1, **kwargs)
    if isinstance(field.default, int | Duration | Enum):
        kwargs |= {"default": getattr(field.default, "value", str(field.default)), "show_default": True}
    return click.option(*names, field.name, multiple=field.many, help=field.help, **kwargs)
