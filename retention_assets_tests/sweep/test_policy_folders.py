"""Two settings with one ledger: other policies revoke nothing, release no hold, and sweep nothing until somebody says so."""

import json
from pathlib import Path

import pytest

from retention_assets.errors import Refused
from retention_assets.people.audit import AcceptRequest, audit_accept
from retention_assets.policy.model import Hold
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake
from retention_assets_tests.sweep.test_engine import ALL, FIVE

HOLD = "{name: legal, datasets: ['lake/*'], transactions: ['S1'], reason: case 7}"
OTHER = "{name: another, datasets: {include: ['lake/none']}, select: all}"


def other(lake: Lake, policies: str) -> Lake:
    """The same ledger and stores with another folder of policies."""
    own = lake.settings_file.read_text()
    (lake.folder / "theirs").mkdir(exist_ok=True)
    (lake.folder / "theirs" / "p.yaml").write_text(policies)
    lake.settings_file.write_text(json.dumps({**json.loads(own), "policies": "theirs"}))
    return lake


def back(lake: Lake) -> Lake:
    lake.settings_file.write_text(json.dumps({**json.loads(lake.settings_file.read_text()), "policies": "policies"}))
    return lake


@pytest.mark.parametrize("theirs", ["policies: []", f"policies: [{OTHER}]"], ids=["empty", "nothing in common"])
def test_a_folder_with_nothing_in_common_sweeps_nothing_until_it_is_accepted(lake: Lake, theirs: str) -> None:
    lake.says(OLD, HOLD)
    lake.has(FIVE).marks()
    (refused,) = [one.refused for one in other(lake, theirs).sweeps().values()]
    assert "`retention audit accept --policies --reason …`" in (refused or "")
    assert lake.there() == ALL
    with lake.opened() as ledger:
        assert [one.name for one in ledger.policy_book.in_force()] == ["old"]
        assert [one.name for one in ledger.holds.of_files()] == ["legal"]
    audit_accept(AcceptRequest(actor="ann", reason="moved", policies=True), lake.environment)
    lake.sweeps()
    # Now the other files count: what was loaded before is revoked, so its marks are spared.
    assert lake.there() == ALL
    assert "no policy in force selects it any more" in lake.why("S2")
    assert lake.verified() == ()


def test_a_policy_that_is_taken_out_of_its_file_or_renamed_there_takes_effect(lake: Lake) -> None:
    lake.has(FIVE).marks()
    lake.says(OLD.replace("name: old", "name: new").replace("30d", "400d"))
    assert lake.marks() == 0
    (result,) = lake.sweeps().values()
    assert (result.refused, lake.there()) == (None, ALL)
    assert "Policy 'old' marked it, and no policy in force selects it any more." in lake.why("S2")
    lake.says(OLD)
    assert lake.marks(DUE) == 5


def test_the_hold_of_a_file_goes_only_when_its_own_folder_is_read_without_it(lake: Lake) -> None:
    lake.says(OLD, HOLD)
    lake.has(FIVE).marks()
    other(lake, f"policies: [{OLD}]").sweeps()
    assert lake.there() == {"S1", "S6"}
    assert lake.marks() == 0
    back(lake).says(OLD)
    assert lake.marks() == 1
    lake.sweeps(DUE.replace(year=DUE.year + 1))
    assert "S1" not in lake.there()


def test_after_all_was_revoked_other_policies_are_the_first(lake: Lake, tmp_path: Path) -> None:
    lake.has(FIVE).marks()
    with lake.opened() as ledger:
        ledger.policy_book.revoke("old", "ann", "all of them go")
    (result,) = other(lake, f"policies: [{OTHER}]").sweeps().values()
    assert result.refused is None
    assert lake.there() == ALL


def test_whoever_accepts_policies_vouches_for_nothing_else(lake: Lake) -> None:
    lake.says(OLD)
    lake.has(FIVE).marks()
    with lake.opened() as ledger:
        ledger.holds.place(Hold.model_validate({"name": "legal", "datasets": ["lake/*"], "reason": "case 7"}), "ann")
        with ledger.database.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE holds SET content = replace(content, 'lake/*', 'lake/none')")
    request = AcceptRequest(actor="ann", reason="moved", policies=True)
    with pytest.raises(Refused, match="nothing to accept"):
        audit_accept(request, lake.environment)
    other(lake, f"policies: [{OTHER}]")
    assert audit_accept(request, lake.environment).data["faults"] == []
    assert any("was changed past the ledger" in fault for fault in lake.verified())
