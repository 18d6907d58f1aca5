"""Undo in the engine: what is set aside stays whole, comes back or goes for good, and the ledger says so at any moment."""

import json
import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import sound_log
from retention_assets.ledger import OUTCOMES, AskedBy, Settlement
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.logs import tell_swept
from retention_assets.stores.protocol import Store
from retention_assets.stores.settings import StoreSettings
from retention_assets.sweep import find_there
from retention_assets_tests.ledger.states import change_leases, set_aside_in, take_lease
from retention_assets_tests.rounds import every
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse
from retention_assets_tests.sweep.cycle import begin, sweep_store, sweep_until
from retention_assets_tests.sweep.datasets import DUE as DUE_OF_STORE
from retention_assets_tests.sweep.lakes import ALL, DAY, DUE, FIVE, OLD, Lake, Told
from retention_assets_tests.sweep.test_killed import opened

UNDO = OLD.replace("sweep:", "undo: 14d, sweep:")
UNTIL = DUE + timedelta(days=14)
LATER = UNTIL + timedelta(days=1)
OLD_ONES = {"S1", "S2", "S3", "S4", "S5"}


@pytest.fixture
def lake(tmp_path: Path, url: str) -> Lake:
    lake = Lake(tmp_path, url, UNDO).has(FIVE)
    assert lake.marks() == 5
    return lake


def bytes_of(lake: Lake) -> dict[str, str]:
    """Every file of a transaction, by its place, whether it is in sight or in the trash."""
    files = {name: text for name, text in lake.left().items() if not name.startswith(".retention-trash")}
    trash = {name: text for name, text in lake.left().items() if name.startswith(".retention-trash")}
    # beside each folder lies a note
    aside = {name.split("/", 3)[3]: text for name, text in trash.items() if not name.endswith(".json")}
    assert not files.keys() & {f"d/{name}" for name in aside}, "something is at both places"
    return files | {f"d/{name}": text for name, text in aside.items()}


def in_sight(lake: Lake) -> set[str]:
    return lake.there() - {""}


def aside(lake: Lake) -> set[str]:
    root = lake.folder / "data" / ".retention-trash"
    return {folder.name for folder in root.glob("*/*/*")}


@pytest.mark.parametrize("keeper", ["hold", "hold that asks for attributes", "newer retain rule"])
def test_what_a_dropped_dataset_has_in_the_trash_is_kept_by_holds_and_retain_rules_all_the_same(
    lake: Lake, keeper: str
) -> None:
    """Nobody knows any more which attributes it had."""
    lake.has(FIVE, "lake/other").sweeps(DUE)
    log = lake.folder / "log" / "lake-d.jsonl"
    lines = log.read_text()
    log.unlink()
    about = "{include: ['*'], with: {tier: gold}}" if "attributes" in keeper else "'lake/d'"
    if "hold" in keeper:
        lake.says(UNDO, holds=f"{{name: legal, datasets: {about}, reason: why, transactions: ['S1']}}")
    else:
        lake.says(UNDO, retain="{name: legal, reason: why, datasets: 'lake/d', where: \"transaction = 'S2'\"}")
    assert (lake.sweeps(UNTIL - timedelta(seconds=1)), aside(lake)) == ({}, OLD_ONES)
    gone = lake.sweeps(UNTIL)["lake/d"]
    assert (gone.refused, aside(lake)) == (None, OLD_ONES if "rule" in keeper else {"S1"})
    log.write_text(lines)
    assert lake.verified() == ()


def test_a_window_of_its_table_spares_what_is_marked_and_nothing_that_is_set_aside(lake: Lake) -> None:
    lake.sweeps(DUE)
    lake.has("main: T1:SNAPSHOT@90d - T2:SNAPSHOT@1d", "lake/other").marks(DUE)
    for name in ("lake/d", "lake/other"):
        window = {"window.superseded-ms": str(10**12), "window.spares": "true"}
        lake._log(name, [json.dumps({"dataset": name, "attributes": window})])
    swept = lake.sweeps(UNTIL)
    assert [swept[name].outcomes for name in ("lake/d", "lake/other")] == [{Outcome.DELETED: 5}, {Outcome.SPARED: 1}]


