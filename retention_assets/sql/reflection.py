"""Reflection: tables of a foreign database with their columns, keys and indexes, alike for each kind."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Inspector, MetaData, Table, inspect, literal, select
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope
from sqlalchemy.exc import SAWarning
from sqlalchemy.types import NullType

from retention_assets.errors import Refused
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.identity import identity_of

Place = tuple[str, str]


def table_of(database: ForeignDatabase, name: str) -> Table:
    """A table (`table` or `schema.table`) with columns and primary key. Raises Refused if it is missing."""
    (table,) = tables_of(database, [name])
    return table


def tables_of(database: ForeignDatabase, names: Sequence[str]) -> list[Table]:
    """Tables in one state of the database, in the order of `names`. Raises Refused if one is missing.

    Columns are nullable if the database allows it. SQLite keeps what was written, so its time columns have no type here.
    """
    with inspecting(database) as connection:
        inspector = inspect(connection)
        look = _look_at_once if database.dialect == "postgresql" else _look_one_by_one
        found = look(inspector, list(dict.fromkeys(names)))
    for name in names:
        if name not in found:
            raise Refused(f"The database of the store {database.store} has no table {name}. Check `table` in the settings.")
    return [_table(database, name, *found[name]) for name in names]


_Look = tuple[Sequence[Any], Sequence[str]]


def _look_one_by_one(inspector: Inspector, names: Sequence[str]) -> dict[str, _Look]:
    found: dict[str, _Look] = {}
    for name in names:
        schema, plain = _split(name)
        if not (inspector.has_table(plain, schema=schema) or plain in inspector.get_view_names(schema)):
            continue
        key = inspector.get_pk_constraint(plain, schema=schema)["constrained_columns"]
        found[name] = inspector.get_columns(plain, schema=schema), key
    return found


def _look_at_once(inspector: Inspector, names: Sequence[str]) -> dict[str, _Look]:
    """All tables of a schema at once: PostgreSQL needs five queries for one or for many."""
    places = {name: _split(name) for name in names}
    found: dict[str, _Look] = {}
    for schema in dict.fromkeys(schema for schema, _ in places.values()):
        plain = [one for of, one in places.values() if of == schema]
        wanted: Any = {"schema": schema, "filter_names": plain, "kind": ObjectKind.ANY, "scope": ObjectScope.ANY}
        columns, keys = inspector.get_multi_columns(**wanted), inspector.get_multi_pk_constraint(**wanted)
        for name, place in places.items():
            if place in columns:
                key = keys.get(place)
                found[name] = columns[place], key["constrained_columns"] if key else ()
    return found


def _table(database: ForeignDatabase, name: str, found: Sequence[Any], key: Sequence[str]) -> Table:
    schema, plain = _split(name)
    columns: list[Column[Any]] = [
        Column(
            one["name"],
            NullType() if database.dialect == "sqlite" else one["type"],
            primary_key=one["name"] in key,
            nullable=one["nullable"],
            quote=True,
        )
        for one in found
    ]
    return Table(plain, MetaData(), *columns, schema=schema, quote=True)


def indexes_of(database: ForeignDatabase, name: str) -> list[tuple[str, ...]]:
    schema, plain = _split(name)
    with inspecting(database) as connection:
        inspector = inspect(connection)
        key = inspector.get_pk_constraint(plain, schema=schema)["constrained_columns"]
        others = inspector.get_indexes(plain, schema=schema)
    # An expression has no column name.
    return [tuple(key), *(tuple(column or "" for column in one["column_names"]) for one in others)]


def places_of(database: ForeignDatabase, tables: Sequence[Table]) -> list[Place]:
    """Places of tables: one written with and without its schema has one place."""
    with database.reading() as connection:
        return places_on(connection, tables)


def location_of(database: ForeignDatabase, table: Table) -> str:
    """Text that differs for every other table of any database."""
    with database.reading() as connection:
        schema, name = place_on(connection, table)
        number = ""
        if database.dialect == "postgresql":
            query = "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            query += " WHERE n.nspname = %s AND c.relname = %s"
            number = f", oid {connection.exec_driver_sql(query, (schema, name)).scalar()},"
        return f"table {'.'.join(part for part in (schema, name) if part)}{number} in {identity_of(connection)}"


def has_rows(connection: Connection, table: Table, *where: ColumnElement[bool]) -> bool:
    return connection.execute(select(literal(1)).select_from(table).where(*where).limit(1)).first() is not None


def writes_ahead(database: ForeignDatabase) -> bool:
    """Readers and writers don't block each other: on a server, or on SQLite with WAL."""
    with database.reading() as connection:
        return database.dialect != "sqlite" or connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def _split(name: str) -> tuple[str | None, str]:
    schema, _, plain = name.rpartition(".")
    return schema or None, plain


@contextmanager
def inspecting(database: ForeignDatabase) -> Iterator[Connection]:
    with database.reading() as connection, warnings.catch_warnings():
        # SQLAlchemy warns of types of columns that nobody uses.
        warnings.simplefilter("ignore", SAWarning)
        yield connection


def place_on(connection: Connection, table: Table) -> Place:
    (place,) = places_on(connection, [table])
    return place


def places_on(connection: Connection, tables: Sequence[Table]) -> list[Place]:
    known: list[Place | None] = [None] * len(tables)
    if connection.dialect.name == "postgresql":
        # A name without schema is looked up in the search path, whose first schema may not have it. Passed as values:
        # quoting in the statement would double percent signs in names.
        written = [
            ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.name) if part) for table in tables
        ]
        rows = connection.exec_driver_sql(
            "SELECT n.nspname::text, c.relname::text FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, number)"
            " LEFT JOIN pg_class c ON c.oid = to_regclass(wanted.name) LEFT JOIN pg_namespace n ON n.oid = c.relnamespace"
            " ORDER BY wanted.number",
            (written,),
        )
        known = [(schema, name) if name is not None else None for schema, name in rows]
    return [place or _named(connection, table) for place, table in zip(known, tables, strict=True)]


def _named(connection: Connection, table: Table) -> Place:
    found = table.schema or inspect(connection).default_schema_name or "", table.name
    return (found[0].lower(), found[1].lower()) if folds_case(connection) else found


def folds_case(connection: Connection) -> bool:
    """Table names that differ in case are the same: in SQLite, and by a server's settings."""
    dialect = connection.dialect.name
    if dialect in ("sqlite", "postgresql"):
        return dialect == "sqlite"
    return bool(connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar())
