"""What a table has set aside goes at its time though the table was dropped, renamed or made anew, and nothing else goes with it."""

from collections.abc import Callable
from dataclasses import replace as replaced_by
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from retention_assets.errors import Withheld
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.iceberg.sweeps import outcomes
from retention_assets_tests.stores.iceberg.tables import (
    Warehouse,
    append,
    content,
    own_files,
    place,
    reachable,
    reaches,
    replace,
    replaced,
)
from retention_assets_tests.stores.iceberg.test_undo import data, give, kept_by, set_properties, statistics_of, targets_of


def drops(warehouse: Warehouse) -> None:
    warehouse.catalog.drop_table("db.t")


def makes_anew(warehouse: Warehouse, location: str | None = None) -> None:
    schema = warehouse.load().schema()
    drops(warehouse)
    table = warehouse.catalog.create_table("db.t", schema, location=location)
    replace(table, 70)
    append(table, 71)


def renames(warehouse: Warehouse) -> None:
    warehouse.catalog.rename_table("db.t", "db.renamed")


def renames_and_makes_anew(warehouse: Warehouse) -> None:
    renames(warehouse)
    # in the folder of the other one, both would be in doubt
    replace(warehouse.catalog.create_table("db.t", warehouse.load("renamed").schema(), location=elsewhere(warehouse)), 70)


def elsewhere(warehouse: Warehouse) -> str:
    return f"file://{warehouse.data}/elsewhere"


ENDS: dict[str, Callable[[Warehouse], None]] = {
    "dropped": drops,
    "made anew": makes_anew,
    "made anew elsewhere": lambda warehouse: makes_anew(warehouse, elsewhere(warehouse)),
    "renamed": renames,
    "renamed and made anew": renames_and_makes_anew,
}


def tables(warehouse: Warehouse) -> list[Table]:
    return [warehouse.catalog.load_table(name) for name in warehouse.catalog.list_tables("db")]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_was_set_aside_goes_alone_whatever_became_of_its_table(
    warehouse: Warehouse, store: Any, end: Callable[[Warehouse], None]
) -> None:
    table = warehouse.table()
    one, two, three, _ = append(table, 1), append(table, 2), append(table, 3), replace(table, 4)
    statistics_of(table, one)
    statistics_of(table, two)
    own = own_files(table, one)
    both = reaches(table, table.metadata.snapshots[1]) | own
    both -= reaches(table, table.metadata.snapshots[2])
    targets = targets_of(store, one, two)
    give(store, Order.SET_ASIDE, targets)
    left, last = content(table), table.metadata_location
    end(warehouse)
    there, read = warehouse.files(), [content(table) for table in tables(warehouse)]
    assert outcomes(give(store, Order.RESTORE, targets)) == {one: Outcome.FAILED, two: Outcome.FAILED}
    assert warehouse.files() == there
    for target, goes in zip(targets, (own, both - own), strict=True):
        before = warehouse.files()
        [result] = give(store, Order.DELETE_ASIDE, [target]).values()
        assert (result.outcome, result.bytes, result.left) == (Outcome.DELETED, sum(len(before[file]) for file in goes), 0)
        assert data(before) - data(warehouse.files()) == goes
    assert [content(table) for table in tables(warehouse)] == read
    begun = [replaced_by(target, begun_earlier=True) for target in targets]
    assert outcomes(give(store, Order.DELETE_ASIDE, begun)) == {one: Outcome.ALREADY_GONE, two: Outcome.ALREADY_GONE}
    for result in give(store, Order.DELETE_ASIDE, targets).values():
        assert (result.outcome, "retention trash forget" in str(result.error)) == (Outcome.FAILED, True)
    if "renamed" not in [table.name()[-1] for table in tables(warehouse)]:
        # all that the table had in sight can be read by whoever brings it back
        assert content(warehouse.catalog.register_table("db.back", last)) == left
        assert three in left


