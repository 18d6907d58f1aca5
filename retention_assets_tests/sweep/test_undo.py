"""Undo in the engine: what is set aside stays whole, comes back or goes for good, and the ledger says so at any moment."""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import sound_log
from retention_assets.ledger import OUTCOMES, AskedBy
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Hold
from retention_assets.stores.logs import tell_swept
from retention_assets.sweep import SweepResult, find_there
from retention_assets_tests.ledger.states import change_leases, set_aside_in
from retention_assets_tests.rounds import every
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.delta.environments import SharedTables
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.sweep.datasets import DUE as DUE_OF_STORE
from retention_assets_tests.sweep.lakes import ALL, DUE, FIVE, OLD, Lake
from retention_assets_tests.sweep.marked import MarkedStore, begin, sweep_store, sweep_until
from retention_assets_tests.sweep.test_killed import Kept

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


def report(lake: Lake, day: datetime) -> dict[str, Any]:
    row = lake.report(day)
    names = ("to_delete", "set_aside", "deleted", "restored", "failed", "bytes_set_aside", "bytes_freed")
    return {name: row[name] for name in names if row[name]}


def asks(lake: Lake, order: Order, *transactions: str, as_of: datetime = DUE, hold: Hold | None = None) -> SweepResult:
    """A person asks for transactions to come back, or to go early."""
    begins(lake, order, transactions, hold)
    return lake.sweeps(as_of, only=order)["lake/d"]


def begins(lake: Lake, order: Order, transactions: Sequence[str], hold: Hold | None = None) -> None:
    with lake.opened() as ledger:
        begin(ledger, "lake/d", order, AskedBy("ann", "we need them", hold), transactions)


def test_it_is_set_aside_and_goes_for_good_when_its_time_is_over(lake: Lake) -> None:
    before = bytes_of(lake)
    swept = lake.sweeps(DUE)["lake/d"]
    size = sum(len(text) for name, text in before.items() if "/S6/" not in name)
    assert (swept.outcomes, swept.bytes_freed, swept.bytes_set_aside) == ({Outcome.SET_ASIDE: 5}, 0, size)
    assert (in_sight(lake), aside(lake), bytes_of(lake)) == ({"S6"}, OLD_ONES, before)
    assert lake.statuses() == dict.fromkeys(OLD_ONES, "SWEPT")
    with lake.opened() as ledger:
        (row,) = ledger.trash.sums()
        assert row == ("lake/d", "old", 5, size, UNTIL, UNTIL)
        [work] = ledger.marks.to_sweep(UNTIL - timedelta(seconds=1))
        assert (work.dataset, work.is_due, work.aside) == ("lake/d", False, 0), "it looks whether any has to come back"
    assert lake.verified() == ()
    assert lake.marks(DUE) == 0
    assert lake.sweeps(UNTIL - timedelta(seconds=1)) == {}
    gone = lake.sweeps(UNTIL)["lake/d"]
    assert (gone.outcomes, gone.bytes_freed) == ({Outcome.DELETED: 5}, size)
    assert (in_sight(lake), aside(lake)) == ({"S6"}, set())
    assert not (lake.folder / "data" / ".retention-trash").exists()
    assert report(lake, DUE) == {"to_delete": 5, "set_aside": 5, "bytes_set_aside": size}
    assert report(lake, UNTIL) == {"bytes_freed": size}
    assert lake.verified() == ()
    assert lake.sweeps(LATER) == {}


