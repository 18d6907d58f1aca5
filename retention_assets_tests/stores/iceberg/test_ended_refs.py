"""Branches and tags that are past their max-ref-age, from the table's metadata to the sweep."""

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

from retention_assets.evaluation import Keepers
from retention_assets.evaluation.explain import explain
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.outcomes import Outcome
from retention_assets.people.plan import PlanRequest, make_plan
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.iceberg import commit
from retention_assets.stores.iceberg.commit import CommitConflict, remove_snapshots
from retention_assets.stores.iceberg.notes import note_from
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets.sweep import Recheck
from retention_assets_tests.stores.iceberg.sweeps import (
    DATASET,
    DAY,
    DROP,
    KEEP,
    SHORT,
    TEN_YEARS,
    TableCycle,
    outcomes,
    snapshots,
    swept,
)
from retention_assets_tests.stores.iceberg.tables import Warehouse, append, content, reachable, replace
from retention_assets_tests.stores.iceberg.test_commit import before, meddle
from retention_assets_tests.sweep.cycle import replays_in
from retention_assets_tests.sweep.datasets import DUE, MARKED


@pytest.fixture
def cycle(warehouse: Warehouse) -> TableCycle:
    return TableCycle(warehouse)


def tagged(warehouse: Warehouse, **ages: Any) -> tuple[Table, list[int]]:
    table = warehouse.table(**SHORT)
    made = [replace(table, number) for number in range(3)]
    table.manage_snapshots().create_tag(made[0], "v1", **ages).commit()
    return table.refresh(), made


