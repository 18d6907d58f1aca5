"""Reflection: tables of somebody else's database are found under any name, and what is not there is said."""

from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select, text

from retention_assets.errors import Refused
from retention_assets.settings.places import Url
from retention_assets.sql.foreign import ForeignDatabase, indexes_of, table_of


def test_any_name_is_quoted(database: ForeignDatabase) -> None:
    quote = database.engine.dialect.identifier_preparer.quote_identifier
    name, column = 'Select "it\'s" ü%', "from %s"
    made = f"CREATE TABLE {quote(name)} ({quote(column)} bigint)"
    database.write(lambda connection: connection.exec_driver_sql(made.replace("%%", "%").replace("%", _percent(database))))
    table = table_of(database, name)
    database.write(lambda connection: connection.execute(table.insert().values({column: 7})))
    [batch] = database.batches(select(table.c[column]), pa.schema([("n", pa.int64())]))
    assert batch["n"].to_pylist() == [7]


def _percent(database: ForeignDatabase) -> str:
    return "%" if database.dialect == "sqlite" else "%%"


def test_a_table_that_is_not_there_is_named(database: ForeignDatabase) -> None:
    with pytest.raises(Refused, match="no table nowhere"):
        table_of(database, "nowhere")


def test_indexes_are_found(database: ForeignDatabase) -> None:
    database.write(lambda connection: connection.execute(text("CREATE INDEX by_v ON t (v)")))
    assert indexes_of(database, "t") == [("k",), ("v",)]


def test_reading_makes_no_sqlite_file(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no SQLite file"):
        table_of(ForeignDatabase(Url(f"sqlite:///{tmp_path / 'none.db'}"), "s"), "t")
    assert not list(tmp_path.iterdir())
