"""The policy model: policies, holds and visibility rules, each key with its type, and the rules that join two keys."""

import math
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args
from zoneinfo import available_timezones

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from retention_assets.errors import InvalidValue, quote, suggest
from retention_assets.policy.durations import EXPECTED_DURATION, EXPECTED_INSTANT, Duration, as_duration, parse_instant, text_of
from retention_assets.policy.globs import protects
from retention_assets.policy.sizes import SIZE_PATTERN, parse_size, size_text
from retention_assets.policy.where import parse_condition
from retention_assets.policy.where.tree import Condition, columns_of

BRANCHED = ("SNAPSHOT", "APPEND", "UPDATE", "DELETE")
INDEPENDENT = ("RECORD", "OBJECT")
STATUSES = ("OPEN", "COMMITTED", "ABORTED")

# limit of Arrow, NumPy and databases
MOST = 2**63 - 1
_SET = re.compile(r"\[!?\]?[^\]]*\]")
_RANGE = re.compile(r"([^\[!])-([^\]])")

Type = Literal["SNAPSHOT", "APPEND", "UPDATE", "DELETE", "RECORD", "OBJECT"]
Status = Literal["OPEN", "COMMITTED", "ABORTED"]
Clock = Literal["closed", "opened", "closed_or_opened", "superseded", "archived"]
Align = Literal["day", "week", "month", "quarter", "year"]
# calendar periods of counts, finest first
PERIODS = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "yearly": "year"}


def _age(value: object) -> Duration:
    age = as_duration(value)
    if not age:
        raise InvalidValue(
            "an age of zero does not narrow", "an age longer than zero", "For every transaction write `select: all`."
        )
    return age


def _instant(value: object) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if not isinstance(value, str):
        raise InvalidValue("is not an instant", EXPECTED_INSTANT)
    try:
        return parse_instant(value)
    except ValueError as fault:
        raise InvalidValue(str(fault), EXPECTED_INSTANT) from None


def _condition(value: object) -> Condition:
    if isinstance(value, Condition):
        return value
    if not isinstance(value, str):
        raise InvalidValue("is not a condition", "a boolean over log columns, such as \"attributes['tier'] = 'bronze'\"")
    return parse_condition(value)


def _glob(value: str) -> str:
    if not value or not value.isprintable():
        raise InvalidValue("is not a glob", "a name or a pattern with *, ? or [a-z]")
    # Such a set matches nothing, and an exclude or a hold that matches nothing protects nothing.
    if "[" in _SET.sub("", value):
        raise InvalidValue("has a set without its end", "a closing ]", "Write [[] for the character itself.")
    if any(low > high for inside in _SET.findall(value) for low, high in _RANGE.findall(inside)):
        raise InvalidValue("has an empty range", "a range from the lower character to the higher, such as [a-z]")
    return value


def _dataset_glob(value: str) -> str:
    _glob(value)
    if "/" not in value and "*" not in value:
        raise InvalidValue(
            "can match no dataset", "store/name, with *, ? or [a-z] where wanted", f"Write for example lake/{value}."
        )
    return value


def _name(value: str) -> str:
    if not value.strip() or value != value.strip() or not value.isprintable() or len(value) > 200:
        raise InvalidValue("is not a name", "1 to 200 printable characters without spaces at the ends")
    if value.startswith("::"):
        raise InvalidValue("a name that begins with :: belongs to the system", "a name of your own")
    return value


def _string_map(value: object) -> object:
    # A bare true or 1 in YAML is no string; comparing it would silently never match.
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(item, str):
                text = str(item).lower() if isinstance(item, bool) else str(item)
                raise InvalidValue(f"attribute {key!r} is not a string", "strings", f'Put it in quotes: {key}: "{text}".')
    return value


# Each machine has a zone of its own under these names.
_OF_A_MACHINE = frozenset({"Factory", "localtime", "posixrules"})


def _zone(value: str) -> str:
    zones = available_timezones() - _OF_A_MACHINE
    if value not in zones:
        expected = "a name of the IANA database, the same on every machine, such as Europe/Berlin or UTC"
        raise InvalidValue("is not a time zone", expected, suggest(value, sorted(zones)))
    return value


