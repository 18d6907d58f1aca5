"""Notes of a plan that do not fit the table any more."""

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, swept
from retention_assets_tests.stores.iceberg.tables import Warehouse, append, replace

NOTES = (
    ("no JSON", "{", Outcome.FAILED),
    ("no note", "{}", Outcome.FAILED),
    ("statistics that are none", '{"table": "x", "manifest_list": "l", "statistics": [1]}', Outcome.FAILED),
    ("another table of that name", '{"table": "x", "manifest_list": "l", "statistics": []}', Outcome.ALREADY_GONE),
    ("none at all", None, Outcome.ALREADY_GONE),
)


@pytest.mark.parametrize(("note", "outcome"), [pytest.param(*case, id=title) for title, *case in NOTES])
def test_a_note_that_does_not_fit_deletes_nothing(
    warehouse: Warehouse, store: IcebergStore, note: str | None, outcome: Outcome
) -> None:
    append(warehouse.table(), 1)
    there = warehouse.files()
    assert outcomes(swept(store, [Target("12345", note)])) == {12345: outcome}
    assert warehouse.files() == there


def test_a_note_outlives_the_table_it_was_made_for(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    [prepared] = store.prepare(DATASET, [str(one)])
    warehouse.catalog.drop_table("db.t")
    append(warehouse.table(), 3)
    there = warehouse.files()
    [result] = swept(store, [Target(prepared.transaction, prepared.note)]).values()
    assert (result.outcome, result.error) == (
        Outcome.ALREADY_GONE,
        "another table has the name now; the files of the earlier one are left",
    )
    assert warehouse.files() == there
