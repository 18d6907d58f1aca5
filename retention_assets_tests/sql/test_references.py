"""References: what each kind of catalog tells and hides, and that a connection asks its database to check keys."""

from contextlib import closing
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy import Connection, make_url, text

from retention_assets.settings.places import Url
from retention_assets.sql.foreign import ForeignDatabase, table_of
from retention_assets.sql.references import References, references_of
from retention_assets_tests.databases import new_database, new_schema

pytestmark = pytest.mark.dialect


def references(database: ForeignDatabase, name: str = "t") -> References:
    return references_of(database, [table_of(database, name)])


def does(database: ForeignDatabase, *statements: str) -> None:
    def done(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    database.write(done)


def test_a_table_to_which_nothing_refers_has_nothing(database: ForeignDatabase) -> None:
    found = references(database)
    assert (found.keys, found.hooks, dict(found.no_tables), found.hidden) == ((), (), {}, None)


def test_keys_are_read_with_their_columns_and_what_they_do(database: ForeignDatabase) -> None:
    does(
        database,
        "CREATE UNIQUE INDEX by_both ON t (v, k)",
        "CREATE TABLE r (n integer PRIMARY KEY, a bigint, b varchar(50), CONSTRAINT both_of_t FOREIGN KEY (b, a)"
        " REFERENCES t (v, k) ON DELETE CASCADE ON UPDATE SET NULL)",
        "CREATE TABLE s (n integer PRIMARY KEY, of_r integer, CONSTRAINT of_r FOREIGN KEY (of_r) REFERENCES r (n))",
    )
    [one, other] = references(database).keys
    assert (one.name, one.table[1], one.to[1], one.columns, one.to_columns) == ("both_of_t", "r", "t", ("b", "a"), ("v", "k"))
    assert (one.on_delete, one.on_update, one.acts, one.follows_updates) == ("CASCADE", "SET NULL", True, True)
    assert (other.name, other.table[1], other.to[1], other.acts, other.follows_updates) == ("of_r", "s", "r", False, False)


def test_a_key_that_names_no_columns_refers_to_the_primary_key(tmp_path: Path) -> None:
    (tmp_path / "s.db").touch()
    database = ForeignDatabase(Url(f"sqlite:///{tmp_path / 's.db'}"), "s")
    does(
        database, "CREATE TABLE t (x, K bigint, J bigint, PRIMARY KEY (K, J))",
        "CREATE TABLE R (A bigint, B bigint, FOREIGN KEY (A, B) REFERENCES T ON DELETE CASCADE)",
        "CREATE VIRTUAL TABLE v USING fts5 (k)",
    )  # fmt: skip
    [one] = references(database).keys
    assert (one.table, one.to, one.columns, one.to_columns) == (("main", "r"), ("main", "t"), ("a", "b"), ("k", "j"))
    assert references(database, "v").no_tables == {("main", "v"): "a virtual table"}


def test_a_connection_has_its_database_check_keys_whatever_the_server_says(database: ForeignDatabase) -> None:
    """Off by default in SQLite, and for all of a server where somebody has turned it off."""
    if database.dialect == "mysql":
        does(database, "SET GLOBAL foreign_key_checks = 0")
        database.close()
    asked = {"sqlite": "PRAGMA foreign_keys", "mysql": "SELECT @@foreign_key_checks", "postgresql": "SELECT 1"}[
        database.dialect
    ]
    try:
        assert database.write(lambda connection: connection.execute(text(asked)).scalar()) == 1
    finally:
        if database.dialect == "mysql":
            does(database, "SET GLOBAL foreign_key_checks = 1")


def test_where_no_key_is_checked_nobody_says_that_there_is_none(server: str) -> None:
    url = new_schema(server)
    database = ForeignDatabase(f"{url}%20-csession_replication_role%3Dreplica", "s")
    does(database, "CREATE TABLE t (k bigint)")
    assert "session_replication_role is replica" in str(references(database).hidden)
    database.close()


def test_a_catalog_that_may_not_be_read_hides_everything(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE hidden")
    url = server.replace("/postgres?", "/hidden?")
    database, stranger = ForeignDatabase(url, "s"), ForeignDatabase(url.replace("postgres:@", "stranger:@"), "s")
    does(database, "CREATE TABLE t (k bigint)", "CREATE ROLE stranger LOGIN", "GRANT SELECT, DELETE ON t TO stranger")
    table = table_of(stranger, "t")
    assert references_of(stranger, [table]).hidden is None
    does(database, "REVOKE SELECT ON pg_constraint FROM PUBLIC")
    found = references_of(stranger, [table])
    assert "permission denied for table pg_constraint" in str(found.hidden)
    assert (found.asked, found.keys) == ((("public", "t"),), ())
    database.close()
    stranger.close()


GRANTS = {
    "SELECT, DELETE ON {db}.t": True,
    "ALL PRIVILEGES ON {db}.*": True,
    "SELECT ON *.*": True,
    "PROCESS ON *.*": True,
    "REFERENCES ON *.*": False,
    "DELETE ON *.*": False,
    "TRIGGER ON *.*": False,
    "INDEX ON *.*": False,
    "ALL PRIVILEGES ON *.*": False,
}  # fmt: skip


@pytest.mark.parametrize("grant", GRANTS)
def test_a_user_of_mariadb_who_cannot_see_all_tables_is_not_told_that_nothing_refers(mariadb: Path, grant: str) -> None:
    """Whoever is said to see everything does see the key of a table in another database."""
    url = new_database(mariadb)
    own, other = make_url(url).database, make_url(new_database(mariadb)).database
    with closing(pymysql.connect(unix_socket=str(mariadb), user="root", autocommit=True)) as root, root.cursor() as cursor:
        for statement in (
            f"CREATE TABLE {own}.t (k bigint PRIMARY KEY)",
            f"CREATE TABLE {other}.r (k bigint, CONSTRAINT r_of_t FOREIGN KEY (k) REFERENCES {own}.t (k) ON DELETE CASCADE)",
            f"CREATE USER u_{own}@localhost",
            f"GRANT SELECT, DELETE ON {own}.t TO u_{own}@localhost",
            f"GRANT {grant.format(db=own)} TO u_{own}@localhost",
        ):
            cursor.execute(statement)
        database = ForeignDatabase(url.replace("root@", f"u_{own}@"), "s")
        found = references(database)
        database.close()
        cursor.execute(f"DROP USER u_{own}@localhost")
    assert ("GRANT REFERENCES ON *.*" in str(found.hidden)) is GRANTS[grant]
    assert [key.table for key in found.keys] == ([] if GRANTS[grant] else [(other, "r")])


def test_a_table_of_mariadb_whose_rows_are_another_ones_is_no_table(mariadb: Path) -> None:
    database = ForeignDatabase(new_database(mariadb), "s")
    does(
        database, "CREATE TABLE t (k bigint) ENGINE = MyISAM", "CREATE TABLE u (k bigint) ENGINE = MERGE UNION = (t)",
        "CREATE SEQUENCE q",
    )  # fmt: skip
    assert [what for name in "tuq" for what in references(database, name).no_tables.values()] == [
        "a table of the engine MRG_MyISAM, whose rows are elsewhere,", "a sequence",
    ]  # fmt: skip
    database.close()
