"""What was deleted and is there again, because somebody put a backup back: the run, the check and `history` say so."""

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from retention_assets.policy import text_of
from retention_assets_tests.people.conftest import Run
from retention_assets_tests.sweep.lakes import MARKED, Lake

ODS = {
    "name": "ods", "kind": "records", "url": "sqlite:///units.db",
    "root": {"table": "unit", "key": "id", "opened_at": "opened", "closed_at": "closed"},
}  # fmt: skip
BLOBS = {
    "name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs/*.jsonl"}],
    "realm": "{0}", "dataset": "{0}",
}  # fmt: skip
AT_ONCE = "grace: 0s, confirm: no-grace, sweep: {every: 0s}}"
POLICIES = (
    f"{{name: old, datasets: {{include: ['lake/*', 'ods/*']}}, select: {{older_than: 30d}}, {AT_ONCE},"
    f" {{name: garbage, datasets: {{include: ['blobs/*']}}, select: {{unreferenced: true}}, {AT_ONCE}"
)
OLD = MARKED - timedelta(days=90)
GONE = {"lake/a": ["S1", "S2"], "ods/unit": ["U1"], "blobs/acme": ["acme/2"]}
pytestmark = pytest.mark.usefixtures("local_spark")


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Folders, units of work and objects of which something is deleted; and a copy of what was there before."""
    lake.has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10", "lake/a")
    lake.configures(ODS, BLOBS).says(POLICIES)
    change(
        lake,
        "CREATE TABLE unit (id TEXT PRIMARY KEY, opened TIMESTAMP, closed TIMESTAMP)",
        "CREATE INDEX by_close ON unit (closed)",
        *(
            f"INSERT INTO unit VALUES ('{name}', '{at:%Y-%m-%d %H:%M:%S.%f}', '{at:%Y-%m-%d %H:%M:%S.%f}')"
            for name, at in (("U1", OLD), ("U2", MARKED - timedelta(days=1)))
        ),
    )
    for name in ("acme/1", "acme/2"):
        file = lake.folder / "objects" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"." * 10)
        os.utime(file, (OLD.timestamp(), OLD.timestamp()))
    (lake.folder / "refs").mkdir()
    (lake.folder / "refs" / "a.jsonl").write_text('{"object": "acme/1"}\n{"complete": true, "count": 1}\n')
    for name in ("data", "objects"):
        shutil.copytree(lake.folder / name, lake.folder / "backup" / name)
    shutil.copy2(lake.folder / "units.db", lake.folder / "backup")
    return lake


def change(lake: Lake, *statements: str) -> None:
    units = sqlite3.connect(lake.folder / "units.db")
    for statement in statements:
        units.execute(statement)
    units.commit()
    units.close()


def day(run: Run, number: int) -> tuple[int, list[str], int]:
    """The exit code of a run on a day, its warnings, and how many it deleted."""
    code, out, err = run("run", "--yes", "--format", "json", "--as-of", text_of(MARKED + timedelta(days=number)))
    shown = json.loads(out)
    assert all(words in err for words in shown["warnings"])
    return code, shown["warnings"], shown["assets"]["swept_transactions"]["deleted"]


def lives(run: Run, dataset: str, *names: str) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = json.loads(run("history", dataset, *names, "--format", "json")[1])["transactions"]
    return found


def test_what_a_backup_brought_back_is_said_by_the_run_the_check_and_its_history(lake: Lake, run: Run) -> None:
    assert day(run, 0) == (0, [], 4)
    assert day(run, 1) == (0, [], 0)
    assert {life["there_again"] for dataset in GONE for life in lives(run, dataset)} == {False}
    shutil.copytree(lake.folder / "backup", lake.folder, dirs_exist_ok=True)
    code, (warning,), deleted = day(run, 2)
    assert (code, deleted) == (0, 0)
    assert warning.startswith("check nothing_deleted_is_back: 4 violations in 3 datasets. ")
    assert "lake/a: 2 deleted transactions are back (S1, S2): see `retention history lake/a S1`" in warning
    assert "ods/unit: 1 deleted transaction is back (U1): see `retention history ods/unit U1`" in warning
    assert "blobs/acme: 1 deleted transaction is back (acme/2)" in warning
    again = "`retention replay -d lake/a` deletes them again"
    assert (again in warning, again in run("plan", "--as-of", text_of(MARKED + timedelta(days=2)))[2]) == (True, True)
    for dataset, names in GONE.items():
        for life in lives(run, dataset, *names):
            assert life["message"] == "Transaction data was deleted, and is there again."
            assert "no policy marks it again" in life["details"]
            assert "; but it is there again" in life["words"]
    assert [life["there_again"] for life in lives(run, "lake/a")] == [True, True, False]
    assert "was deleted, and is there again" in run("explain", "lake/a", "S1")[1]
    assert lake.verified() == ()
    # Both remedies end the warning: some goes by hand, and one becomes another one by its times.
    for name in ("S1", "S2"):
        shutil.rmtree(lake.place("lake/a", name))
    (lake.folder / "objects" / "acme" / "2").unlink()
    change(lake, "UPDATE unit SET closed = '2026-01-02 00:00:00.000000' WHERE id = 'U1'")
    assert day(run, 3) == (0, [], 1)
    assert [(life["mark"], life["there_again"]) for life in lives(run, "lake/a", "S1")] == [("SWEPT", False)]
