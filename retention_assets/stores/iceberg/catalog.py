"""Opens catalogs with bounded waits, tells one from another, and asks a SQL catalog about its tables in one statement each.

A sweep looks at the tables right before it commits and right before it deletes, and no look is used twice. A SQL catalog has to
scan all of its rows for one; PyIceberg's ORM is bypassed, and metadata is parsed again only if it changed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog, sql
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import S3_CONNECT_TIMEOUT, S3_REQUEST_TIMEOUT, load_file_io
from pyiceberg.serializers import Compressor, FromByteStream
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier
from requests import Response, Session
from sqlalchemy import Engine, bindparam, create_engine, event, literal_column, select

from retention_assets.settings.places import mask_secrets
from retention_assets.silence import silence_bound
from retention_assets.sql.engines import bound_waiting, identity_of
from retention_assets.sql.streams import ALL_ROWS
from retention_assets.stores.iceberg.fence import file_identity
from retention_assets.stores.iceberg.manifests import ParsedFiles

# namespace with its parts joined by dots, as a SQL catalog keeps it, and table name, which may contain dots
Name = tuple[str, str]

_ROWS: Any = IcebergTables.__table__
_MINE = _ROWS.c.catalog_name == bindparam("catalog")
_ALL: Any = select(_ROWS.c.table_namespace, _ROWS.c.table_name, _ROWS.c.metadata_location).where(_MINE)
# all columns, whatever they are: old tables have no `iceberg_type`
_ONE: Any = (
    select(literal_column("*"))
    .select_from(_ROWS)
    .where(_MINE, _ROWS.c.table_namespace == bindparam("namespace"), _ROWS.c.table_name == bindparam("name"))
)
_FEW = 16  # up to this many tables are queried one by one
_MEMORY = 16  # bytes of memory per byte of metadata text


def table_locations(catalog: Catalog, names: Collection[Name] | None = None) -> dict[Name, str] | None:
    """Return metadata locations of all tables, or of some; None where the catalog is no database."""
    if not isinstance(catalog, SqlCatalog):
        return None
    if names is None or len(names) > _FEW:
        return {(namespace, table): location for namespace, table, location in _all_rows(catalog) if location}
    rows = filter(None, (_row(catalog, *name) for name in names))
    locations = {(row["table_namespace"], row["table_name"]): row["metadata_location"] for row in rows}
    return {name: locations[name] for name in names if locations.get(name)}


def load_table(catalog: Catalog, identifier: Identifier, parsed: ParsedFiles) -> Table:
    """Load a table, parsing its metadata only if the file's content changed.

    Raises what the catalog raises.
    """
    # a subclass may load in its own way
    if type(catalog) is not SqlCatalog:
        return catalog.load_table(identifier)
    row = _row(catalog, ".".join(identifier[:-1]), identifier[-1])
    if row is None or not row["metadata_location"] or row.get("iceberg_type") not in (None, "TABLE"):
        raise NoSuchTableError(f"Table does not exist: {'.'.join(identifier)}")
    location = row["metadata_location"]
    with load_file_io(catalog.properties, location).new_input(location).open() as stream:
        content = bytes(stream.read())
    metadata = parsed.of("metadata", location, content, lambda: _metadata(content, location), lambda _: _MEMORY * len(content))
    name = (*row["table_namespace"].split("."), row["table_name"])
    return Table(name, metadata, location, load_file_io({**catalog.properties, **metadata.properties}, location), catalog)


def see_all_rows(catalog: Catalog) -> None:
    """Make a PostgreSQL catalog raise where row-level security would hide tables: their files would seem to be nobody's."""
    if isinstance(catalog, SqlCatalog) and catalog.engine.dialect.name == "postgresql":
        event.listen(catalog.engine, "begin", lambda connection: connection.exec_driver_sql(ALL_ROWS))


