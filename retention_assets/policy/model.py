"""The policy model: policies, holds and visibility rules, each key with its type, and the rules that join two keys."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from retention_assets.errors import InvalidValue, quote
from retention_assets.policy.durations import Duration
from retention_assets.policy.globs import protects
from retention_assets.policy.keys import (
    MOST,
    Age,
    Attributes,
    DatasetGlob,
    Glob,
    Instant,
    Name,
    Several,
    Some,
    Span,
    Text,
    Value,
    Where,
    fraction,
)
from retention_assets.policy.selection import AttributeTime, Branches, Newest, Selection, Window, names_times


class Datasets(Value):
    """Datasets that a policy or a hold is about. Nothing is chosen unless an include says so."""

    include: Annotated[Some[DatasetGlob], Field(description="Globs over store/name. One match is enough.")]
    exclude: Annotated[Several[DatasetGlob], Field(description="Globs of datasets that are left out.")] = ()
    with_: Attributes = Field({}, alias="with", description="Attributes that a dataset must have with these values.")

    @property
    def as_written(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


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
    """Blast radius: a policy that would take more of a dataset in one evaluation marks nothing there."""

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
    """Mode and pace by which marks of a policy are swept."""

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
    """A policy that keeps its datasets: it selects nothing, and is named as the reason why they stay.

    No transaction meets its `select`, in case it is evaluated like other policies.
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


VISIBILITY_PREFIX = "visibility:"


class VisibilityRule(Value):
    """Time for which the history of some datasets stays readable. If several rules match a dataset, the longest counts."""

    datasets: Datasets
    retention: Annotated[Age, Field(description="How long history stays readable, counted back from each evaluation.")]
    force_overwrite: Annotated[bool, Field(description="Replace the stored entry even if a user wrote it.")] = False

    @property
    def name(self) -> str:
        """Name by the datasets: the same datasets with another retention are the next version of one entry."""
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
