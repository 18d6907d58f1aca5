"""Staging: how many rows at once get into a transaction of the ledger.

Belongs here: a staging table for a million rows that are compared with what is there before they are inserted, and appending
rows. This is one of the three exceptions from the law that stores alone delete: what is staged goes with its transaction, on
SQLite a file in a folder of its own, on PostgreSQL a temporary table that is dropped on commit. Nothing else goes here.
Does not belong here: what the rows are about, and reading (streams.py).

On SQLite, ADBC writes the staging table into a file of its own, which the ledger's connection then attaches. It must never open
the ledger itself: its driver carries a second copy of SQLite, and two copies in one program void each other's file locks (on
closing a file, POSIX drops the locks of the whole program), which can corrupt the file.
On PostgreSQL, COPY over the ledger's connection fills a temporary table in the same transaction: a writer that is killed leaves
nothing behind.
"""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
from sqlalchemy import Column, Connection, Engine, Table, insert

STAGED = "staged_rows"
_BATCH = 50_000
_TYPES = {pa.int32(): "INTEGER", pa.int64(): "BIGINT"}

Load = Callable[[Connection], None]


@contextmanager
def stage(engine: Engine, table: pa.Table | None) -> Iterator[tuple[Path | None, Load]]:
    """The file that a transaction has to attach before it begins, if any, and what it has to call after it began."""
    if table is None:
        yield None, _loaded_already
    elif engine.dialect.name == "postgresql":
        yield None, lambda connection: _copy(connection, table)
    else:
        # It imports every library of tables that is installed, half a second of what definitions take to load.
        import adbc_driver_sqlite.dbapi as adbc_sqlite

        with tempfile.TemporaryDirectory(prefix="retention-") as folder:
            file = Path(folder) / "staged.db"
            with adbc_sqlite.connect(str(file)) as connection:
                with connection.cursor() as cursor:
                    cursor.adbc_ingest(STAGED, table, mode="create")
                connection.commit()
            yield file, _loaded_already


def _loaded_already(_: Connection) -> None:
    """There is no table to load, or it is in the file that was attached."""


def _copy(connection: Connection, table: pa.Table) -> None:
    columns = ", ".join(f'"{field.name}" {_TYPES.get(field.type, "TEXT")}' for field in table.schema)
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {STAGED} ({columns}) ON COMMIT DROP")
    with _driver(connection).cursor().copy(f"COPY {STAGED} FROM STDIN (FORMAT csv)") as copy:
        for batch in table.to_batches(_BATCH):
            text = io.BytesIO()
            # Strings are quoted and null is nothing at all: as COPY reads them, an empty string and null stay apart.
            pa_csv.write_csv(batch, text, pa_csv.WriteOptions(include_header=False))
            copy.write(text.getvalue())


def append_rows(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]) -> None:
    """Append rows of plain values (numbers and strings), one or a million."""
    if connection.dialect.name == "postgresql":
        names = ", ".join(f'"{column.name}"' for column in columns)
        with _driver(connection).cursor().copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    elif rows:
        statement = insert(table).values({column.name: None for column in columns}).compile(dialect=connection.dialect)
        connection.exec_driver_sql(str(statement), [tuple(row) for row in rows])


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
