"""What people see of undo, and how they bring something back or delete it early: plan, run, marks, history, report, restore, trash."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from retention_assets.ledger import AskedBy
from retention_assets.outcomes import Order
from retention_assets.policy import text_of
from retention_assets.sweep import hold_leases
from retention_assets_tests.ledger.states import change_leases, take_lease, write_past_ledger
from retention_assets_tests.people.conftest import DONE, FAILED, TO_DO, Json, Run, error_of
from retention_assets_tests.people.terminals import at_terminal
from retention_assets_tests.sweep.lakes import DUE, FIVE, MARKED, OLD, Lake

UNDO = OLD.replace("sweep:", "undo: 14d, sweep:")
UNTIL = DUE + timedelta(days=14)
WHY = ("--reason", "we need them")


def at(instant: datetime) -> tuple[str, str]:
    return "--as-of", text_of(instant)


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Five due marks of a policy with undo, 29 bytes each."""
    lake.says(UNDO)
    assert lake.has(FIVE).marks() == 5
    return lake


@pytest.fixture
def aside(lake: Lake) -> Lake:
    """They are set aside."""
    lake.sweeps(DUE)
    return lake


def sights(lake: Lake) -> Mapping[str, str]:
    return {name: text for name, text in lake.left().items() if not name.startswith(".retention-trash")}


def in_trash(lake: Lake) -> set[str]:
    return {folder.name for folder in (lake.folder / "data" / ".retention-trash").glob("*/*/*")}


