"""Others that commit at the same time: before, during and after the commit of a sweep."""

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg import commit
from retention_assets.stores.iceberg.commit import CommitConflict, refs_by_snapshot, remove_snapshots
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, snapshots, storied, sweep, swept
from retention_assets_tests.stores.iceberg.tables import (
    Warehouse,
    append,
    change,
    content,
    files_of,
    reachable,
    reaches,
    replace,
    replaced,
    written,
)

Commit = Callable[[Callable[[], Any]], Any]


def meddle(monkeypatch: pytest.MonkeyPatch, how: Commit, times: int = 1) -> None:
    """Let something happen around the next commits; `how` gets the commit to call, and what it commits itself counts not."""
    real, me, left = SqlCatalog.commit_table, threading.get_ident(), iter(range(times))
    busy: list[bool] = []

    def commit_table(self: SqlCatalog, *args: Any) -> Any:
        if busy or threading.get_ident() != me or next(left, None) is None:
            return real(self, *args)
        busy.append(True)
        try:
            return how(lambda: real(self, *args))
        finally:
            busy.clear()

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)


def before(act: Callable[[], object]) -> Commit:
    def commits(commit: Callable[[], Any]) -> Any:
        act()
        return commit()

    return commits


def test_commits_of_others_are_kept(warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = storied(warehouse)
    chosen = set(snapshots(table)) - {one.snapshot_id for one in table.refs().values()}
    meddle(monkeypatch, before(lambda: append(warehouse.load(), 100)))
    assert set(outcomes(sweep(store, *chosen)).values()) == {Outcome.DELETED}
    assert content(table)[table.refs()["main"].snapshot_id] == [9, 10, 100]
    assert warehouse.files().keys() == reachable(table)


def test_what_is_committed_between_the_commit_and_the_deleting_is_kept(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    file = written(table, 1)
    one, two = change(table, adding=[file]), change(table, removing=[file])

    def adds_it_again(commit: Callable[[], Any]) -> Any:
        answer = commit()
        change(warehouse.load(), adding=[file])
        return answer

    meddle(monkeypatch, adds_it_again)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert sorted(content(table).values()) == [[], [1]]
    assert two in snapshots(table)


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_ref_made_on_a_planned_snapshot_before_the_commit_spares_it(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table, (one, two, _) = replaced(warehouse, 3)
    made = {"branch": lambda: warehouse.load().manage_snapshots().create_branch(one, "new").commit(),
            "tag": lambda: warehouse.load().manage_snapshots().create_tag(one, "new").commit()}  # fmt: skip
    meddle(monkeypatch, before(made[kind]))
    results = sweep(store, one, two)
    assert outcomes(results) == {one: Outcome.SPARED, two: Outcome.DELETED}
    assert results[one].error == f"{kind} new points at it"
    assert table.refresh().refs()["new"].snapshot_id == one
    assert content(table)[one] == [1]
    assert warehouse.files().keys() == reachable(table)


@pytest.mark.parametrize("answers", [True, False], ids=["answered", "answer lost"])
def test_a_ref_that_a_server_dropped_with_its_snapshot_keeps_the_files(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    # A REST server knows nothing of our requirement; a catalog that is no MetastoreCatalog is taken for one.
    monkeypatch.setattr(commit, "MetastoreCatalog", Warehouse)
    table = warehouse.table()
    # The second holds what the first added, so that of the first nothing but its manifest list may go.
    one, two, _ = append(table, 1), append(table, 2), replace(table, 3)
    needed = reaches(table, table.metadata.snapshots[1])

    def makes_a_branch(commit: Callable[[], Any]) -> Any:
        warehouse.load().manage_snapshots().create_branch(two, "new").commit()
        answer = commit()
        if not answers:
            raise ConnectionError("the answer never came")
        return answer

    meddle(monkeypatch, makes_a_branch)
    results = sweep(store, one, two)
    assert outcomes(results) == {one: Outcome.DELETED, two: Outcome.SPARED}
    assert "branch new was made on it" in str(results[two].error)
    assert "new" not in table.refresh().refs()
    assert needed <= warehouse.files().keys()


def test_snapshots_that_somebody_else_expired_first_are_cleaned_up_after(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, (one, two, _) = replaced(warehouse, 3)
    meddle(monkeypatch, before(lambda: warehouse.load().maintenance.expire_snapshots().by_ids([one]).commit()))
    assert outcomes(sweep(store, one, two)) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert warehouse.files().keys() == reachable(table)


def test_what_somebody_else_expires_meanwhile_no_longer_holds_a_file(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, holds_it_too, _ = append(table, 1), append(table, 2), replace(table, 3)
    unneeded = reaches(table, table.metadata.snapshots[0])
    meddle(monkeypatch, before(lambda: warehouse.load().maintenance.expire_snapshots().by_ids([holds_it_too]).commit()))
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert not unneeded & warehouse.files().keys()


def is_lost(commit: Callable[[], Any], _: Table) -> Any:
    commit()
    raise ConnectionError("the answer never came")


def is_not_made(_: Callable[[], Any], __: Table) -> Any:
    raise ConnectionError("no route")


def is_answered_and_not_made(_: Callable[[], Any], table: Table) -> Any:
    return CommitTableResponse(metadata=table.metadata, metadata_location=table.metadata_location)


def drops_the_table(_: Callable[[], Any], table: Table) -> Any:
    table.catalog.drop_table("db.t")
    raise ConnectionError("gone")


ANSWERS: dict[Callable[..., Any], str | None] = {
    is_lost: None,
    is_not_made: "the catalog did not take the commit: ConnectionError: no route",
    is_answered_and_not_made: "it is in the table's metadata again",
    drops_the_table: "the table was dropped meanwhile; its files stay",
}


@pytest.mark.parametrize(("answer", "error"), ANSWERS.items())
def test_whatever_is_answered_to_a_commit_the_table_tells_whether_it_was_made(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any], error: str | None
) -> None:
    table, (one, two) = replaced(warehouse, 2)
    there = warehouse.files()
    meddle(monkeypatch, lambda commit: answer(commit, table))
    [result] = sweep(store, one).values()
    assert (result.outcome, result.error) == (Outcome.FAILED if error else Outcome.DELETED, error)
    if error is None:
        assert warehouse.files().keys() == reachable(table)
        return
    assert warehouse.files() == there
    if answer is not drops_the_table:
        assert snapshots(table) == [one, two]
        assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}


def test_a_table_in_constant_change_is_left(warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table, (one, _) = replaced(warehouse, 2)
    meddle(monkeypatch, before(lambda: append(warehouse.load(), 3)), times=100)
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.FAILED
    assert "other writers changed the table" in str(result.error)
    assert content(table)[one] == [1]


def given_away(table: Table) -> None:
    """Another table gets the name, with the snapshots and the refs of this one: a copy that was brought back, for instance."""
    metadata = table.metadata.model_copy(update={"table_uuid": uuid.uuid4()})
    location = f"{table.location()}/metadata/00000-{metadata.table_uuid}.metadata.json"
    ToOutputFile.table_metadata(metadata, table.io.new_output(location))
    table.catalog.drop_table("db.t")
    table.catalog.register_table("db.t", location)


@pytest.mark.parametrize("how", ["a conflict", "a lost answer", "the commit itself"])
def test_a_name_that_goes_to_another_table_during_a_sweep_loses_nothing(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    table, (one, _) = replaced(warehouse, 2)

    def gives_away(commit: Callable[[], Any]) -> Any:
        if how == "a conflict":
            given_away(warehouse.load())
            return commit()
        answer = commit()
        given_away(table)
        if how == "a lost answer":
            raise ConnectionError("the answer never came")
        return answer

    there = warehouse.files().keys()
    meddle(monkeypatch, gives_away)
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.FAILED
    assert result.error == "another table has the name now; the files of the earlier table stay"
    assert there <= warehouse.files().keys()


@pytest.mark.parametrize("how", ["a conflict", "a lost answer", "the commit itself"])
def test_a_second_name_that_comes_during_a_sweep_stops_it(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    table, (one, _) = replaced(warehouse, 2)
    earlier = table.metadata_location

    def registers(commit: Callable[[], Any]) -> Any:
        warehouse.catalog.register_table("db.copy", earlier)
        if how == "a conflict":
            append(warehouse.load(), 3)
        answer = commit()
        if how == "a lost answer":
            raise ConnectionError("the answer never came")
        return answer

    meddle(monkeypatch, registers)
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.FAILED
    assert "ice/db.copy is the same table under a second name" in str(result.error)
    assert content(warehouse.load("copy"))[one] == [1]


MEANWHILE: dict[str, Callable[[Table], object]] = {
    "the name went to another table": given_away,
    "a branch was moved": lambda table: append(table, 9, branch="dev"),
    "a branch was dropped": lambda table: table.manage_snapshots().remove_branch("dev").commit(),
    "a tag was dropped": lambda table: table.manage_snapshots().remove_tag("v1").commit(),
}


@pytest.mark.parametrize("act", MEANWHILE.values(), ids=MEANWHILE)
@pytest.mark.parametrize("server", [True, False], ids=["a server", "a catalog in this program"])
def test_a_commit_holds_for_the_table_that_was_looked_at_alone(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, server: bool, act: Callable[[Table], object]
) -> None:
    if server:
        monkeypatch.setattr(commit, "MetastoreCatalog", Warehouse)
    table = warehouse.table()
    one, two, three, _ = (append(table, number) for number in range(4))
    table.manage_snapshots().create_branch(two, "dev").create_tag(three, "v1").commit()
    act(warehouse.load())
    there = warehouse.load().metadata
    with pytest.raises(CommitConflict, match=r"Requirement failed|UUID does not match"):
        remove_snapshots(table, [one])
    assert warehouse.load().metadata == there
    remove_snapshots(warehouse.load(), [one])
    assert one not in snapshots(warehouse.load())


def test_what_is_no_longer_held_elsewhere_is_looked_for_in_all_that_stays(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    file = written(table, 1)
    first = replace(table, 9)
    one = change(table, adding=[file], removing=files_of(table))
    holds_it_too, _ = append(table, 2), replace(table, 3)
    # It was looked through before, when the file was not yet among those that might go.
    again = change(table, adding=[file])
    meddle(monkeypatch, before(lambda: warehouse.load().maintenance.expire_snapshots().by_ids([holds_it_too]).commit()))
    assert outcomes(sweep(store, first, one)) == {first: Outcome.DELETED, one: Outcome.DELETED}
    assert content(table)[again] == [1, 3]


def test_the_current_snapshot_is_named_even_if_no_ref_says_so(warehouse: Warehouse) -> None:
    table = warehouse.table()
    append(table, 1)
    current = append(table, 2)
    metadata = table.metadata.model_copy(update={"refs": {}})
    assert refs_by_snapshot(metadata) == {current: "the table as its current snapshot"}


def test_where_nobody_can_say_whether_a_ref_was_dropped_all_that_the_snapshot_holds_stays(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    earlier, two, _ = append(table, 1), append(table, 2), replace(table, 3)
    needed = reaches(table, table.metadata.snapshots[1])
    prepared = store.prepare(DATASET, [str(earlier), str(two)])
    table.maintenance.expire_snapshots().by_ids([earlier]).commit()
    monkeypatch.setattr(commit, "MetastoreCatalog", Warehouse)

    class Unreachable:
        @staticmethod
        def table_metadata(_: object) -> None:
            raise OSError("no route")

    # No known ref moves, so that the commit succeeds, and what it was made upon has to be looked up.
    meddle(monkeypatch, before(lambda: warehouse.load().manage_snapshots().create_branch(two, "new").commit()))
    monkeypatch.setattr(commit, "FromInputFile", Unreachable)
    results = swept(store, [Target(one.transaction, one.note) for one in prepared])
    assert outcomes(results) == {earlier: Outcome.DELETED, two: Outcome.SPARED}
    assert "it is unknown whether a branch or tag was just made on it, so its files stay: OSError: no route" in str(
        results[two].error
    )
    assert needed <= warehouse.files().keys()
