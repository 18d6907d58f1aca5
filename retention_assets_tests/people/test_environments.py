"""A ledger belongs to one environment: what a run does with an older ledger, a copied environment, other settings under the same
names, and another ledger's data; and how a person accepts what is meant.

Belongs here: the attacks, through the command line. The files for heads by themselves are in pipeline/test_head_file.py.
"""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from retention_assets_tests.people.conftest import Run
from retention_assets_tests.sweep.lakes import Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
MARKED, DUE = "2026-03-31T12:00:00Z", "2026-04-07T12:00:00Z"
LATER = "2026-04-15T12:00:00Z"
ALL = {"S1", "S2", "S3"}
HELD = ("hold", "--name", "h", "-d", "lake/d", "-r", "a question of law")


pytestmark = pytest.mark.usefixtures("local_spark")


@pytest.fixture
def lake(lake: Lake) -> Lake:
    return lake.has(HISTORY)


@pytest.fixture
def marked(lake: Lake, run: Run) -> None:
    code, _, err = run("run", "--as-of", MARKED)
    assert code == 0, err


def use(monkeypatch: pytest.MonkeyPatch, settings: Path) -> None:
    monkeypatch.setenv("RETENTION_CONFIG", str(settings))


def settings_of(lake: Lake, name: str, **changes: Any) -> Path:
    """A second settings file beside the first."""
    settings = json.loads(lake.settings_file.read_text())
    for key in changes.keys() & {"data", "log"}:
        settings["stores"][0][key] = changes.pop(key)
    file = lake.folder / f"{name}.yaml"
    file.write_text(json.dumps({**settings, **changes}))
    return file