def test_a_tag_that_is_over_is_dropped_with_the_snapshot_that_it_alone_keeps(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (one, two, three) = tagged(warehouse, max_ref_age_ms=DAY)
    assert cycle.judges() == {
        one: ("mark", [("SELECTED", "own"), ("EXPIRED_REF", "tag v1")]),
        two: ("mark", [("SELECTED", "own")]),
        three: ("keep", [("WITHIN_TRANSACTIONS", "own")]),
    }
    result = cycle.sweep()
    assert (result.outcomes[Outcome.DELETED], result.refused, result.errors) == (2, None, [])
    assert result.warnings == ["tag v1 was dropped with it, because it has ended"]
    assert (snapshots(table), set(table.refs())) == ([three], {"main"})
    assert warehouse.files().keys() == reachable(table)
    # The record says what makes it again.
    [refs] = [found for text in cycle.notes() if (note := note_from(text)) and (found := note.refs)]
    assert (refs["v1"].snapshot_id, refs["v1"].snapshot_ref_type, refs["v1"].max_ref_age_ms) == (one, "tag", DAY)
    with cycle.opened() as ledger:
        assert ledger.verify().faults == ()


def test_a_tag_that_comes_back_over_with_a_backup_goes_again_with_its_snapshot_and_one_that_is_not_over_keeps_it(
    warehouse: Warehouse, cycle: TableCycle
) -> None:
    table, (one, two, three) = tagged(warehouse, max_ref_age_ms=DAY)
    cycle.judges()
    shutil.copytree(warehouse.folder, backup := warehouse.folder.with_name("backup"))
    cycle.sweep()
    swept = warehouse.files()
    databases = shutil.ignore_patterns("*.db")
    for refs in ({"v1"}, set()):
        shutil.copytree(backup, warehouse.folder, dirs_exist_ok=True, ignore=databases)
        for file in warehouse.folder.glob("*.db"):
            if file.name != "ledger.db":
                with closing(sqlite3.connect(backup / file.name)) as source, closing(sqlite3.connect(file)) as target:
                    source.backup(target)
        table.refresh()
        if refs:
            table.manage_snapshots().create_tag(two, "kept").commit()
        went, stays, refused = replays_in(cycle.environment, as_of=DUE)
        assert (went, refused) == (sorted(map(str, (one,) if refs else (one, two))), {})
        assert stays == ({str(two): "It belongs to a view that tag 'kept' pins."} if refs else {})
        assert set(table.refresh().refs()) == {"main", *({"kept"} if refs else ())}
    assert (snapshots(table), {*warehouse.files()} >= {*reachable(table)}) == ([three], True)
    assert not {place for place in warehouse.files().keys() - swept.keys() if "metadata.json" not in place}
    assert cycle.verified() == ()


def test_by_default_a_tag_that_is_over_protects_until_somebody_drops_it(warehouse: Warehouse, cycle: TableCycle) -> None:
    cycle.says(KEEP)
    table, (one, _, three) = tagged(warehouse, max_ref_age_ms=DAY)
    assert cycle.judges()[one] == ("spare", [("TAG", "v1")])
    assert cycle.sweep().outcomes[Outcome.DELETED] == 1
    assert (snapshots(table), set(table.refs())) == ([one, three], {"main", "v1"})
    table.manage_snapshots().remove_tag("v1").commit()
    # It is on no branch then, as in any table.
    cycle.says(KEEP.replace("select:", "branches: {reach: any}, select:"))
    assert cycle.judges()[one] == ("mark", [("SELECTED", "own")])


def test_the_age_of_all_refs_ends_those_that_say_nothing_and_never_main(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (one, _, three) = tagged(warehouse)
    table.transaction().set_properties({"history.expire.max-ref-age-ms": str(DAY)}).commit_transaction()
    assert cycle.judges()[one][0] == "mark"
    cycle.sweep()
    assert (snapshots(table), set(table.refs())) == ([three], {"main"})


def test_main_is_never_over_whatever_is_said_of_it(warehouse: Warehouse, cycle: TableCycle) -> None:
    table = warehouse.table(**SHORT)
    one = replace(table, 1)
    said = {"ref-name": "main", "type": "branch", "snapshot-id": one, "max-ref-age-ms": 1}
    table._do_commit((SetSnapshotRefUpdate.model_validate(said),), ())
    assert table.refresh().refs()["main"].max_ref_age_ms == 1
    assert cycle.judges() == {one: ("keep", [("WITHIN_TRANSACTIONS", "own")])}


def test_a_tag_that_is_not_over_on_the_same_snapshot_keeps_both(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    table.manage_snapshots().create_tag(one, "alive", max_ref_age_ms=TEN_YEARS).commit()
    assert cycle.judges()[one] == ("spare", [("TAG", "alive")])
    cycle.sweep()
    assert table.refresh().refs().keys() == {"main", "v1", "alive"}


def test_a_ref_whose_snapshot_stays_for_another_reason_is_not_dropped(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (*_, newest) = tagged(warehouse, max_ref_age_ms=DAY)
    table.manage_snapshots().create_tag(newest, "over", max_ref_age_ms=DAY).commit()
    assert cycle.judges()[newest] == ("keep", [("WITHIN_TRANSACTIONS", "own")])
    cycle.sweep()
    assert table.refresh().refs().keys() == {"main", "over"}


def test_a_hold_keeps_the_snapshot_and_the_ref(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    cycle.judges()
    cycle.says(DROP, f"{{name: legal, datasets: ['*'], transactions: ['{one}']}}")
    assert cycle.judges()[one] == ("spare", [("HOLD", "legal")])
    cycle.sweep()
    assert cycle.fates()[one] == ("SPARED", "Hold 'legal' keeps it.")
    assert table.refresh().refs().keys() == {"main", "v1"}


def branched(warehouse: Warehouse, **ages: int) -> tuple[Table, list[int], list[int]]:
    table = warehouse.table(**SHORT)
    first = replace(table, 0)
    table.manage_snapshots().create_branch(first, "dev").commit()
    side, head = append(table, 2, branch="dev"), append(table, 3, branch="dev")
    said = {"ref-name": "dev", "type": "branch", "snapshot-id": head, **ages}
    table._do_commit((SetSnapshotRefUpdate.model_validate(said),), ())
    return table, [first, replace(table, 1)], [side, head]


@pytest.mark.parametrize("model", ["states", "deltas"])
def test_a_branch_that_is_over_goes_with_all_that_it_alone_keeps(warehouse: Warehouse, model: str) -> None:
    cycle = TableCycle(warehouse, model)
    table, (first, newest), (side, head) = branched(warehouse, **{"max-ref-age-ms": DAY, "min-snapshots-to-keep": 2})
    found = cycle.judges()
    assert {one: verdict for one, (verdict, _) in found.items()} == {first: "mark", newest: "keep", side: "mark", head: "mark"}
    assert found[head] == ("mark", [("SELECTED", "own"), ("EXPIRED_REF", "branch dev")])
    result = cycle.sweep()
    # The independent check agrees.
    assert (result.refused, result.errors, result.outcomes[Outcome.DELETED]) == (None, [], 3)
    assert (snapshots(table), set(table.refs())) == ([newest], {"main"})
    assert warehouse.files().keys() == reachable(table)


def test_a_branch_that_is_over_keeps_what_another_branch_has(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (first, newest), (side, head) = branched(warehouse, **{"max-ref-age-ms": DAY})
    table.manage_snapshots().create_branch(side, "rescue").commit()
    found = cycle.judges()
    assert {one: verdict for one, (verdict, _) in found.items()} == {first: "mark", newest: "keep", side: "keep", head: "mark"}
    before_it = content(table)
    assert cycle.sweep().refused is None
    assert content(table) == {one: before_it[one] for one in (newest, side)}
    assert table.refs().keys() == {"main", "rescue"}


def test_another_branch_that_is_made_after_the_mark_is_named(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    cycle.judges()
    table.manage_snapshots().create_branch(one, "rescue").commit()
    cycle.sweep()
    status, why = cycle.fates()[one]
    assert status == "SPARED"
    assert "branch 'rescue'" in str(why)
    assert table.refresh().refs().keys() == {"main", "v1", "rescue"}


def test_a_ref_that_is_given_longer_before_the_sweep_protects_again(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    cycle.judges()
    table.manage_snapshots().remove_tag("v1").commit()
    table.manage_snapshots().create_tag(one, "v1", max_ref_age_ms=TEN_YEARS).commit()
    cycle.sweep()
    assert cycle.fates()[one] == ("SPARED", "It belongs to a view that tag 'v1' pins.")
    assert table.refresh().refs().keys() == {"main", "v1"}


def test_another_policy_takes_a_ref_that_is_over_for_alive(warehouse: Warehouse, cycle: TableCycle) -> None:
    _, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    everything = "{name: all, datasets: {include: ['*']}, select: {beyond: {views: 1}}}"
    cycle.says(everything)
    assert cycle.judges()[one] == ("spare", [("TAG", "v1")])
    cycle.says(f"{everything}, {DROP}")
    assert cycle.judges()[one] == ("mark", [("SELECTED", "own"), ("EXPIRED_REF", "tag v1")])


def test_a_dry_run_names_what_would_go_and_drops_nothing(warehouse: Warehouse, cycle: TableCycle) -> None:
    table, (one, two, _) = tagged(warehouse, max_ref_age_ms=DAY)
    cycle.judges()
    found = make_plan(PlanRequest(as_of=DUE, datasets=(DATASET,)), cycle.environment)
    assert found.refused == {}
    assert {(each["transaction"], *each["refs"]) for each in found.deleted.to_pylist()} == {(str(one), "v1"), (str(two),)}
    assert table.refresh().refs().keys() == {"main", "v1"}


def test_an_explanation_names_the_ref(warehouse: Warehouse, cycle: TableCycle) -> None:
    _, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    with cycle.opened() as ledger:
        rules = load_rulebook(ledger, cycle.environment.settings, "test").rules([DATASET], MARKED)
    found = explain(cycle.log(), rules, DATASET, str(one), MARKED)
    assert found.verdict == "mark"
    assert "Only 'tag v1' keeps it. That ref is past its max-ref-age" in str(found.reasons[1]["text"])
    assert all(line.holds for line in found.policies[0].lines)


def dropping(store: IcebergStore, *transactions: int, refs: tuple[str, ...] = ("v1",)) -> list[Target]:
    prepared = store.prepare(DATASET, [str(one) for one in transactions])
    return [Target(one.transaction, one.note, ended_refs=refs) for one in prepared]


def test_the_bytes_that_a_dropped_ref_frees_are_planned_from_the_log(warehouse: Warehouse, store: IcebergStore) -> None:
    _, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    assert [each.bytes for each in store.prepare(DATASET, [str(one)])] == [None]


@pytest.mark.parametrize("refs", [(), ("v2",)], ids=["nobody said so", "another is over"])
def test_a_ref_goes_by_name_or_not_at_all(warehouse: Warehouse, store: IcebergStore, refs: tuple[str, ...]) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    [result] = swept(store, dropping(store, one, refs=refs)).values()
    assert (result.outcome, result.error) == (Outcome.SPARED, "tag v1 points at it")
    assert table.refresh().refs().keys() == {"main", "v1"}


def make_anew(table: Table, snapshot: int, **ages: int) -> None:
    table.refresh().manage_snapshots().remove_tag("v1").commit()
    table.refresh().manage_snapshots().create_tag(snapshot, "v1", **ages).commit()


@pytest.mark.parametrize("when", ["before the sweep", "before the commit"])
def test_a_ref_that_is_not_what_it_was_when_it_was_planned_keeps_its_snapshot(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    targets = dropping(store, one)
    if when == "before the sweep":
        make_anew(table, one, max_ref_age_ms=TEN_YEARS)
    else:
        meddle(monkeypatch, before(lambda: make_anew(warehouse.load(), one, max_ref_age_ms=TEN_YEARS)))
    [result] = swept(store, targets).values()
    assert (result.outcome, result.error) == (Outcome.SPARED, "tag v1 points at it")
    assert table.refresh().refs()["v1"].max_ref_age_ms == TEN_YEARS


@pytest.mark.parametrize("server", [True, False], ids=["a server", "a catalog in this program"])
def test_the_commit_asserts_where_the_ref_that_it_drops_points(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, server: bool
) -> None:
    if server:
        monkeypatch.setattr(commit, "MetastoreCatalog", Warehouse)
    table, (one, two, _) = tagged(warehouse, max_ref_age_ms=DAY)
    refs = {"v1": table.refs()["v1"]}
    make_anew(warehouse.load(), two, max_ref_age_ms=DAY)
    with pytest.raises(CommitConflict, match="v1"):
        remove_snapshots(table, [one], refs)
    assert warehouse.load().refs().keys() == {"main", "v1"}


def test_a_server_drops_what_it_was_told_to(warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "MetastoreCatalog", Warehouse)
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    assert outcomes(swept(store, dropping(store, one))) == {one: Outcome.DELETED}
    assert warehouse.files().keys() == reachable(table)
    assert table.refs().keys() == {"main"}


def test_one_ref_goes_and_the_other_stays_with_its_snapshot(warehouse: Warehouse, store: IcebergStore) -> None:
    table, (one, two, _) = tagged(warehouse, max_ref_age_ms=DAY)
    table.manage_snapshots().create_tag(two, "v2").commit()
    results = swept(store, dropping(store, one, two))
    assert outcomes(results) == {one: Outcome.DELETED, two: Outcome.SPARED}
    assert table.refresh().refs().keys() == {"main", "v2"}


def test_main_is_not_dropped_even_if_it_is_asked_for(warehouse: Warehouse, store: IcebergStore) -> None:
    table, (*_, newest) = tagged(warehouse, max_ref_age_ms=DAY)
    [result] = swept(store, dropping(store, newest, refs=("main",))).values()
    assert (result.outcome, result.error) == (Outcome.SPARED, "branch main points at it")
    assert newest in snapshots(table)


def test_a_sweep_that_ended_after_its_commit_says_what_it_dropped_later(warehouse: Warehouse, store: IcebergStore) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    [target] = dropping(store, one)
    remove_snapshots(table, [one], {"v1": table.refs()["v1"]})
    [result] = swept(store, [Target(target.transaction, target.note)]).values()
    assert (result.outcome, result.error) == (Outcome.DELETED, "tag v1 was dropped with it, because it has ended")


@pytest.mark.parametrize("spoilt", [[], {"v1": 1}, {"v1": {"type": "tag"}}])
def test_a_note_whose_refs_cant_be_read_deletes_nothing(warehouse: Warehouse, store: IcebergStore, spoilt: Any) -> None:
    table, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    [target] = dropping(store, one)
    said: Mapping[str, Any] = json.loads(str(target.note))
    note = json.dumps({**said, "refs": spoilt})
    assert outcomes(swept(store, [Target(target.transaction, note, ended_refs=("v1",))])) == {one: Outcome.SPARED}
    assert note_from(note) is None
    assert Path(table.metadata.snapshots[0].manifest_list.removeprefix("file://")).exists()


class DropsNone(RecordingStore):
    drops_refs = False


@pytest.mark.parametrize(("kind", "goes"), [(RecordingStore, 2), (DropsNone, 1)])
def test_a_store_that_cant_drop_refs_keeps_what_is_over(
    warehouse: Warehouse, cycle: TableCycle, kind: type[RecordingStore], goes: int
) -> None:
    _, (one, *_) = tagged(warehouse, max_ref_age_ms=DAY)
    cycle.judges()
    with cycle.opened() as ledger:
        marks = ledger.marks.table([DATASET])
        recheck = Recheck(ledger, cycle.environment.settings, DUE, Keepers(ledger))
        found = recheck.check(cycle.log(), marks, kind(cycle.environment.stores()["ice"]))
    ids = {int(row["transaction"]): row["id"] for row in marks.to_pylist()}
    assert len(found.go) == goes
    drops = kind is RecordingStore
    assert (ids[one] in found.go, found.by_mark[ids[one]].ended_refs) == (drops, ("v1",) if drops else ())
