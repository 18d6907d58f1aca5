"""Declares an operation once: a request, a function and a result.

The command (command.py), the Dagster job with its form (dagster/jobs.py), the JSON of both and their documentation
are made from the declaration. Messages for the command line and for Dagster are the same sentences.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from inspect import getdoc
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, InvalidValue
from retention_assets.ledger.states import Waiting
from retention_assets.policy.durations import EXPECTED_MOMENT, LONGEST_YEARS, Duration, as_duration, parse_moment
from retention_assets.render.markdown import Answer, with_code
from retention_assets.render.page import MOST_SHOWN, Table
from retention_assets.render.text import json_text
from retention_assets.settings.yaml import Document, problems_of

if TYPE_CHECKING:
    from retention_assets.ledger import Ledger
    from retention_assets.render.terminal import Indented

_SYSTEM = "::"

KIND_TAG = "retention/kind"


class Kind(Enum):
    """Effect of an operation, which a person has to know before asking for it."""

    LOOK = "look"
    ACT = "act"
    DELETE = "delete"

    @property
    def tags(self) -> dict[str, str]:
        return {KIND_TAG: self.value}

    def job(self, name: str) -> str:
        """Name of the Dagster job: the kind stands first, so that Dagster's list is grouped by it."""
        return f"{self.value}_{name}"

    def describe(self, text: str) -> str:
        return f"{_BEGINNINGS[self]} {text}"


_BEGINNINGS = {
    Kind.LOOK: "Changes nothing.",
    Kind.ACT: "Changes the record; deletes nothing.",
    Kind.DELETE: "DELETES DATA.",
}


class Flags:
    """Names of a field on the command line. Without names it is an argument, which may be required there alone."""

    def __init__(self, *names: str, metavar: str | None = None, required: bool = False) -> None:
        self.names, self.metavar, self.required = names, metavar, required


class Only(Enum):
    """Restriction of a field to one way of asking."""

    COMMAND = "the command line alone"
    FORM = "Dagster's forms alone"


def _stripped(expected: str, remedy: str | None = None) -> Callable[[str], str]:
    def strip(value: str) -> str:
        if not (text := value.strip()):
            raise InvalidValue("is empty", expected, remedy)
        return text

    return strip


_recorded = _stripped("some words", "The record keeps who did what, and why.")


def _actor(value: str) -> str:
    if (actor := _recorded(value)).startswith(_SYSTEM):
        raise InvalidValue(f"begins with {_SYSTEM}, as only the system's names do")
    return actor


def _instant(value: datetime | str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        moment = parse_moment(value.strip(), now())
    except OverflowError:
        raise InvalidValue("is out of range", EXPECTED_MOMENT) from None
    except ValueError as fault:
        raise InvalidValue(str(fault), EXPECTED_MOMENT) from None
    if moment.year <= LONGEST_YEARS + 1:
        # no age may lead to an instant before the first one
        raise InvalidValue("is out of range", EXPECTED_MOMENT)
    return moment


def _day(value: date | str) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)
    except ValueError:
        raise InvalidValue("is not a day", "one such as 2026-01-31") from None


# Types of fields that several requests have, with their names on the command line.
Text = Annotated[str, AfterValidator(_stripped("some words"))]
Instant = Annotated[datetime, BeforeValidator(_instant)]
Span = Annotated[Duration, BeforeValidator(lambda value: as_duration(value.strip() if isinstance(value, str) else value))]
Day = Annotated[date, BeforeValidator(_day)]
DatasetName = Annotated[
    str,
    AfterValidator(_stripped("a dataset, as store/name")),
    Flags(required=True),
    Field(description="A dataset, as store/name, such as lake/raw.events. A wrong name is answered with similar ones."),
]
DatasetGlobs = Annotated[
    tuple[str, ...],
    Flags("-d", "--dataset", metavar="GLOB"),
    Field(description="Only these datasets, such as 'lake/raw.*'; several may be given."),
]
AsOf = Annotated[
    Instant | None,
    Flags("-t", "--as-of"),
    Field(description="Judge as of this instant, such as 2026-03-01, 7d (7 days ago) or 'in 7d'; now by default."),
]
LogFile = Annotated[
    Path | None,
    Flags("-l", "--log"),
    Only.COMMAND,
    Field(description="Read this log, a file or folder in the exchange format, instead of the stores."),
]
PolicyFiles = Annotated[
    tuple[Path, ...],
    Flags("-p", "--policies"),
    Only.COMMAND,
    Field(description="Use this policy file or folder instead of those of the settings; may be repeated."),
]
Strict = Annotated[bool, Only.COMMAND, Field(description="Exit with 1 instead of 4 if datasets were refused.")]
AcceptLarge = Annotated[
    bool, Only.COMMAND, Field(description="Sweep even if far more would go than on any of the last 30 days (the brake).")
]


