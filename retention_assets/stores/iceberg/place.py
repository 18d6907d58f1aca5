"""Where a table is: which catalog it is in, and what is left there of a snapshot on which a sweep had begun.

Belongs here: opening a catalog, so that no driver of it waits for longer than `timeout`, and telling one catalog from another
that is reached by the same properties. A table has an identity of its own.
Does not belong here: loading tables (store.py), and what is done about it.
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
from retention_assets.sql.engines import bound_waiting
from retention_assets.sql.identity import identity_of
from retention_assets.stores.iceberg.notes import is_there, note_from, notes_of, snapshot_id
from retention_assets.stores.protocol import Remains, Target


class _BoundedSession(Session):
    def request(self, *args: Any, **more: Any) -> Response:
        return super().request(*args, **{"timeout": silence_bound(), **more})


def _bounded_engine(*args: Any, **more: Any) -> Engine:
    engine = create_engine(*args, **more)
    bound_waiting(engine)
    return engine


# Catalogs ask their servers as they are made, by what they make themselves.
sql.create_engine = _bounded_engine  # type: ignore[attr-defined]  # PyIceberg imports it from SQLAlchemy


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """A catalog by its properties; it is known by the property `name`, or else by that of its store."""
    bounds = {S3_CONNECT_TIMEOUT: str(silence_bound()), S3_REQUEST_TIMEOUT: str(silence_bound())}
    given = {**bounds, **properties}
    if given.get("type", "rest") == "rest":
        from pyiceberg.catalog import rest

        rest.Session = _BoundedSession  # type: ignore[attr-defined]  # PyIceberg imports it from requests
    return load_catalog(given.pop("name", name), **given)


def catalog_place(catalog: Catalog) -> str:
    """A catalog in words that are other ones for another catalog."""
    if isinstance(catalog, SqlCatalog):
        with catalog.engine.connect() as connection:
            return f"the catalog {catalog.name} in {identity_of(connection)}"
    found = catalog.properties
    told = (f"{key} {mask_secrets(found[key])}" for key in ("type", "uri", "warehouse") if key in found)
    return f"the catalog {catalog.name} ({', '.join(told)})"


def remains_of(table: Table, target: Target) -> Remains:
    """What is left of a snapshot. Its files go after it was expired, and its manifest list goes last."""
    if snapshot_id(target.transaction) in notes_of(table.metadata):
        return Remains.ALL
    try:
        note = note_from(target.note or "")
    except ValueError:
        return Remains.UNKNOWN
    if note.table != str(table.metadata.table_uuid):
        return Remains.UNKNOWN
    return Remains.SOME if is_there(table.io, note) else Remains.NOTHING