def fraction(value: float) -> float:
    if not (math.isfinite(value) and 0 < value <= 1):
        raise InvalidValue("is not a fraction", "a number above 0 and at most 1")
    return float(value)


_AMOUNT = "[0-9]{1,12}"
_DATE, _TIME = ("".join(f"({_AMOUNT}{unit})?" for unit in units) for units in ("YMWD", "HMS"))
_DURATION_PATTERN = f"^({_AMOUNT}(s|m|h|d|w|mo|y)|P(?=.){_DATE}(T(?=.){_TIME})?)$"
DURATION_JSON = Annotated[str, Field(description=EXPECTED_DURATION, pattern=_DURATION_PATTERN, examples=["30d", "P2Y"])]
Span = Annotated[Duration, PlainValidator(as_duration, json_schema_input_type=DURATION_JSON), PlainSerializer(str)]
Age = Annotated[Duration, PlainValidator(_age, json_schema_input_type=DURATION_JSON), PlainSerializer(str)]
Instant = Annotated[datetime, PlainValidator(_instant, json_schema_input_type=str), PlainSerializer(text_of)]
Where = Annotated[Condition, PlainValidator(_condition, json_schema_input_type=str), PlainSerializer(lambda c: c.text)]


def _text_that(check: Callable[[str], str]) -> BeforeValidator:
    return BeforeValidator(lambda value: check(value) if isinstance(value, str) else value)


Name = Annotated[str, _text_that(_name), Field(min_length=1, max_length=200)]
Glob = Annotated[str, _text_that(_glob), Field(min_length=1)]
DatasetGlob = Annotated[str, _text_that(_dataset_glob), Field(json_schema_extra={"pattern": "[/*]"})]
Zone = Annotated[str, _text_that(_zone), Field(min_length=1)]
Size = Annotated[
    int,
    PlainValidator(parse_size, json_schema_input_type=Annotated[str, Field(pattern=SIZE_PATTERN, examples=["10GiB"])]),
    PlainSerializer(size_text),
]
Attributes = Annotated[dict[str, str], BeforeValidator(_string_map)]
Text = Annotated[str, Field(min_length=1)]


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
Some = Annotated[tuple[T, ...], BeforeValidator(_tupled), Field(min_length=1)]
Several = Annotated[tuple[T, ...], BeforeValidator(_tupled)]


