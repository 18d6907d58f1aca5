"""Where a table is: which catalog it is in, and what is left there of a snapshot on which a sweep had begun.

Belongs here: telling one catalog from another that is reached by the same properties. A table has an identity of its own.
Does not belong here: loading tables (store.py), and what is done about it.
"""

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from retention_assets.settings.urls import mask_secrets
from retention_assets.sql.identity import identity_of
from retention_assets.stores.iceberg.notes import is_there, note_from, notes_of, snapshot_id
from retention_assets.stores.protocol import Remains, Target


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
