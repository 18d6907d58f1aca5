"""Declares an operation once: a request, a function and a result.

The command (command.py), the Dagster job with its form (dagster/operations), the JSON of both and their documentation are made
from the declaration. Messages for the command line and for Dagster are the same sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from inspect import getdoc
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, InvalidValue
from retention_assets.policy.durations import EXPECTED_MOMENT, Duration, as_duration, parse_moment
from retention_assets.policy.errors import problems_of
from retention_assets.settings.yaml import Document

_SYSTEM = "::"


KIND_TAG = "retention/kind"


class Kind(Enum):
    """Effect of an operation, which a person has to know before asking for it."""

    LOOK = "look"
    ACT = "act"
    DELETE = "delete"

    @property
    def tags(self) -> dict[str, str]:
        """Tag of the Dagster job and of its runs."""
        return {KIND_TAG: self.value}

    def describe(self, text: str) -> str:
        """Begin a description with the kind."""
        return f"{_BEGINNINGS[self]} {text}"


_BEGINNINGS = {
    Kind.LOOK: "Looks, and changes nothing.",
    Kind.ACT: "Changes the record, and deletes nothing.",
    Kind.DELETE: "DELETES DATA.",
}


class Flags:
    """Names of a field on the command line. Without names it is an argument."""

    def __init__(self, *names: str, metavar: str | None = None) -> None:
        self.names, self.metavar = names, metavar


class Only(Enum):
    """Restriction of a field to one way of asking."""

    COMMAND = "the command line alone"
    FORM = "Dagster's forms alone"
    PROGRAM = "neither"


def _text(value: str) -> str:
    if not (text := value.strip()):
        raise InvalidValue("is empty", "some words")
    return text


def _recorded(value: str) -> str:
    try:
        return _text(value)
    except InvalidValue as fault:
        raise InvalidValue(fault.what, fault.expected, "The record keeps who did what, and why.") from None


def _actor(value: str) -> str:
    if (actor := _recorded(value)).startswith(_SYSTEM):
        raise InvalidValue(f"begins with {_SYSTEM}, as only the system's names do")
    return actor


def _instant(value: datetime | str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return parse_moment(value.strip(), now())
    except (ValueError, OverflowError) as fault:
        raise InvalidValue(str(fault), EXPECTED_MOMENT) from None


def _duration(value: Duration | str) -> Duration:
    return as_duration(value.strip() if isinstance(value, str) else value)


Text = Annotated[str, AfterValidator(_text)]
Instant = Annotated[datetime, BeforeValidator(_instant)]
Span = Annotated[Duration, BeforeValidator(_duration)]


class Request(BaseModel):
    """Request of a person or a run. The audit keeps actor and reason for ever, so neither may be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    actor: Annotated[str, AfterValidator(_actor)]

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise BadInput(problems_of(error, Document("", given, {}), type(self))) from None


class ReasonedRequest(Request):
    """Request that needs a reason, because it changes what is kept or deleted."""

    reason: Annotated[str, AfterValidator(_recorded), Flags("-r", "--reason")] = Field(description="Why: the record keeps it.")


class Result(BaseModel):
    """Outcome of an operation, as JSON and as sentences."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    @property
    def headline(self) -> str:
        """Answer in one sentence."""
        raise NotImplementedError

    def sentences(self) -> Sequence[str]:
        """Further sentences; names of commands and jobs stand between backticks."""
        return ()

    @property
    def next(self) -> str:
        """Sentence about what comes next."""
        return ""

    def remarks(self) -> Sequence[str]:
        """Warnings, also for those who read the JSON."""
        return ()

    @property
    def failed(self) -> bool:
        """True if a command has to end with an exit code other than 0."""
        return False

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Result)


@dataclass(frozen=True)
class Operation(Generic[R, A]):
    """A function with what asks for it."""

    run: Callable[[R, Environment], A]
    request: type[R]
    kind: Kind
    examples: tuple[str, ...]
    # shown on a terminal while it runs
    progress: str | None = None

    @property
    def name(self) -> str:
        """Name of the Dagster job."""
        return self.run.__name__

    @property
    def help(self) -> str:
        return getdoc(self.run) or ""

    def __call__(self, request: R, environment: Environment) -> A:
        return self.run(request, environment)


def operation(
    kind: Kind, *examples: str, progress: str | None = None
) -> Callable[[Callable[[R, Environment], A]], Operation[R, A]]:
    """Declare an operation, by the type of the request that its function takes."""

    def declare(run: Callable[[R, Environment], A]) -> Operation[R, A]:
        return Operation(run, run.__annotations__["request"], kind, examples, progress)

    return declare


@dataclass(frozen=True)
class RequestField:
    """Field of a request, as something to be typed."""

    name: str
    # of one value, where many may be given
    type: type[Any]
    many: bool
    required: bool
    help: str
    flags: Flags
    only: Only | None


def fields_of(request: type[Request]) -> list[RequestField]:
    """Describe the fields that a person types, without the actor; the reason is the last."""
    fields = []
    for name, field in request.model_fields.items():
        flags = next((each for each in field.metadata if isinstance(each, Flags)), Flags(f"--{name.replace('_', '-')}"))
        only = next((each for each in field.metadata if isinstance(each, Only)), None)
        if name != "actor" and only is not Only.PROGRAM:
            kind = _plain(field.annotation)
            many = get_origin(kind) is tuple
            kind = _plain(get_args(kind)[0]) if many else kind
            fields.append(RequestField(name, kind, many, field.is_required(), field.description or "", flags, only))
    return sorted(fields, key=lambda field: field.name == "reason")


def _plain(annotation: Any) -> Any:
    """Drop None and what an annotation adds to a type."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