class Value(BaseModel):
    """The base of every part: immutable, strict about types, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Datasets(Value):
    """Datasets that a policy or a hold is about. Nothing is chosen unless an include says so."""

    include: Annotated[Some[DatasetGlob], Field(description="Globs over store/name. One match is enough.")]
    exclude: Annotated[Several[DatasetGlob], Field(description="Globs of datasets that are left out.")] = ()
    with_: Annotated[Attributes, Field(alias="with", description="Attributes that a dataset must have with these values.")] = {}

    @property
    def as_written(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class AttributeTime(Value):
    """A time that the transaction carries itself, in an attribute: an instant with a zone."""

    attribute: Text


def _time(value: object) -> object:
    attribute = value.get("attribute") if isinstance(value, dict) and len(value) == 1 else None
    if isinstance(value, AttributeTime) or value in get_args(Clock) or (isinstance(attribute, str) and attribute):
        return value
    raise InvalidValue("is not a time of a transaction", f"one of {', '.join(get_args(Clock))}, or {{attribute: name}}")


class OlderThan(Value):
    """Old enough: a time of the transaction lies strictly before `as_of - age`."""

    age: Span
    of: Annotated[
        Clock | AttributeTime,
        BeforeValidator(_time),
        Field(description="The time of the transaction that is compared. {attribute: k}: an instant in that attribute."),
    ] = "closed"
    align: Annotated[Align | None, Field(description="Round the bound down to the start of this period in UTC.")] = None

    @model_validator(mode="after")
    def _narrows(self) -> Self:
        if not isinstance(self.of, AttributeTime):
            _age(self.age)
        return self


Count = Annotated[int | None, Field(ge=1, le=MOST)]


def names_times(condition: Condition | None) -> bool:
    return condition is not None and not columns_of(condition).isdisjoint(("opened_at", "closed_at", "archived_at"))


class Newest(Value):
    """The newest of something, counted on every live branch; what is kept stays readable, as if tagged."""

    countable: ClassVar[str] = "transactions: N"
    # A count keeps the states that its transactions end, and not these alone; periods always do.
    keeps_states: ClassVar[bool] = True
    transactions: Annotated[Count, Field(description="The newest N data transactions.")] = None
    hourly: Annotated[Count, Field(description="The newest of each of the N newest hours with a data transaction.")] = None
    daily: Annotated[Count, Field(description="The newest of each of the N newest days.")] = None
    weekly: Annotated[Count, Field(description="The newest of each of the N newest ISO weeks.")] = None
    monthly: Annotated[Count, Field(description="The newest of each of the N newest months.")] = None
    yearly: Annotated[Count, Field(description="The newest of each of the N newest years.")] = None
    zone: Annotated[Zone | None, Field(description="Time zone of the periods; UTC when left out.")] = None
    where: Annotated[Where | None, Field(description="Only what meets this condition is counted and kept.")] = None
    per: Annotated[Some[Text] | None, Field(description="Count separately for each combination of these attributes.")] = None

    @property
    def periods(self) -> dict[str, int]:
        """Number of periods by key, finest first."""
        return {key: number for key in PERIODS if (number := getattr(self, key)) is not None}

    @property
    def counts(self) -> tuple[str, ...]:
        """Keys that count transactions, not views."""
        return tuple(key for key in ("transactions", "bytes", *PERIODS) if getattr(self, key, None) is not None)

    @property
    def compares_times(self) -> bool:
        return bool(self.periods) or names_times(self.where)

    @model_validator(mode="after")
    def _counts_something(self) -> Self:
        views = isinstance(self, Beyond) and self.views is not None
        countable = f"{self.countable}, or one of {', '.join(PERIODS)}"
        for key in ("where", "per"):
            if getattr(self, key) is not None and views:
                raise InvalidValue("is about transactions, not about views", f"beyond.views without {key}", key=key)
            if getattr(self, key) is not None and not self.counts:
                raise InvalidValue("needs a count beside it", countable, key=key)
        if not self.counts and not views:
            raise InvalidValue("counts nothing", countable)
        if self.zone and not self.periods:
            raise InvalidValue("needs a period beside it", f"one of {', '.join(PERIODS)}", key="zone")
        return self


class Beyond(Newest):
    """Outside the newest of something. Several keys keep together: a transaction goes only if it is beyond each of them."""

    countable = "views: N, transactions: N, bytes: 10GiB"
    keeps_states = False
    views: Annotated[Count, Field(description="Not in the newest N views of any branch in scope.")] = None
    transactions: Annotated[
        int | None,
        Field(ge=0, le=MOST, description="Not among the newest N data transactions of any branch in scope; 0 is all."),
    ] = None
    bytes: Annotated[Size | None, Field(description="Not among the newest that together have at most this size.")] = None


OlderThanLine = Annotated[
    OlderThan,
    # `older_than: 30d` is short for its age.
    BeforeValidator(lambda v: {"age": v} if isinstance(v, str) else v, json_schema_input_type=OlderThan | DURATION_JSON),
]
Readable = Annotated[
    Literal["strict", "complete"] | None,
    Field(description="complete: also keep the view that was current at the cut-off, so every instant inside stays readable."),
]


def _needs_age(window: str | None, older_than: OlderThan | None) -> None:
    if window is not None and older_than is not None and isinstance(older_than.of, AttributeTime):
        raise InvalidValue(
            "goes by the times of views, and older_than by an attribute",
            "older_than without {attribute: …} beside it",
            "Leave window out.",
            key="window",
        )
    if window is not None and older_than is None:
        raise InvalidValue(
            "needs older_than beside it",
            "window together with older_than",
            "Add older_than, or leave window out.",
            key="window",
        )


class Window(Value):
    """A branch's own window: replaces these lines of `select` on the branches that it is the first to match."""

    match: Annotated[Glob, Field(description="Glob over branch names.")]
    older_than: OlderThanLine | None = None
    beyond: Beyond | None = None
    window: Readable = None

    @model_validator(mode="after")
    def _narrows(self) -> Self:
        if self.older_than is None and self.beyond is None:
            raise InvalidValue("a window without a line would select everything", "older_than or beyond")
        _needs_age(self.window, self.older_than)
        return self


