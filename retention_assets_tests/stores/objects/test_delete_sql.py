"""Deleting objects that are rows: in one transaction with the look, in each kind of database."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, text, update

from retention_assets.outcomes import Order, Outcome
from retention_assets.sql.errors import WriteFailed
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.guarded_delete import GuardedDelete
from retention_assets.stores.objects import delete
from retention_assets.stores.protocol import Remains, SweptTarget
from retention_assets_tests.stores.objects.conftest import KEYS
from retention_assets_tests.stores.objects.environments import OLD, SqlObjects
from retention_assets_tests.stores.objects.sweeps import begun, planned, swept


@pytest.fixture(autouse=True)
def _closed(table: SqlObjects) -> Iterator[None]:
    yield
    table.store().close()


def test_rows_that_are_as_they_were_planned_go_and_others_stay(table: SqlObjects) -> None:
    store = table.store()
    targets = planned(store, *KEYS)
    table.put("a/one", b"a/one", OLD + timedelta(microseconds=1))
    table.put("a/two", b"longer than it was")
    assert swept(store, targets) == {
        "a/one": SweptTarget("a/one", Outcome.SPARED, error="another object now"),
        "a/two": SweptTarget("a/two", Outcome.SPARED, error="another object now"),
        "a/three": SweptTarget("a/three", Outcome.DELETED, len("a/three")),
    }
    assert table.data().keys() == {"a/one", "a/two"}


@pytest.fixture
def lite(tmp_path: Path) -> SqlObjects:
    (tmp_path / "lite").mkdir()
    (tmp_path / "lite.db").touch()
    return SqlObjects(tmp_path / "lite", f"sqlite:///{tmp_path}/lite.db")


def in_realms(lite: SqlObjects) -> dict[str, Any]:
    """The same key in two realms, as a table may have it whose key is not unique by itself."""
    with lite.engine.begin() as connection:
        connection.execute(text("DROP TABLE objs"))
        connection.execute(
            text("CREATE TABLE objs (id TEXT, made TEXT, weight INTEGER, tenant TEXT, type TEXT, PRIMARY KEY (tenant, id))")
        )
    lite.fill(*({"id": "one", "weight": 5, "tenant": name} for name in ("r1", "r2")))
    return {"listing": {"sql": {**lite.listing["sql"], "realm": "tenant"}}, "dataset": "{realm}"}


@pytest.mark.parametrize(
    ("known", "remains"), [(True, Remains.FREED), (False, Remains.UNKNOWN)], ids=["planned", "perhaps another"]
)
def test_an_emptied_table_shows_that_rows_are_gone_only_where_it_is_known_to_be_the_planned_one(
    lite: SqlObjects, known: bool, remains: Remains
) -> None:
    lite.put("a/one", b"x")
    [target] = begun(planned(lite.store(), "a/one"))
    lite.take("a/one")
    assert lite.store().remains("blobs/a", [replace(target, place_known=known)]) == {"a/one": remains}
    lite.put("a/two", b"x")
    assert lite.store().remains("blobs/a", [target]) == {"a/one": Remains.FREED}


def test_a_key_that_two_realms_have_goes_from_one_alone(lite: SqlObjects) -> None:
    store = lite.store(**in_realms(lite))
    found = swept(store, planned(store, "one", dataset="blobs/r1"), dataset="blobs/r1")
    assert found == {"one": SweptTarget("one", Outcome.DELETED, 5)}
    with lite.engine.connect() as connection:
        assert connection.execute(select(lite.table.c.tenant)).scalars().all() == ["r2"]


def test_a_key_without_a_realm_goes_from_no_realm(lite: SqlObjects) -> None:
    store = lite.store(**in_realms(lite))
    with lite.engine.begin() as connection:
        connection.execute(update(lite.table).where(lite.table.c.tenant == "r1").values(tenant=None))
    found = swept(store, planned(store, "one", dataset="blobs/blobs"), dataset="blobs/blobs")
    assert found == {"one": SweptTarget("one", Outcome.DELETED, 5)}
    with lite.engine.connect() as connection:
        assert connection.execute(select(lite.table.c.tenant)).scalars().all() == ["r2"]


def test_of_what_nobody_knows_whether_it_was_committed_nothing_is_said_to_be_gone(
    lite: SqlObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it tried in halves, what has just gone would be found gone, and nobody would count what became free."""
    store, write = lite.store(), ForeignDatabase.write
    for key in ("a/one", "a/two"):
        lite.put(key, b"x")
    targets = planned(store, "a/one", "a/two")

    def lost(self: ForeignDatabase, *given: Any) -> Any:
        monkeypatch.setattr(ForeignDatabase, "write", write)
        write(self, *given)
        raise WriteFailed("the server went away", is_lost=True, is_transient=True)

    monkeypatch.setattr(ForeignDatabase, "write", lost)
    found = swept(store, targets)
    assert {one.outcome for one in found.values()} == {Outcome.FAILED}
    assert {one.bytes for one in swept(store, begun(targets)).values()} == {1}


