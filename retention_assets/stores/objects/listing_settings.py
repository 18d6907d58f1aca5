"""Settings of the five kinds of listings of an `objects` store."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo

from retention_assets.errors import InvalidValue
from retention_assets.policy.fields import Instant
from retention_assets.settings.urls import Location, StoreUrl
from retention_assets.stores.iceberg.settings import CatalogProperties
from retention_assets.stores.records.settings import ColumnName, TableName
from retention_assets.stores.settings import Cascading, RowPolicies, SettingsPart


def one_of(kinds: Mapping[str, type[BaseModel]]) -> Callable[[Any, ValidationInfo], Any]:
    expected = f"a mapping with one of {', '.join(kinds)}"

    def read(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, dict):
            raise InvalidValue("has the wrong type", expected)
        kind = next((kinds[key] for key in kinds if key in value), None)
        if kind is None:
            said = ", ".join(map(str, value)) or "nothing"
            raise InvalidValue(f"is of no known kind: it says {said}", expected)
        return kind.model_validate(value, context=info.context)

    return read


class ListedColumns(SettingsPart):
    """Which columns of a listing say what. Sizes, ETags and versions are also found under the names of their keys, if they are
    there; realms and kinds are not."""

    key: ColumnName = "key"
    created_at: ColumnName = "created_at"
    size: ColumnName = "size"
    realm: ColumnName | None = None
    kind: ColumnName | None = None
    etag: ColumnName | None = None
    version: ColumnName | None = None


class PathListing(SettingsPart):
    """Everything below a folder of a disk, or a prefix of an object store."""

    path: Annotated[Location, Field(description="A folder, or a URI such as s3://bucket/prefix/.")]


class InventoryPlace(SettingsPart):
    """Where a bucket's inventory is delivered."""

    manifest: Annotated[Location, Field(description="The folder of deliveries, or one manifest.json.")]


class InventoryListing(SettingsPart):
    """The newest complete inventory of a bucket, as S3 Inventory writes it."""

    inventory: InventoryPlace
    path: Annotated[Location | None, Field(description="Where the objects are; the inventory's bucket unless it is set.")] = (
        None
    )


class ListingTable(SettingsPart):
    """A table of a catalog that lists objects."""

    catalog: CatalogProperties
    name: Annotated[str, Field(min_length=3, description="namespace.table")]
    columns: ListedColumns = ListedColumns()


class TableListing(SettingsPart):
    """An Iceberg table that lists objects, such as S3 Metadata's."""

    table: ListingTable
    path: Annotated[Location | None, Field(description="Where the objects are that it lists: needed to delete.")] = None


class ParquetFiles(SettingsPart):
    """Parquet files that list objects as they were at an instant."""

    files: Annotated[Location, Field(description="A glob.")]
    as_of: Annotated[Instant, Field(description="When it was listed: the age of a listing is not guessed.")]
    columns: ListedColumns = ListedColumns()


class ParquetListing(SettingsPart):
    """A listing that somebody else made."""

    parquet: ParquetFiles
    path: Annotated[Location | None, Field(description="Where the objects are that it lists: needed to delete.")] = None


class SqlObjects(SettingsPart):
    """The table of a database whose rows are the objects."""

    url: StoreUrl
    table: TableName
    key: ColumnName
    created_at: ColumnName
    size: ColumnName | None = None
    realm: ColumnName | None = None
    kind: ColumnName | None = None
    cascades: Cascading = "refused"
    row_security: RowPolicies = "off"


class SqlListing(SettingsPart):
    """Objects that are rows of a database."""

    sql: SqlObjects


KINDS = {
    "inventory": InventoryListing,
    "table": TableListing,
    "parquet": ParquetListing,
    "sql": SqlListing,
    "path": PathListing,
}
Listing = Annotated[
    PathListing | InventoryListing | TableListing | ParquetListing | SqlListing,
    BeforeValidator(one_of(KINDS)),
]