class Branches(Value):
    """Branches that branch-dependent selectors look at, and where a transaction may lie."""

    include: Annotated[Some[Glob], Field(description="Globs of branches in scope.")] = ("*",)
    exclude: Annotated[Several[Glob], Field(description="Globs of branches out of scope.")] = ()
    only_in: Annotated[Text | None, Field(description="Only transactions on this branch and no other.")] = None
    not_in: Annotated[Text | None, Field(description="Only transactions that are not on this branch.")] = None
    windows: Annotated[Several[Window], Field(description="Per-branch windows; the first match counts.")] = ()
    reach: Annotated[Literal["live", "unreachable", "any"], Field(description="On a live branch, on none, or either.")] = "live"

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        if self.only_in is not None and self.only_in == self.not_in:
            raise InvalidValue("only_in and not_in name the same branch", "different branches", key="not_in")
        if self.reach == "unreachable" and (self.only_in or self.windows):
            raise InvalidValue(
                "an unreachable transaction is on no branch", "reach: live or any beside only_in or windows", key="reach"
            )
        return self


class Selection(Value):
    """The lines of `select`. Every line must hold."""

    older_than: OlderThanLine | None = None
    beyond: Beyond | None = None
    in_views_older_than: Annotated[
        Age | None, Field(description="In a view; all views with it closed more than this ago, none open after.")
    ] = None
    window: Readable = None
    status: Annotated[Some[Status] | None, Field(description="Only transactions of these statuses.")] = None
    types: Annotated[Some[Type] | None, Field(description="Only transactions of these types.")] = None
    superseded: Annotated[
        Literal[True] | None, Field(description="Every branch in scope has replaced or deleted all of its files.")
    ] = None
    terminal_only: Annotated[
        bool | None, Field(description="RECORDs: only closed ones; false judges unfinished ones by opened_at.")
    ] = None
    archived_before_purge: Annotated[
        Some[Text] | None, Field(description="RECORDs of these `type` attributes need archived_at.")
    ] = None
    unreferenced: Annotated[Literal[True] | None, Field(description="OBJECTs without references from retained data.")] = None
    where: Annotated[Where | None, Field(description="A boolean over log columns and attributes['k'].")] = None
    from_table: Annotated[
        Literal[True] | None,
        Field(description="The retention of the dataset itself, such as that of an Iceberg table and its branches."),
    ] = None
    expired_refs: Annotated[
        Literal["keep", "drop"] | None,
        Field(description="drop: branches and tags past the max-ref-age of the dataset go, with the data that only they keep."),
    ] = None

    @model_validator(mode="after")
    def _joins(self) -> Self:
        if self.expired_refs and not self.from_table:
            raise InvalidValue(
                "needs from_table beside it, which takes the ages of refs from the dataset",
                "expired_refs together with from_table: true",
                "Add `from_table: true`, or leave expired_refs out.",
                key="expired_refs",
            )
        if self.from_table and (self.older_than or self.beyond or self.window):
            raise InvalidValue(
                "takes the windows of the dataset, but another window stands beside it",
                "from_table without older_than, beyond and window",
                "Leave out one of them.",
                key="from_table",
            )
        _needs_age(self.window, self.older_than)
        return self


def _selection(value: Any) -> Any:
    # `all`, spelled out, is the one selection without a line; a mapping has to narrow.
    if value == "all":
        return Selection()
    if isinstance(value, str):
        raise InvalidValue(f"{quote(value)} is not a selection", "a mapping of lines, or the word all")
    if isinstance(value, dict) and (not value or value == {"terminal_only": False}):
        raise InvalidValue(
            "has no line that narrows",
            "at least one line that narrows",
            "To select every closed transaction, spell it out: `select: all`.",
        )
    return value


class Limits(Value):
    """Blast radius per dataset and evaluation: over any of them nothing of the policy is marked there."""

    transactions: Annotated[int | None, Field(gt=0, le=MOST)] = None
    bytes: Annotated[int | None, Field(gt=0, le=MOST)] = None
    fraction: Annotated[
        float | None,
        BeforeValidator(lambda v: fraction(v) if isinstance(v, int | float) and not isinstance(v, bool) else v),
        Field(description="Share of the transactions in the log.", json_schema_extra={"exclusiveMinimum": 0, "maximum": 1}),
    ] = None

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.transactions is None and self.bytes is None and self.fraction is None:
            raise InvalidValue("limits nothing", "transactions, bytes or fraction")
        return self