def test_some_are_set_aside_beside_others_that_are_deleted(tmp_path: Path) -> None:
    young = "{name: young, datasets: {include: ['lake/*']}, select: {older_than: 55d}, sweep: {every: 0s}}"
    lake = Lake(tmp_path, policies=f"{young}, {UNDO}").has(FIVE)
    assert lake.marks() == 5
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.SET_ASIDE: 1, Outcome.DELETED: 4}
    assert (in_sight(lake), aside(lake), lake.verified()) == ({"S6"}, {"S5"}, ())


@pytest.mark.parametrize("order", [Order.DELETE_ASIDE, Order.RESTORE])
def test_what_was_changed_in_the_trash_neither_goes_nor_comes_back(lake: Lake, order: Order) -> None:
    lake.sweeps(DUE)
    (changed,) = (lake.folder / "data" / ".retention-trash").glob("*/*/S1/a.parquet")
    changed.write_text("not what was set aside")
    with lake.opened() as ledger:
        begin(ledger, "lake/d", order, AskedBy("ann", "we need them"), ["S1", "S2"])
    done = lake.sweeps(DUE, only=order)["lake/d"]
    assert done.outcomes == {Outcome.FAILED: 1, Outcome.DELETED if order is Order.DELETE_ASIDE else Outcome.RESTORED: 1}
    assert "Its files changed" in done.errors[0]
    assert "S1" in aside(lake)
    assert lake.statuses()["S1"] == "SWEPT"
    assert lake.verified() == ()


# --- the door of the final deletion ---

HOLD = "{name: legal, datasets: 'lake/*', transactions: ['S1'], reason: why}"
RULE = "{name: legal, reason: why, datasets: 'lake/*', where: \"transaction = 'S1'\"}"


@pytest.fixture
def swept(lake: Lake) -> Lake:
    """All of it is set aside."""
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.SET_ASIDE: 5}
    return lake


