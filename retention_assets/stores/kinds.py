"""The kinds of store and the settings of each: what one may write under `stores:` in `retention.yaml`.

Belongs here: the base of every store's settings, the settings of the built-in kinds, and what a kind is. A package outside
declares a kind of its own with the same two classes (plugins.py finds it).
Does not belong here: opening a store, or anything that needs a driver. A mistake in the settings is found without one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from retention_assets.errors import InvalidValue
from retention_assets.policy.durations import Duration
from retention_assets.policy.lengths import is_always_longer, some_time
from retention_assets.settings.urls import Location, StoreUrl, database_url, folder_of, has_scheme, locate, without_scheme

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store

_PLACEHOLDER = re.compile(r"\{(dataset|transaction)\}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}", re.ASCII)


def _store_name(name: str) -> str:
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > 100 or name in (".", ".."):
        raise InvalidValue("is not a store name", "1 to 100 printable characters without spaces at the ends")
    if found := next((mark for mark in "/*?[" if mark in name), None):
        raise InvalidValue(
            f"a store name cannot hold {found}", "a name without / * ? and [",
            "Datasets are called store/name, and policies choose them by globs.",
        )  # fmt: skip
    if name.startswith("::"):
        raise InvalidValue("a name that begins with :: belongs to the system", "a name of your own")
    return name


def _table(name: str) -> str:
    parts = name.split(".")
    if len(parts) > 2 or not all(_IDENTIFIER.fullmatch(part) for part in parts):
        raise InvalidValue("is not a table name", "table or schema.table, of letters, digits and _, not beginning with a digit")
    return name


def _plain_strings(value: Any) -> Any:
    """Properties are text everywhere they end up; true and 8 are written as people write them in YAML."""
    if not isinstance(value, dict):
        return value
    for key, item in value.items():
        if not isinstance(item, str | bool | int | float):
            raise InvalidValue("is not a text, a number or a boolean", "a single value", key=key)
    return {key: str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Properties = Annotated[dict[str, str], BeforeValidator(_plain_strings)]
Table = Annotated[str, AfterValidator(_table)]


class SettingsPart(BaseModel):
    """The base of every part of the settings: immutable, strict about types, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


class StoreSettings(SettingsPart):
    """What every store has: a name, which begins the names of its datasets, and a kind."""

    name: Annotated[str, AfterValidator(_store_name)]
    kind: str


@dataclass(frozen=True)
class StoreKind:
    """A kind of store: the word behind `kind:`, the keys that it then takes, and how such a store is opened."""

    name: str
    settings: type[StoreSettings]
    # Imports what the kind needs only when a store of it is opened.
    opened: "Callable[[Any], Store]"


def _data_template(text: str, info: ValidationInfo) -> str:
    """Every transaction needs a folder of its own below a root of its own, or a sweep would take a neighbour's data."""
    example = "data/lake/{dataset}/{transaction}"
    root, *rest = _PLACEHOLDER.split(text)
    if sorted(rest[::2]) != ["dataset", "transaction"] or any(brace in f"{root}{''.join(rest[1::2])}" for brace in "{}"):
        raise InvalidValue("needs {dataset} and {transaction}, once each, and nothing else in braces", example)
    if "/" not in rest[1]:
        raise InvalidValue("joins {dataset} and {transaction} in one folder name", example, "Put a / between them.")
    if ".." in "".join(rest[1::2]).split("/") or (has_scheme(root) and ".." in root.split("/")):
        raise InvalidValue("leads out of its folder by ..", example)
    if not without_scheme(root).rpartition("/")[0].strip("./"):
        raise InvalidValue("has no root folder of its own", example, "Begin with a folder that holds nothing else.")
    place = locate(text, folder_of(info))
    if place.count("{") != 2:
        raise InvalidValue(
            "is meant from a folder whose name holds a brace", "a folder without one", f"It is {folder_of(info)}."
        )
    return place


class FilesSettings(StoreSettings):
    """Kind `files`: histories in the exchange format, data as one folder per transaction."""

    kind: Literal["files"] = "files"
    log: Annotated[Location, Field(description="Where the logs are: a file, a folder or a URI.")]
    data: Annotated[str, AfterValidator(_data_template), Field(description="A transaction's folder.")]


