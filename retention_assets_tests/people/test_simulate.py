"""`retention simulate`: what is printed, and the exit codes. Whether the days are right is people/test_simulation.py's."""

import json
from pathlib import Path

import pytest

from retention_assets_tests.people.conftest import Run
from retention_assets_tests.people.terminals import COLUMNS, at_terminal
from retention_assets_tests.sweep.lakes import MARKED, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@25d=30 - S4:SNAPSHOT@1d=40"
BEGIN = ("--from", MARKED.isoformat())


@pytest.fixture
def lake(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """One that was never judged."""
    made = Lake(tmp_path / "lake").has(HISTORY)
    monkeypatch.setenv("RETENTION_CONFIG", str(made.settings_file))
    return made


def test_eight_days_show_a_newcomer_the_sweep(lake: Lake, run: Run) -> None:
    code, said, errors = run("simulate", "--days", "8", *BEGIN)
    assert (code, errors) == (0, "")
    assert said.startswith("In 8 days: 3 marked, 2 deleted (")
    assert "nothing was changed" in said
    assert "What will arrive later is not in it." in said
    rows = {line.split("│")[1].strip(): line for line in said.splitlines() if "│" in line}
    assert rows.keys() == {"2026-03-31", "2026-04-06", "2026-04-07"}
    assert not (lake.folder / "ledger.db").exists()


def test_json_has_one_entry_a_day(lake: Lake, run: Run) -> None:
    code, said, _ = run("simulate", "--days", "8", *BEGIN, "--format", "json")
    found = json.loads(said)
    assert code == 0
    assert [one["date"] for one in found["days"]] == ["2026-03-31", *(f"2026-04-0{day}" for day in range(1, 8))]
    assert found["days"][0]["newly_marked"] == {"transactions": 2, "bytes": 30}
    assert found["days"][7]["due"] == {"transactions": 2, "bytes": 30}
    assert found["days"][7]["deleted"]["transactions"] == found["totals"]["deleted"]["transactions"] == 2
    assert found["days"][7]["waiting"] == {"transactions": 1, "bytes": 30}


def test_what_is_refused_is_exit_code_4_or_1(lake: Lake, run: Run) -> None:
    lake.has(HISTORY, "lake/e").branches("main", "S1")
    code, _, errors = run("simulate", "--days", "2", *BEGIN)
    assert (code, errors.count("lake/d was refused: ")) == (4, 1)
    assert run("simulate", "--days", "2", *BEGIN, "--strict")[0] == 1


@pytest.mark.parametrize("arguments", [(), ("--days", "0"), ("--days", "x")], ids=" ".join)
def test_days_are_asked_for(arguments: tuple[str, ...], lake: Lake, run: Run) -> None:
    code, out, errors = run("simulate", *arguments)
    assert (code, out, bool(errors)) == (2, "", True)


def test_a_simulation_fits_eighty_columns(lake: Lake) -> None:
    lake.has(HISTORY, "lake/e")
    lake.branches("late", "S2")
    code, lines = at_terminal(lake.folder, "simulate", "--days", "9", *BEGIN)
    assert code == 0
    begin = next(at for at, line in enumerate(lines) if line.startswith("In 9 days"))
    assert max(map(len, lines[begin:])) <= COLUMNS