KEEPERS: dict[str, Callable[[Lake], object]] = {
    "hold": lambda lake: lake.hold("lake/*", "S1"),
    "hold of a file": lambda lake: lake.says(UNDO, holds=HOLD),
    "retain rule": lambda lake: lake.says(UNDO, retain=RULE),
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_keeps_it_keeps_it_aside_though_the_log_has_lost_it(keeper: str, swept: Lake) -> None:
    KEEPERS[keeper](swept)
    swept.forgets("S1")
    result = swept.sweeps(UNTIL)["lake/d"]
    # a rule that came later can't be asked about what the log has lost: it keeps all of its datasets
    assert (result.outcomes, aside(swept)) == ({Outcome.DELETED: 4}, {"S1"})
    assert swept.verified() == ()


def moves(lake: Lake, branch: str, head: str) -> None:
    file = lake.folder / "log" / "lake-d.jsonl"
    lines = [line for line in map(json.loads, file.read_text().splitlines()) if line.get("branch") != branch]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    lake.branches(branch, head)


BRANCHES: dict[str, Callable[[Lake], object]] = {
    "a branch on it": lambda lake: lake.branches("audit", "S2"),
    "a branch that is moved back to it": lambda lake: moves(lake, "main", "S2"),
    "a tag": lambda lake: lake.tags("audit", "S2"),
}


@pytest.mark.parametrize("act", BRANCHES)
@pytest.mark.parametrize("days", [1, 14], ids=["in the window", "at its end"])
def test_what_protects_it_anew_brings_it_back_in_the_next_run(act: str, days: int, swept: Lake) -> None:
    """Each transaction is a SNAPSHOT: nothing but S2 is in the view."""
    BRANCHES[act](swept)
    at = DUE + days * DAY
    result = swept.sweeps(at)["lake/d"]
    assert (result.outcomes[Outcome.RESTORED], result.errors) == (1, [])
    assert in_sight(swept) == {"S2", "S6"}
    assert aside(swept) == (OLD_ONES - {"S2"} if days == 1 else set())
    assert (swept.statuses()["S2"], "audit" in swept.why("S2") or "main" in swept.why("S2")) == ("RESTORED", True)
    with swept.opened() as ledger:
        [hold] = ledger.holds.recorded(at).placed
        assert (hold.transactions, hold.owner) == (("S2",), "test")
    # once, and no more
    assert swept.sweeps(at + DAY).get("lake/d") is None or days == 1


def test_what_is_protected_anew_while_others_go_for_good_is_not_deleted_with_them(swept: Lake) -> None:
    """Batches of two: S1 and S2 are gone when it happens."""
    store = swept.elsewhere(lambda: swept.branches("audit", "S4"))
    swept.sweeps(UNTIL, store=store, wait=lambda *_: None)
    assert (aside(swept) | in_sight(swept)) == {"S4", "S6"}
    swept.sweeps(UNTIL + DAY)
    assert (swept.statuses()["S4"], in_sight(swept)) == ("RESTORED", {"S4", "S6"})


def test_a_lease_that_is_lost_while_something_comes_back_keeps_the_rest_from_going_for_good(swept: Lake) -> None:
    def loses() -> None:
        with swept.opened() as ledger:
            change_leases(ledger, "UPDATE leases SET token = token + 1, holder = 'bob'")

    swept.branches("audit", "S2")
    result = swept.sweeps(UNTIL, store=swept.elsewhere(loses))["lake/d"]
    assert "has lost the lease of lake/d" in str(result.refused)
    assert (aside(swept), in_sight(swept)) == (OLD_ONES - {"S2"}, {"S2", "S6"})


def test_each_of_several_that_come_back_names_its_own_witness(swept: Lake) -> None:
    swept.branches("audit", "S2")
    swept.tags("release", "S4")
    assert swept.sweeps(DUE + DAY)["lake/d"].outcomes[Outcome.RESTORED] == 2
    witnesses = {name: [word for word in ("audit", "release") if word in swept.why(name)] for name in ("S2", "S4")}
    assert witnesses == {"S2": ["audit"], "S4": ["release"]}
    assert swept.verified() == ()


@pytest.mark.parametrize("tried", [False, True])
def test_a_trash_that_lost_a_file_goes_only_if_a_deletion_of_ours_may_have_taken_it(tried: bool, swept: Lake) -> None:
    """A person's order was stopped in the middle, and taken back."""
    if tried:
        with swept.opened() as ledger:
            begin(ledger, "lake/d", Order.DELETE_ASIDE, AskedBy("ann", "the disk is full"), ["S1"])
            marks, lease = set_aside_in(ledger, "lake/d"), take_lease(ledger, "lake/d", "ann")
            failed = [row["id"] for row in ledger.marks.table(["lake/d"]).to_pylist() if row["transaction"] == "S1"]
            ledger.sweeps.settle([lease], [Settlement(mark, Outcome.FAILED, error="stopped") for mark in failed])
            ledger.leases.give_up([lease])
            assert "S1" not in marks
    (lost,) = (swept.folder / "data" / ".retention-trash").glob("*/*/S1/a.parquet")
    lost.unlink()
    result = swept.sweeps(UNTIL)["lake/d"]
    assert (result.outcomes[Outcome.FAILED], aside(swept)) == ((0, set()) if tried else (1, {"S1"}))
    assert swept.verified() == ()


def test_to_be_on_a_branch_protects_nothing(swept: Lake) -> None:
    swept.branches("audit", "S6")
    assert swept.sweeps(UNTIL)["lake/d"].outcomes == {Outcome.DELETED: 5}


def test_a_branch_on_another_life_brings_nothing_back(swept: Lake) -> None:
    swept.comes_again("S2", opened_at="2025-01-01T00:00:00Z", closed_at="2025-01-01T01:00:00Z")
    swept.branches("audit", "S2")
    assert swept.sweeps(UNTIL)["lake/d"].outcomes == {Outcome.DELETED: 5}
    assert in_sight(swept) == {"S2", "S6"}


def test_what_its_policy_may_take_from_a_latest_view_is_not_kept_by_latest_views(tmp_path: Path, url: str) -> None:
    allowed = UNDO.replace("undo:", "latest_view: allow, undo:").replace("older_than: 30d", "older_than: 12h")
    lake = Lake(tmp_path, url, allowed).has(FIVE)
    lake.marks()
    lake.sweeps(DUE)
    assert (in_sight(lake), len(aside(lake))) == (set(), 6)
    assert lake.sweeps(DUE + DAY) == {}
    lake.tags("audit", "S6")
    assert lake.sweeps(UNTIL)["lake/d"].outcomes == {Outcome.RESTORED: 1, Outcome.DELETED: 5}
    assert in_sight(lake) == {"S6"}


@pytest.mark.parametrize("status", ["ACTIVE", "INACTIVE", "PURGING"])
@pytest.mark.parametrize("moved", [False, True], ids=["of the realm", "of another realm by now"])
def test_a_purge_asks_its_realm_and_no_branch(status: str, moved: bool, tmp_path: Path, url: str) -> None:
    lake = Lake(tmp_path, url, UNDO).configures(realms={"min_grace": "0s", "confirm": "no-grace", "undo": "14d"}).has(FIVE)
    lake.belongs("acme")
    lake.change_realm("acme", "PURGING")
    lake.marks(DUE)
    lake.sweeps(DUE)
    assert (in_sight(lake), len(aside(lake))) == (set(), 6)
    lake.branches("audit", "S2")
    if moved:
        lake.belongs("other")
    if status != "PURGING":
        lake.change_realm("acme", status)
    goes = status == "PURGING" and not moved
    lake.sweeps(UNTIL)
    assert len(aside(lake)) == (0 if goes else 6)
    assert lake.verified() == ()


# --- stores that can not, and who is killed ---

SOME = "where: \"transaction {} ('S1', 'S2')\""


class DeletesOnly(Told):
    """A store that can't set anything aside, as a database."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, lambda *_: None)
        self.settings = StoreSettings(name=store.name, kind="rows")


@pytest.mark.parametrize("begun", [False, True])
def test_marks_wait_for_a_store_that_cannot_set_aside_while_others_go(tmp_path: Path, begun: bool) -> None:
    to_keep = UNDO.replace("older_than: 30d", f"older_than: 30d, {SOME.format('IN')}")
    to_go = OLD.replace("name: old", "name: other").replace("older_than: 30d", f"older_than: 30d, {SOME.format('NOT IN')}")
    lake = Lake(tmp_path, policies=f"{to_keep}, {to_go}").has(FIVE)
    assert lake.marks() == 5
    if begun:
        lake.dies_before("sweep.dataset_sweep.execute_order")
    swept = lake.sweeps(DUE, store=DeletesOnly(lake.stores["lake"]))["lake/d"]
    assert swept.outcomes == {Outcome.DELETED: 3}
    assert swept.errors == [
        "policy old sets aside what it sweeps (undo), but lake can't do that, so its marks wait. Remove `undo`, or exclude lake/* "
        "from its datasets."
    ]
    assert (lake.there(), aside(lake)) == ({"S1", "S2", "S6"}, set())
    waits = "SWEEPING" if begun else "MARKED"
    assert {name: lake.statuses()[name] for name in ("S1", "S2")} == {"S1": waits, "S2": waits}
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.SET_ASIDE: 2}
    assert (aside(lake), lake.verified()) == ({"S1", "S2"}, ())


def test_what_was_begun_and_cannot_be_brought_back_stays_begun(lake: Lake) -> None:
    """Its sweeper died once two were moved, a hold came, and somebody stands where one of them was."""
    before = bytes_of(lake)
    lake.dies_before("ledger.batches.Sweeps.settle")
    assert aside(lake) == {"S1", "S2"}
    lake.hold("lake/*", name="legal")
    stranger = lake.place("lake/d", "S1") / "other.parquet"
    stranger.parent.mkdir()
    stranger.write_text("of somebody else")
    swept = lake.sweeps(DUE)["lake/d"]
    assert swept.errors[0].startswith("what a sweep had begun to set aside could not be brought back: ")
    assert (lake.statuses()["S1"], lake.statuses()["S2"], aside(lake)) == ("SWEEPING", "SPARED", {"S1"})
    assert stranger.read_text() == "of somebody else"
    stranger.unlink()
    stranger.parent.rmdir()
    lake.sweeps(DUE)
    assert (set(lake.statuses().values()), in_sight(lake), bytes_of(lake), lake.verified()) == ({"SPARED"}, ALL, before, ())


@pytest.mark.parametrize("kind", ["files", "objects", "iceberg", "delta"])
@pytest.mark.parametrize("act", [Order.SET_ASIDE, Order.DELETE_ASIDE, Order.RESTORE])
def test_whoever_is_killed_leaves_each_whole_at_one_of_its_places(
    tmp_path: Path, sweepers: Any, kept: KeptWarehouse[dict[str, str]], kind: str, act: Order
) -> None:
    """Before one write, rename, commit or deletion after the other; the next run completes it."""
    for last in count(0, every(40)):
        with opened(kind, tmp_path / str(last), f"sqlite:///{tmp_path}/{last}/ledger.db", kept, undo="undo: 14d, ") as store:
            as_of, only = DUE_OF_STORE + timedelta(days=14 if act is Order.DELETE_ASIDE else 0), None
            if act is not Order.SET_ASIDE:
                assert not store.sweep().errors
            if act is Order.RESTORE:
                store.orders(only := act)
            given = (store.url, store.kept.store(), store.settings, None, None, as_of, only)
            sweeper = sweepers.Process(target=sweep_until, args=(last, *given))
            sweeper.start()
            sweeper.join()
            assert sweeper.exitcode == -signal.SIGKILL or (sweeper.exitcode, last > 20) == (0, True)
            with store.opened() as ledger:
                assert ledger.verify().faults == ()
                change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
                results = sweep_store(ledger, store.kept.store(), store.settings, None, as_of)
                assert [(result.refused, result.errors) for result in results] in ([], [(None, [])])
                assert ledger.verify().faults == ()
                assert len(set_aside_in(ledger, store.dataset)) == (len(store.due) if act is Order.SET_ASIDE else 0)
                freed = sum(row["bytes_freed"] for row in ledger.reports.of(as_of.date()))
            in_sight = store.before if act is Order.RESTORE else store.without_due()
            assert store.data() == in_sight, last
            assert store.read_otherwise(store.reached.keys() - (set() if act is Order.RESTORE else set(store.due))) == set()
            if act is Order.DELETE_ASIDE:
                size = sum(len(content) for place, content in store.before.items() if place not in in_sight)
                # of files that several snapshots share it is not known what a killed sweep freed
                assert freed == size or (not store.kept.recounts and last > 0 and freed < size)
            elif act is Order.SET_ASIDE:
                store.orders(Order.RESTORE)
                assert not store.sweep().errors
                assert store.data() == store.before
        if sweeper.exitcode == 0:
            break


@pytest.mark.parametrize("kind", ["files", "objects", "iceberg", "delta"])
def test_a_store_says_what_is_in_its_trash_and_deletes_nothing_of_it(
    tmp_path: Path, kept: KeptWarehouse[dict[str, str]], kind: str
) -> None:
    """The order that asks has no permit."""
    with opened(kind, tmp_path, f"sqlite:///{tmp_path}/ledger.db", kept, undo="undo: 14d, ") as store:
        assert not store.sweep().errors
        before = store.data()
        with store.opened() as ledger:
            rows = ledger.sweeps.planned([mark.id for mark in ledger.trash.marks([store.dataset])])
            log = sound_log(store.kept.store().read([store.dataset]))
            reader = store.kept.store()
            tell_swept(
                reader,
                store.dataset,
                log,
                lambda: ledger.marks.table([store.dataset], ["SWEPT"], columns=OUTCOMES),
                lambda *_: (),
            )
            assert find_there(reader, store.dataset, rows).keys() == set(rows["id"].to_pylist())
        assert store.data() == before
        store.orders(Order.RESTORE)
        assert not store.sweep().errors
        assert store.data() == store.before
