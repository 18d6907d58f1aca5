"""Tables of format version 3: who can commit to them, and what is said where nobody can."""

from retention_assets_tests.stores.iceberg.format3 import add_vectors
from retention_assets_tests.stores.iceberg.rest import RestServer
from retention_assets_tests.stores.iceberg.sweeps import TableCycle
from retention_assets_tests.stores.iceberg.tables import Warehouse, replace


def _of_format_3(warehouse: Warehouse) -> int:
    table = warehouse.table(**{"history.expire.max-snapshot-age-ms": "1"})
    first, _ = replace(table, 1), replace(table, 2)
    add_vectors(warehouse, table)
    return first


def test_a_table_to_which_nobody_here_can_commit_is_spared_when_it_is_judged(warehouse: Warehouse) -> None:
    cycle = TableCycle(warehouse)
    first = _of_format_3(warehouse)
    assert cycle.judges()[first] == ("spare", [("FORMAT_V3", "format-version=3")])
    assert cycle.fates() == {}


def test_what_was_marked_before_its_table_became_one_of_format_3_is_spared_by_the_sweep(warehouse: Warehouse) -> None:
    cycle = TableCycle(warehouse)
    table = warehouse.table(**{"history.expire.max-snapshot-age-ms": "1"})
    first, _ = replace(table, 1), replace(table, 2)
    cycle.judges()
    add_vectors(warehouse, table)
    cycle.sweep()
    status, why = cycle.fates()[first]
    assert status == "SPARED"
    assert why is not None
    assert "PyIceberg can't commit" in why


def test_a_server_commits_to_a_table_of_format_3(warehouse: Warehouse) -> None:
    first = _of_format_3(warehouse)
    with RestServer(warehouse.catalog) as server:
        warehouse.properties = server.properties
        cycle = TableCycle(warehouse)
        assert cycle.judges()[first] == ("mark", [("SELECTED", "own")])
