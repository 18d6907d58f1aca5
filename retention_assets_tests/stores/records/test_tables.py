"""What a records store refuses of tables that are there: spellings, foreign keys, and columns that can't do what is asked."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from retention_assets.errors import InvalidValue, Refused
from retention_assets.policy import parse_duration
from retention_assets.sql.foreign import ForeignDatabase, table_of
from retention_assets.stores.records.settings import TtlSettings
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.records.environments import Units


@pytest.fixture
def expiring(store_url: str) -> Iterator[Units]:
    units = Units(store_url, ttl={"document_ttl": "180d"})
    yield units
    units.store().close()


def refused(units: Units, **parts: Any) -> str:
    with pytest.raises(Refused) as fault:
        units.store(**parts).datasets()
    return str(fault.value)


def schema_of(units: Units) -> str:
    with units.engine.connect() as connection:
        asked = {"sqlite": "SELECT 'main'", "postgresql": "SELECT current_schema()", "mysql": "SELECT database()"}
        return str(connection.exec_driver_sql(asked[units.dialect]).scalar())


def test_the_root_is_no_child_of_its_own_by_its_schema_either(units: Units) -> None:
    """To sweep a unit of work would delete the open ones that name it their parent."""
    units.do("ALTER TABLE unit_of_work ADD COLUMN parent VARCHAR(60)")
    child = {"table": f"{schema_of(units)}.unit_of_work", "key": "parent"}
    assert "is the root's table unit_of_work itself" in refused(units, children=[child])
    root = {**units.settings["root"], "table": child["table"]}
    assert "is the root's table" in refused(units, root=root, children=[{**child, "table": "unit_of_work"}])


def test_the_root_is_known_where_the_first_schema_of_the_path_does_not_have_it(server: str) -> None:
    url = new_schema(server)
    units = Units(url)
    own = schema_of(units)
    units.do("ALTER TABLE unit_of_work ADD COLUMN parent VARCHAR(60)", f"CREATE SCHEMA {own}_before")
    units.url = url.replace(own, f"{own}_before%2C{own}")
    assert "is the root's table" in refused(units, children=[{"table": f"{own}.unit_of_work", "key": "parent"}])
    units.store().close()


def test_the_root_is_known_by_any_name(store_url: str) -> None:
    units = Units(store_url, root='50% "of" it')
    child = {"table": f"{schema_of(units)}.{units.root}", "key": "kind"}
    assert "is the root's table" in refused(units, children=[child])
    units.store().close()


def test_a_child_is_not_there_twice_by_its_schema_either(units: Units) -> None:
    child = {"table": f"{schema_of(units)}.summary", "key": "unit"}
    said = refused(units, children=[{"table": "summary", "key": "unit"}, child])
    assert f"The table {child['table']} is twice among the children of the store ods by its key unit" in said


def test_a_child_that_is_there_by_two_keys_is_done_in_turn_however_it_is_spelled(units: Units) -> None:
    units.do("ALTER TABLE summary ADD COLUMN other VARCHAR(60)")
    names = ["summary", f"{schema_of(units)}.summary"]
    children = [{"table": name, "key": key} for name, key in zip(names, ("unit", "other"), strict=True)]
    for store, entangled in ((units.store(children=children), True), (units.store(), False)):
        assert store.cascades().is_entangled is entangled


NOT_EMPTY = {
    "postgresql": ["ALTER TABLE {} ALTER COLUMN expires SET NOT NULL"],
    # As everybody wrote it in an older MySQL, where nothing else was possible.
    "mysql": ["ALTER TABLE {} MODIFY expires TIMESTAMP NOT NULL"],
    "sqlite": ["ALTER TABLE {} DROP COLUMN expires", "ALTER TABLE {} ADD COLUMN expires TEXT NOT NULL DEFAULT 'never'"],
}


@pytest.mark.parametrize("table", ["unit_of_work", "process_object"])
def test_a_time_that_could_not_be_taken_back_is_not_given(expiring: Units, table: str) -> None:
    expiring.do(*(statement.format(table) for statement in NOT_EMPTY[expiring.dialect]))
    said = f"The column expires of the table {table} of the store ods can't be empty, but empty means never: make it nullable."
    assert said in refused(expiring)


def test_what_can_be_empty_is_kept_of_each_column(units: Units) -> None:
    table = table_of(ForeignDatabase(units.url, "ods"), "summary")
    assert {column.name: column.nullable for column in table.columns if column.name != "n"} == {
        "unit": False, "content": True, "expires": True,
    }  # fmt: skip
    assert [column.name for column in table.primary_key] == ["n"]


@pytest.mark.parametrize("kind", ["xid8", "pg_lsn"])
@pytest.mark.parametrize("table", ["unit_of_work", "summary"])
def test_a_key_of_a_type_that_nobody_knows_is_refused_by_name(server: str, table: str, kind: str) -> None:
    units = Units(new_schema(server))
    units.do(f"ALTER TABLE {table} ADD COLUMN odd {kind}")
    # Among columns that nobody asks for it is no matter.
    assert units.store().datasets() == [units.dataset]
    parts: dict[str, Any] = {"root": {**units.settings["root"], "key": "odd"}}
    if table == "summary":
        parts = {"children": [{"table": "summary", "key": "odd"}]}
    assert f"The column odd of the table {table} of the store ods is of a type that is not known here" in refused(
        units, **parts
    )
    units.store().close()


@pytest.mark.parametrize(
    ("ttl", "days"),
    [("12h", 30), ("1d", 1), ("24h", 1), ("4w", 28), ("1mo", 28), ("2mo", 59), ("1y", 365), ("4y", 1460), ("P1M1D", 29)],
)
def test_what_is_put_off_is_put_off_beyond_the_days_that_are_looked_at(ttl: str, days: int) -> None:
    with pytest.raises(ValidationError) as found:
        TtlSettings.model_validate({"column": "expires", "document_ttl": ttl, "expires_in_max_days": days})
    (error,) = found.value.errors()
    fault = error["ctx"]["error"]
    assert isinstance(fault, InvalidValue)
    assert (fault.way, fault.expected) == (("document_ttl",), f"a duration longer than {days}d")
    assert f"is {parse_duration(ttl)}, not longer than expires_in_max_days, which is {days}" in fault.what
    assert f"Write document_ttl: {days + 1}d or longer" in (fault.remedy or "")
    mended = {"column": "expires", "document_ttl": f"{days + 1}d", "expires_in_max_days": days}
    assert TtlSettings.model_validate(mended).expires_in_max_days == days


@pytest.mark.parametrize(("ttl", "days"), [("25h", 1), ("1mo", 27), ("2mo", 58), ("1y", 364), ("4y", 1459), ("180d", 179)])
def test_a_moment_longer_than_the_days_that_are_looked_at_is_enough(ttl: str, days: int) -> None:
    asked = {"column": "expires", "document_ttl": ttl, "expires_in_max_days": days}
    assert TtlSettings.model_validate(asked).expires_in_max_days == days
