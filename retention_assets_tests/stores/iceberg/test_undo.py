"""Undo of an Iceberg table: what is set aside comes back row by row and byte by byte, or goes for good, and nothing in between."""

from collections.abc import Callable
from dataclasses import replace as replaced_by
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePartitionSpecsUpdate, RemoveSchemasUpdate
from pyiceberg.types import LongType

from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Duration
from retention_assets.stores.protocol import Permit, SweptTarget, Target, always
from retention_assets_tests.stores.iceberg.format3 import add_vectors
from retention_assets_tests.stores.iceberg.rest import RestServer
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, own_metadata, snapshots, storied, sweep
from retention_assets_tests.stores.iceberg.tables import (
    Warehouse,
    add_statistics,
    append,
    change,
    content,
    own_files,
    place,
    reachable,
    reaches,
    replace,
    replaced,
    written,
)
from retention_assets_tests.stores.iceberg.test_commit import before, given_away, is_answered_and_not_made, is_lost, meddle

ENDS = {Order.SET_ASIDE: Outcome.SET_ASIDE, Order.RESTORE: Outcome.RESTORED, Order.DELETE_ASIDE: Outcome.DELETED}


def targets_of(store: Any, *chosen: int, plan: int = 1) -> list[Target]:
    return [Target(one.transaction, one.note, aside=f"{plan}/7") for one in store.prepare(DATASET, list(map(str, chosen)))]


def give(store: Any, order: Order, targets: list[Target], permit: Permit = always) -> dict[int, SweptTarget]:
    return {int(one.transaction): one for one in store.carry_out(order, DATASET, targets, 2, permit)}


def data(files: Any) -> set[str]:
    return {file for file in files if not file.endswith(".metadata.json")}


def set_properties(table: Table, **properties: str | None) -> None:
    with table.refresh().transaction() as changed:
        changed.remove_properties(*(name for name, text in properties.items() if text is None))
        changed.set_properties({name: text for name, text in properties.items() if text is not None})


def kept_by(snapshot: int) -> str:
    return f"retention.aside.{snapshot}"


def statistics_of(table: Table, snapshot: int, file: str = "") -> Path:
    file = file or f"{table.location()}/metadata/{snapshot}.stats"
    partitions = f"{table.location()}/metadata/{snapshot}.partitions"
    for location in (file, partitions):
        Path(place(location)).write_bytes(b"1234567890")
    add_statistics(table, snapshot, file, partitions)
    return Path(place(file))


def facts(table: Table) -> dict[int, list[Any]]:
    """All that the metadata has about each snapshot but its parent, and its rows."""
    metadata = table.refresh().metadata
    bare = [one.model_copy(update={"parent_snapshot_id": None}) for one in metadata.snapshots]
    files = [*metadata.statistics, *metadata.partition_statistics]
    rows = content(table)
    return {
        one.snapshot_id: [one, rows[one.snapshot_id], *(file for file in files if file.snapshot_id == one.snapshot_id)]
        for one in bare
    }


