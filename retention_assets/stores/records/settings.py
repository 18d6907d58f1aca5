"""The settings of a `records` store: the root table, its children, and how the database expires their rows."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from retention_assets.errors import InvalidValue
from retention_assets.policy.durations import Duration, is_always_longer, some_time
from retention_assets.policy.keys import tuple_of
from retention_assets.stores.settings import DatabaseSettings, RealmColumn, SettingsPart


def _name(name: str) -> str:
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > 63:
        raise InvalidValue("is not the name of a table or column", "1 to 63 printable characters without spaces at the ends")
    return name


def _table_name(name: str) -> str:
    parts = name.split(".")
    if len(parts) > 2:
        raise InvalidValue("is not a table name", "table or schema.table; no name holds a dot itself")
    return ".".join(_name(part) for part in parts)


ColumnName = Annotated[str, AfterValidator(_name)]
TableName = Annotated[str, AfterValidator(_table_name)]
TimeToLive = Annotated[Duration, PlainValidator(some_time("180d")), PlainSerializer(str)]


class RootTable(SettingsPart):
    """The table whose rows are the records, and the columns that tell their story."""

    table: TableName
    key: ColumnName
    opened_at: ColumnName
    closed_at: ColumnName
    archived_at: ColumnName | None = None
    type: ColumnName | None = None


class ChildTable(SettingsPart):
    """A table whose rows belong to a record, and the column that says to which."""

    table: TableName
    key: ColumnName


class TtlSettings(SettingsPart):
    """How the database expires records by itself, by a column that the root and all children have."""

    column: Annotated[ColumnName, Field(description="When the database may expire a row; empty means never.")]
    document_ttl: Annotated[TimeToLive, Field(description="How far housekeeping postpones rows that must not expire yet.")]
    expires_in_max_days: Annotated[int, Field(ge=1, le=36_500, description="How many days ahead housekeeping looks.")] = 1

    @model_validator(mode="after")
    def _postpones_beyond_the_days_ahead(self) -> Self:
        # a postponement within the same days would have no effect, or even make the time earlier
        days = self.expires_in_max_days
        if not is_always_longer(self.document_ttl, Duration(days=days)):
            raise InvalidValue(
                f"is {self.document_ttl}, not longer than expires_in_max_days, which is {days}: postponed rows could expire "
                "within the days that housekeeping looks ahead",
                f"a duration longer than {days}d",
                f"Write document_ttl: {days + 1}d or longer, or make expires_in_max_days smaller.",
                key="document_ttl",
            )
        return self


class RecordsSettings(DatabaseSettings):
    """Kind `records`: independent records in a database, each a root row with rows in other tables."""

    has_realm_column: ClassVar[bool] = True
    has_branches: ClassVar[bool | None] = False

    kind: Literal["records"] = "records"
    root: RootTable
    children: Annotated[tuple[ChildTable, ...], BeforeValidator(tuple_of)] = ()
    ttl: TtlSettings | None = None

    @model_validator(mode="after")
    def _children_are_others(self) -> Self:
        if any(child.table == self.root.table for child in self.children):
            raise InvalidValue("lists the root's table among the children", "tables other than the root's", key="children")
        if len(set(self.children)) != len(self.children):
            raise InvalidValue("names a table and key twice", "each table and key once", key="children")
        return self

    def realm_of(self, dataset: str) -> str | None:
        if isinstance(self.realm, RealmColumn):
            return dataset.removeprefix(f"{self.name}/{self.root.table}").removeprefix("/") or None
        return super().realm_of(dataset)
