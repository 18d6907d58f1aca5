"""`housekeeping`: which stores are meant, what is printed, and what it says when something is wrong."""

import json
from pathlib import Path

import pytest

from retention_assets.ledger import open_ledger
from retention_assets.policy import Hold
from retention_assets_tests.ledger.states import take_lease
from retention_assets_tests.people.conftest import DONE, LEDGER, TO_DO, Json, Run
from retention_assets_tests.stores.records.environments import Units

AS_OF = ("--as-of", "2023-05-17T10:00:00Z")


@pytest.fixture
def units(run: Run, tmp_path: Path) -> Units:
    """One that would expire and must not, one that may; and a store beside it that expires nothing."""
    (tmp_path / "ods.db").touch()
    units = Units(f"sqlite:///{tmp_path / 'ods.db'}", ttl={"document_ttl": "180d"})
    units.has("open", closed=None, kind="RECALL", expires="2023-05-18 00:00:00").has("done", expires="2023-05-18 09:00:00")
    lake = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
    (tmp_path / "retention.yaml").write_text(json.dumps({"stores": [units.settings, lake]}))
    (tmp_path / "policies").mkdir()
    policy = {"name": "old", "datasets": {"include": ["ods/*"]}, "select": {"older_than": "P2Y"}, "sweep": {"mode": "ttl"}}
    (tmp_path / "policies" / "p.yaml").write_text(json.dumps({"policies": [policy]}))
    return units


def test_what_must_not_go_is_put_off_and_what_goes_tomorrow_is_told(units: Units, found: Json) -> None:
    told = found("housekeeping", *AS_OF)
    assert (told["as_of"], told["dry_run"]) == ("2023-05-17T10:00:00Z", False)
    (one,) = told["datasets"]
    assert (one["dataset"], one["postponed"], one["left"], one["refused"]) == ("ods/unit_of_work", 1, 0, None)
    assert one["tomorrow"] == [{"type": None, "transactions": 1, "unfinished": 0, "unarchived": 0}]
    assert units.expires("open") == {"2023-11-13 10:00:00"}
    with open_ledger(f"sqlite:///{LEDGER.absolute()}") as ledger:
        assert [json.loads(line)["actor"] for line in ledger.audit_lines()] == ["::system", "ann"]


def test_a_dry_run_changes_nothing_and_its_exit_code_says_whether_there_is_something_to_do(
    units: Units, found: Json, run: Run
) -> None:
    (one,) = found("housekeeping", *AS_OF, "--dry-run", "--store", "ods")["datasets"]
    assert (one["postponed"], units.expires("open")) == (1, {"2023-05-18 00:00:00"})
    codes = [run("housekeeping", *AS_OF, *options)[0] for options in (["--dry-run"], [], ["--dry-run"])]
    assert codes == [TO_DO, DONE, DONE]


@pytest.mark.parametrize(("is_gone", "postponed"), [(False, 2), (True, 1)])
def test_what_another_folder_of_policies_holds_is_put_off_until_that_folder_is_read_without_it(
    units: Units, found: Json, is_gone: bool, postponed: int
) -> None:
    hold = Hold.model_validate({"name": "h", "datasets": "ods/*", "transactions": ["done"], "reason": "case 7"})
    with open_ledger(f"sqlite:///{LEDGER.absolute()}") as ledger:
        ledger.holds.note_files([hold], "run elsewhere", ["/elsewhere/policies"])
        if is_gone:
            ledger.holds.note_files([], "run elsewhere", ["/elsewhere/policies"])
    (one,) = found("housekeeping", *AS_OF, "--store", "ods")["datasets"]
    assert one["postponed"] == postponed


def test_only_the_named_store_is_looked_at_and_what_files_hold_is_put_off(units: Units, found: Json, tmp_path: Path) -> None:
    (tmp_path / "other.db").touch()
    other = Units(f"sqlite:///{tmp_path / 'other.db'}", ttl={"document_ttl": "180d"}, store_name="other")
    other.has("open", closed=None, expires="2023-05-18 00:00:00")
    (tmp_path / "retention.yaml").write_text(json.dumps({"stores": [units.settings, other.settings]}))
    file = tmp_path / "policies" / "p.yaml"
    held = [{"datasets": ["ods/*"], "transactions": ["done"], "reason": "case 7"}]
    file.write_text(json.dumps({**json.loads(file.read_text()), "holds": held}))
    (one,) = found("housekeeping", *AS_OF, "--store", "ods")["datasets"]
    assert (one["dataset"], one["postponed"]) == ("ods/unit_of_work", 2)
    assert units.expires("done") == {"2023-11-13 10:00:00"}
    assert other.expires("open") == {"2023-05-18 00:00:00"}


def test_the_table_is_for_people(units: Units, run: Run) -> None:
    code, out, err = run("housekeeping", *AS_OF)
    assert (code, err) == (0, "")
    cells = [[cell.strip() for cell in row.split("│")[1:-1]] for row in out.splitlines()]
    assert ["ods/unit_of_work", "2023-05-18 10:00", "2023-11-13 10:00", "1", "0"] in cells
    assert ["ods/unit_of_work", "1", "0", "0"] in cells


def test_a_store_that_is_not_meant_is_said_and_what_could_not_be_put_off_is_an_error(units: Units, run: Run) -> None:
    for store, code, words in (("od", 2, "Did you mean ods?"), ("lake", 1, "The store lake expires nothing by itself")):
        ended, out, err = run("housekeeping", "--store", store)
        assert (ended, out, words in err) == (code, "", True), err
    with open_ledger(f"sqlite:///{LEDGER.absolute()}") as ledger:
        take_lease(ledger, units.dataset, "a sweep", 3600)
    code, _, err = run("housekeeping", *AS_OF)
    assert code == 1
    assert "ods/unit_of_work: " in err
    assert units.expires("open") == {"2023-05-18 00:00:00"}