@pytest.mark.parametrize("who", ["t", "t in the same folder", "u", "u, which has set it aside"])
def test_a_file_of_a_dropped_table_that_another_table_has_stays(warehouse: Warehouse, store: Any, who: str) -> None:
    table, (one, _) = replaced(warehouse, 2)
    [file] = [file for file in own_files(table, one) if file.endswith(".parquet")]
    targets = targets_of(store, one)
    give(store, Order.SET_ASIDE, targets)
    makes_anew(warehouse, None if "same folder" in who else elsewhere(warehouse))
    other = warehouse.load() if who[0] == "t" else warehouse.table("u")
    other.add_files([f"file://{file}"])
    if "aside" in who:
        [lent], _ = [one.snapshot_id for one in other.refresh().metadata.snapshots], replace(other, 3)
        [prepared] = store.prepare("ice/db.u", [str(lent)])
        store.carry_out(Order.SET_ASIDE, "ice/db.u", [Target(str(lent), prepared.note, aside="2/1")], 2)
    before, read = warehouse.files(), content(other)
    [result] = give(store, Order.DELETE_ASIDE, targets).values()
    # what a metadata file beside those of the old table names is not its own in the first place
    assert (result.outcome, result.left) == (Outcome.DELETED, 0 if "same folder" in who else 1)
    assert "same folder" in who or f"as ice/db.{who[0]} has it too" in str(result.error)
    assert file in warehouse.files()
    assert before.keys() > warehouse.files().keys()
    assert content(other) == read


def test_what_two_tables_of_one_name_have_set_aside_goes_in_one_order(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    first = targets_of(store, one)
    give(store, Order.SET_ASIDE, first)
    makes_anew(warehouse, elsewhere(warehouse))
    two = warehouse.load().metadata.snapshots[0].snapshot_id
    second = targets_of(store, two, plan=2)
    give(store, Order.SET_ASIDE, second)
    assert outcomes(give(store, Order.DELETE_ASIDE, [*first, *second])) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert kept_by(two) not in warehouse.load().properties
    assert content(warehouse.load()) == {warehouse.load().metadata.snapshots[0].snapshot_id: [70, 71]}
    assert not [file for file in warehouse.files() if f"snap-{one}-" in file]
    assert table.metadata.snapshots


def metadata_of(table: Table) -> list[Path]:
    return [*Path(place(table.location()), "metadata").glob("*.metadata.json")]


def removes(files: list[Path]) -> None:
    for file in files:
        file.unlink()


# By what is done to the metadata files of the old table, the newest last.
UNTOLD: dict[str, Callable[[list[Path]], object]] = {
    "it was purged": removes,
    "of its metadata only what is older is left": lambda files: removes(files[-1:]),
    "a metadata file can't be read": lambda files: files[0].write_text("{"),
    "a property can't be read": lambda files: files[-1].write_text(
        files[-1].read_text().replace('\\"snapshots\\"', '\\"no\\"')
    ),
}


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("act", UNTOLD.values(), ids=UNTOLD)
def test_where_nobody_can_tell_who_needs_its_files_they_stay(
    warehouse: Warehouse, store: Any, act: Callable[[list[Path]], object], anew: bool
) -> None:
    table, (one, _) = replaced(warehouse, 2)
    targets = targets_of(store, one)
    give(store, Order.SET_ASIDE, targets)
    files = sorted(metadata_of(table), key=lambda file: file.name)
    makes_anew(warehouse, elsewhere(warehouse)) if anew else drops(warehouse)
    act(files)
    there = warehouse.files()
    [result] = give(store, Order.DELETE_ASIDE, targets).values()
    assert result.outcome is Outcome.FAILED
    assert "can't be read" in str(result.error) or "retention trash forget" in str(result.error)
    assert warehouse.files() == there


def test_a_dropped_table_that_lets_nothing_be_deleted_loses_nothing(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    targets = targets_of(store, one)
    give(store, Order.SET_ASIDE, targets)
    set_properties(table, **{"gc.enabled": "false"})
    makes_anew(warehouse)
    there = warehouse.files()
    assert outcomes(give(store, Order.DELETE_ASIDE, targets)) == {one: Outcome.SPARED}
    assert warehouse.files() == there


def test_the_deletion_of_what_a_dropped_table_has_set_aside_is_finished_wherever_it_ended(
    warehouse: Warehouse, store: Any
) -> None:
    table, (one, _) = replaced(warehouse, 2)
    own, targets = own_files(table, one), targets_of(store, one)
    give(store, Order.SET_ASIDE, targets)
    makes_anew(warehouse)
    before, read = data(warehouse.files()), content(warehouse.load())
    times, outcome = 0, Outcome.WITHHELD
    while outcome is Outcome.WITHHELD:
        times += 1
        permits = iter([*range(times)])

        def permit(permits: Any = permits) -> None:
            if next(permits, None) is None:
                raise Withheld("the lease is over")

        [result] = give(store, Order.DELETE_ASIDE, targets, permit).values()
        targets = [replaced_by(target, begun_earlier=True) for target in targets]
        assert before - data(warehouse.files()) <= own
        outcome = result.outcome
    assert outcome is Outcome.DELETED
    assert times > 2
    assert before - data(warehouse.files()) == own
    assert content(warehouse.load()) == read
    assert data(reachable(warehouse.load())) <= data(warehouse.files())
