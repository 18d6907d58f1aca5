"""`forecast`: its JSON, its table, and how it ends."""

import json
import re
from pathlib import Path

import pytest

from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.people.conftest import Json, Run
from retention_assets_tests.people.logs import CYCLE, NOW, OLD

DAILY = "main: " + " - ".join(f"T{age}:SNAPSHOT@{age}d=1000000" for age in range(60, 0, -1))
LAKE = 'stores: [{name: lake, kind: files, log: log, data: "data/{dataset}/{transaction}"}]\n'


@pytest.fixture
def lake(run: Run) -> Path:
    """A lake to which a view was added each day, in the working directory."""
    for name in ("log", "data", "policies"):
        Path(name).mkdir()
    Path("log/log.jsonl").write_text("".join(f"{line}\n" for line in to_lines([history(DAILY)])))
    Path("policies/p.yaml").write_text(OLD)
    Path("retention.yaml").write_text(LAKE)
    return Path()


def test_json_has_an_entry_for_each_day(lake: Path, found: Json) -> None:
    told = found("forecast", "--days", "90", "--as-of", NOW)
    assert len(told["days"]) == 90
    assert (told["days"][0]["date"], told["days"][-1]["date"]) == ("2026-03-31", "2026-06-28")
    for name in ("bytes", "bytes_marked", "bytes_deleted", "marked", "deleted", "waiting", "transactions"):
        assert all(isinstance(day[name], int) for day in told["days"]), name
    assert (told["policies"], told["others"], told["refused"], told["away"]) == ("today", [], {}, {})
    assert told["by_policy"]["old"]["deleted"] == sum(day["deleted"] for day in told["days"]) == 59
    # What is there is what was there and did not go.
    left = told["start"]["bytes"]
    for day in told["days"]:
        left -= day["bytes_deleted"]
        assert day["bytes"] == left


def test_ninety_days_are_foreseen_where_nobody_says_how_many(lake: Path, found: Json) -> None:
    assert len(found("forecast", "--as-of", NOW)["days"]) == 90
    assert not Path(".retention").exists()


@pytest.mark.parametrize(("days", "rows"), [("1", 1), ("14", 14), ("15", 3), ("90", 13), ("126", 18), ("365", 14)])
def test_the_table_has_few_rows_and_fits_80_columns(
    days: str, rows: int, lake: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("retention.yaml").write_text(LAKE + "prices: {currency: EUR, default: {gib_month: 0.023}}\n")
    code, out, err = run("forecast", "--days", days, "--as-of", NOW)
    assert (code, err) == (0, "")
    assert len(re.findall(r"^│ \d{4}-\d\d-\d\d", out, re.MULTILINE)) == rows
    drawn = [line for line in out.splitlines() if line and not line[0].isalpha()]
    assert max(map(len, drawn)) <= 80
    assert "EUR a month" in out
    assert "█" in out
    assert "Assumed: nothing new arrives" in out


def test_others_have_a_table_of_their_own(lake: Path, run: Run, found: Json) -> None:
    Path("other.yaml").write_text(OLD.replace("30d", "10d").replace("name: old", "name: eager"))
    code, out, _ = run("forecast", "--policies", "other.yaml", "--as-of", NOW)
    assert code == 0
    assert "Week by week, with the policies in force" in out
    assert "Week by week, with other.yaml" in out
    (other,) = found("forecast", "--policies", "other.yaml", "--as-of", NOW)["others"]
    assert (other["policies"], len(other["days"]), list(other["by_policy"])) == ("other.yaml", 90, ["eager"])


def test_a_dataset_that_is_not_sound_is_named_and_ends_with_4(lake: Path, run: Run) -> None:
    with Path("log/log.jsonl").open("a") as log:
        log.write(CYCLE)
    code, out, err = run("forecast", "--as-of", NOW, "--format", "json")
    assert (code, json.loads(out)["refused"]["lake/bad"]["fault"]) == (4, "cycle")
    assert err == "lake/bad is left out, because its log is not sound: cycle\n"
    assert run("forecast", "--as-of", NOW, "--strict")[0] == 1


def test_a_store_that_is_away_ends_with_1(lake: Path, run: Run) -> None:
    away = "  - {name: away, kind: files, log: nowhere, data: 'nothing/{dataset}/{transaction}'}\n"
    Path("retention.yaml").write_text(f"stores:\n  - {LAKE.partition('[')[2].rstrip()[:-1]}\n{away}")
    code, out, err = run("forecast", "--as-of", NOW, "--format", "json")
    assert (code, list(json.loads(out)["away"])) == (1, ["away"])
    assert err.startswith("away is left out: ")
    assert len(json.loads(out)["days"]) == 90


def test_globs_that_no_dataset_fits_are_answered(lake: Path, run: Run) -> None:
    code, out, _ = run("forecast", "--dataset", "lake/x*", "--as-of", NOW)
    assert (code, out) == (0, "There is no dataset whose days could be foreseen.\n")


@pytest.mark.parametrize("arguments", [("--days", "0"), ("--days", "1001"), ("--days", "x"), ("--policies", "missing.yaml")])
def test_what_cannot_be_meant_is_bad_input(arguments: tuple[str, ...], lake: Path, run: Run) -> None:
    code, out, err = run("forecast", *arguments)
    assert (code, out) == (2, "")
    assert err


def test_a_folder_without_settings_is_bad_input(run: Run) -> None:
    Path("retention.yaml").unlink()
    assert run("forecast")[0] == 2