@pytest.mark.parametrize("server", [False, True], ids=["a catalog in this program", "a server"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_what_comes_back_is_what_it_was(warehouse: Warehouse, version: str, server: bool) -> None:
    if version == "1":
        table = warehouse.table(**{"format-version": "1"})
        for number in range(3):
            append(table, number, number + 10)
        table.delete("id == 12")
    else:
        table = storied(warehouse)
    set_properties(table, **{"history.expire.max-ref-age-ms": "1"})
    chosen = sorted(set(snapshots(table)) - {ref.snapshot_id for ref in table.refs().values()})
    statistics_of(table, chosen[0])
    known, refs = facts(table), table.refs()
    with RestServer(warehouse.catalog) as rest:
        warehouse.properties = rest.properties if server else warehouse.properties
        store = warehouse.store()
        targets = targets_of(store, *chosen)
        sizes = {int(one.transaction): (Outcome.SET_ASIDE, one.bytes) for one in store.prepare(DATASET, list(map(str, chosen)))}
        for _ in range(2):
            results = give(store, Order.SET_ASIDE, targets)
            assert {one: (result.outcome, result.bytes) for one, result in results.items()} == sizes
        assert {one: known[one] for one in known if one not in chosen} == facts(table)
        newest = append(table, 99)
        set_properties(table, **{"gc.enabled": "false"})
        assert outcomes(give(store, Order.SET_ASIDE, targets)) == dict.fromkeys(chosen, Outcome.SET_ASIDE)
        for _ in range(2):
            assert outcomes(give(store, Order.RESTORE, targets)) == dict.fromkeys(chosen, Outcome.RESTORED)
        store.close()
    assert {one: fact for one, fact in facts(table).items() if one != newest} == known
    tags = {name: (ref.snapshot_id, ref.max_ref_age_ms) for name, ref in table.refs().items() if name not in refs}
    # The age that the table gives to refs does not end a tag of these.
    assert tags == {f"restored-{one}": (one, 2**63 - 1) for one in chosen}
    assert {**refs, "main": table.refs()["main"]}.items() <= table.refs().items()
    assert not [name for name in table.properties if name.startswith("retention.")]
    # Iceberg in Java refuses metadata whose time or sequence number is behind that of its snapshots.
    assert table.metadata.last_updated_ms >= max(one.timestamp_ms for one in table.metadata.snapshots)
    numbers = [one.sequence_number or 0 for one in table.metadata.snapshots]
    assert version == "1" or table.metadata.next_sequence_number() > max(numbers)
    last = append(table, 100)
    assert content(table)[last] == [*content(table)[newest], 100]


def test_of_two_that_overlap_one_goes_for_good_and_the_other_comes_back(warehouse: Warehouse, store: Any) -> None:
    table = warehouse.table()
    one, two, three, _ = append(table, 1), append(table, 2), append(table, 3), replace(table, 4)
    statistics_of(table, two, f"file://{statistics_of(table, one)}")
    own, known = own_files(table, one), facts(table)
    targets = targets_of(store, one, two)
    give(store, Order.SET_ASIDE, targets)
    # In the meantime a sweep that sets nothing aside takes another one, which shares files with both.
    assert outcomes(sweep(store, three)) == {three: Outcome.DELETED}
    there = warehouse.files()
    [result] = give(store, Order.DELETE_ASIDE, targets[:1]).values()
    assert (result.outcome, result.bytes) == (Outcome.DELETED, sum(len(there[file]) for file in own))
    assert data(there) - data(warehouse.files()) == own
    assert outcomes(give(store, Order.DELETE_ASIDE, [replaced_by(targets[0], begun_earlier=True)])) == {
        one: Outcome.ALREADY_GONE
    }
    assert outcomes(give(store, Order.RESTORE, targets)) == {one: Outcome.FAILED, two: Outcome.RESTORED}
    assert facts(table)[two] == known[two]
    assert data(warehouse.files()) == data(reachable(table))


def test_a_file_that_a_new_commit_has_again_outlives_what_was_set_aside(warehouse: Warehouse, store: Any) -> None:
    table = warehouse.table()
    file = written(table, 1)
    one, _ = change(table, adding=[file]), replace(table, 2)
    targets = targets_of(store, one)
    give(store, Order.SET_ASIDE, targets)
    table.add_files([file.file_path])
    assert outcomes(give(store, Order.DELETE_ASIDE, targets)) == {one: Outcome.DELETED}
    assert content(table)[snapshots(table)[-1]] == [1, 2]
    assert data(warehouse.files()) == data(reachable(table))


def test_scans_and_other_tables_see_what_is_set_aside(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    statistics = statistics_of(table, one)
    files = reaches(table, table.refresh().metadata.snapshots[0])
    give(store, Order.SET_ASIDE, targets_of(store, one))
    reached = store.reached(DATASET)
    assert reached is not None
    assert statistics.exists()
    assert files <= {place(location) for files_of in reached[1] for location in files_of.locations}
    # Another table has a file of the first one in a snapshot, which is set aside as well.
    [added] = [file for file in files if file.endswith(".parquet")]
    other = warehouse.table("u")
    other.add_files([added])
    [lent], _ = snapshots(other), replace(other, 3)
    statistics_of(other, lent, f"file://{statistics}")
    [prepared] = store.prepare("ice/db.u", [str(lent)])
    assert (
        store.carry_out(Order.SET_ASIDE, "ice/db.u", [Target(str(lent), prepared.note, aside="2/1")], 2)[0].outcome
        is Outcome.SET_ASIDE
    )
    [result] = give(store, Order.DELETE_ASIDE, targets_of(store, one)).values()
    assert (result.outcome, result.left, "as ice/db.u has it too" in str(result.error)) == (Outcome.DELETED, 2, True)
    assert {file for file in files if Path(file).exists()} == {added, str(statistics)}


def evolve(table: Table, update: Any) -> None:
    with table.refresh().update_schema() as schema:
        schema.add_column("more", LongType())
    with table.refresh().update_spec() as spec:
        spec.add_identity("id")
    replace(table.refresh(), 9)
    table.refresh()._do_commit((update,), ())


# By what happens to the table and to the files of its only data file, list and manifest before it is set aside.
REFUSALS: dict[str, tuple[Callable[[Table, int, list[Path]], object], str]] = {
    "a data file is gone": (lambda _, __, files: files[0].unlink(), "is not there. Another engine's"),
    "its manifest is gone": (lambda _, __, files: files[1].unlink(), "can't be read: it is not there"),
    "its list is gone": (lambda _, __, files: files[2].unlink(), "can't be read: it is not there"),
    "its statistics are gone": (lambda _, __, files: files[3].unlink(), ".stats is not there"),
    "its schema is gone": (lambda table, _, __: evolve(table, RemoveSchemasUpdate(schema_ids=[0])), "has schema 0"),
    "its spec is gone": (lambda table, _, __: evolve(table, RemovePartitionSpecsUpdate(spec_ids=[0])), "has partition spec 0"),
    "the property is gone": (lambda table, one, _: set_properties(table, **{kept_by(one): None}), "has no property"),
    "the table was made anew": (lambda table, _, __: given_away(table.refresh()), "another table has the name"),
}


@pytest.mark.parametrize(("act", "why"), REFUSALS.values(), ids=REFUSALS)
def test_what_cant_come_back_whole_is_refused_and_stops_nothing_else(
    warehouse: Warehouse, store: Any, act: Callable[..., object], why: str
) -> None:
    table = warehouse.table()
    one = append(table, 1)
    [data_file] = Path(place(table.location()), "data").glob("*.parquet")
    files = [data_file, own_metadata(table, one, "manifest"), own_metadata(table, one, "list"), statistics_of(table, one)]
    two, _ = replace(table, 2), replace(table, 3)
    targets = targets_of(store, one)
    give(store, Order.SET_ASIDE, targets)
    act(table, one, files)
    there = warehouse.files()
    [result] = give(store, Order.RESTORE, targets).values()
    assert result.outcome is Outcome.FAILED
    assert why in str(result.error)
    assert warehouse.files() == there
    reached = store.reached(DATASET)
    assert reached
    list(reached[1])
    if kept_by(one) in warehouse.load().properties and act is not REFUSALS["the table was made anew"][0]:
        assert outcomes(sweep(store, two)) == {two: Outcome.DELETED}
        assert give(store, Order.DELETE_ASIDE, targets)[one].outcome in (Outcome.DELETED, Outcome.ALREADY_GONE)
        assert kept_by(one) not in warehouse.load().properties


def test_a_property_that_cant_be_read_stops_what_could_take_its_files(warehouse: Warehouse, store: Any) -> None:
    table, (one, two, _) = replaced(warehouse, 3)
    targets = targets_of(store, two)
    give(store, Order.SET_ASIDE, targets_of(store, one))
    set_properties(table, **{kept_by(one): "{}"})
    [result] = store.sweep(DATASET, targets, 2)
    assert result.outcome is Outcome.FAILED
    assert f"{kept_by(one)} can't be read" in str(result.error)
    assert str(two) in store.read([DATASET])["transaction"].to_pylist()


def test_an_order_of_somebody_else_touches_nothing(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    targets, others = targets_of(store, one), targets_of(store, one, plan=2)
    give(store, Order.SET_ASIDE, targets)
    there = warehouse.files()
    for order in (Order.SET_ASIDE, Order.DELETE_ASIDE):
        [result] = give(store, order, others).values()
        assert (result.outcome, result.error) == (Outcome.ALREADY_GONE, "it is set aside already, by another order (1/7)")
    assert outcomes(give(store, Order.RESTORE, others)) == {one: Outcome.FAILED}
    assert outcomes(sweep(store, one)) == {one: Outcome.ALREADY_GONE}
    assert warehouse.files() == there
    assert outcomes(give(store, Order.RESTORE, targets)) == {one: Outcome.RESTORED}
    [result] = give(store, Order.DELETE_ASIDE, targets).values()
    assert (result.outcome, result.error) == (Outcome.ALREADY_GONE, "it is in the table's metadata again")
    assert content(table)[one] == [1]


def test_a_property_that_was_copied_to_another_table_says_nothing_of_it(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    own, targets = own_files(table, one), targets_of(store, one)
    give(store, Order.SET_ASIDE, targets)
    copied = warehouse.table("u", **table.refresh().properties)
    there = data(warehouse.files())
    assert [result.outcome for result in store.carry_out(Order.RESTORE, "ice/db.u", targets, 2)] == [Outcome.FAILED]
    # the table that has set it aside is known by itself
    assert [result.outcome for result in store.carry_out(Order.DELETE_ASIDE, "ice/db.u", targets, 2)] == [Outcome.DELETED]
    assert there - data(warehouse.files()) == own
    assert (kept_by(one) in table.refresh().properties, kept_by(one) in copied.refresh().properties) == (False, True)


def test_what_somebody_else_has_expired_is_not_set_aside(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    targets, there = targets_of(store, one), data(warehouse.files())
    table.maintenance.expire_snapshots().by_id(one).commit()
    assert outcomes(give(store, Order.SET_ASIDE, targets)) == {one: Outcome.ALREADY_GONE}
    assert data(warehouse.files()) == there


def test_a_ref_that_has_ended_is_dropped_when_its_snapshot_is_set_aside(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    table.manage_snapshots().create_tag(one, "v1", max_ref_age_ms=1).commit()
    [target] = targets_of(store, one)
    ending = [Target(target.transaction, target.note, ended_refs=("v1",), aside=target.aside)]
    assert outcomes(give(store, Order.SET_ASIDE, [target])) == {one: Outcome.SPARED}
    set_properties(table, **{"gc.enabled": "false"})
    assert outcomes(give(store, Order.SET_ASIDE, ending)) == {one: Outcome.SPARED}
    set_properties(table, **{"gc.enabled": "true"})
    for _ in range(2):
        [result] = give(store, Order.SET_ASIDE, ending).values()
        assert (result.outcome, result.error) == (Outcome.SET_ASIDE, "tag v1 was dropped with it, because it has ended")
    assert outcomes(give(store, Order.RESTORE, ending)) == {one: Outcome.RESTORED}
    assert table.refresh().refs().keys() == {"main", f"restored-{one}"}


PLACES = {Order.SET_ASIDE: ("in sight", "aside"), Order.RESTORE: ("aside", "in sight"), Order.DELETE_ASIDE: ("aside", "gone")}


@pytest.mark.parametrize("answer", ["conflict", "lost", "never made", "refused"])
@pytest.mark.parametrize("order", PLACES)
def test_whatever_a_commit_meets_the_table_tells_where_the_snapshot_is(
    warehouse: Warehouse, store: Any, monkeypatch: pytest.MonkeyPatch, order: Order, answer: str
) -> None:
    table, (one, _) = replaced(warehouse, 2)
    files, targets = own_files(table, one), targets_of(store, one)
    if order != Order.SET_ASIDE:
        give(store, Order.SET_ASIDE, targets)

    def refuses(_: Callable[[], Any]) -> Any:
        raise ConnectionError("no route")

    def branches() -> None:
        # No ref moves that was known.
        warehouse.load().manage_snapshots().create_branch(snapshots(table)[-1], "new").commit()
        for number in (8, 9):
            append(warehouse.load(), number, branch="new")

    ways = {"conflict": before(branches), "lost": lambda call: is_lost(call, table), "refused": refuses}
    meddle(
        monkeypatch,
        ways.get(answer, lambda call: is_answered_and_not_made(call, table.refresh())),
        times=1 if answer == "conflict" else 9,
    )
    [result] = give(store, order, targets).values()
    is_made = answer in ("conflict", "lost")
    assert result.outcome is (ENDS[order] if is_made else Outcome.FAILED)
    in_sight, is_aside = one in snapshots(table), kept_by(one) in table.properties
    where = {(True, False): "in sight", (False, True): "aside", (False, False): "gone"}[in_sight, is_aside]
    assert where == PLACES[order][is_made]
    assert (files <= warehouse.files().keys()) is (where != "gone")
    numbers = [snapshot.sequence_number or 0 for snapshot in table.metadata.snapshots]
    assert table.metadata.next_sequence_number() > max(numbers)


def test_a_snapshot_is_set_aside_whole_though_a_server_drops_a_new_branch_with_it(
    warehouse: Warehouse, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_assets.stores.iceberg.commit.MetastoreCatalog", Warehouse)
    table, (one, _) = replaced(warehouse, 2)
    targets = targets_of(store, one)
    meddle(monkeypatch, before(lambda: warehouse.load().manage_snapshots().create_branch(one, "new").commit()))
    [result] = give(store, Order.SET_ASIDE, targets).values()
    assert result.outcome is Outcome.SET_ASIDE
    assert "branch new was made on it" in str(result.error)
    assert outcomes(give(store, Order.RESTORE, targets)) == {one: Outcome.RESTORED}
    assert content(table)[one] == [1]


@pytest.mark.parametrize("order", [Order.SET_ASIDE, Order.RESTORE])
def test_in_doubt_an_order_stays_begun(warehouse: Warehouse, store: Any, monkeypatch: pytest.MonkeyPatch, order: Order) -> None:
    _, (one, _) = replaced(warehouse, 2)
    targets = targets_of(store, one)
    if order == Order.RESTORE:
        give(store, Order.SET_ASIDE, targets)
    with monkeypatch.context() as patched:

        def goes_away(call: Callable[[], Any]) -> Any:
            call()
            patched.setattr("retention_assets.stores.iceberg.store.load_table", lambda *_: 1 / 0)
            raise ConnectionError("the answer never came")

        meddle(patched, goes_away)
        assert outcomes(give(store, order, targets)) == {one: Outcome.WITHHELD}
        begun = [Target(target.transaction, target.note, aside=target.aside, begun_earlier=True) for target in targets]
        assert outcomes(give(store, order, begun)) == {one: Outcome.WITHHELD}
    assert outcomes(give(store, order, begun)) == {one: ENDS[order]}


@pytest.mark.parametrize("why", ["Invalid snapshot timestamp", "format 3"])
def test_where_no_old_snapshot_is_taken_back_nothing_is_set_aside(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    table, (one, _) = replaced(warehouse, 2)
    if why == "format 3":
        add_vectors(warehouse, table)
    there = warehouse.files()
    with RestServer(warehouse.catalog) as server:
        warehouse.properties, real = server.properties, server._answer

        def answer(method: str, path: str, query: Any, body: Any) -> Any:
            # As servers on Iceberg's Rust core do.
            added = [update["snapshot"] for update in (body or {}).get("updates", ()) if update["action"] == "add-snapshot"]
            if any(snapshot["timestamp-ms"] < table.metadata.last_updated_ms - 60_000 for snapshot in added):
                return 400, {"error": {"message": "Invalid snapshot timestamp", "type": "Bad", "code": 400}}
            return real(method, path, query, body)

        monkeypatch.setattr(server, "_answer", real if why == "format 3" else answer)
        store = warehouse.store()
        [result] = give(store, Order.SET_ASIDE, targets_of(store, one)).values()
        store.close()
    assert result.outcome is Outcome.FAILED
    assert "the catalog did not take the commit" in str(result.error)
    assert warehouse.files() == there


def test_it_warns_of_other_engines(store: Any) -> None:
    [warning] = store.undo_warnings(Duration(days=14))
    assert "14 days" in warning
    assert "{store: ice}" in warning
