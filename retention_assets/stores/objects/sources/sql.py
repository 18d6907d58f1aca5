"""Objects, references and edges in tables of a database. Keys are texts as in the `records` store, so that a UUID or a number
is the same key in all sources, and columns of any type can be found again. Each share is one statement and sees one state."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    Select,
    Table,
    and_,
    cast,
    literal_column,
    not_,
    null,
    select,
    text,
)
from sqlalchemy.types import NullType

from retention_assets.clock import now
from retention_assets.errors import Refused, suggest
from retention_assets.settings.places import Url, mask_secrets
from retention_assets.sql.errors import driver_message
from retention_assets.sql.foreign import ForeignDatabase, indexes_of, place_on, table_of
from retention_assets.sql.streams import are_datetimes, stream
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import SqlObjects
from retention_assets.stores.objects.sources import ShareEnd, SourceNotWhole
from retention_assets.stores.objects.sources.finished import derived_columns
from retention_assets.stores.objects.tables import OBJECTS, constant_dataset, dataset_parts, objects_batch, with_names
from retention_assets.stores.records.tables import Key, RecordTables, TableRows, attribute_text

# keys per statement, well below every database's limit of parameters; SQLite uses three per key
_PORTION = 5_000


@dataclass(frozen=True)
class DatabaseSource:
    """A table of references or edges, read in one read-only transaction: one share. `columns` belong to the table, in the order
    of the schema's fields."""

    url: Url | str
    table: str
    schema: pa.Schema
    columns: tuple[str | None, ...]
    where: str | None = None
    names_folders: bool = False

    @property
    def label(self) -> str:
        return f"sql {self.table} in {mask_secrets(self.url)}"

    def shares(self, wanted: int) -> Sequence[str]:  # noqa: ARG002 - two transactions would see two states
        return [self.table]

    def read(self, share: str) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows, schema = 0, pa.schema([field.with_nullable(True) for field in self.schema])
        database = ForeignDatabase(self.url, self.label)
        try:
            table = table_of(database, self.table)
            with database.reading() as connection:
                for batch in stream(connection, self._query(connection, table), schema, bytes_too=True):
                    rows += len(batch)
                    # An existing key without a text must not count as missing.
                    if any(batch[field.name].null_count for field in self.schema if not field.nullable):
                        raise SourceNotWhole(
                            f"{self.label} has bytes as keys, which SQLite can't convert to text. Write them as text."
                        )
                    yield batch.cast(self.schema)
        except SourceNotWhole:
            raise
        except Refused as fault:
            raise SourceNotWhole(f"{self.label} is not whole: {fault}") from fault
        # Rows are streamed past SQLAlchemy, so drivers raise their own exceptions.
        except Exception as fault:
            raise SourceNotWhole(f"{self.label} is not whole: it can't be read: {driver_message(fault)}") from fault
        return ShareEnd(share, rows)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[str]:
        """A stream read to its end is complete."""
        return [] if ends else [self.table]

    def _query(self, connection: Connection, table: Table) -> Select[Any]:
        query: Select[Any] = select()
        for at, (name, field) in enumerate(zip(self.columns, self.schema, strict=True)):
            if name is not None and name not in table.columns:
                remedy = suggest(name, table.columns.keys()) or f"It has {', '.join(table.columns.keys())}."
                raise SourceNotWhole(f"{self.label} has no column {name}. {remedy}")
            given = null() if name is None else Key(table.columns[name], connection.dialect.name).text
            query = query.add_columns(given.label(f"c{at}"))
            if name is not None and not field.nullable:
                query = query.where(table.columns[name].is_not(None))
        # Line breaks end a trailing comment in the condition.
        return query if self.where is None else query.where(literal_column(f"(\n{self.where}\n)"))


# rows after one key and up to another, in the column's order; None is open
RowRange = tuple[str | None, str | None]


@dataclass(frozen=True)
class ObjectColumns:
    """Table of objects: a query of its rows, and texts of the columns of realm and kind."""

    table: Table
    key: Key
    query: Select[Any]
    schema: pa.Schema
    texts: dict[str, ColumnElement[Any]]

    def named(self, keys: Sequence[str], realm: str | None) -> ColumnElement[bool]:
        """Match rows by key, and by realm if a column names it: a key may be in several realms."""
        if (text := self.texts.get("realm")) is None:
            return self.key.exactly(keys)
        return and_(self.key.exactly(keys), text.is_(None) if realm is None else text == realm)