@pytest.mark.usefixtures("local_spark")
def test_what_is_set_aside_is_never_called_deleted_until_it_is(lake: Lake, run: Run, found: Json) -> None:
    before = lake.left()
    code, out, _ = run("plan", *at(DUE), "--detail")
    assert (code, "would mark none; set aside 5 (145 B), delete none." in out, lake.left() == before) == (TO_DO, True, True)
    code, out, err = run("run", *at(DUE), "--yes")
    assert (code, err) == (DONE, "")
    assert "Nothing newly marked. 5 transactions set aside, 145 B not yet freed. Nothing deleted." in out
    assert in_trash(lake) == {"S1", "S2", "S3", "S4", "S5"}

    row = found("marks", "-s", "SWEPT")[0]
    message = "Transaction data is set aside until 2026-04-21 12:00 UTC."
    assert (row["status"], row["until"], row["message"]) == ("SWEPT", text_of(UNTIL), message)
    assert "SWEPT, set aside" in run("marks")[1]
    assert "Set aside: 5 transactions, 145 B not yet freed" in run("trash")[1]
    counts = {"transactions": 5, "bytes": 145, "until": text_of(UNTIL), "last": text_of(UNTIL)}
    assert found("trash") == [{"dataset": "lake/d", "policy": "old", **counts}]
    assert found("trash", "-d", "ice/*") == []
    life = found("history", "lake/d", "S1")["transactions"][0]
    assert (life["message"], life["there_again"]) == (message, False)
    assert "until 2026-04-21 12:00 UTC, 29 B not yet freed; policy old@1 marked it" in life["words"]
    explained = run("explain", "lake/d", "S1")[1]
    assert message in explained
    assert "To bring it back: the job `act_restore`, or `retention restore lake/d S1 --reason …`." in explained
    for command in ("unmark", "keep"):
        refused = run(command, "lake/d", "S1", *WHY)[2]
        assert "Until 2026-04-21T12:00:00Z, `retention restore lake/d S1 --reason …` brings it back and holds it." in refused
    assert "Set aside and not freed yet: 5 (145 B). `retention trash empty` frees it at once." in run("plan", *at(DUE))[1]
    assert "deleted" not in life["words"] + explained.partition("Verdict")[0]

    code, out, _ = run("restore", "lake/d", "S2", "S1", *WHY, *at(DUE))
    assert (code, out.splitlines()[0]) == (DONE, "Restored: 2 transactions of lake/d, 58 B.")
    assert "restored-lake/d-S1-and-1-more is in force: no policy marks or sweeps what it holds. `retention release" in out
    assert sights(lake) == {name: text for name, text in before.items() if name.split("/")[1] in ("S1", "S2", "S6")}
    assert {row["transaction"] for row in found("marks", "-s", "RESTORED")} == {"S1", "S2"}
    words = found("history", "lake/d", "S1")["transactions"][0]["words"]
    assert ", and restored at 2" in words
    assert "by ann, because: we need them; policy old@1 marked it; held by restored-lake/d-S1" in words

    code, out, _ = run("plan", *at(UNTIL))
    assert (code, "would mark none; delete 3 (87 B) for good that were set aside. Nothing" in out) == (TO_DO, True)
    code, out, err = run("run", *at(UNTIL), "--yes")
    assert (code, err, "Nothing newly marked." in out) == (DONE, "", True)
    assert (in_trash(lake), lake.there() - {""}, lake.verified()) == (set(), {"S1", "S2", "S6"}, ())
    life = found("history", "lake/d", "S3")["transactions"][0]
    assert life["message"] == "Transaction data has been deleted."
    assert "and deleted for good (29 B) at " in life["words"]
    assert "Nothing is set aside" in run("trash")[1]
    with lake.opened() as ledger:
        # It became free now, long after it was planned.
        assert sum(group.bytes for group in ledger.pending.freed(DUE + timedelta(seconds=1))) == 87

    page = lake.folder / "page.html"
    assert run("report", f"{DUE.date()}", "--html", str(page))[0] == DONE
    assert ("145 B to be freed later" in page.read_text(), "brought back by people" in page.read_text()) == (True, True)
    first, second = (found("report", f"{day.date()}") for day in (DUE, UNTIL))
    names = ("to_delete", "set_aside", "restored", "deleted", "bytes_set_aside", "bytes_freed")
    assert [first[name] for name in names] == [5, 5, 2, 0, 145, 0]
    assert [second[name] for name in names] == [0, 0, 0, 0, 0, 87]
    lines = [line.replace("│", " ").split("  ") for line in run("report", f"{DUE.date()}")[1].splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert [line for line in cells if line[:1] in (["set aside"], ["restored"], ["still to delete"])] == [
        ["set aside", "5", "145 B"], ["restored", "2"], ["still to delete", "0"],
    ]  # fmt: skip
    assert "set aside before, and deleted for good" in run("report", f"{UNTIL.date()}")[1]


# --- restore ---


def begins(lake: Lake, order: Order, *names: str) -> None:
    """A person asks, and is killed before the store is given the order."""
    with lake.opened() as ledger, hold_leases(ledger, ["lake/d"], "bob") as held:
        marks = ledger.trash.named("lake/d", names)
        ledger.trash.begin([*held.leases.values()], [*marks.values()], order, AskedBy("bob", "hurry"))


@pytest.mark.parametrize(
    ("names", "sentences"),
    [
        ("S1 S6", ["S6 of lake/d is not set aside: not marked."]),
        ("S1 X", ["X of lake/d is not set aside: not marked."]),
        ("S2", ["S2 of lake/d is not set aside: set aside at ", "and being restored since ", "by bob, because: hurry; policy"]),
        ("S3", ["S3 of lake/d is not set aside: ", "and being deleted for good since ", "by bob, because: hurry; policy"]),
        ("S4", ["S4 of lake/d is not set aside: ", "and restored at ", "by ann, because: we need them; policy"]),
        ("S1 S2 S3 S4 a", ["S2 of ", "S3 of ", "S4 of ", "a of "]),
    ],
)
def test_a_restore_names_what_is_not_set_aside_and_changes_nothing(
    names: str, sentences: list[str], aside: Lake, run: Run
) -> None:
    assert run("restore", "lake/d", "S4", *WHY, *at(DUE))[0] == DONE
    begins(aside, Order.RESTORE, "S2")
    begins(aside, Order.DELETE_ASIDE, "S3")
    before = aside.left(), aside.statuses()
    said = error_of(run("restore", "lake/d", *names.split(), *WHY, *at(DUE)), FAILED)
    assert [sentence for sentence in sentences if sentence not in said] == []
    assert "S1 of" not in said
    assert said.endswith("Nothing was changed.\n")
    assert (aside.left(), aside.statuses()) == before


def test_of_two_restores_at_once_the_second_names_the_first(aside: Lake, run: Run) -> None:
    with aside.opened() as ledger:
        lease = take_lease(ledger, "lake/d", "bob", 3600)
        assert "is being swept by bob" in error_of(run("restore", "lake/d", "S1", *WHY, *at(DUE)), FAILED)
        ledger.leases.give_up([lease])
        assert ledger.trash.named("lake/d").keys() == {"S1", "S2", "S3", "S4", "S5"}


def test_what_cannot_come_back_is_named_and_nobody_elses_hold_is_released(aside: Lake, run: Run, found: Json) -> None:
    aside._fill("lake/d", "S1")
    before = aside.left()
    code, out, err = run("restore", "lake/d", "S1", *WHY, *at(DUE))
    assert (code, out, "S1 of lake/d: " in err) == (FAILED, "Restored: 0 transactions of lake/d, 0 B.\n", True)
    assert (aside.left(), found("hold", "--list")) == (before, [])
    # An equal hold of somebody else is taken for it, and stays.
    aside.hold("lake/d", "S1", name="legal")
    assert run("restore", "lake/d", "S1", *WHY, *at(DUE))[0] == FAILED
    assert [hold["name"] for hold in found("hold", "--list")] == ["legal"]
    code, out, err = run("restore", "lake/d", "S1", "S2", *WHY, *at(DUE))
    assert (code, "Restored: 1 transaction of lake/d, 29 B." in out, "S1 of lake/d: " in err) == (FAILED, True, True)
    assert [hold["name"] for hold in found("hold", "--list")] == ["legal", "restored-lake/d-S1-and-1-more"]
    assert aside.verified() == ()


def test_a_store_that_is_away_leaves_it_begun_and_the_hold_in_force(aside: Lake, run: Run, found: Json) -> None:
    log = aside.folder / "log"
    log.rename(aside.folder / "away")
    code, _, err = run("restore", "lake/d", "S1", *WHY, *at(DUE))
    assert (code, "The next `retention run` goes on with it." in err) == (FAILED, True)
    assert [hold["name"] for hold in found("hold", "--list")] == ["restored-lake/d-S1"]
    (aside.folder / "away").rename(log)
    aside.sweeps(DUE)
    assert aside.there() - {""} == {"S1", "S6"}


def test_the_present_can_be_named_only_where_the_clock_is_simulated(aside: Lake, run: Run) -> None:
    aside.configures(clock={}, ledger=f"sqlite:///{aside.folder}/real.db")
    with aside.opened():
        pass
    for command in (("restore", "lake/d", "S1"), ("trash", "empty")):
        assert run(*command, *WHY, *at(DUE))[0] == 2


# --- trash empty ---


def test_what_is_kept_stays_in_the_trash_and_is_named(aside: Lake, run: Run, found: Json) -> None:
    aside.hold("lake/d", "S4")
    # A rule that no run has loaded yet, about something that the log has lost.
    aside.forgets("S1")
    aside.says(UNDO, retain="{name: new, reason: why, datasets: {include: ['*']}, where: \"transaction = 'S1'\"}")
    assert found("trash", "empty", "-d", "ice/*", *WHY, *at(DUE)) == {"datasets": [], "deleted": 0, "bytes_freed": 0}
    code, out, err = run("trash", "empty", "-d", "lake/*", *WHY, *at(DUE))
    assert (code, out) == (FAILED, "Deleted for good: 3 transactions, 87 B freed.\n")
    assert "S1 of lake/d: It stays set aside." in err
    assert "S4 of lake/d: It stays set aside. Hold 'legal' keeps it." in err
    assert in_trash(aside) == {"S1", "S4"}
    life = found("history", "lake/d", "S2")["transactions"][0]
    assert "by ann, because: we need them; policy old@1 marked it" in life["words"]
    assert aside.verified() == ()


@pytest.mark.parametrize(("policy", "now"), [(UNDO, "set aside 1 (35 B)"), (OLD, "delete 1 (35 B)")])
def test_a_headline_says_all_that_goes_for_good(policy: str, now: str, aside: Lake, run: Run, found: Json) -> None:
    """At the end of the window something else falls due, to be set aside or deleted at once."""
    gone = "delete 5 (145 B) for good that were set aside"
    assert f"would mark none; {gone}. Nothing was changed." in run("plan", *at(UNTIL))[1]
    aside.says(policy)
    aside.has("main: N1:SNAPSHOT@60d=10 - N2:SNAPSHOT@1d=10", "lake/new").marks(UNTIL - timedelta(days=7))
    assert f"would mark none; {now}, {gone}. Nothing was changed." in run("plan", *at(UNTIL))[1]
    assert found("plan", *at(UNTIL))["trash"]["deleted"]["transactions"] == 5
    early = run("plan", *at(UNTIL - timedelta(seconds=1)))
    assert (early[0], "has nothing to mark and nothing to delete" in early[1]) == (DONE, True)
    code, lines = at_terminal(aside.folder, "run", *at(UNTIL), types="n\n")
    assert (code, f"This run would {now}, {gone}." in " ".join(lines)) == (FAILED, True)


def edited(lake: Lake) -> None:
    with lake.opened() as ledger:
        write_past_ledger(ledger, "UPDATE marks SET bytes = bytes + 1 WHERE id = 2")


def mixed_up(lake: Lake) -> None:
    (lake.folder / "others").mkdir()
    (lake.folder / "others" / "p.yaml").write_text("policies: [{name: other, datasets: {include: ['*']}, select: all}]")
    lake.configures(policies="others")


def objected(lake: Lake) -> None:
    with lake.opened() as ledger:
        ledger.objections.object({"lake/d": "two are needed"}, "some_check", "run 1")


def leased(lake: Lake) -> None:
    with lake.opened() as ledger:
        take_lease(ledger, "lake/d", "bob", 3600)


@pytest.mark.parametrize(
    ("happens", "sentence"),
    [
        (edited, "Nothing was deleted. due_marks_are_as_recorded fails."),
        (mixed_up, "lake/* was not swept: nothing of lake is swept. The policies at "),
        (objected, "lake/d was not swept: some_check failed in run 1: two are needed."),
        (leased, "lake/d was not swept: lake/d is being swept by bob"),
    ],
)
def test_nothing_is_deleted_or_begun_where_a_run_would_sweep_nothing(
    happens: Any, sentence: str, aside: Lake, run: Run
) -> None:
    happens(aside)
    code, _, err = run("trash", "empty", *WHY, *at(DUE))
    assert (code, sentence in err) == (FAILED, True), err
    with aside.opened() as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        assert len(ledger.trash.named("lake/d")) == len(in_trash(aside)) == 5


@pytest.mark.parametrize(("answer", "left"), [("n", 5), ("y", 0)])
def test_a_terminal_shows_what_goes_and_asks(answer: str, left: int, aside: Lake) -> None:
    code, lines = at_terminal(aside.folder, "trash", "empty", *WHY, *at(DUE), types=f"{answer}\n")
    shown = "\n".join(lines)
    assert shown.index("Set aside: 5 transactions, 145 B not yet freed") < shown.index("Delete it for good? [y/N]")
    assert (code, len(in_trash(aside))) == ((FAILED, 5) if left else (DONE, 0))


def test_what_stands_in_the_place_of_something_set_aside_is_not_called_back(aside: Lake, run: Run, local_spark: None) -> None:
    aside._fill("lake/d", "S1")
    code, out, _ = run("run", *at(DUE), "--yes", "--format", "json")
    assert (code, json.loads(out)["warnings"]) == (DONE, [])
    life = json.loads(run("history", "lake/d", "S1", "--format", "json")[1])["transactions"][0]
    assert (life["there_again"], life["message"]) == (False, "Transaction data is set aside until 2026-04-21 12:00 UTC.")


def test_a_store_that_the_settings_lack_refuses_before_anything_is_recorded(aside: Lake, run: Run) -> None:
    assert error_of(run("restore", "ice/d", "S1", *WHY, *at(DUE)), FAILED).startswith("The settings have no store named ice.")


@pytest.mark.parametrize("command", [("restore", "lake/d", "S1"), ("trash", "empty", "--yes")])
def test_a_time_before_that_of_the_last_run_is_refused_before_anything_is_recorded(
    aside: Lake, run: Run, command: tuple[str, ...]
) -> None:
    code, _, err = run(*command, *WHY, *at(MARKED - timedelta(days=1)))
    assert (code, "clock of this environment is simulated" in err) == (FAILED, True)
    with aside.opened() as ledger:
        assert len(ledger.trash.named("lake/d")) == 5
        assert ledger.holds.in_force(DUE) == []
