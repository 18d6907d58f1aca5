"""`keep`: whoever says it once need not look again. What is kept is not marked, not swept, and not kept twice."""

import json
from pathlib import Path

import pytest

from retention_assets_tests.histories import AS_OF
from retention_assets_tests.people.conftest import Json, Run
from retention_assets_tests.sweep.lakes import DUE, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
WHY = ("--reason", "the audit", "--actor", "ann")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two datasets, of each two transactions marked."""
    found = Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b")
    assert found.marks() == 4
    return found


@pytest.fixture
def command(lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The console script, on the lake."""
    monkeypatch.setenv("RETENTION_CONFIG", str(lake.settings_file))
    return run


@pytest.fixture
def printed(command: Run, found: Json) -> Json:
    """What a command that succeeds prints as JSON."""
    return found


def test_what_is_kept_is_neither_swept_nor_marked_again(lake: Lake, command: Run) -> None:
    assert command("keep", "lake/a", "S1", *WHY) == (
        0,
        "1 transaction of lake/a is kept until the hold is released.\n"
        "1 mark was taken back.\n"
        "The hold keep-lake/a-S1 was placed: no policy marks or sweeps what it holds.\n"
        "To end it: `retention release keep-lake/a-S1 --reason …`, or the job `release`. From then on policies alone decide.\n",
        "",
    )
    assert lake.marks() == 0
    lake.sweeps()
    assert (lake.there("lake/a"), lake.there("lake/b")) == ({"S1", "S3"}, {"S3"})
    assert command("release", "keep-lake/a-S1", *WHY)[0] == 0
    assert lake.marks(DUE) == 1


def test_a_dataset_is_kept_as_a_whole(lake: Lake, printed: Json) -> None:
    assert printed("keep", "lake/a", "--until", "2999-01-01", "--name", "year's end", *WHY) == {
        "dataset": "lake/a", "transactions": [], "known": 3, "until": "2999-01-01T00:00:00Z", "hold": "year's end",
        "placed": True, "unmarked": 2, "sweeping": 0, "swept": 0,
        "release": "retention release 'year'\"'\"'s end' --reason …", "warnings": [],
    }  # fmt: skip
    assert lake.marks() == 0
    assert set(lake.statuses("lake/a").values()) == {"UNMARKED"}
    assert set(lake.statuses("lake/b").values()) == {"MARKED"}


def test_keeping_once_more_says_so(command: Run) -> None:
    command("keep", "lake/a", "S1", "S2", *WHY)
    code, out, _ = command("keep", "lake/a", "S2", "S1", *WHY)
    assert code == 0
    assert "None of it was marked." in out
    assert "The hold keep-lake/a-S1-and-1-more was in force already" in out


def test_what_is_too_late_is_refused_and_nothing_is_changed(lake: Lake, command: Run) -> None:
    lake.sweeps()
    lake.has("main: T1:SNAPSHOT@90d=10 - T2:SNAPSHOT@1d=10", "lake/c")
    code, out, err = command("keep", "lake/a", "S3", "S1", *WHY)
    assert (code, out) == (1, "")
    assert err.startswith("S1 of lake/a was swept at ")
    assert err.endswith("\n  Nothing was changed.\n")
    assert command("hold", "--list")[1].startswith("No hold is in force")
    assert "Too late for 0 that are being swept and 2 that were swept." in command("keep", "lake/a", *WHY)[1]


def test_a_new_transaction_under_an_old_id_is_kept(lake: Lake, command: Run) -> None:
    lake.sweeps()
    lake.comes_again("S1", "lake/a", opened_at="2026-03-30T00:00:00Z", closed_at="2026-03-30T00:00:01Z")
    assert command("keep", "lake/a", "S1", *WHY)[0] == 0


def test_a_name_with_signs_of_a_glob_is_kept_alone(lake: Lake, printed: Json) -> None:
    lake.has("main: A*:SNAPSHOT@90d=10 - AB:SNAPSHOT@80d=10 - AC:SNAPSHOT@1d=10", "lake/signs")
    assert printed("keep", "lake/signs", "A*", *WHY)["hold"] == "keep-lake/signs-A*"
    assert lake.marks() == 1
    assert lake.statuses("lake/signs") == {"AB": "MARKED"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lake/a", "S4"), "transaction 'S4' was never marked, and is not in the log of lake/a. Did you mean S3, S2 or S1?\n"),
        (("lake/z",), "dataset 'lake/z' is not in store lake. Did you mean lake/b or lake/a?\n"),
        (("laek/a",), "dataset: the settings have no store named laek (found 'laek/a'). Did you mean lake?\n"),
        (
            ("lake/a", "--until", "2001-01-01"),
            "until: is past (found 2001-01-01T00:00:00Z); expected an instant to come, such as 'in 30d'\n",
        ),
        (("lake/a", " "), "transactions: is empty (found (' ',)); expected the ids of transactions\n"),
    ],
)
def test_what_is_nowhere_is_not_kept(arguments: tuple[str, ...], words: str, lake: Lake, command: Run) -> None:
    assert command("keep", *arguments, *WHY) == (2, "", words)
    with lake.opened() as ledger:
        assert ledger.holds.in_force(AS_OF) == []


def test_where_the_log_cannot_be_read_it_is_kept_all_the_same(lake: Lake, command: Run) -> None:
    """A hold can be released again, and what is deleted can't be brought back."""
    (lake.folder / "log").rename(lake.folder / "away")
    code, out, err = command("keep", "lake/a", "S1", *WHY)
    assert (code, out.splitlines()[1]) == (0, "1 mark was taken back.")
    assert err.startswith("The log can't be read, so nobody has looked whether the names are right. ")


def test_a_dataset_whose_log_is_not_sound_is_kept(lake: Lake, command: Run) -> None:
    line = {"dataset": "lake/a", "transaction": "S9", "parent": "S8", "type": "APPEND", "opened_at": "2026-01-01T00:00:00Z"}
    with (lake.folder / "log" / "lake-a.jsonl").open("a") as log:
        log.write(json.dumps({**line, "status": "OPEN"}) + "\n")
    code, out, err = command("keep", "lake/a", *WHY)
    assert (code, out.splitlines()[1]) == (0, "2 marks were taken back.")
    assert "lake/a is refused: unknown parent: S8" in err


def test_what_is_kept_before_anything_is_marked_needs_no_ledger_of_before(lake: Lake, command: Run) -> None:
    (lake.folder / "ledger.db").unlink()
    assert command("keep", "lake/a", *WHY)[0] == 0
    assert lake.marks() == 2
    assert lake.statuses("lake/a") == {}
