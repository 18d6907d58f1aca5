"""`retention replay`: what was deleted and is there again, because somebody put a backup back, goes again, and nothing else."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from retention_assets.policy import text_of
from retention_assets_tests.people.conftest import DONE, FAILED, TO_DO, Json, Run
from retention_assets_tests.people.terminals import at_terminal
from retention_assets_tests.people.test_there_again import GONE, change, day, lake, lives
from retention_assets_tests.sweep.lakes import DUE, FIVE, MARKED, Lake

__all__ = ["lake"]
ALL = sorted((dataset, name) for dataset, names in GONE.items() for name in names)


def put_back(lake: Lake) -> None:
    shutil.copytree(lake.folder / "backup", lake.folder, dirs_exist_ok=True)


def named(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["dataset"], row["transaction"]) for row in rows)


@pytest.mark.usefixtures("local_spark")
def test_exactly_what_was_deleted_and_is_there_again_goes_again(lake: Lake, run: Run, found: Json) -> None:
    day(run, 0)
    change(lake, "INSERT INTO unit VALUES ('U9', '2026-01-02 00:00:00.000000', '2026-01-02 00:00:00.000000')")
    kept = lake.left()
    put_back(lake)
    # another file, and so another place, for which a person vouches
    shutil.copy2(lake.folder / "backup" / "units.db", lake.folder / "new.db")
    (lake.folder / "new.db").replace(lake.folder / "units.db")
    code, out, err = run("replay", "--yes", "-d", "ods/*", "--as-of", text_of(MARKED), "--format", "json")
    assert (code, [*json.loads(out)["refused"]], "the data of ods is at" in err) == (FAILED, ["ods/unit"], True)
    assert run("audit", "accept", "--store", "ods", "--reason", "restored the database of Monday")[0] == DONE
    at = ("--as-of", text_of(MARKED))
    code, out, err = run("replay", "--plan", *at, "--format", "json")
    assert (code, err) == (TO_DO, "")
    planned = json.loads(out)
    assert (named(planned["transactions"]), planned["stays"], planned["refused"]) == (ALL, [], {})
    code, out, err = run("replay", *at)
    assert (code, out, "it needs --yes" in err) == (FAILED, "", True)
    assert {life["there_again"] for dataset, names in GONE.items() for life in lives(run, dataset, *names)} == {True}
    code, out, err = run("replay", "--yes", *at, "--format", "json")
    assert (code, err) == (DONE, "")
    done = json.loads(out)
    assert (named(done["transactions"]), sum(row["bytes"] for row in done["transactions"]) > 0) == (ALL, True)
    assert lake.left() == kept
    assert [path.name for path in sorted((lake.folder / "objects").rglob("*")) if path.is_file()][-1] == "1"
    assert lake.verified() == ()
    for dataset, names in GONE.items():
        for life in lives(run, dataset, *names):
            assert (life["there_again"], life["mark"], life["replayed_at"] is not None) == (False, "SWEPT", True)
    report = found("report", f"{MARKED.date()}")
    assert (report["deleted"], report["replayed"]) == (4, 4)


@pytest.mark.parametrize(("answer", "left"), [("n", 6), ("y", 1)])
def test_a_terminal_shows_what_goes_and_asks(answer: str, left: int, tmp_path: Path) -> None:
    """After a yes it takes at most that, also what the brake would stop."""
    old = Lake(tmp_path / "old").has(FIVE).configures(brake={"usual": 10, "share": 0.1})
    old.marks()
    shutil.copytree(old.folder / "data", old.folder / "backup")
    old.sweeps(DUE)
    shutil.copytree(old.folder / "backup", old.folder / "data", dirs_exist_ok=True)
    code, lines = at_terminal(old.folder, "replay", "--as-of", text_of(DUE), types=f"{answer}\n")
    shown = "\n".join(lines)
    assert shown.index("would be deleted again: 5 transactions, 145 B") < shown.index("Delete it again? [y/N]")
    assert (code, len(old.there())) == (FAILED if left == 6 else DONE, left), shown
