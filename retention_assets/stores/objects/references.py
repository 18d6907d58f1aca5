"""Sources of references: opens those of a store. Packages may add sources through the entry point group
`retention_assets.references`, or settings name one as `use: module:name`; see `RowSource`."""

from collections.abc import Mapping

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import (
    IcebergReferences,
    LineFiles,
    ParquetEdges,
    ParquetReferences,
    PluginReferences,
    ReferenceSettings,
    SqlEdges,
    SqlReferences,
    StoreReferences,
)
from retention_assets.stores.objects.sources import RowSource, ShareEnd, SourceNotWhole
from retention_assets.stores.objects.sources.files import LineSource, ParquetSource
from retention_assets.stores.objects.sources.plugins import PluginSource
from retention_assets.stores.objects.sources.sql import DatabaseSource
from retention_assets.stores.objects.sources.stores import ListingRoot, TableFileSource, TransactionFolderSource
from retention_assets.stores.objects.tables import EDGES, REFERENCES

__all__ = ["RowSource", "ShareEnd", "SourceNotWhole", "open_edges", "open_references"]


def open_references(settings: ObjectsSettings) -> list[RowSource]:
    """Open a store's sources of references in the order of its settings. Reads nothing yet, but loads plugins."""
    return [_open(settings, source) for source in settings.references]


def open_edges(settings: ObjectsSettings) -> list[RowSource]:
    return [_open_rows(source, EDGES) for source in settings.edges]


def _open(settings: ObjectsSettings, source: ReferenceSettings) -> RowSource:
    match source:
        case IcebergReferences():
            given = source.iceberg
            # SQL catalogs need a name; the default is the store's.
            catalog = IcebergSettings(name=settings.name, catalog=given.catalog, namespaces=given.namespaces)
            shown = next((given.catalog[key] for key in ("uri", "warehouse", "name") if key in given.catalog), settings.name)
            root = _root_of(settings, "iceberg", given.equal_schemes, given.equal_authorities)
            return TableFileSource(f"iceberg {mask_secrets(shown)}", catalog, root)
        case StoreReferences():
            return _open_store(settings, source)
        case PluginReferences():
            return PluginSource(source.use, source.options)
    return _open_rows(source, REFERENCES)


def _open_rows(
    source: LineFiles | ParquetReferences | ParquetEdges | SqlReferences | SqlEdges, schema: pa.Schema
) -> LineSource | ParquetSource | DatabaseSource:
    match source:
        case LineFiles():
            return LineSource(source.lines, schema)
        case ParquetReferences() | ParquetEdges():
            return ParquetSource(source.parquet, schema, source.columns)
    return DatabaseSource(source.sql, source.table, schema, source.columns, source.where)


def _open_store(settings: ObjectsSettings, source: StoreReferences) -> RowSource:
    label, other = f"store {source.store}", source.settings
    if isinstance(other, FilesSettings):
        return TransactionFolderSource(label, other, _root_of(settings, label))
    if isinstance(other, IcebergSettings):
        # Other namespaces may have files in the same folders.
        return TableFileSource(label, other.model_copy(update={"namespaces": ("*",)}), _root_of(settings, label))
    assert other is not None, "with_others() fills it in"
    raise Refused(
        f"The store {source.store} is of kind {other.kind}, which names no files. `store` in `references` needs a store of "
        f"kind iceberg or files. For other kinds, name the data that refers to the objects of {settings.name}, such as a "
        "table by `sql`."
    )


def _root_of(settings: ObjectsSettings, what: str, *equal: Mapping[str, str]) -> ListingRoot:
    if settings.data_root is None:
        raise Refused(
            f"References by `{what}` are files, but the listing of {settings.name} does not name the place of its keys. Add "
            "`path` to `listing`."
        )
    return ListingRoot(settings.data_root, *equal)
