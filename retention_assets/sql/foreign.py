"""A database that belongs to somebody else: how a store reads it, writes to it and inspects its tables."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import pyarrow as pa
from adbc_driver_manager import Error as AdbcError
from sqlalchemy import Column, ColumnElement, Connection, Engine, Inspector, MetaData, Select, Table, inspect, literal, select
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope
from sqlalchemy.exc import DBAPIError, SAWarning, SQLAlchemyError
from sqlalchemy.types import NullType

from retention_assets.errors import Refused, Withheld
from retention_assets.settings.places import Url
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.engines import close_engine, foreign_engine, identity_of
from retention_assets.sql.errors import RETRY_TRANSIENT, WriteFailed, driver_message, hides_rows, is_lost, is_transient
from retention_assets.sql.retry import retry
from retention_assets.sql.streams import ALL_ROWS, copy_rows, stream
from retention_assets.sql.transactions import reading

T = TypeVar("T")
# schema and table
Place = tuple[str, str]

# Seconds per statement, and of idleness before the server undoes a transaction: work begun under a permit ends before its
# lease (ledger/leases.py).
STATEMENT_SECONDS, IDLE_SECONDS = 40, 55
_LIMITS = {
    "postgresql": f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s';"
    f" SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';",
    "mariadb": f"SET SESSION max_statement_time = {STATEMENT_SECONDS}, idle_transaction_timeout = {IDLE_SECONDS}",
    # MySQL has no limit for statements that write.
    "mysql": f"SET SESSION wait_timeout = {IDLE_SECONDS}",
}
# PostgreSQL drops them with the transaction. SQLite's one writer is in this program.
_NO_LIMITS = {
    "mariadb": "SET SESSION max_statement_time = DEFAULT, idle_transaction_timeout = DEFAULT",
    "mysql": "SET SESSION wait_timeout = DEFAULT",
}

# How a store treats row security policies. None, as for references: hidden rows are always wrong.
RowSecurity = Literal["off", "mine"] | None


def clear_limits(connection: Connection) -> None:
    """Reset the time-outs before the connection goes back to the pool."""
    if (dialect := _kind_of(connection)) in _NO_LIMITS:
        with suppress(SQLAlchemyError):
            connection.exec_driver_sql(_NO_LIMITS[dialect])


def _kind_of(connection: Connection) -> str:
    return "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name


@dataclass(frozen=True)
class ForeignDatabase:
    """The database of a store. It travels as its URL; each process opens its own connections."""

    url: Url | str
    store: str
    row_security: RowSecurity = None

    @property
    def engine(self) -> Engine:
        return foreign_engine(self.url)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent state that blocks no writer. Raises Refused if it can't be read."""
        with self._refusing(), reading(self.engine) as connection:
            if self.dialect == "postgresql" and self.sees_all:
                connection.exec_driver_sql(ALL_ROWS)
            yield connection

    @property
    def sees_all(self) -> bool:
        """A row security policy raises instead of hiding rows."""
        return self.row_security != "mine"

    @contextmanager
    def limits(self, connection: Connection) -> Iterator[None]:
        """Limit each statement, and the time between two, to what a sweep's lease allows."""
        self.set_limits(connection)
        try:
            yield
        finally:
            clear_limits(connection)

    def set_limits(self, connection: Connection) -> None:
        if (dialect := _kind_of(connection)) in _LIMITS:
            see_all = ALL_ROWS if dialect == "postgresql" and self.sees_all else ""
            connection.exec_driver_sql(_LIMITS[dialect] + see_all)

    def present(self) -> datetime | None:
        """Time of the server; None for a file."""
        if self.dialect == "sqlite":
            return None
        with self.reading() as connection:
            at: datetime = connection.execute(select(DatabaseTime())).scalar_one()
            return at

    def write(self, work: Callable[[Connection], T], permit: Callable[[], None] = lambda: None) -> T:
        """Run a transaction; retry it after a conflict or a lost connection. Raises WriteFailed.

        The fate of a commit without an answer is unknown, so `work` must be idempotent. Raises Withheld if it stays unknown:
        nobody may take it for done or for not done. `permit` is called before each beginning and each commit; its exception
        undoes the transaction and is raised here.
        """
        connected = unanswered = False

        def attempt() -> T:
            nonlocal connected, unanswered
            try:
                connection = self.engine.connect()
            except DBAPIError as error:
                if not connected:
                    # Never connected: do not wait for the server.
                    raise WriteFailed(driver_message(error), is_lost=True, is_transient=True) from error
                # It was there a moment ago and may be restarting.
                error.connection_invalidated = True
                raise
            except Refused as error:
                raise WriteFailed(str(error), is_lost=True, is_transient=False) from error
            connected, committing = True, False
            try:
                with connection, connection.begin(), self.limits(connection):
                    permit()
                    done = work(connection)
                    # Up to here nothing is deleted.
                    permit()
                    committing = True
            except DBAPIError as error:
                unanswered |= committing and is_lost(error)
                raise
            return done

        try:
            return retry(attempt, RETRY_TRANSIENT)
        except DBAPIError as error:
            if unanswered and is_lost(error):
                raise Withheld(
                    f"The connection to the database of the store {self.store} was lost at a commit, so it is unknown "
                    f"whether it was done: {driver_message(error)}. The next sweep looks again."
                ) from error
            raise WriteFailed(self.message(error), is_lost(error), is_transient(error)) from error

    def batches(self, query: Select[Any], schema: pa.Schema, bytes_too: bool = True) -> Iterator[pa.RecordBatch]:
        """Stream a query in one consistent state, in constant memory, in the order and types of the schema.

        Any timestamp and text becomes `frames.log.INSTANT`. `bytes_too`: see `stream`; a query that casts everything to text
        needs none and is faster.
        """
        if self.dialect == "postgresql":
            with self._refusing():
                yield from copy_rows(self.engine, query, schema, self.sees_all)
        else:
            with self.reading() as connection:
                yield from stream(connection, query, schema, bytes_too)

    def close(self) -> None:
        close_engine(self.url)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, AdbcError) as error:
            if hides_rows(error):
                raise Refused(f"The database of the store {self.store} can't be read fully: {self.message(error)}") from error
            raise Refused(
                f"The database of the store {self.store} can't be read: {driver_message(error)}. Check `url` and `table` in the"
                " settings, and that it is up."
            ) from error

    def column(self, table: Table, name: str, remedy: str = "Name one of them in the settings.") -> Column[Any]:
        """Return a column of a table. Raises Refused if there is none of that name."""
        if name not in table.columns:
            raise Refused(
                f"The table {table.fullname} of the store {self.store} has no column {name}. It has"
                f" {', '.join(table.columns.keys())}. {remedy}"
            )
        return table.columns[name]

    def wrong_type(self, column: Column[Any], what: str, expected: str) -> Refused:
        return Refused(
            f"The column {column.name} of the table {column.table.fullname} of the store {self.store} {what}; expected"
            f" {expected}. Name another column in the settings."
        )

    def message(self, error: Exception) -> str:
        remedy = " Or write `row_security: mine` in the store if its policies select the rows of the store."
        return driver_message(error) + (remedy if self.row_security and hides_rows(error) else "")


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
        reflect = _reflect_together if database.dialect == "postgresql" else _reflect_each
        reflected = reflect(inspector, list(dict.fromkeys(names)))
    for name in names:
        if name not in reflected:
            raise Refused(f"The database of the store {database.store} has no table {name}. Check `table` in the settings.")
    return [_table(database, name, *reflected[name]) for name in names]