def test_what_is_restored_is_as_it_was_and_is_marked_anew_once_its_hold_is_released(lake: Lake) -> None:
    before = bytes_of(lake)
    lake.sweeps(DUE)
    hold = Hold.model_validate({"name": "back", "datasets": "lake/d", "transactions": ["S2", "S3"], "reason": "we need them"})
    back = asks(lake, Order.RESTORE, "S2", "S3", hold=hold)
    assert (back.outcomes, back.errors, back.refused) == ({Outcome.RESTORED: 2}, [], None)
    assert (in_sight(lake), aside(lake), bytes_of(lake)) == ({"S2", "S3", "S6"}, {"S1", "S4", "S5"}, before)
    assert {name: lake.statuses()[name] for name in OLD_ONES} == dict.fromkeys(OLD_ONES, "SWEPT") | dict.fromkeys(
        ["S2", "S3"], "RESTORED"
    )
    assert lake.why("S2") == "we need them"
    assert report(lake, DUE)["restored"] == 2
    assert (lake.marks(DUE), lake.verified()) == (0, ())
    with lake.opened() as ledger:
        ledger.holds.release("back", "ann", "no longer")
    assert lake.marks(DUE) == 2
    lake.sweeps(UNTIL)
    assert (in_sight(lake), aside(lake)) == ({"S6"}, {"S2", "S3"})
    assert lake.verified() == ()


@pytest.mark.parametrize("keeper", ["hold", "newer retain rule"])
def test_a_keeper_stops_the_second_sweep_until_it_ends(lake: Lake, keeper: str) -> None:
    lake.sweeps(DUE)
    if keeper == "hold":
        lake.hold("lake/*", "S2", name="legal")
    else:
        lake.says(UNDO, retain="{name: legal, reason: why, datasets: {include: ['*']}, where: \"transaction = 'S2'\"}")
    assert lake.sweeps(UNTIL)["lake/d"].outcomes == {Outcome.DELETED: 4}
    assert aside(lake) == {"S2"}
    assert lake.sweeps(LATER)["lake/d"].outcomes == {}
    if keeper == "hold":
        with lake.opened() as ledger:
            ledger.holds.release("legal", "ann", "over")
    else:
        lake.says(UNDO)
    assert lake.sweeps(LATER)["lake/d"].outcomes == {Outcome.DELETED: 1}
    assert (aside(lake), lake.verified()) == (set(), ())


@pytest.mark.parametrize("keeper", ["", "hold", "hold that asks for attributes", "newer retain rule"])
def test_what_a_dropped_dataset_has_in_the_trash_goes_in_its_time(lake: Lake, keeper: str) -> None:
    """Holds and retain rules keep it all the same; nobody knows any more which attributes it had."""
    lake.has(FIVE, "lake/other").sweeps(DUE)
    log = lake.folder / "log" / "lake-d.jsonl"
    lines = log.read_text()
    log.unlink()
    about = "{include: ['*'], with: {tier: gold}}" if "attributes" in keeper else "'lake/d'"
    if "hold" in keeper:
        lake.says(UNDO, holds=f"{{name: legal, datasets: {about}, reason: why, transactions: ['S1']}}")
    elif keeper:
        lake.says(UNDO, retain="{name: legal, reason: why, datasets: 'lake/d', where: \"transaction = 'S2'\"}")
    assert (lake.sweeps(UNTIL - timedelta(seconds=1)), aside(lake)) == ({}, OLD_ONES)
    gone = lake.sweeps(UNTIL)["lake/d"]
    kept = OLD_ONES if "rule" in keeper else {"S1"} if keeper else set()
    assert (gone.refused, aside(lake)) == (None, kept)
    log.write_text(lines)
    assert lake.verified() == ()


def test_nothing_is_restored_into_a_dataset_that_is_not_there(lake: Lake) -> None:
    lake.has(FIVE, "lake/other").sweeps(DUE)
    log = lake.folder / "log" / "lake-d.jsonl"
    lines = log.read_text()
    log.unlink()
    why = "nothing of lake/d is swept: its store does not have it"
    assert asks(lake, Order.RESTORE, "S1").refused == why
    assert (lake.sweeps(DUE)["lake/d"].refused, aside(lake)) == (why, OLD_ONES)
    log.write_text(lines)
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.RESTORED: 1}
    assert (in_sight(lake), lake.verified()) == ({"S1", "S6"}, ())


