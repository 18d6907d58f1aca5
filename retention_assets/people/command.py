"""Makes a command of an operation: an option for each field of its request, and its result as sentences or JSON."""

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import click

from retention_assets.people.common.options import ACTOR, FORMAT, DurationParam, InstantParam, examples
from retention_assets.people.common.output import ExitCode, echo, print_json, progress, say, say_next
from retention_assets.people.common.sources import find_environment
from retention_assets.people.operation import A, Only, Operation, RequestField, Result, fields_of
from retention_assets.policy.durations import Duration

_TYPES: dict[Any, Any] = {
    str: click.STRING,
    datetime: InstantParam(),
    Duration: DurationParam(),
    int: click.IntRange(min=1),
    Path: click.Path(path_type=Path),
}


def command(operation: Operation[Any, Any], name: str) -> click.Command:
    """Make a command that takes a request, runs the operation and shows its result."""

    def run(format_: str, **given: Any) -> ExitCode:
        return show(ask(operation, **given), format_)

    made = click.command(name, help=operation.help)(options(operation)(FORMAT(run)))
    return examples(*operation.examples)(made)


def options(operation: Operation[Any, Any], *, optional: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--actor`, and an option or argument for each field of the request. `optional`: none is required."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function = ACTOR(function)
        for field in reversed(fields_of(operation.request)):
            if field.only is not Only.FORM:
                function = _parameter(field, optional)(function)
        return function

    return add


def ask(operation: Operation[Any, A], **given: Any) -> A:
    """Run an operation with what was typed."""
    request = operation.request(**{name: value for name, value in given.items() if value not in (None, ())})
    environment = find_environment()
    if not operation.progress:
        return operation(request, environment)
    with progress(operation.progress):
        return operation(request, environment)


def show(result: Result, format_: str) -> ExitCode:
    """Print a result. What comes next is for people alone."""
    for remark in result.remarks():
        say(remark)
    if format_ == "json":
        print_json(result.as_dict())
    else:
        echo(result.headline)
        for sentence in result.sentences():
            echo(sentence)
        if result.next:
            say_next(result.next)
    return ExitCode.FAILED if result.failed else ExitCode.DONE


def missing(operation: Operation[Any, Any], given: dict[str, Any]) -> str | None:
    """Name the first option without which the operation can't be asked for."""
    needed = (field for field in fields_of(operation.request) if field.required)
    return next((field.flags.names[-1] for field in needed if field.flags.names and not given.get(field.name)), None)


def _parameter(field: RequestField, optional: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    names, required = field.flags.names, field.required and not optional
    if field.type is bool:
        return click.option(*names, field.name, is_flag=True, help=field.help)
    kind = click.Choice([each.value for each in field.type]) if issubclass(field.type, Enum) else _TYPES[field.type]
    given: dict[str, Any] = {"type": kind, "metavar": field.flags.metavar, "required": required}
    if not names:
        return click.argument(field.name, nargs=-1 if field.many else 1, **given)
    return click.option(*names, field.name, multiple=field.many, help=field.help, **given)
