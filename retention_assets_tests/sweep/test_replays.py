"""What was deleted is put back: a replay takes what nothing protects and a policy still selects, and names the rest.

Belongs here: rules, lives and the brake, over folders. Each kind of store is in test_cycles.py, what a person types in `people`.
"""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import BadInput
from retention_assets_tests.sweep.cycle import replays_in
from retention_assets_tests.sweep.lakes import ALL, DUE, FIVE, OLD, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Five old views were deleted; a copy of what was there before is put back."""
    lake = Lake(tmp_path / "lake").has(FIVE)
    assert lake.marks() == 5
    shutil.copytree(lake.folder / "data", lake.folder / "backup")
    lake.sweeps(DUE)
    shutil.copytree(lake.folder / "backup", lake.folder / "data", dirs_exist_ok=True)
    return lake


def replays_of(lake: Lake, **asked: Any) -> tuple[list[str], dict[str, str], dict[str, str]]:
    return replays_in(lake.environment, as_of=DUE, **asked)


def test_what_protects_now_stays_and_is_named(lake: Lake) -> None:
    lake.hold("lake/*", "S1")
    lake.tags("v1", "S2")
    lake.branches("other", "S3")
    lake.says(OLD, retain="{name: r, reason: law, datasets: {include: ['*']}, newest: {transactions: 3}}")
    assert replays_of(lake) == (
        [],
        {
            "S1": "Hold 'legal' keeps it. Retain rule 'r' keeps it.",
            "S2": "It belongs to a view that tag 'v1' pins. Retain rule 'r' keeps it.",
            "S3": "It is in the latest view of branch 'other': readers of that branch need it. Retain rule 'r' keeps it.",
            "S4": "Retain rule 'r' keeps it.",
            "S5": "Retain rule 'r' keeps it.",
        },
        {},
    )
    assert (lake.there(), lake.verified()) == (ALL, ())


def test_another_life_stays(lake: Lake) -> None:
    """By its times in the log, or by a file that was written after the sweep."""
    lake.comes_again("S1", closed_at="2026-01-02T00:00:00Z")
    with lake.opened() as ledger:
        swept = ledger.histories.of("lake/d", ["S2", "S3"])
    for name, more in (("S2", 0), ("S3", 1)):
        swept_at = swept[name][0].changed_at
        assert swept_at is not None
        nanoseconds = (swept_at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1_000 + more
        os.utime(lake.place("lake/d", name) / "a.parquet", ns=(nanoseconds, nanoseconds))
    went, stays, _ = replays_of(lake)
    assert (went, [*stays]) == (["S2", "S4", "S5"], ["S3"])
    assert "its store finds other data than what was deleted" in stays["S3"]
    assert lake.there() == {"S1", "S3", "S6"}


def test_what_a_killed_replay_had_begun_and_is_another_life_since_stays(lake: Lake) -> None:
    lake.dies_before("sweep.dataset_sweep.execute_order", does=lambda _: replays_of(lake))
    assert lake.there() == ALL
    lake.comes_again("S1", closed_at="2026-01-02T00:00:00Z")
    lake.sweeps(DUE)
    assert (lake.there(), lake.verified()) == ({"S1", "S6"}, ())


def test_what_no_policy_selects_goes_only_whatever_policies_say(lake: Lake) -> None:
    lake.says(OLD.replace("older_than: 30d", "older_than: 72d"))
    no_policy = dict.fromkeys(("S4", "S5"), "No policy in force selects it any more.")
    assert replays_of(lake, plan=True) == (["S1", "S2", "S3"], no_policy, {})
    with pytest.raises(BadInput, match="a reason is for what goes whatever policies say"):
        replays_of(lake, whatever_policies_say=True)
    lake.hold("lake/*", "S5")
    went, stays, _ = replays_of(lake, whatever_policies_say=True, reason="the law")
    assert (went, stays) == (["S1", "S2", "S3", "S4"], {"S5": "Hold 'legal' keeps it."})
    with lake.opened() as ledger:
        assert "the law" in {event.why for event in ledger.histories.of("lake/d", ["S4"])["S4"][0].events}


@pytest.mark.parametrize("status", ["PURGING", "PURGED"])
def test_a_realm_that_is_purged_selects_and_an_active_one_does_not(lake: Lake, status: str) -> None:
    lake.belongs("acme")
    lake.says("")
    (lake.folder / "policies" / "p.yaml").write_text(
        "policies: [{name: other, datasets: {include: ['lake/else']}, select: {older_than: 1d}}]"
    )
    assert replays_of(lake)[0] == []
    lake.change_realm("acme", "PURGING")
    if status == "PURGED":
        with lake.opened() as ledger:
            ledger.realms.purged("acme", "ann")
    assert replays_of(lake) == (["S1", "S2", "S3", "S4", "S5"], {}, {})


def test_the_brake_stops_it_until_a_person_accepts(lake: Lake) -> None:
    lake.configures(brake={"usual": 10, "share": 0.1})
    went, _, refused = replays_of(lake)
    assert (went, lake.there()) == ([], ALL)
    assert "more than the share of 0.1" in refused["lake/d"]
    assert replays_of(lake, accept_large=True)[0] == ["S1", "S2", "S3", "S4", "S5"]
