"""An outcome is observed: rows that a trigger keeps, or brings back, are not said to be deleted."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets_tests.databases import new_schema
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import Table
from retention_assets_tests.stores.keepers import WAYS, keeps
from retention_assets_tests.stores.objects.environments import SqlObjects
from retention_assets_tests.stores.objects.sweeps import planned, swept
from retention_assets_tests.stores.records.environments import Units

STATUS = "meta/dataset.status"
URN = "urn:li:dataset:{}"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database whose triggers can keep rows in silence: those of MariaDB and MySQL can only raise."""
    if request.param == "postgresql":
        return new_schema(request.getfixturevalue("server"))
    (tmp_path / "store.db").touch()
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, place: str) -> str:
    if request.param == "commit" and place.startswith("sqlite"):
        pytest.skip("nothing waits for the commit there")
    return str(request.param)


@pytest.fixture
def units(place: str) -> Iterator[Units]:
    made = Units(place).has("u1", "u2", "u3", "u4", "u5")
    yield made
    made.close()


def units_swept(units: Units, *names: str) -> dict[str, SweptTarget]:
    store = units.store()
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, names)]
    return {one.transaction: one for one in store.sweep(units.dataset, targets, 2)}


def outcomes(found: dict[str, SweptTarget]) -> dict[str, str]:
    return {name: one.outcome.value for name, one in found.items()}


@pytest.mark.parametrize("table", ["unit_of_work", "summary", "process_object"])
def test_a_unit_of_work_of_which_a_row_is_kept_is_whole_and_its_neighbours_go(units: Units, way: str, table: str) -> None:
    column = "id" if table == "unit_of_work" else "unit"
    keeps(units.engine, table, f"OLD.{column} = 'u2'", way)
    found = units_swept(units, "u1", "u2", "u3", "u4")
    assert outcomes(found) == {"u1": "DELETED", "u2": "FAILED", "u3": "DELETED", "u4": "DELETED"}
    assert f"The trigger keeper on the table {table} kept the row" in (found["u2"].error or "")
    assert units.whole("u2", "u5")


def test_rows_that_a_trigger_of_the_root_gives_a_child_are_no_orphans(units: Units) -> None:
    into = "INSERT INTO summary (n, unit) VALUES (99, 'u2')"
    made = {
        "sqlite": [f"CREATE TRIGGER logs AFTER DELETE ON unit_of_work WHEN OLD.id = 'u2' BEGIN {into}; END"],
        "postgresql": [
            f"CREATE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 'u2' THEN {into}; END IF;"
            " RETURN OLD; END $$",
            "CREATE TRIGGER logs AFTER DELETE ON unit_of_work FOR EACH ROW EXECUTE FUNCTION logs()",
        ],
    }
    with units.engine.begin() as connection:
        for statement in made[units.dialect]:
            connection.execute(text(statement))
    found = units_swept(units, "u1", "u2")
    assert outcomes(found) == {"u1": "DELETED", "u2": "FAILED"}
    assert "The database kept the row" in (found["u2"].error or "")
    assert units.whole("u2", "u3", "u4", "u5")


def test_orphans_that_are_kept_are_not_said_to_be_gone(units: Units) -> None:
    units.loses("unit_of_work", "u2")
    keeps(units.engine, "summary", "OLD.unit = 'u2'", "before")
    assert outcomes(units_swept(units, "u1", "u2")) == {"u1": "DELETED", "u2": "FAILED"}
    assert units.there("summary").count("u2") == 2


@pytest.mark.parametrize("table", ["unit_of_work", "summary"])
def test_a_time_that_a_trigger_takes_away_again_is_not_set(place: str, table: str) -> None:
    units = Units(place, ttl={"document_ttl": "30d"}).has("u1", "u2")
    column = "id" if table == "unit_of_work" else "unit"
    act = {
        "sqlite": [
            f"CREATE TRIGGER keeper BEFORE UPDATE ON {table} WHEN OLD.{column} = 'u2' BEGIN SELECT RAISE(IGNORE); END",
        ],
        "postgresql": [
            f"CREATE FUNCTION keeper() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.{column} = 'u2' THEN"
            " NEW.expires := NULL; END IF; RETURN NEW; END $$",
            f"CREATE TRIGGER keeper BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION keeper()",
        ],
    }
    with units.engine.begin() as connection:
        for statement in act[units.dialect]:
            connection.exec_driver_sql(statement)
    store = units.store()
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, ["u1", "u2"])]
    at = AS_OF + timedelta(microseconds=1)
    found = {one.transaction: one for one in store.expire(units.dataset, targets, at, 2)}
    assert outcomes(found) == {"u1": "EXPIRING", "u2": "FAILED"}
    assert f"Rows of the table {table} do not have the time" in (found["u2"].error or "")
    # Who gives times takes back those that were half given.
    back = {one.transaction: one for one in store.expire(units.dataset, targets, None, 2)}
    assert outcomes(back) == {"u1": "EXPIRING", "u2": "EXPIRING"}
    assert units.expires("u1") == units.expires("u2") == {None}
    store.close()
    units.close()


@pytest.fixture
def table(place: str) -> Iterator[Table]:
    made = Table(place)
    for number in range(5):
        made.chain(URN.format(number), "status", {0: 1, 1: 5, 2: 4})
    yield made
    made.database.close()


def versions_swept(table: Table, numbers: range) -> dict[str, SweptTarget]:
    store = table.store()
    names = [f"{URN.format(number)}@{version}" for number in numbers for version in (1, 2)]
    targets = [Target(one.transaction, one.note) for one in store.prepare(STATUS, names)]
    return {one.transaction: one for one in store.sweep(STATUS, targets, 1)}


def test_a_version_that_is_kept_fails_alone(table: Table, way: str) -> None:
    kept = f"{URN.format(2)}@1"
    keeps(table.database.engine, table.name, f"OLD.urn = '{URN.format(2)}' AND OLD.version = 1", way)
    found = versions_swept(table, range(5))
    assert {name: one.outcome for name, one in found.items() if one.outcome is not Outcome.DELETED} == {kept: Outcome.FAILED}
    assert found[kept].bytes == 0
    assert f"The trigger keeper on the table {table.name} kept the row" in (found[kept].error or "")
    assert table.versions(URN.format(2), "status") == {0, 1}


@pytest.fixture
def blobs(place: str, tmp_path: Path) -> Iterator[SqlObjects]:
    (tmp_path / "blobs").mkdir()
    made = SqlObjects(tmp_path / "blobs", place)
    for number in range(5):
        made.put(f"a/{number}", b"xx")
    yield made
    made.close()


KEYS = [f"a/{number}" for number in range(5)]


def test_an_object_that_is_kept_fails_alone(blobs: SqlObjects, way: str) -> None:
    keeps(blobs.engine, "objs", "OLD.id = 'a/2'", way)
    store = blobs.store()
    found = swept(store, planned(store, *KEYS))
    assert outcomes(found) == {key: "FAILED" if key == "a/2" else "DELETED" for key in KEYS}
    assert found["a/2"].bytes == 0
    assert "The trigger keeper on the table objs kept the row" in (found["a/2"].error or "")
    assert blobs.data().keys() == {"a/2"}
