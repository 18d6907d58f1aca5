"""A database that belongs to somebody else, as a store reads it and deletes from it.

Belongs here: `Database`, which is what every store over SQL has in common: reading that locks no writer, writing that is tried
again, streaming, and looking at tables.
Does not belong here: what a table means (the stores), engines, codes of errors, or how a stream is made.
"""

import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from adbc_driver_manager import Error as AdbcError
from sqlalchemy import Column, Connection, Engine, MetaData, Select, Table, inspect
from sqlalchemy.exc import DBAPIError, SAWarning, SQLAlchemyError
from sqlalchemy.types import NullType

from retention_assets.errors import Refused
from retention_assets.settings.urls import Url
from retention_assets.sql.engines import as_reader, engine_of, forget
from retention_assets.sql.errors import driver_message, is_lost, is_transient
from retention_assets.sql.streams import copy_rows, fetch_rows

T = TypeVar("T")
# The schema and the name of a table, as the database itself has them.
Place = tuple[str, str]

ATTEMPTS = 8
_SHORTEST, _LONGEST = 0.02, 2.0


class WriteFailed(Exception):
    """A transaction that was not done, in words for people. `is_lost`: the database could not be reached in the end."""

    def __init__(self, text: str, is_lost: bool, is_transient: bool) -> None:
        super().__init__(text)
        self.is_lost, self.is_transient = is_lost, is_transient


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key of a table: where it leads, and whether the database deletes rows here for those that go there."""

    to: Place
    cascades: bool


@dataclass(frozen=True)
class ForeignDatabase:
    """The database of a store. Travels as its URL; connections are made in the process that asks."""

    url: Url | str
    store: str

    @property
    def engine(self) -> Engine:
        """The engine of this process."""
        return engine_of(self.url)

    @property
    def dialect(self) -> str:
        """sqlite, postgresql, mysql or mariadb."""
        return self.engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One state of the database, however long it is read; no writer waits. Raises Refused where it can't be read."""
        with self._read(), as_reader(self.engine).connect() as connection, connection.begin():
            yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """One transaction, tried again when another one got in its way or the connection was lost. Raises WriteFailed.

        The fate of a commit whose answer got lost is unknown, so `work` must do the same when it is done twice.
        """
        for attempt in range(ATTEMPTS):
            try:
                connection = self._connected(first=attempt == 0)
                with connection, connection.begin():
                    return work(connection)
            except DBAPIError as error:
                if not is_transient(error) or attempt == ATTEMPTS - 1:
                    raise WriteFailed(driver_message(error), is_lost(error), is_transient(error)) from error
            time.sleep(random.uniform(0.5, 1) * min(_SHORTEST * 2**attempt, _LONGEST))
        raise AssertionError("the last attempt returns or raises")

    def _connected(self, first: bool) -> Connection:
        """A connection. Who was not there before is not waited for; who was there a moment ago may be coming up again."""
        try:
            return self.engine.connect()
        except DBAPIError as error:
            error.connection_invalidated = True
            if first:
                raise WriteFailed(driver_message(error), is_lost=True, is_transient=True) from error
            raise
        except Refused as error:
            raise WriteFailed(str(error), is_lost=True, is_transient=False) from error

    def batches(self, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """What a query finds in one state of the database, in memory that does not grow with it.

        The columns come in the order and the types of the schema; `frames.log.INSTANT` is made of any timestamp, and of text.
        """
        if self.dialect == "postgresql":
            with self._read():
                yield from copy_rows(self.engine, query, schema)
        else:
            with self.reading() as connection:
                yield from fetch_rows(connection, query, schema)

    def table(self, name: str) -> Table:
        """A table (`table` or `schema.table`) with the columns and the primary key that it has. Raises Refused without it.

        A column is nullable if the database lets it be empty.
        What SQLite keeps in a column is what was written there, so that its columns of time have no type here and give their
        values as they are.
        """
        schema, _, plain = name.rpartition(".")
        with self.reading() as connection, warnings.catch_warnings():
            # Types that SQLAlchemy does not know are those of columns that nobody asks for.
            warnings.simplefilter("ignore", SAWarning)
            looked = inspect(connection)
            if not (looked.has_table(plain, schema=schema or None) or plain in looked.get_view_names(schema or None)):
                raise Refused(f"The database of the store {self.store} has no table {name}. Check `table` in the settings.")
            found = looked.get_columns(plain, schema=schema or None)
            key = looked.get_pk_constraint(plain, schema=schema or None)["constrained_columns"]
        raw = self.dialect == "sqlite"
        columns: list[Column[Any]] = [
            Column(
                one["name"],
                NullType() if raw else one["type"],
                primary_key=one["name"] in key,
                nullable=one["nullable"],
                quote=True,
            )
            for one in found
        ]
        return Table(plain, MetaData(), *columns, schema=schema or None, quote=True)

    def indexes(self, name: str) -> list[tuple[str, ...]]:
        """The columns of each index of a table, the primary key first. For remarks about what is missing."""
        schema, _, plain = name.rpartition(".")
        with self.reading() as connection, warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)
            looked = inspect(connection)
            key = looked.get_pk_constraint(plain, schema=schema or None)["constrained_columns"]
            others = looked.get_indexes(plain, schema=schema or None)
        # An expression has no name, and an index that begins with one finds no column.
        return [tuple(key), *(tuple(column or "" for column in one["column_names"]) for one in others)]

    def place(self, table: Table) -> Place:
        """Which table is meant: one that is written in two ways, as with its schema and without it, has one place."""
        with self.reading() as connection:
            return self._place(connection, table.schema, table.name)

    def references(self, table: Table) -> list[ForeignKey]:
        """The foreign keys of a table."""
        with self.reading() as connection, warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)
            if self.dialect == "sqlite":
                # SQLAlchemy reads the actions of keys out of SQLite's statements, and finds only some of them there.
                asked = 'SELECT "table", on_delete FROM pragma_foreign_key_list(?, ?)'
                rows = connection.exec_driver_sql(asked, (table.name, table.schema or "main")).all()
                found = [(table.schema, name, action) for name, action in rows]
            else:
                keys = inspect(connection).get_foreign_keys(table.name, schema=table.schema)
                found = [(key["referred_schema"], key["referred_table"], key["options"].get("ondelete")) for key in keys]
            return [
                ForeignKey(self._place(connection, schema, name), str(action).upper() == "CASCADE")
                for schema, name, action in found
            ]

    def _place(self, connection: Connection, schema: str | None, name: str) -> Place:
        if self.dialect == "postgresql":
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
        # SQLite takes names that differ in case for one; a server is told by its settings whether to.
        if self.dialect == "sqlite" or (
            self.dialect != "postgresql" and connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar()
        ):
            return found[0].lower(), found[1].lower()
        return found

    def writes_ahead(self) -> bool:
        """Whether readers and writers leave each other alone: on a server they do, on SQLite in WAL mode."""
        with self.reading() as connection:
            return self.dialect != "sqlite" or connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"

    def close(self) -> None:
        """Give back the connections of this process. Asking again opens them again."""
        forget(self.url)

    @contextmanager
    def _read(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, AdbcError) as error:
            raise Refused(
                f"The database of the store {self.store} can't be read: {driver_message(error)}. Check `url` and `table` in the"
                " settings, and that it is up."
            ) from error
