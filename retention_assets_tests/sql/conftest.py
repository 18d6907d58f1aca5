"""A foreign database of a test, of each kind, with one small table."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from retention_assets.settings.places import Url
from retention_assets.sql.foreign import ForeignDatabase

# Whatever a text may hold that could be taken for the end of it, for nothing, or for another text.
TEXTS = (
    "", "null", "NULL", '"', '"a"', 'a"b', "\\", "\\N", "\\n", "\\.", "a\tb", "a\nb", "a\rb", "a\r\nb", "a\\\tb", "ends in \\", ",",
    "a,b", "[0,1]", ",0]", "\x0b", "\x1f", "\u2028", "ü €", "  ", "5", "a'b",
)  # fmt: skip


@pytest.fixture
def database(store_url: str) -> Iterator[ForeignDatabase]:
    database = ForeignDatabase(Url(store_url), "s")
    database.write(make_table)
    yield database
    database.close()


def make_table(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE t (k bigint PRIMARY KEY, v varchar(50))"))
    connection.execute(text("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')"))
