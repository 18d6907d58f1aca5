"""Settings of the sources of an `objects` store: its listing, references and edges."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo

from retention_assets.errors import InvalidValue
from retention_assets.policy.keys import Instant, tuple_of
from retention_assets.settings.places import Location, StoreUrl
from retention_assets.stores.iceberg.settings import CatalogProperties
from retention_assets.stores.records.settings import ColumnName, TableName
from retention_assets.stores.settings import Cascading, RowPolicies, SettingsPart, StoreSettings

_Glob = Annotated[Location, Field(description="A glob.")]
_Place = Annotated[Location | None, Field(description="The place of the listed objects, needed to delete them.")]


def one_of(**kinds: type[BaseModel]) -> Callable[[Any, ValidationInfo], Any]:
    expected = f"a mapping with one of {', '.join(kinds)}"

    def read(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, dict):
            raise InvalidValue("has the wrong type", expected)
        kind = next((kinds[key] for key in kinds if key in value), None)
        if kind is None:
            keys = ", ".join(map(str, value)) or "nothing"
            raise InvalidValue(f"has no known kind: it has {keys}", expected)
        return kind.model_validate(value, context=info.context)

    return read


class ListedColumns(SettingsPart):
    """Columns of a listing. Sizes, ETags and versions are also found under the names of their keys, if they are
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
    """The place to which a bucket's inventory is delivered."""

    manifest: Annotated[Location, Field(description="The folder of deliveries, or one manifest.json.")]


class InventoryListing(SettingsPart):
    """The newest complete inventory of a bucket, as S3 Inventory writes it."""

    inventory: InventoryPlace
    path: Annotated[Location | None, Field(description="The place of the objects; by default the inventory's bucket.")] = None


class ListingTable(SettingsPart):
    """A table of a catalog that lists objects."""

    catalog: CatalogProperties
    name: Annotated[str, Field(min_length=3, description="namespace.table")]
    columns: ListedColumns = ListedColumns()


class TableListing(SettingsPart):
    """An Iceberg table that lists objects, such as S3 Metadata's."""

    table: ListingTable
    path: _Place = None


class ParquetFiles(SettingsPart):
    """Parquet files that list objects as they were at an instant."""

    files: _Glob
    as_of: Annotated[Instant, Field(description="When it was listed: the age of a listing is never guessed.")]
    columns: ListedColumns = ListedColumns()


class ParquetListing(SettingsPart):
    """A listing that somebody else made."""

    parquet: ParquetFiles
    path: _Place = None


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


Listing = Annotated[
    PathListing | InventoryListing | TableListing | ParquetListing | SqlListing,
    BeforeValidator(
        one_of(inventory=InventoryListing, table=TableListing, parquet=ParquetListing, sql=SqlListing, path=PathListing)
    ),
]


class SourceSettings(SettingsPart):
    """Settings of every source of references or edges."""

    shards: Annotated[
        Literal["changing"] | None,
        Field(description="`changing`: its files or shares come and go, so fewer of them are not a fault."),
    ] = None


class LineFiles(SourceSettings):
    """References or edges as JSON lines; the last line of each file says that it is whole."""

    lines: _Glob


class _ParquetColumns(SourceSettings):
    parquet: _Glob


class _TableColumns(SourceSettings):
    sql: StoreUrl
    table: TableName
    where: Annotated[str | None, Field(min_length=1, description="A condition in the SQL of the database.")] = None


class _Referring(SettingsPart):
    key: ColumnName
    realm: ColumnName | None = None
    from_: Annotated[ColumnName | None, Field(alias="from", description="The referring object.")] = None

    @property
    def columns(self) -> tuple[str | None, ...]:
        return self.key, self.realm, self.from_


class _Leading(SettingsPart):
    from_: Annotated[ColumnName, Field(alias="from")] = "from"
    to: ColumnName = "to"
    realm: ColumnName | None = None

    @property
    def columns(self) -> tuple[str | None, ...]:
        return self.from_, self.to, self.realm


class ParquetReferences(_ParquetColumns, _Referring):
    """References in a column of Parquet files."""

    key: ColumnName = "object"


class SqlReferences(_TableColumns, _Referring):
    """References in a column of a database."""


class ParquetEdges(_ParquetColumns, _Leading):
    """Edges in two columns of Parquet files."""


class SqlEdges(_TableColumns, _Leading):
    """Edges in two columns of a database."""


class IcebergCatalog(SettingsPart):
    """A catalog and some of its namespaces. Two spellings of one place are declared here, as in Iceberg itself."""

    catalog: CatalogProperties
    namespaces: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(tuple_of), Field(min_length=1, description="Globs.")
    ] = ("*",)
    equal_schemes: Annotated[dict[str, str], Field(description="Schemes that are equal to another one.")] = Field(
        default_factory=lambda: {"s3a": "s3", "s3n": "s3"}
    )
    equal_authorities: Annotated[dict[str, str], Field(description="Authorities that are equal to another one.")] = Field(
        default_factory=dict
    )


class IcebergReferences(SourceSettings):
    """Every file that any table of a catalog reaches."""

    iceberg: IcebergCatalog


class StoreReferences(SourceSettings):
    """Everything that another store of the same settings lists or reaches."""

    store: str
    # filled in once the settings of all stores are known
    settings: Annotated[StoreSettings | None, Field(exclude=True, repr=False)] = None


class PluginReferences(SourceSettings):
    """A source of somebody else's: `module:name`, or a name of the entry point group retention_assets.references."""

    use: Annotated[str, Field(min_length=1)]
    options: dict[str, Any] = Field(default_factory=dict, repr=False)


ReferenceSettings = Annotated[
    LineFiles | ParquetReferences | SqlReferences | IcebergReferences | StoreReferences | PluginReferences,
    BeforeValidator(
        one_of(
            lines=LineFiles,
            parquet=ParquetReferences,
            sql=SqlReferences,
            iceberg=IcebergReferences,
            store=StoreReferences,
            use=PluginReferences,
        )
    ),
]
EdgeSettings = Annotated[
    LineFiles | ParquetEdges | SqlEdges,
    BeforeValidator(one_of(lines=LineFiles, parquet=ParquetEdges, sql=SqlEdges)),
]