def copy_ledger(lake: Lake, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    connection = sqlite3.connect(lake.folder / "ledger.db", isolation_level=None)
    connection.execute(f"VACUUM INTO '{target}'")
    connection.close()


def put_back(lake: Lake, backup: Path) -> None:
    for end in ("", "-wal", "-shm"):
        (lake.folder / f"ledger.db{end}").unlink(missing_ok=True)
    shutil.copy(backup, lake.folder / "ledger.db")


def beside(lake: Lake) -> list[Any]:
    return [json.loads(line) for line in (lake.folder / "data" / ".retention-store").read_text().splitlines()[1:]]


def swept_nothing(run: Run, lake: Lake, *words: str, at: str = DUE) -> None:
    code, out, said = run("run", "--as-of", at)
    assert code == 1, out + said
    for sentence in words:
        assert sentence in " ".join((out + said).split())
    assert lake.there() == ALL


def deeds(lake: Lake) -> list[tuple[str, str, str | None]]:
    with lake.opened() as ledger:
        assert ledger.verify().faults == ()
        rows = [json.loads(line) for line in ledger.audit_lines()]
    return [(row["deed"], row["actor"], row["reason"]) for row in rows]


@pytest.mark.usefixtures("marked")
def test_a_ledger_from_yesterday_without_its_warehouse_does_not_sweep_what_was_held_since(lake: Lake, run: Run) -> None:
    copy_ledger(lake, lake.folder / "backup.db")
    assert run(*HELD)[0] == 0
    put_back(lake, lake.folder / "backup.db")
    shutil.rmtree(lake.folder / "warehouse")
    code, out, said = run("plan", "--as-of", DUE)
    assert "HEAD.json is missing" in " ".join((out + said).split())
    swept_nothing(run, lake, "HEAD.json is missing", "retention audit accept --head --reason")
    # The head beside the data says it as well, whatever becomes of the warehouse.
    # What the older ledger has recorded since stands beside it, and hides nothing.
    assert len(beside(lake)) == 2
    assert run(*HELD)[0] == 0
    assert run("audit", "accept", "--head", "-r", "restored")[0] == 0
    assert ("ACCEPT", "ann", "restored") in [(deed, actor.partition("@")[0], why) for deed, actor, why in deeds(lake)]
    assert run("release", "h", "-r", "over")[0] == 0
    code, _, said = run("run", "--as-of", DUE)
    assert code == 0, said
    assert lake.there() == {"S3"}


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("first", ["original", "copy"])
def test_a_copied_environment_does_not_sweep_what_the_original_holds(
    lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    copy_ledger(lake, lake.folder / "copy" / "ledger.db")
    shutil.copytree(lake.folder / "warehouse", lake.folder / "copy" / "warehouse")
    changes = {"ledger": f"sqlite:///{lake.folder}/copy/ledger.db", "warehouse": "copy/warehouse"}
    copied = settings_of(lake, "copied", **changes)
    if first == "copy":
        use(monkeypatch, copied)
        assert run("hold", "--name", "other", "-d", "lake/none", "--anyway", "-r", "r")[0] == 0
        use(monkeypatch, lake.settings_file)
    assert run(*HELD)[0] == 0
    use(monkeypatch, copied)
    # On another machine there would not be the warehouse of the original.
    (lake.folder / "warehouse").rename(lake.folder / "away")
    (lake.folder / "warehouse").mkdir()
    (lake.folder / "warehouse" / "HEAD.json").write_text((lake.folder / "copy" / "warehouse" / "HEAD.json").read_text())
    swept_nothing(run, lake, ".retention-store knows row", "retention audit accept --head --reason")
    shutil.rmtree(lake.folder / "warehouse")
    (lake.folder / "away").rename(lake.folder / "warehouse")
    use(monkeypatch, lake.settings_file)
    # Both went on under one id: neither sweeps before a person says which of them is the ledger.
    assert run("release", "h", "-r", "over")[0] == 0
    swept_nothing(run, lake, ".retention-store knows row")
    assert run("audit", "accept", "--head", "-r", "the copy is gone")[0] == 0
    assert run("run", "--as-of", DUE)[0] == 0
    assert lake.there() == {"S3"}


@pytest.mark.usefixtures("marked")
def test_settings_with_another_root_under_the_same_name_neither_mark_nor_sweep_until_that_is_accepted(
    lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(lake.folder / "data", lake.folder / "other")
    second = settings_of(lake, "second", data="other/{dataset}/{transaction}")
    use(monkeypatch, second)
    before = lake.statuses()
    code, out, said = run("run", "--as-of", DUE)
    assert code == 1
    assert "this ledger knows it at" in " ".join((out + said).split())
    assert lake.statuses() == before
    assert "this ledger knows it at" in " ".join("".join(run("plan", "--as-of", DUE)[1:]).split())
    # Looking and holding go on.
    assert run("marks")[0] == 0
    assert run(*HELD)[0] == 0
    assert run("release", "h", "-r", "over")[0] == 0
    assert run("audit", "accept", "--store", "lake", "-r", "moved")[0] == 0
    assert ("PLACE", "moved") in [(deed, why) for deed, _, why in deeds(lake)]
    code, _, said = run("run", "--as-of", DUE)
    assert code == 0, said
    # What was marked elsewhere is spared, and marked anew with a grace of its own.
    assert all((lake.folder / "other" / "d" / name).is_dir() for name in ALL)
    with lake.opened() as ledger:
        spared = ledger.marks.table(statuses=["SPARED"]).to_pylist()
    assert {row["transaction"] for row in spared} == {"S1", "S2"}
    assert all("was at" in row["why"] for row in spared)
    for at in (DUE, LATER):
        code, _, said = run("run", "--as-of", at)
        assert code == 0, said
    assert lake.there() == ALL
    assert [name for name in sorted(ALL) if (lake.folder / "other" / "d" / name).exists()] == ["S3"]


@pytest.mark.usefixtures("marked")
def test_marks_of_a_store_that_the_settings_lack_are_left_alone(lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = json.loads(settings_of(lake, "without").read_text())
    other = {**settings["stores"][0], "name": "other", "log": "log2", "data": "data2/{dataset}/{transaction}"}
    (lake.folder / "log2").mkdir()
    (lake.folder / "log2" / "x.jsonl").write_text("")
    (lake.folder / "without.yaml").write_text(json.dumps({**settings, "stores": [other]}))
    (lake.folder / "policies" / "p.yaml").write_text("policies: []\nholds: []\n")
    use(monkeypatch, lake.folder / "without.yaml")
    before = lake.statuses()
    run("run", "--as-of", DUE)
    assert lake.statuses() == before == {"S1": "MARKED", "S2": "MARKED"}
    assert lake.there() == ALL


@pytest.mark.usefixtures("marked")
def test_a_second_ledger_over_one_root_is_refused_and_overwrites_nothing(
    lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = beside(lake)
    assert len(heads) == 1
    second = settings_of(lake, "second", ledger=f"sqlite:///{lake.folder}/second.db", warehouse="second")
    use(monkeypatch, second)
    for arguments in (("run", "--as-of", MARKED), HELD, ("run", "--as-of", DUE)):
        code, out, said = run(*arguments)
        if arguments[0] == "run":
            assert code == 1
            assert "belongs to ledger" in " ".join((out + said).split())
    assert beside(lake) == heads
    assert lake.there() == ALL
    assert run("audit", "accept", "--store", "lake", "-r", "the first is given up")[0] == 0
    assert beside(lake)[0]["ledger"] != heads[0]["ledger"]
    assert run("run", "--as-of", MARKED)[0] == 0
    use(monkeypatch, lake.settings_file)
    swept_nothing(run, lake, "belongs to ledger")


def test_a_root_in_which_nothing_can_be_written_is_a_warning_and_swept(
    lake: Lake, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    # Also root may not replace a folder by a file.
    (lake.folder / "data" / ".retention-store").mkdir()
    assert run("run", "--as-of", MARKED)[0] == 0
    assert "The end of the record was not noted in" in caplog.text
    assert run("run", "--as-of", DUE)[0] == 0
    assert (lake.folder / "data" / ".retention-store").is_dir()
    assert not (lake.folder / "data" / "d" / "S1").exists()
    assert (lake.folder / "data" / "d" / "S3").is_dir()
    with lake.opened() as ledger:
        (row,) = [one for line in ledger.audit_lines() if (one := json.loads(line))["deed"] == "HEAD" and one["reason"]]
    assert row["detail"]["store"] == "lake"
    assert row["detail"]["noted"] is False


def test_the_first_head_is_written_with_the_ledger_and_one_that_is_removed_stops_the_sweep(lake: Lake, run: Run) -> None:
    with lake.environment.ledger():
        assert (lake.folder / "warehouse" / "HEAD.json").is_file()
    assert run("run", "--as-of", MARKED)[0] == 0
    (lake.folder / "warehouse" / "HEAD.json").unlink()
    # Who looks writes none.
    assert run("plan", "--as-of", DUE)[0] != 2
    assert not (lake.folder / "warehouse" / "HEAD.json").exists()
    swept_nothing(run, lake, "HEAD.json is missing")


def test_what_can_not_be_accepted_is_said_with_a_remedy(lake: Lake, run: Run) -> None:
    with lake.environment.ledger():
        pass
    for typed, code, words in (
        ("--head", 1, "there is nothing to accept"),
        ("--store lake", 1, "there is nothing to accept"),
        ("--store lak", 2, "Did you mean lake?"),
        ("--store lake --head", 2, "head, store, policies: are given together"),
    ):
        ended, _, err = run("audit", "accept", *typed.split(), "-r", "r")
        assert (ended, words in err) == (code, True), err


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        # The dataset's folder is there, and so is the file by which the root is known.
        ("data/{dataset}/parts/{transaction}", "None of the newest transactions of lake/d, nor of any other dataset, has a"),
        ("date/{dataset}/{transaction}", "date does not exist. Check that the disk is mounted"),
    ],
)
def test_a_mistyped_place_of_the_data_is_said_by_every_command_and_nothing_counts_as_gone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, run: Run, data: str, sentence: str
) -> None:
    use(monkeypatch, settings_of(lake, "mistyped", data=str(lake.folder / data)))

    def answers(*arguments: str) -> tuple[int, str]:
        code, out, message = run(*arguments)
        return code, " ".join((out + message).split())

    for arguments in (("validate",), ("preview",), ("run", "--as-of", MARKED)):
        code, words = answers(*arguments)
        assert (code, sentence in words) == (0, True), words
    code, words = answers("plan", "--as-of", DUE)
    assert (code, sentence in words) == (1, True), words
    swept_nothing(run, lake, sentence)
    assert set(lake.statuses().values()) == {"MARKED"}