@dataclass(frozen=True)
class DatabaseObjects:
    """Objects that are rows of a table, listed in ranges of keys from PostgreSQL's statistics."""

    database: ForeignDatabase
    table: SqlObjects
    # columns of realm and kind, by role
    derived: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, table: SqlObjects, settings: ObjectsSettings) -> "DatabaseObjects":
        named = {"realm": table.realm, "kind": table.kind} | derived_columns(settings)
        derived = tuple((role, name) for role, name in named.items() if name is not None)
        return cls(ForeignDatabase(table.url, settings.name, table.row_security), table, derived)

    def begin(self) -> datetime:
        """The server's time; this machine's if the database is a file."""
        return self.database.present() or now()

    def shares(self, wanted: int) -> Sequence[RowRange]:
        """Split at the bounds of the last ANALYZE if the key is indexed; a single share otherwise."""
        bounds: list[str | None] = [None, *self._bounds(wanted), None]
        return [*pairwise(bounds)]

    def read(self, share: RowRange) -> Iterator[pa.RecordBatch]:
        rows = self.columns()
        query, (after, up_to) = rows.query, share
        if after is not None:
            query = query.where(rows.key.beyond(after, False))
        if up_to is not None:
            query = query.where(not_(rows.key.beyond(up_to, False)))
        yield from self._batches(query, rows)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows, wanted = self.columns(), sorted(set(keys))
        for at in range(0, len(wanted), _PORTION):
            yield from self._batches(rows.query.where(rows.key.exactly(wanted[at : at + _PORTION])), rows)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        if (constant := constant_dataset(settings)) is not None:
            return [constant]
        rows, roles = self.columns(), sorted(dataset_parts(settings))
        if not set(roles) <= rows.texts.keys():
            return None
        query = select(*(rows.texts[role].label(role) for role in roles)).where(rows.key.column.is_not(None)).distinct()
        names = set[str]()
        for batch in self._refusing(self.database.batches(query, pa.schema([(role, pa.string()) for role in roles]))):
            objects = objects_batch(pa.repeat("", len(batch)), {role: batch[role] for role in roles})
            names |= set(with_names(objects, settings)["dataset"].to_pylist())
        return sorted(names)

    def columns(self) -> ObjectColumns:
        """Reflect the table. Raises Refused if it, or a column, is not there or of another type."""
        table, dialect = table_of(self.database, self.table.table), self.database.dialect
        column = self.database.column(table, self.table.key)
        created = self.database.column(table, self.table.created_at)
        if dialect != "sqlite":
            if isinstance(column.type, NullType):
                raise self.database.wrong_type(column, "is of a type that is not known here", "a text, a number or a UUID")
            if not isinstance(created.type, DateTime):
                raise self.database.wrong_type(created, f"is of the type {created.type}", "a timestamp")
        key = Key(column, dialect)
        # Same reading of times as in the `records` store.
        time = RecordTables(dialect, TableRows(table, key), (), {"created_at": created}).time("created_at")
        texts = {role: attribute_text(self.database.column(table, name), dialect) for role, name in self.derived}
        columns = {"key": key.text, "created_at": time, **texts}
        if self.table.size is not None:
            size = self.database.column(table, self.table.size)
            columns["size"] = size if dialect == "sqlite" else cast(size, BigInteger)
        schema = pa.schema([OBJECTS.field(name).with_nullable(True) for name in columns])
        query = select(*(given.label(name) for name, given in columns.items())).where(column.is_not(None))
        return ObjectColumns(table, key, query, schema, texts)

    def _bounds(self, wanted: int) -> list[str]:
        if wanted < 2 or self.database.dialect != "postgresql":
            return []
        key = self.table.key
        if not any(columns[0] == key for columns in indexes_of(self.database, self.table.table) if columns):
            return []
        table = table_of(self.database, self.table.table)
        with self.database.reading() as connection:
            schema, name = place_on(connection, table)
            # Statistics of all partitions together come first.
            query = text(
                "SELECT histogram_bounds::text::text[] FROM pg_stats WHERE schemaname = :schema AND tablename = :name"
                " AND attname = :key ORDER BY inherited DESC LIMIT 1"
            )
            bounds = connection.execute(query, {"schema": schema, "name": name, "key": key}).scalar() or []
        inner = bounds[1:-1]
        return list(dict.fromkeys(inner[len(inner) * number // wanted] for number in range(1, wanted))) if inner else []

    def _batches(self, query: Select[Any], rows: ObjectColumns) -> Iterator[pa.RecordBatch]:
        for batch in self._refusing(self.database.batches(query, rows.schema)):
            if batch["key"].null_count:
                raise Refused(
                    f"A key in the table {self.table.table} of the store {self.database.store} is bytes, which SQLite can't "
                    "convert to text. Write it as text."
                )
            if not are_datetimes(batch["created_at"]):
                raise Refused(
                    f"A {self.table.created_at} in the table {self.table.table} of the store {self.database.store} is "
                    "infinite, or outside of the years 1 to 9999. Mend it: ages are never guessed."
                )
            yield objects_batch(batch["key"], {name: batch[name] for name in batch.schema.names})

    def _refusing(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except pa.ArrowException as fault:
            [line, *_] = str(fault).splitlines()
            raise Refused(
                f"The table {self.table.table} of the store {self.database.store} can't be read as a list of objects: "
                f"{line}. Check its times (with a zone, or in UTC) and sizes (whole numbers)."
            ) from None