# columns and primary key
_Reflected = tuple[Sequence[Any], Sequence[str]]


def _reflect_each(inspector: Inspector, names: Sequence[str]) -> dict[str, _Reflected]:
    tables: dict[str, _Reflected] = {}
    for name in names:
        schema, plain = _split(name)
        if not (inspector.has_table(plain, schema=schema) or plain in inspector.get_view_names(schema)):
            continue
        key = inspector.get_pk_constraint(plain, schema=schema)["constrained_columns"]
        tables[name] = inspector.get_columns(plain, schema=schema), key
    return tables


def _reflect_together(inspector: Inspector, names: Sequence[str]) -> dict[str, _Reflected]:
    # PostgreSQL needs five queries for one table or for many
    places = {name: _split(name) for name in names}
    tables: dict[str, _Reflected] = {}
    for schema in dict.fromkeys(schema for schema, _ in places.values()):
        plain = [table for table_schema, table in places.values() if table_schema == schema]
        wanted: Any = {"schema": schema, "filter_names": plain, "kind": ObjectKind.ANY, "scope": ObjectScope.ANY}
        columns, keys = inspector.get_multi_columns(**wanted), inspector.get_multi_pk_constraint(**wanted)
        for name, place in places.items():
            if place in columns:
                key = keys.get(place)
                tables[name] = columns[place], key["constrained_columns"] if key else ()
    return tables


def _table(database: ForeignDatabase, name: str, columns: Sequence[Any], key: Sequence[str]) -> Table:
    schema, plain = _split(name)
    typed: list[Column[Any]] = [
        Column(
            column["name"],
            NullType() if database.dialect == "sqlite" else column["type"],
            primary_key=column["name"] in key,
            nullable=column["nullable"],
            quote=True,
        )
        for column in columns
    ]
    return Table(plain, MetaData(), *typed, schema=schema, quote=True)


def indexes_of(database: ForeignDatabase, name: str) -> list[tuple[str, ...]]:
    schema, plain = _split(name)
    with inspecting(database) as connection:
        inspector = inspect(connection)
        key = inspector.get_pk_constraint(plain, schema=schema)["constrained_columns"]
        indexes = inspector.get_indexes(plain, schema=schema)
    # An expression has no column name.
    return [tuple(key), *(tuple(column or "" for column in index["column_names"]) for index in indexes)]


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
    places: list[Place | None] = [None] * len(tables)
    if connection.dialect.name == "postgresql":
        # A name without schema is looked up in the search path, whose first schema may not have it. Passed as values:
        # quoting in the statement would double percent signs in names.
        names = [
            ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.name) if part) for table in tables
        ]
        rows = connection.exec_driver_sql(
            "SELECT n.nspname::text, c.relname::text FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, number)"
            " LEFT JOIN pg_class c ON c.oid = to_regclass(wanted.name) LEFT JOIN pg_namespace n ON n.oid = c.relnamespace"
            " ORDER BY wanted.number",
            (names,),
        )
        places = [(schema, name) if name is not None else None for schema, name in rows]
    return [place or _place_by_name(connection, table) for place, table in zip(places, tables, strict=True)]


def _place_by_name(connection: Connection, table: Table) -> Place:
    place = table.schema or inspect(connection).default_schema_name or "", table.name
    return (place[0].lower(), place[1].lower()) if folds_case(connection) else place


def folds_case(connection: Connection) -> bool:
    """Table names that differ in case are the same: in SQLite, and by a server's settings."""
    dialect = connection.dialect.name
    if dialect in ("sqlite", "postgresql"):
        return dialect == "sqlite"
    return bool(connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar())
