"""The base of every store's settings.

Packages outside derive their settings from `StoreSettings`, as the built-in kinds do. Nothing here needs a driver.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from retention_assets.errors import InvalidValue
from retention_assets.policy.realms import NAME_RULE, RESERVED, SYSTEM, may_own_datasets
from retention_assets.settings.places import StoreUrl
from retention_assets.settings.secrets import known_secrets, remember_secrets
from retention_assets.silence import bound_silence, silence_bound

_PROCESS_FACTS = "of_process"  # key in a pickled state


def _store_name(name: str) -> str:
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > 100 or name in (".", ".."):
        raise InvalidValue("is not a store name", "1 to 100 printable characters without spaces at the ends")
    if sign := next((sign for sign in "/*?[" if sign in name), None):
        raise InvalidValue(
            f"a store name cannot hold {sign}", "a name without / * ? and [",
            "Datasets are called store/name, and policies choose them by globs.",
        )  # fmt: skip
    if name.startswith("::"):
        raise InvalidValue("a name that begins with :: belongs to the system", "a name of your own")
    return name


def _plain_strings(value: Any) -> Any:
    # Properties end up as strings everywhere.
    if not isinstance(value, dict):
        return value
    for key, item in value.items():
        if not isinstance(item, str | bool | int | float):
            raise InvalidValue("is not a text, a number or a boolean", "a single value", key=key)
    return {key: str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}


Cascading = Annotated[
    Literal["refused", "accepted"],
    Field(description="Whether the database may delete or change other rows together with swept rows."),
]
RowPolicies = Annotated[
    Literal["off", "mine"],
    Field(description="Whether rows that a policy of the database hides are a fault or are ignored."),
]
Properties = Annotated[dict[str, str], BeforeValidator(_plain_strings, dict[str, str | bool | int | float])]


class SettingsPart(BaseModel):
    """The base of every part of the settings: immutable, strict about types, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


def one_group(text: str, *, meaning: str = "realm") -> str:
    """Check that a text is a regular expression with one group."""
    try:
        groups = re.compile(text).groups
    except re.error as fault:
        raise InvalidValue(f"is not a regular expression: {fault}") from None
    if groups != 1:
        raise InvalidValue(f"has {groups} groups", f"a regular expression with one group, which is the {meaning}")
    return text


class RealmPattern(SettingsPart):
    """A regular expression whose group finds the realm in a dataset's name without its store; no match, no realm."""

    pattern: Annotated[str, AfterValidator(one_group)]


class RealmColumn(SettingsPart):
    """A column names the realm of each row, and so of its dataset."""

    column: Annotated[str, Field(min_length=1, max_length=63)]


