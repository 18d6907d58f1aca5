"""Settings of the sources of references and edges."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from retention_assets.settings.urls import Location, StoreUrl
from retention_assets.stores.iceberg.settings import CatalogProperties
from retention_assets.stores.objects.listing_settings import one_of
from retention_assets.stores.records.settings import ColumnName, TableName
from retention_assets.stores.settings import SettingsPart, StoreSettings, tuple_of

_Where = Annotated[str | None, Field(min_length=1, description="A condition in the words of the database.")]
_From = Annotated[ColumnName | None, Field(alias="from", description="Who refers to it.")]
_Files = Annotated[Location, Field(description="A glob.")]


class SourceSettings(SettingsPart):
    """What every source may say."""

    shards: Annotated[
        Literal["changing"] | None, Field(description="`changing`: its files or shares come and go, and fewer is not less.")
    ] = None


class LineReferences(SourceSettings):
    """References as JSON lines; the last line of each file says that it is whole."""

    lines: _Files


class ParquetReferences(SourceSettings):
    """References in a column of Parquet files."""

    parquet: _Files
    key: ColumnName = "object"
    realm: ColumnName | None = None
    from_: _From = None


class SqlReferences(SourceSettings):
    """References in a column of a database."""

    sql: StoreUrl
    table: TableName
    key: ColumnName
    realm: ColumnName | None = None
    from_: _From = None
    where: _Where = None


class IcebergCatalog(SettingsPart):
    """A catalog, and which of its namespaces are meant. Two spellings of one place are declared here, as in Iceberg itself."""

    catalog: CatalogProperties
    namespaces: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(tuple_of), Field(min_length=1, description="Globs.")
    ] = ("*",)
    equal_schemes: Annotated[dict[str, str], Field(description="Schemes that mean another one.")] = Field(
        default_factory=lambda: {"s3a": "s3", "s3n": "s3"}
    )
    equal_authorities: Annotated[dict[str, str], Field(description="Authorities that mean another one.")] = Field(
        default_factory=dict
    )


class IcebergReferences(SourceSettings):
    """Every file that any table of a catalog reaches."""

    iceberg: IcebergCatalog


class StoreReferences(SourceSettings):
    """What another store of the same settings lists or reaches."""

    store: Annotated[str, Field(min_length=1)]
    # filled in once the settings of all stores are known
    settings: Annotated[StoreSettings | None, Field(exclude=True, repr=False)] = None


class PluginReferences(SourceSettings):
    """A source of somebody else's: `module:name`, or a name of the entry point group retention_assets.references."""

    use: Annotated[str, Field(min_length=1)]
    options: dict[str, Any] = Field(default_factory=dict, repr=False)


class LineEdges(SourceSettings):
    """Edges as JSON lines; the last line of each file says that it is whole."""

    lines: _Files


class ParquetEdges(SourceSettings):
    """Edges in two columns of Parquet files."""

    parquet: _Files
    from_: Annotated[ColumnName, Field(alias="from")] = "from"
    to: ColumnName = "to"
    realm: ColumnName | None = None


class SqlEdges(SourceSettings):
    """Edges in two columns of a database."""

    sql: StoreUrl
    table: TableName
    from_: Annotated[ColumnName, Field(alias="from")] = "from"
    to: ColumnName = "to"
    realm: ColumnName | None = None
    where: _Where = None


ReferenceSettings = Annotated[
    LineReferences | ParquetReferences | SqlReferences | IcebergReferences | StoreReferences | PluginReferences,
    BeforeValidator(
        one_of(
            {
                "lines": LineReferences,
                "parquet": ParquetReferences,
                "sql": SqlReferences,
                "iceberg": IcebergReferences,
                "store": StoreReferences,
                "use": PluginReferences,
            }
        )
    ),
]
EdgeSettings = Annotated[
    LineEdges | ParquetEdges | SqlEdges,
    BeforeValidator(one_of({"lines": LineEdges, "parquet": ParquetEdges, "sql": SqlEdges})),
]
