"""What people see of transactions that share data: what is needed is spared, and why is explained."""

from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.policy import text_of
from retention_assets_tests.people.conftest import DONE, Json, Run
from retention_assets_tests.sweep.lakes import DUE, FIVE, Lake
from retention_assets_tests.sweep.sharing import FilesStore, SharingFiles, needed
from retention_assets_tests.sweep.sharing import sharing as sharing

NEEDED = str(needed("S2").error)
AT = ("--as-of", text_of(DUE))
EXPLAIN = ("explain", "lake/d", "S2")


@pytest.fixture
def lake(lake: Lake, sharing: type[SharingFiles]) -> Lake:
    """Five due marks; two of them can be read by S6's files."""
    assert lake.has(FIVE).marks() == 5
    return lake


def test_a_plan_tells_the_store_what_was_swept_before(lake: Lake, sharing: type[SharingFiles], found: Json) -> None:
    lake.hold("lake/*", "S1", "S4", "S5")
    lake.sweeps(DUE)
    with lake.opened() as ledger:
        ledger.holds.release("legal", "ann", "over")
    lake.marks(DUE)
    sharing.told.clear()
    plan = found("plan", "--as-of", text_of(DUE + timedelta(days=7)))
    assert plan["totals"]["deleted"]["transactions"] == 5
    assert sharing.told[0] == ("prepare", (), ()), "what lost nothing was not swept"


@pytest.mark.usefixtures("local_spark")
def test_a_run_and_its_report_count_it_as_spared(lake: Lake, run: Run, found: Json, tmp_path: Path) -> None:
    code, out, _ = run("run", *AT, "--yes")
    assert code == DONE
    assert "3 transactions deleted, 87 B freed." in out
    assert "spared: still needed" in out
    report = found("report")
    names = ("to_delete", "deleted", "spared", "failed", "bytes_freed")
    assert [report[name] for name in names] == [5, 3, 2, 0, 87]
    assert "kept_readable" not in report
    assert "readable" not in run("report", "--html", str(tmp_path / "page.html"))[1]
    row = next(row for row in found("marks", "-s", "SPARED") if row["transaction"] == "S2")
    assert row["message"] is None
    life = found("history", "lake/d", "S2")["transactions"][0]
    assert life["message"] is None
    assert life["words"].startswith("spared by the sweep at ")
    assert life["words"].partition("; the reason then: ")[2].startswith(NEEDED)


def test_explain_asks_the_store_which_data_goes(lake: Lake, sharing: type[SharingFiles], run: Run, found: Json) -> None:
    lake.sweeps(DUE)
    sharing.told.clear()
    code, out, _ = run(*EXPLAIN)
    assert (code, f"Data\n  {NEEDED}\n" in out) == (DONE, True)
    assert sharing.told == [("explain", ("S1", "S4", "S5"), ())]
    assert found(*EXPLAIN)["needs"] == [NEEDED]
    sharing.fails = True
    code, out, _ = run(*EXPLAIN)
    assert (code, "Data\n  the store lake failed: the log can't be read\n" in out) == (DONE, True)


def test_validate_says_what_policies_promise_in_vain(
    lake: Lake, sharing: type[SharingFiles], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [line for line in run("validate")[2].splitlines() if "readers" in line] == ["lake: readers refuse what old promises"]
    sharing.fails = True
    code, _, err = run("validate")
    assert (code, "lake: the store lake failed: the log can't be read" in err) == (DONE, True)
    monkeypatch.setattr("retention_assets.environment.open_store", FilesStore)
    assert "readers" not in run("validate")[2]
