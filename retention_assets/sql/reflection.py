"""Reflection: which tables somebody else's database has, with their columns, keys and indexes.

Belongs here: questions about one table, and what each kind of database needs to be asked so that the answers are alike.
Does not belong here: which tables refer to it (references.py), what is expected of it (the stores), and its rows.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, inspect, literal, select
from sqlalchemy.exc import SAWarning
from sqlalchemy.types import NullType

from retention_assets.errors import Refused
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.identity import identity_of

# The schema and the name of a table, as the database itself has them.
Place = tuple[str, str]


def table_of(database: ForeignDatabase, name: str) -> Table:
    """A table (`table` or `schema.table`) with the columns and the primary key that it has. Raises Refused without it.

    A column is nullable if the database lets it be empty.
    What SQLite keeps in a column is what was written there, so that its columns of time have no type here and give their values
    as they are.
    """
    schema, plain = _split(name)
    with inspecting(database) as connection:
        inspector = inspect(connection)
        if not (inspector.has_table(plain, schema=schema) or plain in inspector.get_view_names(schema)):
            raise Refused(f"The database of the store {database.store} has no table {name}. Check `table` in the settings.")
        found = inspector.get_columns(plain, schema=schema)
        key = inspector.get_pk_constraint(plain, schema=schema)["constrained_columns"]
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
    """The columns of each index of a table, the primary key first."""
    schema, plain = _split(name)
    with inspecting(database) as connection:
        inspector = inspect(connection)
        key = inspector.get_pk_constraint(plain, schema=schema)["constrained_columns"]
        others = inspector.get_indexes(plain, schema=schema)
    # An expression has no name, and an index that begins with one finds no column.
    return [tuple(key), *(tuple(column or "" for column in one["column_names"]) for one in others)]


def place_of(database: ForeignDatabase, table: Table) -> Place:
    """Which table is meant: one that is written in two ways, as with its schema and without it, has one place."""
    with database.reading() as connection:
        return place_on(connection, table.schema, table.name)


def location_of(database: ForeignDatabase, table: Table) -> str:
    """Where a table is, in words that are other ones for every other table of any database."""
    with database.reading() as connection:
        schema, name = place_on(connection, table.schema, table.name)
        number = ""
        if database.dialect == "postgresql":
            # A table that was made anew has another one.
            query = "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            query += " WHERE n.nspname = %s AND c.relname = %s"
            number = f", oid {connection.exec_driver_sql(query, (schema, name)).scalar()},"
        return f"table {'.'.join(part for part in (schema, name) if part)}{number} in {identity_of(connection)}"


def has_rows(connection: Connection, table: Table) -> bool:
    """Whether a table has any row."""
    return connection.execute(select(literal(1)).select_from(table).limit(1)).first() is not None


def writes_ahead(database: ForeignDatabase) -> bool:
    """Whether readers and writers leave each other alone: on a server they do, on SQLite in WAL mode."""
    with database.reading() as connection:
        return database.dialect != "sqlite" or connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def _split(name: str) -> tuple[str | None, str]:
    schema, _, plain = name.rpartition(".")
    return schema or None, plain


@contextmanager
def inspecting(database: ForeignDatabase) -> Iterator[Connection]:
    """One state of a database, to ask what is in it."""
    with database.reading() as connection, warnings.catch_warnings():
        # Types that SQLAlchemy does not know are those of columns that nobody asks for.
        warnings.simplefilter("ignore", SAWarning)
        yield connection


def place_on(connection: Connection, schema: str | None, name: str) -> Place:
    """Which table is meant by a name, on a connection."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        # A name without a schema is looked for in the schemas of the search path, the first of which may not have it.
        # A value, so that it is quoted here: what quotes statements also doubles the percent signs in a name.
        written = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name) if part)
        row = connection.exec_driver_sql(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = to_regclass(%s)",
            (written,),
        ).first()
        if row is not None:
            return str(row[0]), str(row[1])
    found = schema or inspect(connection).default_schema_name or "", name
    return (found[0].lower(), found[1].lower()) if folds_case(connection) else found


def folds_case(connection: Connection) -> bool:
    """Whether names of tables that differ in case are the same: always in SQLite; a server is told by its settings."""
    dialect = connection.dialect.name
    if dialect in ("sqlite", "postgresql"):
        return dialect == "sqlite"
    return bool(connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar())
