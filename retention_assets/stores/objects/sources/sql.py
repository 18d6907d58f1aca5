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
    Column,
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
from retention_assets.stores.objects.tables import OBJECTS, constant_dataset, dataset_parts, whole_batch, with_names
from retention_assets.stores.records.tables import Key, RecordTables, TableRows, attribute_text


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
        """Rows with a key."""
        rows = 0
        database = ForeignDatabase(self.url, self.label)
        try:
            table = table_of(database, self.table)
            with database.reading() as connection:
                for batch in stream(connection, self._query(connection, table), self._read_schema, bytes_too=True):
                    rows += len(batch)
                    yield self._checked(batch)
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

    @property
    def _read_schema(self) -> pa.Schema:
        return pa.schema([field.with_nullable(True) for field in self.schema])

    def _query(self, connection: Connection, table: Table) -> Select[Any]:
        dialect = connection.dialect.name
        given = [None if name is None else self._column(table, name) for name in self.columns]
        texts = [null() if column is None else Key(column, dialect).text for column in given]
        required = [
            column.is_not(None)
            for column, field in zip(given, self.schema, strict=True)
            if column is not None and not field.nullable
        ]
        query: Select[Any] = select(*(text.label(f"c{at}") for at, text in enumerate(texts))).where(and_(*required))
        # Line breaks end a trailing comment in the condition.
        return query if self.where is None else query.where(literal_column(f"(\n{self.where}\n)"))

    def _column(self, table: Table, name: str) -> Column[Any]:
        if name not in table.columns:
            remedy = suggest(name, table.columns.keys()) or f"It has {', '.join(table.columns.keys())}."
            raise SourceNotWhole(f"{self.label} has no column {name}. {remedy}")
        return table.columns[name]

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for field in self.schema:
            # An existing key without a text must not count as missing.
            if not field.nullable and batch[field.name].null_count:
                raise SourceNotWhole(f"{self.label} has keys that are bytes, which have no text in SQLite. Write them as text.")
        return batch.cast(self.schema)


# keys per statement, well below every database's limit of parameters; SQLite uses three per key
_PORTION = 5_000


@dataclass(frozen=True)
class RowRange:
    """Rows after one key and up to another, in the column's order; None is open."""

    after: str | None
    up_to: str | None


@dataclass(frozen=True)
class DatabaseObjects:
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
        return [RowRange(after, up_to) for after, up_to in pairwise(bounds)]

    def read(self, share: RowRange) -> Iterator[pa.RecordBatch]:
        rows = self._rows()
        query = rows.query
        if share.after is not None:
            query = query.where(rows.key.beyond(share.after, False))
        if share.up_to is not None:
            query = query.where(not_(rows.key.beyond(share.up_to, False)))
        yield from self._batches(query, rows)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows, wanted = self._rows(), sorted(set(keys))
        for at in range(0, len(wanted), _PORTION):
            yield from self._batches(rows.query.where(rows.key.exactly(wanted[at : at + _PORTION])), rows)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        if (constant := constant_dataset(settings)) is not None:
            return [constant]
        rows, derived = self._rows(), dict(self.derived)
        asked = dataset_parts(settings)
        if not asked <= derived.keys():
            return None
        columns = [rows.texts[role].label(role) for role in sorted(asked)]
        schema = pa.schema([(role, pa.string()) for role in sorted(asked)])
        query = select(*columns).where(rows.key.column.is_not(None)).distinct()
        names = set[str]()
        for found in self._refusing(self.database.batches(query, schema)):
            batch = whole_batch(pa.repeat("", len(found)), {role: found[role] for role in found.schema.names})
            names |= set(with_names(batch, settings)["dataset"].to_pylist())
        return sorted(names)

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
            known = connection.execute(query, {"schema": schema, "name": name, "key": key}).scalar() or []
        inner = known[1:-1]
        return list(dict.fromkeys(inner[len(inner) * number // wanted] for number in range(1, wanted))) if inner else []

    def _rows(self) -> "_Rows":
        table = table_of(self.database, self.table.table)
        key, created = self._column(table, self.table.key), self._column(table, self.table.created_at)
        if self.database.dialect != "sqlite":
            if isinstance(key.type, NullType):
                raise self._refusal(key, "is of a type that is not known here", "a text, a number or a UUID")
            if not isinstance(created.type, DateTime):
                raise self._refusal(created, f"is of the type {created.type}", "a timestamp")
        texts = {role: self._column(table, name) for role, name in self.derived}
        size = None if self.table.size is None else self._column(table, self.table.size)
        return _Rows.of(self.database.dialect, table, key, created, size, texts)

    def _column(self, table: Table, name: str) -> Column[Any]:
        if name not in table.columns:
            raise Refused(
                f"The table {table.fullname} of the store {self.database.store} has no column {name}. It has"
                f" {', '.join(table.columns.keys())}. Name one of them in the settings."
            )
        return table.columns[name]

    def _refusal(self, column: Column[Any], what: str, expected: str) -> Refused:
        return Refused(
            f"The column {column.name} of the table {self.table.table} of the store {self.database.store} {what}; expected"
            f" {expected}. Name another column in the settings."
        )

    def _batches(self, query: Select[Any], rows: "_Rows") -> Iterator[pa.RecordBatch]:
        for batch in self._refusing(self.database.batches(query, rows.schema)):
            if batch["key"].null_count:
                raise Refused(
                    f"A key in the table {self.table.table} of the store {self.database.store} is bytes in a file of SQLite,"
                    " which have no text. Write it as text."
                )
            if not are_datetimes(batch["created_at"]):
                raise Refused(
                    f"A {self.table.created_at} in the table {self.table.table} of the store {self.database.store} is infinite,"
                    " or in no year from 1 to 9999. Mend it: ages are not guessed."
                )
            yield whole_batch(batch["key"], {name: batch[name] for name in batch.schema.names})

    def _refusing(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except pa.ArrowException as fault:
            [line, *_] = str(fault).splitlines()
            raise Refused(
                f"The table {self.table.table} of the store {self.database.store} holds what can't be read as objects: {line}."
                " Look at its times (with a zone, or in UTC) and sizes (whole numbers)."
            ) from None


@dataclass(frozen=True)
class _Rows:
    key: Key
    query: Select[Any]
    schema: pa.Schema
    texts: dict[str, ColumnElement[Any]]

    @classmethod
    def of(
        cls, dialect: str, table: Table, key: Column[Any], created: Column[Any], size: Column[Any] | None,
        derived: dict[str, Column[Any]],
    ) -> "_Rows":  # fmt: skip
        mine = Key(key, dialect)
        # Same reading of times as in the `records` store.
        time = RecordTables(dialect, TableRows(table, mine), (), {"created_at": created}).time("created_at")
        texts = {role: attribute_text(one, dialect) for role, one in derived.items()}
        columns = {"key": mine.text, "created_at": time, **texts}
        if size is not None:
            columns["size"] = size if dialect == "sqlite" else cast(size, BigInteger)
        schema = pa.schema([OBJECTS.field(name).with_nullable(True) for name in columns])
        query = select(*(column.label(name) for name, column in columns.items())).where(key.is_not(None))
        return cls(mine, query, schema, texts)