def _catalog(catalog: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    """Only a catalog in a local SQLite file has relative places; elsewhere `warehouse` may be a name, not a path."""
    if not catalog:
        raise InvalidValue("is empty", "the properties of a PyIceberg catalog, such as type and uri")
    if not catalog.get("uri", "").startswith("sqlite"):
        return catalog
    try:
        found = {**catalog, "uri": database_url(catalog["uri"], folder_of(info)).exposed}
    except InvalidValue as fault:
        raise InvalidValue(fault.what, fault.expected, fault.remedy, key="uri") from None
    if "warehouse" in catalog:
        found["warehouse"] = locate(catalog["warehouse"], folder_of(info))
    return found


class IcebergSettings(StoreSettings):
    """Kind `iceberg`: the tables of a PyIceberg catalog."""

    kind: Literal["iceberg"] = "iceberg"
    # Not in repr: catalog properties hold credentials under many names.
    catalog: Annotated[Properties, AfterValidator(_catalog), Field(repr=False, description="PyIceberg's properties.")]
    namespaces: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_tupled), Field(min_length=1, description="Globs.")
    ] = ("*",)
    model: Annotated[
        Literal["states", "deltas"], Field(description="A snapshot is a full state, or what its operation says.")
    ] = "states"


class AspectsSettings(StoreSettings):
    """Kind `aspects`: the table in which DataHub keeps its aspects."""

    kind: Literal["aspects"] = "aspects"
    url: StoreUrl
    table: Table = "metadata_aspect_v2"
    current_counts: Annotated[bool, Field(description="Whether the current row is one of maxVersions.")] = False


def _given(name: str) -> str:
    """A name that somebody gave to a table or column: each is quoted, so that any can be one."""
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > 63:
        raise InvalidValue("is not the name of a table or column", "1 to 63 printable characters without spaces at the ends")
    return name


def _given_table(name: str) -> str:
    parts = name.split(".")
    if len(parts) > 2:
        raise InvalidValue("is not a table name", "table or schema.table; no name holds a dot itself")
    return ".".join(_given(part) for part in parts)


GivenColumn = Annotated[str, AfterValidator(_given)]
GivenTable = Annotated[str, AfterValidator(_given_table)]
TimeToLive = Annotated[Duration, PlainValidator(some_time("180d")), PlainSerializer(str)]


class RootTable(SettingsPart):
    """The table whose rows are the records, and the columns that tell their story."""

    table: GivenTable
    key: GivenColumn
    opened_at: GivenColumn
    closed_at: GivenColumn
    archived_at: GivenColumn | None = None
    type: GivenColumn | None = None


class ChildTable(SettingsPart):
    """A table whose rows belong to a record, and the column that says to which."""

    table: GivenTable
    key: GivenColumn


class TtlSettings(SettingsPart):
    """How the database expires records by itself, by a column that the root and all children have."""

    column: Annotated[GivenColumn, Field(description="When a row may be expired; empty is never.")]
    document_ttl: Annotated[TimeToLive, Field(description="How far housekeeping puts off what must not expire yet.")]
    expires_in_max_days: Annotated[int, Field(ge=1, le=36_500, description="How many days ahead housekeeping looks.")] = 1

    @model_validator(mode="after")
    def _puts_off_beyond_what_is_looked_at(self) -> Self:
        """What is put off to a time within the same days would not be put off at all, and might even go earlier."""
        days = self.expires_in_max_days
        if not is_always_longer(self.document_ttl, Duration(days=days)):
            raise InvalidValue(
                f"is {self.document_ttl} and not longer than expires_in_max_days, which is {days}: what is put off by it can"
                " expire within the days that housekeeping looks ahead",
                f"a duration longer than {days}d",
                f"Write document_ttl: {days + 1}d or longer, or make expires_in_max_days smaller.",
                key="document_ttl",
            )
        return self


class RecordsSettings(StoreSettings):
    """Kind `records`: independent records in a database, each a root row with rows in other tables."""

    kind: Literal["records"] = "records"
    url: StoreUrl
    root: RootTable
    children: Annotated[tuple[ChildTable, ...], BeforeValidator(_tupled)] = ()
    ttl: TtlSettings | None = None

    @model_validator(mode="after")
    def _children_are_others(self) -> Self:
        if any(child.table == self.root.table for child in self.children):
            raise InvalidValue("names the root's table among the children", "tables other than the root's", key="children")
        if len(set(self.children)) != len(self.children):
            raise InvalidValue("names a table and key twice", "each table and key once", key="children")
        return self


def _files(settings: FilesSettings) -> "Store":
    from retention_assets.stores.files.store import FilesStore

    return FilesStore(settings)


def _iceberg(settings: IcebergSettings) -> "Store":
    from retention_assets.stores.iceberg.store import IcebergStore

    return IcebergStore(settings)


def _records(settings: RecordsSettings) -> "Store":
    from retention_assets.stores.records.store import RecordsStore

    return RecordsStore(settings)


def _aspects(settings: AspectsSettings) -> "Store":
    from retention_assets.stores.aspects.store import AspectsStore

    return AspectsStore(settings)


BUILT_IN: Mapping[str, StoreKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            StoreKind("files", FilesSettings, _files),
            StoreKind("iceberg", IcebergSettings, _iceberg),
            StoreKind("aspects", AspectsSettings, _aspects),
            StoreKind("records", RecordsSettings, _records),
        )
    }
)
