"""Lines of `select` and the branches that they look at, with the rules that join two of them."""

from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from retention_assets.errors import InvalidValue
from retention_assets.policy.keys import (
    DURATION_JSON,
    MOST,
    Age,
    Glob,
    Several,
    Size,
    Some,
    Span,
    Text,
    Value,
    Where,
    Zone,
    age_above_zero,
)
from retention_assets.policy.where.tree import Condition, columns_of

BRANCHED = ("SNAPSHOT", "APPEND", "UPDATE", "DELETE")
INDEPENDENT = ("RECORD", "OBJECT")
STATUSES = ("OPEN", "COMMITTED", "ABORTED")

Type = Literal["SNAPSHOT", "APPEND", "UPDATE", "DELETE", "RECORD", "OBJECT"]
Status = Literal["OPEN", "COMMITTED", "ABORTED"]
Clock = Literal["closed", "opened", "closed_or_opened", "superseded", "archived"]
Align = Literal["day", "week", "month", "quarter", "year"]
# calendar periods of counts, finest first
PERIODS = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "yearly": "year"}


class AttributeTime(Value):
    """An instant with a zone, in an attribute of the transaction."""

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
            age_above_zero(self.age)
        return self


Count = Annotated[int | None, Field(ge=1, le=MOST)]


def names_times(condition: Condition | None) -> bool:
    return condition is not None and not columns_of(condition).isdisjoint(("opened_at", "closed_at", "archived_at"))


class Newest(Value):
    """The newest transactions by number or period, counted on every live branch; they stay readable, as if tagged."""

    countable: ClassVar[str] = "transactions: N"  # keys that count, for errors
    # True: each counted transaction is kept with the whole view that it ends. Periods keep whole views in any case.
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
    """Transactions that are not among the newest. If several keys are set, a transaction goes only if it is beyond each."""

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
