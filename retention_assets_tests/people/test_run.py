"""`retention run`: the whole cycle without a UI, and the dry run, on a lake with real bytes."""

import json
from pathlib import Path

import pytest

from retention_assets.dagster import headless
from retention_assets.dagster.headless import JobResult
from retention_assets.policy.durations import parse_instant
from retention_assets_tests.ledger.states import plan_of, take_lease
from retention_assets_tests.people.conftest import Run
from retention_assets_tests.sweep.lakes import Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
MARKED, DUE = "2026-03-31T12:00:00Z", "2026-04-07T12:00:00Z"
DUE_AT = parse_instant(DUE)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Lake:
    """Two datasets in the folder that the settings name."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    lake = Lake(tmp_path / "lake").has(HISTORY).has(HISTORY, "lake/e")
    monkeypatch.setenv("RETENTION_CONFIG", str(lake.folder / "retention.yaml"))
    return lake


@pytest.mark.spark
def test_a_run_marks_and_a_later_one_sweeps(lake: Lake, run: Run, spark: object) -> None:
    code, said, _ = run("run", "--as-of", MARKED, "--format", "json")
    first = json.loads(said)
    assert (code, first["troubles"]) == (0, [])
    assert first["assets"]["candidate_marks"]["newly_marked"] == 4
    assert first["assets"]["swept_transactions"]["deleted"] == 0
    code, said, _ = run("run", "--as-of", DUE, "--dataset", "lake/d")
    assert code == 0
    assert "bytes freed" in said
    assert (lake.there("lake/d"), lake.there("lake/e")) == ({"S3"}, {"S1", "S2", "S3"})
    code, said, _ = run("report", "2026-04-07", "--format", "json")
    assert (code, json.loads(said)["deleted"]) == (0, 2)
    # The page that the run left lies in the warehouse.
    assert [page.name for page in (lake.folder / "warehouse").rglob("2026-04-07.html")] == ["2026-04-07.html"]


@pytest.mark.parametrize(("left", "said"), [(1234, "1,234 files of what was swept stay where they are"), (0, "")])
def test_files_that_stay_are_said_on_stderr(
    lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch, left: int, said: str
) -> None:
    ran = JobResult("run", DUE_AT, {"swept_transactions": {"left": left}}, ())
    monkeypatch.setattr(headless, "run_job", lambda *_: ran)
    code, out, errors = run("run", "--as-of", DUE)
    assert code == 0
    assert said in errors
    assert bool(said) == ("stay where they are" in errors)
    assert "files left behind" in out


@pytest.mark.spark
def test_what_was_refused_is_said_and_makes_exit_code_4(lake: Lake, run: Run, spark: object) -> None:
    run("run", "--as-of", MARKED, "--mark-only")
    lake.branches("main", "S1")
    with lake.opened() as ledger:
        take_lease(ledger, "lake/e", "the other one")
    code, _, errors = run("run", "--as-of", DUE)
    assert code == 4
    assert "Traceback" not in errors
    assert "lake/d was refused: two branches of one name" in errors
    assert "lake/d was not swept: nothing of lake/d is swept: its log is not sound" in errors
    # What another sweeps is skipped, and nothing is wrong with it.
    assert "lake/e was not swept" not in errors
    assert lake.there("lake/d") == lake.there("lake/e") == {"S1", "S2", "S3"}


def test_a_dry_run_shows_what_a_sweep_would_do_and_changes_nothing(lake: Lake, run: Run) -> None:
    lake.marks()
    lake.branches("rescue", "S2")
    before, (files, head) = lake.statuses(), state(lake)
    code, said, _ = run("run", "--dry-run", "--as-of", DUE, "--format", "json")
    assert code == 3
    would = json.loads(said)
    assert [(one["dataset"], one["transaction"]) for one in would["deleted"]] == [
        ("lake/d", "S1"),
        ("lake/e", "S1"),
        ("lake/e", "S2"),
    ]
    assert all(one["bytes"] > 0 for one in would["deleted"])
    assert [(one["transaction"], "branch 'rescue'" in one["why"]) for one in would["spared"]] == [("S2", True)]
    assert (lake.statuses(), state(lake)) == (before, (files, head))
    code, said, _ = run("run", "--dry-run", "--as-of", DUE, "--dataset", "lake/[e-z]", "--format", "json")
    assert (code, {one["dataset"] for one in json.loads(said)["deleted"]}) == (3, {"lake/e"})
    code, said, _ = run("run", "--dry-run", "--as-of", DUE)
    assert "a run would mark none; delete 3 (" in said


def state(lake: Lake) -> tuple[dict[str, str], object]:
    """The bytes, and the end of the record."""
    with lake.opened() as ledger:
        return lake.left(), ledger.verify().head


def test_a_dry_run_shows_nothing_of_what_a_sweep_would_refuse(lake: Lake, run: Run) -> None:
    lake.marks()
    lake.branches("main", "S1")
    code, said, errors = run("run", "--dry-run", "--as-of", DUE, "--format", "json")
    assert code == 4
    assert [one["dataset"] for one in json.loads(said)["deleted"]] == ["lake/e"] * 2
    assert "lake/d would not be swept: nothing of lake/d is swept" in errors


def test_a_dry_run_before_anything_was_marked(run: Run, lake: Lake) -> None:
    code, said, errors = run("run", "--dry-run", "--as-of", MARKED, "--format", "json")
    would = json.loads(said)
    assert (code, would["deleted"], would["totals"]["newly_marked"]["transactions"]) == (3, [], 4)
    assert "no ledger yet" in errors
    assert not (lake.folder / "ledger.db").exists()


def test_marking_only_and_changing_nothing_exclude_each_other(run: Run) -> None:
    code, _, errors = run("run", "--mark-only", "--dry-run")
    assert code == 2
    assert "give one of them" in errors


def test_a_dry_run_takes_up_what_a_sweep_left_half_done_with_its_notes(lake: Lake, run: Run) -> None:
    lake.marks()
    with lake.opened() as ledger:
        lease = take_lease(ledger, "lake/d", "killed")
        marks = ledger.marks.table(["lake/d"])["id"].to_pylist()
        plan = plan_of(ledger, lease, marks, lake.drawn[0].as_of.replace(year=2027))
        ledger.sweeps.begin([lease], [plan], marks[:1])
        ledger.leases.give_up([lease])
    code, said, _ = run("run", "--dry-run", "--as-of", DUE, "--dataset", "lake/d", "--format", "json")
    assert code == 3
    assert [one["transaction"] for one in json.loads(said)["deleted"]] == ["S1", "S2"]
