"""Opens catalogs with bounded waits, tells one catalog from another with the same properties, and finds what is left of a
snapshot.
"""

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog, sql
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import S3_CONNECT_TIMEOUT, S3_REQUEST_TIMEOUT
from pyiceberg.table import Table
from requests import Response, Session
from sqlalchemy import Engine, create_engine

from retention_assets.settings.urls import mask_secrets
from retention_assets.silence import silence_bound
from retention_assets.sql.engines import bound_waiting, identity_of
from retention_assets.stores.iceberg.notes import is_there, note_from, notes_of, snapshot_id
from retention_assets.stores.protocol import Remains, Target


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
    found = catalog.properties
    told = (f"{key} {mask_secrets(found[key])}" for key in ("type", "uri", "warehouse") if key in found)
    return f"the catalog {catalog.name} ({', '.join(told)})"


def remains_of(table: Table, target: Target) -> Remains:
    """Tell what is left of a snapshot: its files go after it was expired, its manifest list last."""
    if snapshot_id(target.transaction) in notes_of(table.metadata):
        return Remains.ALL
    try:
        note = note_from(target.note or "")
    except ValueError:
        return Remains.UNKNOWN
    if note.table != str(table.metadata.table_uuid):
        return Remains.UNKNOWN
    return Remains.SOME if is_there(table.io, note) else Remains.NOTHING