def test_rows_can_not_be_set_aside(lite: SqlObjects) -> None:
    lite.put("a/one", b"x")
    store = lite.store()
    assert "Leave `undo` out" in (store.undo_fault() or "")
    assert store.settings.undo_fault == store.undo_fault()
    [found] = store.carry_out(Order.SET_ASIDE, "blobs/a", planned(store, "a/one"), 1)
    assert (found.outcome, found.error, list(lite.data())) == (Outcome.FAILED, store.undo_fault(), ["a/one"])


def test_a_row_that_came_into_another_realm_is_not_the_one_that_was_planned(lite: SqlObjects) -> None:
    store = lite.store(**in_realms(lite))
    targets = planned(store, "one", dataset="blobs/r1")
    with lite.engine.begin() as connection:
        connection.execute(update(lite.table).where(lite.table.c.tenant == "r1").values(tenant="r3"))
    assert swept(store, targets, dataset="blobs/r1")["one"].outcome is Outcome.ALREADY_GONE
    with lite.engine.connect() as connection:
        assert sorted(connection.execute(select(lite.table.c.tenant)).scalars()) == ["r2", "r3"]


@pytest.mark.parametrize("comes", ["before the batch", "after the comparison"])
def test_several_rows_of_one_key_stay(lite: SqlObjects, comes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with lite.engine.begin() as connection:
        connection.execute(text("DROP TABLE objs"))
        connection.execute(text("CREATE TABLE objs (id TEXT, made TEXT, weight INTEGER, tenant TEXT, type TEXT)"))
    lite.put("a/one", b"x")
    store = lite.store()
    targets = planned(store, "a/one")
    row = {"id": "a/one", "made": OLD.replace(tzinfo=None).isoformat(sep=" "), "weight": 1}
    if comes == "before the batch":
        with lite.engine.begin() as connection:
            connection.execute(insert(lite.table), [row])
    else:
        look = GuardedDelete.surely_gone

        def meanwhile(deletion: GuardedDelete[Any, Any], connection: Connection, *others: Any) -> list[str]:
            connection.execute(insert(lite.table), [row])
            return look(deletion, connection, *others)

        monkeypatch.setattr(GuardedDelete, "surely_gone", meanwhile)
    found = swept(store, targets)["a/one"]
    assert found.outcome is (Outcome.SPARED if comes == "before the batch" else Outcome.FAILED)
    assert "Several rows" in (found.error or "")
    assert "a/one" in lite.data()


def test_many_rows_are_many_transactions(lite: SqlObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "ROWS_AT_ONCE", 2)
    keys = [f"a/{number}" for number in range(5)]
    for key in keys:
        lite.put(key, b"x")
    store = lite.store()
    assert {one.outcome for one in swept(store, planned(store, *keys)).values()} == {Outcome.DELETED}
    assert lite.data() == {}


def test_a_column_that_is_not_there_is_named(lite: SqlObjects) -> None:
    lite.put("a/one", b"x")
    store = lite.store()
    targets = planned(store, "a/one")
    wrong = lite.store(listing={"sql": {**lite.listing["sql"], "size": "bytes"}})
    found = swept(wrong, targets)["a/one"]
    assert found.outcome is Outcome.FAILED
    assert "no column bytes" in (found.error or "")
    assert lite.data().keys() == {"a/one"}


def test_rows_whose_times_name_no_zone_go_as_well(table: SqlObjects) -> None:
    """They are read in UTC when they are listed, and when they go."""
    if table.dialect != "postgresql":
        pytest.skip("elsewhere no time names one")
    with table.engine.begin() as connection:
        connection.execute(text("ALTER TABLE objs ALTER made TYPE timestamp USING made AT TIME ZONE 'UTC'"))
    store = table.store()
    assert swept(store, planned(store, *KEYS)) == {key: SweptTarget(key, Outcome.DELETED, len(key)) for key in KEYS}
