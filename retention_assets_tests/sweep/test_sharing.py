"""Stores whose transactions share data: they are told what was swept, and what is kept readable is settled without bytes."""

from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import AskedBy
from retention_assets.outcomes import Order, Outcome
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake
from retention_assets_tests.sweep.marked import begin
from retention_assets_tests.sweep.sharing import FilesStore, SharingFiles, kept

UNDO = OLD.replace("sweep:", "undo: 14d, sweep:")
UNTIL = DUE + timedelta(days=14)
KEPT = kept("S2").error


@pytest.fixture
def lake(tmp_path: Path, url: str, sharing: type[SharingFiles]) -> Lake:
    lake = Lake(tmp_path, url, OLD).has(FIVE)
    assert lake.marks() == 5
    return lake


def report(lake: Lake, *names: str) -> tuple[int, ...]:
    row = lake.report(DUE)
    return tuple(row[name] for name in names)


def test_what_is_kept_readable_is_settled_and_counted_apart(lake: Lake) -> None:
    before = lake.left()
    result = lake.sweeps(DUE)["lake/d"]
    assert result.outcomes == {Outcome.DELETED: 3, Outcome.KEPT_READABLE: 2}
    assert (result.errors, result.warnings) == ([], [KEPT])
    assert (lake.there(), lake.statuses()) == ({"S2", "S3", "S6"}, dict.fromkeys(["S1", "S2", "S3", "S4", "S5"], "SWEPT"))
    freed = sum(len(text) for name, text in before.items() if name[2:4] in ("S1", "S4", "S5"))
    counters = ("to_delete", "deleted", "kept_readable", "already_gone", "failed", "spared", "bytes_freed")
    assert report(lake, *counters) == (5, 3, 2, 0, 0, 0, freed)
    with lake.opened() as ledger:
        (mark,) = ledger.histories.of("lake/d", ["S2"])["S2"]
        swept = ledger.marks.table(["lake/d"])["id"].to_pylist()
        assert ledger.histories.undeleted(swept).keys() == {each for each in swept if each in (mark.id, mark.id + 1)}
        assert (mark.is_deleted, mark.state, mark.why) == (False, "KEPT_READABLE", KEPT)
        with pytest.raises(Refused, match=f"can't be taken back. Nothing of it was deleted: {KEPT}"):
            ledger.unmark.transactions("lake/d", ["S2"], "ann", "needed")
    # never again, and the next sweep knows it
    assert (lake.marks(DUE), lake.sweeps(DUE), lake.verified()) == (0, {}, ())


def test_a_store_is_told_before_each_question_what_was_swept_by_then(lake: Lake, sharing: type[SharingFiles]) -> None:
    """A batch has all of a dataset, however few its policy says: what goes later would count as retained."""
    lake.hold("lake/*", "S4", "S5", name="later")
    lake.sweeps(DUE)
    with lake.opened() as ledger:
        ledger.holds.release("later", "ann", "over")
    lake.marks(DUE)
    lake.sweeps(DUE + timedelta(days=7))
    first = ("S1", "S2", "S3")
    assert sharing.told == [("prepare", (), ()), ("DELETE", (), ()), ("prepare", first, ()), ("DELETE", first, ())]


def test_lives_that_are_over_and_what_was_restored_are_retained(lake: Lake, sharing: type[SharingFiles]) -> None:
    """S1 is deleted and made anew, S2 kept readable; S4 is set aside, S5 too and restored. Then the new S1 is swept."""
    sharing.answers["S2"] = kept("S2", "S3")
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
    sharing.answers["S4"] = kept("S4", "S3")
    last = lake.sweeps(UNTIL + timedelta(days=30))["lake/d"]
    assert last.outcomes[Outcome.KEPT_READABLE] == 1
    assert ("DELETE_ASIDE", ("S2",), ("S1", "S4")) in sharing.told
    with lake.opened() as ledger:
        row = ledger.reports.of((UNTIL + timedelta(days=30)).date(), "lake/d")
        assert sum(each["kept_readable"] for each in row) == 0, "its report counted it when it was set aside"
        assert ledger.histories.of("lake/d", ["S4"])["S4"][-1].state == "KEPT_READABLE"
    assert lake.verified() == ()


def test_a_killed_sweep_goes_on_with_what_is_kept_readable(lake: Lake, sharing: type[SharingFiles]) -> None:
    lake.begins("S1", "S2")
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.DELETED: 3, Outcome.KEPT_READABLE: 2}
    assert sharing.told[0] == ("DELETE", (), ())
    assert report(lake, "to_delete", "deleted", "kept_readable") == (5, 3, 2)
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
    asked: list[str] = []
    monkeypatch.setattr("retention_assets.ledger.marking.Marks.swept", lambda _, dataset: asked.append(dataset))
    monkeypatch.setattr("retention_assets.environment.open_store", FilesStore)
    assert lake.sweeps(DUE)["lake/d"].outcomes == {Outcome.DELETED: 5}
    assert asked == []