def _metadata(content: bytes, location: str) -> TableMetadata:
    stream: Any = BytesIO(content)
    return FromByteStream.table_metadata(stream, compression=Compressor.get_compressor(location))


def _all_rows(catalog: SqlCatalog) -> Sequence[Any]:
    # bypass SQLAlchemy's row objects: there may be thousands
    with catalog.engine.connect() as connection, connection.execute(_ALL, {"catalog": catalog.name}) as found:
        return (found.cursor or found).fetchall()


def _row(catalog: SqlCatalog, namespace: str, name: str) -> Mapping[str, Any] | None:
    asked = {"catalog": catalog.name, "namespace": namespace, "name": name}
    with catalog.engine.connect() as connection:
        row = connection.execute(_ONE, asked).mappings().first()
    return None if row is None else dict(row)


@dataclass
class CatalogTables:
    """Tables of a catalog at the last look, by dataset."""

    dataset: Callable[[str, str], str]
    # metadata location of each, if one statement told it
    locations: dict[str, str | None] = field(default_factory=dict)
    _rows: set[tuple[str, str, str | None]] = field(default_factory=set)
    _in_folder: dict[str, set[str]] = field(default_factory=dict)

    def look(self, catalog: Catalog, names: Iterable[str]) -> set[str]:
        """Look, and return the tables that are new or changed since the last look. `names` lists them if no statement does."""
        if not isinstance(catalog, SqlCatalog):
            self.locations = dict.fromkeys(names)
            return set(self.locations)
        present = set(_all_rows(catalog))
        added, removed = present - self._rows, self._rows - present
        for namespace, table, location in removed:
            name = self.dataset(namespace, table)
            if location and self.locations.pop(name, None):
                self._in_folder[folder_of_file(location)].discard(name)
        for namespace, table, location in added:
            if location:
                name = self.dataset(namespace, table)
                self.locations[name] = location
                self._in_folder.setdefault(folder_of_file(location), set()).add(name)
        self._rows = present
        return {self.dataset(namespace, table) for namespace, table, _ in added}

    def sharing_folder(self, table: Table) -> set[str]:
        """Return the tables whose metadata lies where this table's does, or would by default; its own name included."""
        folders = {folder_of_file(table.metadata_location), file_identity(f"{table.location().rstrip('/')}/metadata")}
        return set[str]().union(*(self._in_folder.get(folder, ()) for folder in folders))


def folder_of_file(location: str) -> str:
    return file_identity(location).rpartition("/")[0]


class _BoundedSession(Session):
    def request(self, *args: Any, **more: Any) -> Response:
        return super().request(*args, **{"timeout": silence_bound(), **more})


def _bounded_engine(*args: Any, **more: Any) -> Engine:
    engine = create_engine(*args, **more)
    bound_waiting(engine)
    return engine


# catalogs connect in their constructor, through an engine that they create
sql.create_engine = _bounded_engine  # type: ignore[attr-defined]  # PyIceberg imports it from SQLAlchemy


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog, named by its property `name` or else by its store's name."""
    bounds = {S3_CONNECT_TIMEOUT: str(silence_bound()), S3_REQUEST_TIMEOUT: str(silence_bound())}
    given = {**bounds, **properties}
    if given.get("type", "rest") == "rest":
        from pyiceberg.catalog import rest

        rest.Session = _BoundedSession  # type: ignore[attr-defined]  # PyIceberg imports it from requests
    return load_catalog(given.pop("name", name), **given)


def catalog_place(catalog: Catalog) -> str:
    """Return a text that differs for every other catalog."""
    if isinstance(catalog, SqlCatalog):
        with catalog.engine.connect() as connection:
            return f"the catalog {catalog.name} in {identity_of(connection)}"
    properties = catalog.properties
    facts = (f"{key} {mask_secrets(properties[key])}" for key in ("type", "uri", "warehouse") if key in properties)
    return f"the catalog {catalog.name} ({', '.join(facts)})"
