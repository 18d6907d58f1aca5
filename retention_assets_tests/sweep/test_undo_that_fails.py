"""Undo where the store can't do it, or can't do it now: marks wait, or stay begun, and nothing is said to be whole that is not."""

from pathlib import Path

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Store
from retention_assets.stores.settings import StoreSettings
from retention_assets_tests.sweep.lakes import ALL, DUE, FIVE, OLD, Lake, Told
from retention_assets_tests.sweep.test_undo import UNDO, aside, bytes_of, dies_before, in_sight

SOME = "where: \"transaction {} ('S1', 'S2')\""


class DeletesOnly(Told):
    """A store that can't set anything aside, as a database."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, lambda *_: None)
        self.settings = StoreSettings(name=store.name, kind="rows")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, policies=UNDO).has(FIVE)


@pytest.mark.parametrize("begun", [False, True])
def test_marks_wait_for_a_store_that_cannot_set_aside_while_others_go(lake: Lake, begun: bool) -> None:
    to_keep = UNDO.replace("older_than: 30d", f"older_than: 30d, {SOME.format('IN')}")
    to_go = OLD.replace("name: old", "name: other").replace("older_than: 30d", f"older_than: 30d, {SOME.format('NOT IN')}")
    lake.says(f"{to_keep}, {to_go}")
    assert lake.marks() == 5
    if begun:
        dies_before(lake, "sweep.dataset_sweep.execute_order")
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
    assert lake.marks() == 5
    dies_before(lake, "ledger.batches.Sweeps.settle")
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
