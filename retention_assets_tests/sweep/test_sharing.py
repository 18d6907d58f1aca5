"""Stores whose transactions share data: they are told what was swept, and what they spare at the last moment stays."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.ledger import OUTCOMES, AskedBy, Marks
from retention_assets.outcomes import Order, Outcome
from retention_assets_tests.sweep.cycle import begin
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake
from retention_assets_tests.sweep.sharing import FilesStore, SharingFiles

UNDO = OLD.replace("sweep:", "undo: 14d, sweep:")
UNTIL = DUE + timedelta(days=14)


@pytest.fixture
def lake(tmp_path: Path, url: str, sharing: type[SharingFiles]) -> Lake:
    lake = Lake(tmp_path, url, OLD).has(FIVE)
    assert lake.marks() == 5
    return lake


def test_what_would_lose_nothing_is_spared_and_judged_again(lake: Lake, sharing: type[SharingFiles]) -> None:
    result = lake.sweeps(DUE)["lake/d"]
    assert (result.outcomes, result.errors) == ({Outcome.DELETED: 3, Outcome.SPARED: 2}, [])
    assert lake.there() == {"S2", "S3", "S6"}
    assert lake.statuses() == {**dict.fromkeys(["S1", "S4", "S5"], "SWEPT"), "S2": "SPARED", "S3": "SPARED"}
    row = lake.report(DUE)
    assert [row[name] for name in ("to_delete", "deleted", "spared")] == [5, 3, 2]
    sharing.answers.clear()
    # nobody's any more, it is not: it has a mark and a grace of its own
    assert lake.marks(DUE) == 2
    assert lake.sweeps(DUE + timedelta(days=6)) == {}
    assert lake.sweeps(DUE + timedelta(days=7))["lake/d"].outcomes == {Outcome.DELETED: 2}
    assert lake.verified() == ()


def test_a_store_is_told_before_each_question_what_was_swept_by_then(lake: Lake, sharing: type[SharingFiles]) -> None:
    """A batch has all of a dataset, however few its policy says: each of them reads the log, and announces itself in it."""
    sharing.answers.clear()
    lake.hold("lake/*", "S4", "S5", name="later")
    lake.sweeps(DUE)
    with lake.opened() as ledger:
        ledger.holds.release("later", "ann", "over")
    lake.marks(DUE)
    lake.sweeps(DUE + timedelta(days=7))
    first = ("S1", "S2", "S3")
    assert sharing.told == [("prepare", (), ()), ("DELETE", (), ()), ("prepare", first, ()), ("DELETE", first, ())]


@pytest.mark.parametrize("how", ["hold", "hold of a file", "retain rule"])
def test_a_store_is_told_what_keepers_name_of_what_was_swept(how: str, lake: Lake, sharing: type[SharingFiles]) -> None:
    sharing.answers.clear()
    lake.hold("lake/*", "S5", name="later")
    lake.sweeps(DUE)
    with lake.opened() as ledger:
        ledger.holds.release("later", "ann", "over")
    if how == "hold":
        lake.hold("lake/*", "S2")
    lake.says(
        OLD,
        holds="{name: h, datasets: 'lake/*', transactions: ['S2'], reason: r}" if how == "hold of a file" else "",
        retain="{name: r, datasets: 'lake/*', where: \"transaction = 'S2'\", reason: r}" if how == "retain rule" else "",
    )
    lake.marks(DUE)
    sharing.kept.clear()
    lake.sweeps(DUE + timedelta(days=7))
    assert {*sharing.kept} == {("S2",)}


def test_nothing_goes_where_the_second_reader_says_that_it_would_lose_nothing(lake: Lake, sharing: type[SharingFiles]) -> None:
    sharing.faults["S4"] = "retained versions need all files of it"
    result = lake.sweeps(DUE)["lake/d"]
    assert "S4 is marked, but retained versions need all files of it (1 such marks)" in str(result.refused)
    assert (result.outcomes, lake.there()) == ({}, {"S1", "S2", "S3", "S4", "S5", "S6"})


@pytest.mark.parametrize("days", [1, 14])
def test_what_its_store_needs_again_comes_back_in_the_next_run(days: int, lake: Lake, sharing: type[SharingFiles]) -> None:
    sharing.answers.clear()
    lake.says(UNDO)
    lake.marks(DUE)
    lake.sweeps(DUE)
    assert (lake.there(), lake.statuses()) == ({"S6"}, dict.fromkeys(["S1", "S2", "S3", "S4", "S5"], "SWEPT"))
    sharing.wanted["S2"] = "Tag keep-2 pins it."
    at = DUE + timedelta(days=days)
    result = lake.sweeps(at)["lake/d"]
    over = {Outcome.DELETED: 4} if days == 14 else {}
    assert (result.outcomes, result.errors) == ({Outcome.RESTORED: 1, **over}, [])
    assert lake.there() == {"S2", "S6"}
    assert (lake.statuses()["S2"], lake.why("S2", "lake/d")) == ("RESTORED", "Tag keep-2 pins it.")
    with lake.opened() as ledger:
        [hold] = ledger.holds.recorded(at).placed
        mark = ledger.histories.of("lake/d", ["S2"])["S2"][-1].id
        assert (hold.name, hold.transactions) == (f"returned-lake/d-S2-{mark}", ("S2",))
        # released, it is judged as everything else
        ledger.holds.release(str(hold.name), "ann", "looked at")
    sharing.wanted.clear()
    assert lake.marks(at) == 1
    assert lake.verified() == ()


def test_lives_that_are_over_and_what_was_restored_are_retained(lake: Lake, sharing: type[SharingFiles]) -> None:
    """S1 is deleted and made anew, S2 deleted; S4 is set aside, S5 too and restored. Then the new S1 is swept."""
    sharing.answers.clear()
    lake.hold("lake/*", "S3", "S4", "S5", name="later")
    lake.sweeps(DUE)
    lake.says(UNDO)
    with lake.opened() as ledger:
        ledger.holds.release("later", "ann", "over")
    lake.hold("lake/*", "S3")
    lake.marks(DUE)
    lake.sweeps(DUE + timedelta(days=7))
    with lake.opened() as ledger:
        begin(ledger, "lake/d", Order.RESTORE, AskedBy("ann", "needed"), ["S5"])
    lake.comes_again("S1", opened_at="2025-01-01T00:00:00Z", closed_at="2025-01-01T01:00:00Z")
    sharing.told.clear()
    lake.marks(DUE + timedelta(days=7))
    lake.sweeps(DUE + timedelta(days=14))
    assert sharing.told == [
        ("RESTORE", ("S2",), ("S4", "S5")), ("prepare", ("S2",), ("S4",)), ("SET_ASIDE", ("S2",), ("S4",)),
    ]  # fmt: skip
    lake.hold("lake/*", "S5", name="kept")
    sharing.told.clear()
    last = lake.sweeps(UNTIL + timedelta(days=30))["lake/d"]
    assert last.outcomes == {Outcome.DELETED: 2}
    assert ("DELETE_ASIDE", ("S2",), ("S1", "S4")) in sharing.told
    assert lake.verified() == ()


def test_a_killed_sweep_spares_what_would_lose_nothing(lake: Lake, sharing: type[SharingFiles]) -> None:
    lake.begins("S1", "S2")
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.DELETED: 3, Outcome.SPARED: 2}
    assert sharing.told[0] == ("DELETE", (), ())
    row = lake.report(DUE)
    assert [row[name] for name in ("to_delete", "deleted", "spared")] == [5, 3, 2]
    assert lake.verified() == ()


def test_it_is_told_before_it_says_what_is_left(lake: Lake, sharing: type[SharingFiles]) -> None:
    lake.sweeps(DUE)
    sharing.told.clear()
    lake.has("main: U1:SNAPSHOT@90d=10 - U2:SNAPSHOT@1d=10", "lake/e").marks(DUE)
    lake.begins("U1", dataset="lake/e", as_of=DUE + timedelta(days=8))
    lake.hold("lake/e")
    lake.sweeps(DUE + timedelta(days=8))
    assert sharing.told[0] == ("remains", (), ())


def test_a_store_that_can_not_be_told_is_given_no_order(lake: Lake, sharing: type[SharingFiles]) -> None:
    sharing.fails = True
    result = lake.sweeps(DUE)["lake/d"]
    assert (result.refused, result.store_failed, result.outcomes) == (
        "the store lake failed: the log can't be read", True, {},
    )  # fmt: skip
    sharing.fails = False
    assert lake.sweeps(DUE)["lake/d"].outcomes[Outcome.DELETED] == 3


def test_nothing_is_asked_for_a_store_that_shares_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, table = list[object](), Marks.table

    def watched(*about: Any, **columns: Any) -> pa.Table:
        asked.extend(about[1:] if columns.get("columns") == OUTCOMES else ())
        return table(*about, **columns)

    monkeypatch.setattr(Marks, "table", watched)
    monkeypatch.setattr("retention_assets.environment.open_store", FilesStore)
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.DELETED: 5}
    assert asked == []