def test_policies_are_not_asked_any_more(lake: Lake) -> None:
    lake.sweeps(DUE)
    lake.says(OLD.replace("30d", "300d"))
    assert lake.sweeps(UNTIL)["lake/d"].outcomes == {Outcome.DELETED: 5}


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


def test_what_goes_early_is_recorded_with_who_asked_and_what_is_held_stays(lake: Lake) -> None:
    lake.sweeps(DUE)
    lake.hold("lake/*", "S2", name="legal")
    gone = asks(lake, Order.DELETE_ASIDE, "S1", "S2")
    assert gone.outcomes == {Outcome.DELETED: 1, Outcome.FAILED: 1}
    assert gone.errors == ["It stays set aside. Hold 'legal' keeps it."]
    assert aside(lake) == {"S2", "S3", "S4", "S5"}
    assert lake.verified() == ()
    # It was begun in vain, and can come back.
    assert asks(lake, Order.RESTORE, "S2").outcomes == {Outcome.RESTORED: 1}
    assert (in_sight(lake), lake.verified()) == ({"S2", "S6"}, ())


def test_what_stands_in_its_place_refuses_the_restore_and_nothing_changes(lake: Lake) -> None:
    lake.sweeps(DUE)
    lake._fill("lake/d", "S1")
    (lake.place("lake/d", "S1") / "a.parquet").write_text("another one")
    back = asks(lake, Order.RESTORE, "S1", "S2")
    assert back.outcomes == {Outcome.FAILED: 1, Outcome.RESTORED: 1}
    assert "d/S1" in back.errors[0]
    assert aside(lake) == {"S1", "S3", "S4", "S5"}
    assert lake.statuses()["S1"] == "SWEPT"
    assert lake.verified() == ()
    # For good goes what was set aside, not what came after it.
    lake.sweeps(UNTIL)
    assert (in_sight(lake), aside(lake)) == ({"S1", "S2", "S6"}, set())
    assert (lake.place("lake/d", "S1") / "a.parquet").read_text() == "another one"


@pytest.mark.parametrize("order", [Order.DELETE_ASIDE, Order.RESTORE])
def test_what_was_changed_in_the_trash_neither_goes_nor_comes_back(lake: Lake, order: Order) -> None:
    lake.sweeps(DUE)
    (changed,) = (lake.folder / "data" / ".retention-trash").glob("*/*/S1/a.parquet")
    changed.write_text("not what was set aside")
    done = asks(lake, order, "S1", "S2")
    assert done.outcomes == {Outcome.FAILED: 1, Outcome.DELETED if order is Order.DELETE_ASIDE else Outcome.RESTORED: 1}
    assert "Its files changed" in done.errors[0]
    assert "S1" in aside(lake)
    assert lake.statuses()["S1"] == "SWEPT"
    assert lake.verified() == ()


@pytest.mark.parametrize("moved", [False, True])
def test_what_was_begun_and_is_needed_again_comes_back(lake: Lake, moved: bool) -> None:
    """The sweeper died before or after it moved the folders, and a hold came."""
    before = bytes_of(lake)
    dies_before(lake, "ledger.batches.Sweeps.settle" if moved else "sweep.dataset_sweep.execute_order")
    assert len(aside(lake)) == (2 if moved else 0)
    lake.hold("lake/*", name="legal")
    lake.sweeps(DUE)
    assert (in_sight(lake), aside(lake), bytes_of(lake)) == (ALL, set(), before)
    assert set(lake.statuses().values()) == {"SPARED"}
    assert lake.verified() == ()