class Sweep(Value):
    """How the marks of a policy are swept."""

    mode: Annotated[Literal["delete", "ttl"], Field(description="ttl lets the store expire rows by itself.")] = "delete"
    batch: Annotated[int, Field(gt=0, le=MOST)] = 500
    every: Span = Duration(seconds=1)
    parallelism: Annotated[int, Field(gt=0, le=1024)] = 8


DEFAULT_GRACE = Duration(days=7)


class Policy(Value):
    """One rule for what may go. Protection, holds and limits stand above it: it can only propose."""

    name: Name
    description: str = ""
    datasets: Datasets
    branches: Branches = Branches()
    select: Annotated[
        Selection,
        BeforeValidator(_selection, json_schema_input_type=Selection | Literal["all"]),
        Field(description="Every line must hold; `all` is every closed transaction."),
    ]
    grace: Annotated[Span, Field(description="Time between mark and sweep in which a mark can be taken back.")] = DEFAULT_GRACE
    confirm: Annotated[Literal["no-grace"] | None, Field(description="Needed with grace: 0s.")] = None
    undo: Annotated[
        Span | None, Field(description="Set aside for this time before it is deleted for good; by default deleted at once.")
    ] = None
    latest_view: Annotated[Literal["allow"] | None, Field(description="Let this policy select inside latest views.")] = None
    limits: Limits | None = None
    sweep: Sweep = Sweep()
    force_overwrite: Annotated[bool, Field(description="Replace the stored policy even if a user wrote it.")] = False

    @property
    def drops_refs(self) -> bool:
        """True if branches and tags past their age protect nothing from this policy."""
        return self.select.expired_refs == "drop"

    @property
    def lines_about_branches(self) -> tuple[str, ...]:
        """Keys of the lines that select nothing where there are no branches."""
        select, branches = self.select, self.branches
        lines = {
            "branches.include": "*" not in branches.include,
            "branches.exclude": branches.exclude,
            "branches.only_in": branches.only_in,
            "branches.not_in": branches.not_in,
            "branches.windows": branches.windows,
            "select.older_than": select.older_than and select.older_than.of == "superseded",
            "select.window": select.window == "complete",
            "select.beyond.views": select.beyond and select.beyond.views,
            "select.in_views_older_than": select.in_views_older_than,
            "select.superseded": select.superseded,
        }
        return tuple(key for key, line in lines.items() if line)

    @property
    def lines_about_times(self) -> tuple[str, ...]:
        """Keys of the lines that compare times of commits."""
        select = self.select
        parts: tuple[Selection | Window, ...] = (select, *self.branches.windows)
        ages = [part.older_than.of for part in parts if part.older_than]
        lines = {
            "select.older_than": any(not isinstance(time, AttributeTime) for time in ages),
            "select.beyond": any(part.beyond and part.beyond.compares_times for part in parts),
            "select.in_views_older_than": select.in_views_older_than,
            "select.from_table": select.from_table,
            "select.where": names_times(select.where),
        }
        return tuple(key for key, line in lines.items() if line)

    @property
    def looks_along_lines(self) -> bool:
        """True if the answer about one transaction depends on the others of its line."""
        return bool(self.select.beyond or self.select.from_table or self.lines_about_branches)

    @model_validator(mode="after")
    def _joins(self) -> Self:
        if self.select.from_table and self.branches.windows:
            raise InvalidValue(
                "has windows beside select.from_table, which takes those of the branches from the dataset",
                "select.from_table, or branches.windows",
                "Leave out one of them.",
                key="branches",
            )
        if not self.grace and self.confirm is None:
            raise InvalidValue(
                "a grace of 0s leaves no time to take a mark back",
                "a longer grace, or confirm: no-grace beside it",
                "Add `confirm: no-grace` if that is meant.",
                key="grace",
            )
        if self.grace and self.confirm is not None:
            raise InvalidValue("no-grace goes with grace: 0s only", "grace: 0s beside it, or no confirm", key="confirm")
        if self.undo is not None and not self.undo:
            raise InvalidValue("sets nothing aside", "a duration longer than 0s", "Leave it out to delete at once.", key="undo")
        if self.undo and self.sweep.mode == "ttl":
            what = "stands beside sweep.mode: ttl, where the database deletes by itself"
            raise InvalidValue(what, "sweep.mode: delete, or no undo", "Leave one of them out.", key="undo")
        return self


