"""Databases: one state of a table, keys as text however they are kept, and a condition that can't widen the rest."""

import sqlite3
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    LargeBinary,
    MetaData,
    String,
    Table,
    Uuid,
    create_engine,
    insert,
    make_url,
)
from sqlalchemy.pool import NullPool

from retention_assets.sql import streams
from retention_assets.stores.objects.references import SourceNotWhole
from retention_assets_tests.stores.objects.references.sources import edge_source, objects_of, rows_of, source, taken
from retention_assets_tests.stores.records.environments import DRIVERS


class Attachments:
    def __init__(self, url: str, key: Any = None, name: str = "attachment") -> None:
        self.url = url
        parsed = make_url(url)
        self.dialect = parsed.get_backend_name()
        self.engine = create_engine(parsed.set(drivername=DRIVERS[self.dialect]), poolclass=NullPool)
        self.table = Table(
            name, MetaData(), Column("n", BigInteger, primary_key=True, autoincrement=False), Column("blob key", key or String(60)), Column("tenant", String(60)),
            Column("by", String(60)),
        )  # fmt: skip
        self.table.metadata.create_all(self.engine)
        self.rows = 0

    def has(self, *keys: Any, tenant: str | None = None, by: str | None = None) -> "Attachments":
        made = [{"n": self.rows + at, "blob key": key, "tenant": tenant, "by": by} for at, key in enumerate(keys)]
        self.rows += len(made)
        with self.engine.begin() as connection:
            connection.execute(insert(self.table), made)
        return self

    def settings(self, **others: Any) -> dict[str, Any]:
        return {"sql": self.url, "table": self.table.name, "key": "blob key", **others}


def test_keys_realms_and_who_refers_are_columns(store_url: str, tmp_path: Path) -> None:
    attached = Attachments(store_url).has("a", "é\n\"b\", 'c'%", "", None, tenant="r", by="mail 1").has("d")
    given = source(tmp_path, attached.settings(realm="tenant", **{"from": "by"}))
    assert sorted(rows_of(given), key=str) == sorted(
        [
            {"object": "a", "realm": "r", "from": "mail 1"},
            {"object": "é\n\"b\", 'c'%", "realm": "r", "from": "mail 1"},
            {"object": "", "realm": "r", "from": "mail 1"},
            {"object": "d", "realm": None, "from": None},
        ],
        key=str,
    )
    assert {row["realm"] for row in rows_of(source(tmp_path, attached.settings()))} == {None}


UUID_ = UUID("0f9619ff-8b86-d011-b42d-00c04fc964ff")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [(BigInteger(), 2**53 + 1, "9007199254740993"), (Uuid(), UUID_, str(UUID_)), (LargeBinary(8), b"\x00\xff", "00ff")],
    ids=["number", "uuid", "bytes"],
)
def test_keys_are_the_text_by_which_records_are_known(store_url: str, tmp_path: Path, kind: Any, value: Any, text: str) -> None:
    attached = Attachments(store_url, kind)
    if isinstance(kind, Uuid) and attached.dialect != "postgresql":
        pytest.skip("keeps no UUIDs of its own")
    attached.has(value)
    given = source(tmp_path, attached.settings())
    if attached.dialect == "sqlite" and isinstance(kind, LargeBinary):
        with pytest.raises(SourceNotWhole, match="bytes as keys"):
            rows_of(given)
    else:
        assert objects_of(given) == [text]


CONDITIONS = {
    "{tenant} = 'r'": ["a", "b"],
    "{tenant} = 'r' OR {tenant} = 's'": ["a", "b", "c"],
    "{key} LIKE 'a%' -- only these": ["a"],
    "{key} <> ':x' AND {key} <> '%s' AND {tenant} = 's'": ["c"],
    "{tenant} IS NULL": [],
}


@pytest.mark.parametrize(("where", "keys"), CONDITIONS.items())
def test_a_condition_is_in_the_words_of_the_database(store_url: str, tmp_path: Path, where: str, keys: list[str]) -> None:
    attached = Attachments(store_url).has("a", "b", None, tenant="r").has("c", tenant="s")
    quote = "`" if attached.dialect == "mysql" else '"'
    written = where.replace("{tenant}", "tenant").replace("{key}", f"{quote}blob key{quote}")
    assert objects_of(source(tmp_path, attached.settings(where=written))) == keys


def test_edges_come_from_a_database(store_url: str, tmp_path: Path) -> None:
    attached = Attachments(store_url).has("b", None, tenant="r", by="a").has("c")
    edge = {"sql": store_url, "table": "attachment", "from": "by", "to": "blob key", "realm": "tenant"}
    assert rows_of(edge_source(tmp_path, edge)) == [{"from": "a", "to": "b", "realm": "r"}]
    assert attached.rows == 3


def test_one_state_is_read_and_nobody_waits(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BATCH", 100)
    monkeypatch.setattr(streams, "BYTES", 1_000)
    attached = Attachments(store_url).has(*(f"{number:06}" for number in range(3_000)))
    if attached.dialect == "sqlite":
        with sqlite3.connect(make_url(store_url).database or "") as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
    given = source(tmp_path, attached.settings())
    reading = given.read(given.shares(1)[0])
    first = next(reading).to_pylist()
    attached.has("later")
    rest, end = taken(reading)
    found = [row["object"] for row in [*first, *rest]]
    assert end.rows == len(found) == 3_000
    assert rest
    assert "later" not in found


def test_the_table_and_database_are_named_without_a_password(server: str, tmp_path: Path) -> None:
    for given, said in (
        (
            {"sql": "postgresql://u:secret@127.0.0.1:1/db", "table": "t", "key": "k"},
            r"sql t in postgresql://u:\*\*\*@127.0.0.1:1/db",
        ),
        ({"sql": server, "table": "nothing", "key": "k"}, "has no table nothing"),
    ):
        with pytest.raises(SourceNotWhole, match=said) as raised:
            rows_of(source(tmp_path, given))
        assert "secret" not in str(raised.value)


def test_columns_that_are_not_there_and_conditions_that_are_wrong_are_said(store_url: str, tmp_path: Path) -> None:
    attached = Attachments(store_url).has("a")
    with pytest.raises(SourceNotWhole, match=r"no column blob_key\. Did you mean blob key"):
        rows_of(source(tmp_path, attached.settings(key="blob_key")))
    with pytest.raises(SourceNotWhole, match=r"sql attachment in .*deleted_at"):
        rows_of(source(tmp_path, attached.settings(where="deleted_at IS NULL")))


def test_nothing_can_be_written_by_a_condition(server: str, store_url: str, tmp_path: Path) -> None:
    attached = Attachments(store_url).has("a")
    if attached.dialect != "postgresql":
        pytest.skip("knows no function that writes")
    with attached.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION wipe() RETURNS boolean AS $$ BEGIN UPDATE attachment SET by = 'x'; RETURN true; END $$ LANGUAGE plpgsql"
        )
    with pytest.raises(SourceNotWhole, match="read-only"):
        rows_of(source(tmp_path, attached.settings(where="wipe()")))


def test_a_share_that_was_not_read_is_missed(store_url: str, tmp_path: Path) -> None:
    given = source(tmp_path, Attachments(store_url).settings())
    assert list(given.finish([])) == ["attachment"]
    assert rows_of(given) == []