def _realm(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        if value.startswith(RESERVED) and value != SYSTEM:
            raise InvalidValue("is a reserved name: nothing of such a realm is ever marked", NAME_RULE)
        if not may_own_datasets(value):
            raise InvalidValue("is not the name of a realm", NAME_RULE)
    elif isinstance(value, dict):
        if "pattern" in value:
            return RealmPattern.model_validate(value, context=info.context)
        if "column" in value:
            return RealmColumn.model_validate(value, context=info.context)
        raise InvalidValue("says neither pattern nor column", "the name of a realm, {pattern: …} or {column: …}")
    elif value is not None and not isinstance(value, BaseModel):
        raise InvalidValue("has the wrong type", "the name of a realm, {pattern: …} or {column: …}")
    return value


class StoreSettings(SettingsPart):
    """Settings of every store: a name, which begins the names of its datasets, a kind, and the realm of its datasets."""

    # rows may have a column that names their realm
    has_realm_column: ClassVar[bool] = False
    # its datasets have branches; None where each log says so itself
    has_branches: ClassVar[bool | None] = True
    # cost of sweeping a mark by one program; 1 is that of a row of a database on this machine
    mark_cost: ClassVar[int] = 5

    name: Annotated[str, AfterValidator(_store_name)]
    kind: str
    realm: Annotated[
        str | RealmPattern | RealmColumn | None,
        BeforeValidator(_realm),
        Field(description="The realm of all its datasets, or a pattern with one group over their names."),
    ] = None

    # set by the settings as a whole: it depends on other places in them
    _guarded: tuple[str, ...] = PrivateAttr(())

    @field_validator("realm")
    @classmethod
    def _has_such_a_column(cls, value: Any) -> Any:
        if isinstance(value, RealmColumn) and not cls.has_realm_column:
            kind = cls.model_fields["kind"].default
            raise InvalidValue(
                f"names a column, but a store of kind {kind} has no realm column",
                "the name of a realm, or {pattern: …} over the names of its datasets",
            )
        return value

    def __getstate__(self) -> dict[Any, Any]:
        """Add the secrets to mask and the time-out, for the receiver."""
        return {**super().__getstate__(), _PROCESS_FACTS: (known_secrets(), silence_bound())}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        secrets, seconds = state.pop(_PROCESS_FACTS)
        remember_secrets(secrets)
        bound_silence(seconds)
        super().__setstate__(state)

    def realm_of(self, dataset: str) -> str | None:
        """Realm that these settings give to a dataset by its name."""
        if isinstance(self.realm, RealmPattern):
            match = re.search(self.realm.pattern, dataset.removeprefix(f"{self.name}/"))
            return match.group(1) if match else None
        return self.realm if isinstance(self.realm, str) else None

    @property
    def data_root(self) -> str | None:
        """Local folder or URI below which the store deletes; None if it deletes no files below one folder."""
        return None

    @property
    def places(self) -> Mapping[str, str]:
        """Its paths, URIs and database files that no other store may delete, by key."""
        found, url = {"data": self.data_root, "url": None}, getattr(self, "url", None)
        if isinstance(url, str) and url.startswith("sqlite"):
            found["url"] = url
        return {key: place for key, place in found.items() if place is not None}

    @property
    def guarded(self) -> tuple[str, ...]:
        """Places of retention itself and of other stores, at which a removal stops."""
        return self._guarded

    def guard(self, places: tuple[str, ...]) -> None:
        """Set the places of the same settings at which a removal stops."""
        self._guarded = places

    @property
    def reads_policies(self) -> bool:
        """True if policies that people make in the store itself are read."""
        return False

    @property
    def reach(self) -> tuple[str, ...]:
        """Keys of the places below which it deletes."""
        return ("data",) if self.data_root is not None else ()

    def may_hold(self, other: "StoreSettings") -> bool:  # noqa: ARG002 - of other kinds some may
        """Tell whether places of another store may lie below those where this one deletes.

        By default none may: a store knows its own log alone. A kind that spares whatever the other one needs overrides it.
        """
        return False

    @property
    def refers_to(self) -> tuple[str, ...]:
        """Names of other stores whose data it reads to know what is needed."""
        return ()

    def with_others(self, others: Mapping[str, "StoreSettings"]) -> Self:  # noqa: ARG002 - few refer to others
        """Return a copy that knows the other stores of its file."""
        return self

    @property
    def needs_grace(self) -> bool:
        """True if a mark without grace could take what a writer is about to use."""
        return False

    @property
    def deletes_versions(self) -> bool:
        """True if a sweep deletes every kept version: what earlier sweeps only hid is marked again."""
        return False

    @property
    def undo_fault(self) -> str | None:
        """Say why nothing of the store can be set aside, and what to do; None if nothing in its settings is against it."""
        return f"A store of kind {self.kind} can't set anything aside. Leave `undo` out for its datasets."

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """Every path and URL at which the store reads or deletes; None if its kind does not tell."""
        return None


class DatabaseSettings(StoreSettings):
    """The database of a store whose data is rows."""

    mark_cost: ClassVar[int] = 1

    url: StoreUrl
    cascades: Cascading = "refused"
    row_security: RowPolicies = "off"

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.url,)