class Request(BaseModel):
    """Request of a person or a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise BadInput(problems_of(error, Document("", given, {}), type(self))) from None

    @property
    def needs_settings(self) -> bool:
        """False if the request names its log, and its policies where it has some, so that settings say nothing more."""
        return not (getattr(self, "log", None) and getattr(self, "policies", True))


class RecordedRequest(Request):
    """Request that the audit keeps for ever with its actor, who may not be empty."""

    actor: Annotated[str, AfterValidator(_actor)]

    @property
    def needs_settings(self) -> bool:
        return True


class ReasonedRequest(RecordedRequest):
    """Request that needs a reason, because it changes what is kept or deleted."""

    reason: Annotated[str, AfterValidator(_recorded), Flags("-r", "--reason")] = Field(description="Reason for the record.")


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of an operation: JSON, sentences and tables of a terminal, and the page of a run in Dagster."""

    # JSON of a command, and numbers of a run
    data: Any = None
    headline: str = ""
    # names of commands and jobs stand between backticks
    sentences: Sequence[str] = ()
    tables: Callable[[], Iterable["Table | Indented | str"]] = tuple
    # what comes next
    next: str = ""
    # warnings, also for those who read the JSON; and those that are known once all of it was printed
    notes: Sequence[str] = ()
    closing: Callable[[], Sequence[str]] = tuple
    # sentences that end a command with 2, 1 and 4
    bad_input: Sequence[str] = ()
    failures: Sequence[str] = ()
    refusals: Sequence[str] = ()
    # a run of the job fails as well
    failed: bool = False
    # a command that looks ahead ends with 3
    to_do: bool = False
    # JSON in pieces, where a million rows may not be in memory at once
    pieces: Callable[[], Iterable[str]] | None = None
    # what comes next in Dagster, and numbers and tables of a run, where they are others
    next_in_run: str = ""
    numbers: Callable[[], Mapping[str, Any]] | None = None
    # page of a run, where it is not made of the above
    page: Callable[[], tuple[Answer, Mapping[str, Any]]] | None = None

    def json(self) -> Iterable[str]:
        return self.pieces() if self.pieces else (json_text(self.data, indent=2) + "\n",)

    @property
    def answer(self) -> Answer:
        """Headline and sentences, after the warnings."""
        warnings = (*self.notes, *self.failures, *self.refusals)
        sentences = (*warnings[:MOST_SHOWN], *self.sentences[:MOST_SHOWN], self.next_in_run or self.next)
        return Answer(self.headline, tuple(map(with_code, sentences)))


R = TypeVar("R", bound=Request)


@dataclass(frozen=True)
class Operation(Generic[R]):
    """Function that answers a request. It may be a context manager, which keeps open what its result reads."""

    run: Callable[[R, Environment], Result | AbstractContextManager[Result]]
    request: type[R]
    kind: Kind
    examples: tuple[str, ...]
    # shown on a terminal while it runs, with fields of the request
    progress: str
    name: str
    # a run keeps the JSON in a file of its folder
    keeps_file: bool

    @property
    def job(self) -> str:
        return self.kind.job(self.name)

    @property
    def help(self) -> str:
        return getdoc(self.run) or ""

    def __call__(self, request: R, environment: Environment) -> Result:
        """Run an operation whose result needs nothing open."""
        result = self.run(request, environment)
        assert not isinstance(result, AbstractContextManager)
        return result

    def open(self, request: R, environment: Environment) -> AbstractContextManager[Result]:
        """Run it. The result is valid in this context."""
        result = self.run(request, environment)
        return result if isinstance(result, AbstractContextManager) else nullcontext(result)


def operation(
    kind: Kind, *examples: str, progress: str = "", name: str | None = None, keeps_file: bool = False
) -> Callable[[Callable[[R, Environment], Result | AbstractContextManager[Result]]], Operation[R]]:
    """Declare an operation, by the type of the request that its function takes."""

    def declare(run: Callable[[R, Environment], Result | AbstractContextManager[Result]]) -> Operation[R]:
        return Operation(run, run.__annotations__["request"], kind, examples, progress, name or run.__name__, keeps_file)

    return declare


@dataclass(frozen=True)
class RequestField:
    """Field of a request, as something to be typed."""

    name: str
    # of one value, where many may be given
    type: type[Any]
    many: bool
    required: bool
    # None where it is made up, or where there is none
    default: Any
    help: str
    flags: Flags
    only: Only | None


def fields_of(request: type[Request]) -> list[RequestField]:
    """Describe the fields that a person types, without the actor; the reason is the last."""
    fields = []
    for name, info in request.model_fields.items():
        annotations = {type(each): each for each in info.metadata}
        if name == "actor":
            continue
        kind = _unwrapped(info.annotation)
        many = get_origin(kind) is tuple
        fields.append(
            RequestField(
                name,
                type=_unwrapped(get_args(kind)[0]) if many else kind,
                many=many,
                required=info.is_required(),
                default=None if info.is_required() else info.default,
                help=info.description or "",
                flags=annotations.get(Flags) or Flags(f"--{name.replace('_', '-')}"),
                only=annotations.get(Only),
            )
        )
    return sorted(fields, key=lambda field: field.name == "reason")


def what_is_missing(environment: Environment, ledger: "Ledger | None", *, policies: bool = False) -> tuple[str, ...]:
    """Warn readers where there is no ledger yet and, if asked, no policy file."""
    paths, notes = environment.settings.policies, () if ledger else (environment.no_ledger,)
    if policies and not any(path.exists() for path in paths):
        return (f"no policy files at {', '.join(map(str, paths))}", *notes)
    return notes


def _unwrapped(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


@dataclass(frozen=True)
class JobResult:
    """Metadata of each asset's materialization as plain values, and what a person has to look at."""

    run_id: str
    as_of: datetime
    said: Mapping[str, Mapping[str, Any]]
    # faulty input of people; failures; and datasets that were refused while the others went on
    bad_input: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    # from checks that only warn
    warnings: tuple[str, ...] = ()
    # marks after the run
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def troubles(self) -> tuple[str, ...]:
        return (*self.bad_input, *self.failed, *self.refused)

    def number(self, asset: str, name: str) -> int:
        """Number of an asset's metadata; 0 where the job did not come to it."""
        return int(self.said.get(asset, {}).get(name, 0))