def test_what_was_begun_stays_begun_while_its_store_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set aside, and a new plan would look for it in another folder of the trash."""
    before = bytes_of(lake)
    dies_before(lake, "ledger.batches.Sweeps.settle")
    with monkeypatch.context() as patch:
        patch.setattr("retention_assets.stores.files.store.FilesStore.carry_out", lambda *_: [])
        swept = lake.sweeps(DUE)["lake/d"]
    assert swept.outcomes == {}
    assert swept.refused == "what was begun of lake/d could not be finished: the store gave no result"
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.SET_ASIDE: 5}
    assert (in_sight(lake), aside(lake), bytes_of(lake)) == ({"S6"}, OLD_ONES, before)
    assert lake.verified() == ()


def dies_before(lake: Lake, act: str, as_of: datetime = DUE) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"retention_assets.{act}", dies)
        with pytest.raises(KeyboardInterrupt):
            lake.sweeps(as_of)
    with lake.opened() as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")


@contextmanager
def marked(kind: str, folder: Path, kept: KeptWarehouse[dict[str, str]]) -> Iterator[MarkedStore]:
    (folder / "store").mkdir(parents=True)
    url = f"sqlite:///{folder}/ledger.db"
    with ExitStack() as stack:
        if kind == "iceberg":
            names = kept.made
            environment: Environment = Kept(stack.enter_context(kept.opened()), names)
        else:
            environment = {"files": LocalFiles, "objects": LocalObjects, "delta": SharedTables}[kind](folder / "store")
        yield MarkedStore(environment, url, folder / "settings", 5, undo="undo: 14d, ")


@pytest.mark.parametrize("kind", ["files", "objects", "iceberg", "delta"])
@pytest.mark.parametrize("act", [Order.SET_ASIDE, Order.DELETE_ASIDE, Order.RESTORE])
def test_whoever_is_killed_leaves_each_whole_at_one_of_its_places(
    tmp_path: Path, sweepers: Any, kept: KeptWarehouse[dict[str, str]], kind: str, act: Order
) -> None:
    """Before one write, rename, commit or deletion after the other; the next run completes it."""
    for last in count(0, every(40)):
        with marked(kind, tmp_path / str(last), kept) as store:
            as_of, only = DUE_OF_STORE + timedelta(days=14 if act is Order.DELETE_ASIDE else 0), None
            if act is not Order.SET_ASIDE:
                assert not store.sweeps().errors
            if act is Order.RESTORE:
                store.begins(only := act)
            given = (store.url, store.environment.store(), store.settings, None, None, as_of, only)
            sweeper = sweepers.Process(target=sweep_until, args=(last, *given))
            sweeper.start()
            sweeper.join()
            assert sweeper.exitcode == -signal.SIGKILL or (sweeper.exitcode, last > 20) == (0, True)
            with store.opened() as ledger:
                assert ledger.verify().faults == ()
                change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
                results = sweep_store(ledger, store.environment.store(), store.settings, None, as_of)
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
                assert freed == size or (not store.environment.recounts and last > 0 and freed < size)
            elif act is Order.SET_ASIDE:
                store.begins(Order.RESTORE)
                assert not store.sweeps().errors
                assert store.data() == store.before
        if sweeper.exitcode == 0:
            break


@pytest.mark.parametrize("kind", ["files", "objects", "iceberg", "delta"])
def test_a_store_says_what_is_in_its_trash_and_deletes_nothing_of_it(
    tmp_path: Path, kept: KeptWarehouse[dict[str, str]], kind: str
) -> None:
    """The order that asks has no permit."""
    with marked(kind, tmp_path, kept) as store:
        assert not store.sweeps().errors
        before = store.data()
        with store.opened() as ledger:
            rows = ledger.trash.planned([mark.id for mark in ledger.trash.marks([store.dataset])])
            log = sound_log(store.environment.store().read([store.dataset]))
            opened = store.environment.store()
            tell_swept(
                opened,
                store.dataset,
                log,
                lambda: ledger.marks.table([store.dataset], ["SWEPT"], columns=OUTCOMES),
                lambda *_: (),
            )
            assert find_there(opened, store.dataset, rows).keys() == set(rows["id"].to_pylist())
        assert store.data() == before
        store.begins(Order.RESTORE)
        assert not store.sweeps().errors
        assert store.data() == store.before
