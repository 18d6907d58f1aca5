"""The door of the final deletion: who keeps what is set aside, what brings it back, and what is not asked any more.

Each keeper is tried with the transaction in the log, and lost from it.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.ledger import AskedBy, Settlement
from retention_assets.outcomes import Order, Outcome
from retention_assets_tests.ledger.states import set_aside_in, take_lease
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake
from retention_assets_tests.sweep.marked import begin

UNDO = OLD.replace("sweep:", "undo: 14d, sweep:")
UNTIL = DUE + timedelta(days=14)
DAY = timedelta(days=1)
OLD_ONES = {"S1", "S2", "S3", "S4", "S5"}
HOLD = "{name: legal, datasets: 'lake/*', transactions: ['S1'], reason: why}"
RULE = "{name: legal, reason: why, datasets: 'lake/*', where: \"transaction = 'S1'\"}"


@pytest.fixture
def lake(tmp_path: Path, url: str) -> Lake:
    lake = Lake(tmp_path, url, UNDO).has(FIVE)
    assert (lake.marks(), lake.sweeps(DUE)["lake/d"].outcomes) == (5, {Outcome.SET_ASIDE: 5})
    return lake


def aside(lake: Lake) -> set[str]:
    return {folder.name for folder in (lake.folder / "data" / ".retention-trash").glob("*/*/*") if folder.is_dir()}


def in_sight(lake: Lake) -> set[str]:
    return lake.there() - {""}


KEEPERS: dict[str, Callable[[Lake], object]] = {
    "hold": lambda lake: lake.hold("lake/*", "S1"),
    "hold of a file": lambda lake: lake.says(UNDO, holds=HOLD),
    "retain rule": lambda lake: lake.says(UNDO, retain=RULE),
}


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("lost", [False, True], ids=["in the log", "lost"])
def test_what_keeps_it_keeps_it_aside(keeper: str, lost: bool, lake: Lake) -> None:
    KEEPERS[keeper](lake)
    if lost:
        lake.forgets("S1")
    result = lake.sweeps(UNTIL)["lake/d"]
    # a rule that came later can't be asked about what the log has lost: it keeps all of its datasets
    assert (result.outcomes, aside(lake)) == ({Outcome.DELETED: 4}, {"S1"})
    assert lake.verified() == ()


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
def test_what_protects_it_anew_brings_it_back_in_the_next_run(act: str, days: int, lake: Lake) -> None:
    """Each transaction is a SNAPSHOT: nothing but S2 is in the view."""
    BRANCHES[act](lake)
    at = DUE + days * DAY
    result = lake.sweeps(at)["lake/d"]
    assert (result.outcomes[Outcome.RESTORED], result.errors) == (1, [])
    assert in_sight(lake) == {"S2", "S6"}
    assert aside(lake) == (OLD_ONES - {"S2"} if days == 1 else set())
    assert (lake.statuses()["S2"], "audit" in lake.why("S2") or "main" in lake.why("S2")) == ("RESTORED", True)
    with lake.opened() as ledger:
        [hold] = ledger.holds.recorded(at).placed
        assert (hold.transactions, hold.owner) == (("S2",), "test")
    # once, and no more
    assert lake.sweeps(at + DAY).get("lake/d") is None or days == 1


def test_what_is_protected_anew_while_others_go_for_good_is_not_deleted_with_them(lake: Lake) -> None:
    """Batches of two: S1 and S2 are gone when it happens."""
    store = lake.elsewhere(lambda: lake.branches("audit", "S4"))
    lake.sweeps(UNTIL, store=store, wait=lambda *_: None)
    assert (aside(lake) | in_sight(lake)) == {"S4", "S6"}
    lake.sweeps(UNTIL + DAY)
    assert (lake.statuses()["S4"], in_sight(lake)) == ("RESTORED", {"S4", "S6"})


def test_each_of_several_that_come_back_names_its_own_witness(lake: Lake) -> None:
    lake.branches("audit", "S2")
    lake.tags("release", "S4")
    assert lake.sweeps(DUE + DAY)["lake/d"].outcomes[Outcome.RESTORED] == 2
    witnesses = {name: [word for word in ("audit", "release") if word in lake.why(name)] for name in ("S2", "S4")}
    assert witnesses == {"S2": ["audit"], "S4": ["release"]}
    assert lake.verified() == ()


@pytest.mark.parametrize("tried", [False, True])
def test_a_trash_that_lost_a_file_goes_only_if_a_deletion_of_ours_may_have_taken_it(tried: bool, lake: Lake) -> None:
    """A person's order was stopped in the middle, and taken back."""
    if tried:
        with lake.opened() as ledger:
            begin(ledger, "lake/d", Order.DELETE_ASIDE, AskedBy("ann", "the disk is full"), ["S1"])
            marks, lease = set_aside_in(ledger, "lake/d"), take_lease(ledger, "lake/d", "ann")
            failed = [row["id"] for row in ledger.marks.table(["lake/d"]).to_pylist() if row["transaction"] == "S1"]
            ledger.sweeps.settle([lease], [Settlement(mark, Outcome.FAILED, error="stopped") for mark in failed])
            ledger.leases.give_up([lease])
            assert "S1" not in marks
    (lost,) = (lake.folder / "data" / ".retention-trash").glob("*/*/S1/a.parquet")
    lost.unlink()
    swept = lake.sweeps(UNTIL)["lake/d"]
    assert (swept.outcomes[Outcome.FAILED], aside(lake)) == ((0, set()) if tried else (1, {"S1"}))
    assert lake.verified() == ()


def test_to_be_on_a_branch_protects_nothing(lake: Lake) -> None:
    lake.branches("audit", "S6")
    assert lake.sweeps(UNTIL)["lake/d"].outcomes == {Outcome.DELETED: 5}


def test_a_branch_on_another_life_brings_nothing_back(lake: Lake) -> None:
    lake.comes_again("S2", opened_at="2025-01-01T00:00:00Z", closed_at="2025-01-01T01:00:00Z")
    lake.branches("audit", "S2")
    assert lake.sweeps(UNTIL)["lake/d"].outcomes == {Outcome.DELETED: 5}
    assert in_sight(lake) == {"S2", "S6"}


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