class KeepAll(Policy):
    """A rule that selects nothing. It is about something all the same, and so the reason why that stays can name it.

    Its `select` is one that nothing meets, should anybody take it for any other policy.
    """

    select: Selection = Selection(status=("OPEN",))


HeldDatasets = Annotated[
    Datasets,
    BeforeValidator(
        lambda v: {"include": v} if isinstance(v, list) else {"include": [v]} if isinstance(v, str) else v,
        json_schema_input_type=Datasets | list[str] | str,
    ),
]


class Hold(Value):
    """Nothing held is marked or swept, by any policy, until the hold ends or is released."""

    looks_along_lines: ClassVar[bool] = False
    name: Name | None = None
    datasets: HeldDatasets
    transactions: Annotated[Some[Glob] | None, Field(description="Globs over transaction ids; by default all.")] = None
    reason: str = ""
    owner: str = ""
    until: Annotated[Instant | None, Field(description="When the hold ends by itself; by default never.")] = None

    def is_live(self, at: datetime) -> bool:
        """False once it has ended by itself."""
        return self.until is None or at < self.until

    def covers(self, transaction: str) -> bool:
        return self.transactions is None or protects(transaction, self.transactions)

    @property
    def scope(self) -> dict[str, Any]:
        return {"datasets": self.datasets.as_written, "transactions": self.transactions}


class RetainRule(Value):
    """No policy may take what meets every line of this rule: it is neither marked nor swept."""

    owner: ClassVar[str] = ""
    until: ClassVar[None] = None
    name: Name
    reason: Text
    datasets: HeldDatasets
    where: Annotated[Where | None, Field(description="A boolean over log columns and attributes['k'].")] = None
    younger_than: Annotated[Age | None, Field(description="Not closed, or closed at most this long ago.")] = None
    newest: Annotated[Newest | None, Field(description="Among the newest of the dataset.")] = None

    @model_validator(mode="after")
    def _keeps_something(self) -> Self:
        if self.where is None and self.younger_than is None and self.newest is None:
            remedy = "To keep all of a dataset, place a hold."
            raise InvalidValue("has no line that says what is retained", "where, younger_than or newest", remedy)
        return self

    @property
    def looks_along_lines(self) -> bool:
        return self.newest is not None

    def is_live(self, _: datetime) -> bool:
        """True at any time: a rule ends when it is taken out of its file."""
        return True

    @property
    def scope(self) -> dict[str, Any]:
        lines = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"name", "reason", "datasets"})
        return {"datasets": self.datasets.as_written, "retain": lines}


Keeper = Hold | RetainRule


def named_holds(keepers: Iterable[Keeper]) -> tuple[Hold, ...]:
    """Holds among them: these keep by name, without a look at the log."""
    return tuple(keeper for keeper in keepers if isinstance(keeper, Hold))


VISIBILITY_PREFIX = "visibility:"


class VisibilityRule(Value):
    """For how long the history of some datasets stays readable. Of several that are about a dataset the longest counts."""

    datasets: Datasets
    retention: Annotated[Age, Field(description="How long history stays readable, counted back from each evaluation.")]
    force_overwrite: Annotated[bool, Field(description="Replace the stored entry even if a user wrote it.")] = False

    @property
    def name(self) -> str:
        """Named by its datasets: the same datasets with another retention are the next version of one entry."""
        text = ", ".join(sorted(set(self.datasets.include)))
        if self.datasets.exclude:
            text += f" without {', '.join(sorted(set(self.datasets.exclude)))}"
        if self.datasets.with_:
            text += f" with {', '.join(f'{key}={value}' for key, value in sorted(self.datasets.with_.items()))}"
        return f"{VISIBILITY_PREFIX}{text}"


def visibility_sentence(rule: VisibilityRule) -> str:
    return (
        f"Keeps the last {rule.retention.words()} of the history of {rule.name.removeprefix(VISIBILITY_PREFIX)} readable: each"
        " evaluation raises the visibility mark of these datasets to that age, and never past what is current."
    )
