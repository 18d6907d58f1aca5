"""References and edges in columns of a database, read in one snapshot. Keys are texts as in the `records` store, so that a UUID
or a number is the same key in all sources."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Column, Connection, Select, Table, and_, literal_column, null, select

from retention_assets.errors import Refused, suggest
from retention_assets.settings.urls import Url, mask_secrets
from retention_assets.sql.errors import driver_message
from retention_assets.sql.foreign import ForeignDatabase, table_of
from retention_assets.sql.streams import stream
from retention_assets.stores.objects.references.source import ShareEnd, SourceNotWhole
from retention_assets.stores.records.keys import Key


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
