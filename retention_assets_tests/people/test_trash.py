"""What people see of undo, and how they bring something back or delete it early: plan, run, marks, history, report, restore, trash."""

import json
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from retention_assets.errors import Withheld
from retention_assets.ledger import AskedBy
from retention_assets.outcomes import Order
from retention_assets.policy import text_of
from retention_assets.sweep import hold_leases
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import ids, set_aside_in, take_lease
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
        marks = set_aside_in(ledger, "lake/d", names)
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
        assert set_aside_in(ledger, "lake/d").keys() == {"S1", "S2", "S3", "S4", "S5"}


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
    # S1 did not come back, so nothing but S2 is held.
    assert [(hold["name"], hold["scope"]["transactions"]) for hold in found("hold", "--list")] == [
        ("legal", ["S1"]), ("restored-lake/d-S2", ["S2"]),
    ]  # fmt: skip
    assert aside.verified() == ()


def test_an_answer_is_about_the_lives_that_were_ordered(aside: Lake, run: Run, found: Json) -> None:
    """Two lives of S1 are set aside. The newer one is back, so there is no place for the older one."""
    aside.comes_again("S1", opened_at="2026-02-01T00:00:00Z", closed_at="2026-02-02T00:00:00Z")
    again = DUE + timedelta(days=8)
    assert aside.marks(DUE) == 1
    aside.sweeps(again)
    assert found("trash")[0]["transactions"] == 6
    assert run("restore", "lake/d", "S1", *WHY, *at(again))[1].startswith("Restored: 1 transaction of lake/d, 29 B.\n")
    before = aside.left(), found("hold", "--list")
    refused = error_of(run("restore", "lake/d", "S1", *WHY, *at(again)), FAILED)
    assert "The log of lake/d has another transaction named S1 now" in refused
    # Without a log to compare with, its place is taken all the same.
    aside.forgets("S1")
    code, out, err = run("restore", "lake/d", "S1", *WHY, *at(again))
    assert (code, out) == (FAILED, "Restored: 0 transactions of lake/d, 0 B.\n")
    assert err.startswith("S1 of lake/d: ")
    assert "None" not in err
    assert (aside.left(), found("hold", "--list")) == before
    assert aside.verified() == ()


OPENED = text_of(AS_OF - timedelta(days=90, microseconds=1))
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "opened earlier": {"opened_at": OPENED},
    "closed later": {"closed_at": "2026-01-31T12:00:00.000001Z"},
    "another": {"opened_at": "2026-02-01T00:00:00Z", "closed_at": "2026-02-02T00:00:00Z"},
    "open": {"status": "OPEN", "closed_at": None},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_nothing_is_put_in_the_place_of_another_life(change: Mapping[str, Any], aside: Lake, run: Run, found: Json) -> None:
    aside.comes_again("S1", **change)
    shutil.rmtree(aside.place("lake/d", "S1"))
    before, acts = aside.left(), acts_of(aside)
    refused = error_of(run("restore", "lake/d", "S1", "S2", *WHY, *at(DUE)), FAILED)
    assert "The log of lake/d has another transaction named S1 now, with other times or not closed." in refused
    assert refused.endswith("Nothing was changed.\n")
    assert (aside.left(), acts_of(aside), found("hold", "--list")) == (before, acts, [])


def acts_of(lake: Lake) -> list[str]:
    with lake.opened() as ledger:
        return [*ledger.audit_lines()]


def is_away(lake: Lake) -> None:
    (lake.folder / "log").rename(lake.folder / "away")


def is_unsound(lake: Lake) -> None:
    lake.branches("main", "S1")


def has_moved(lake: Lake) -> None:
    store = lake.stores["lake"]
    with lake.opened() as ledger:
        # as each run notes it
        ledger.places.note({"lake": str(store.place("lake/d"))}, "run", "The store joins.", {})
    (lake.folder / "data").rename(lake.folder / "elsewhere")
    (lake.folder / "data").mkdir()


@pytest.mark.parametrize("happens", [is_away, is_unsound, has_moved])
@pytest.mark.parametrize("command", [("restore", "lake/d", "S1"), ("trash", "empty"), ("trash", "forget", "lake/d", "S1")])
def test_what_can_not_be_done_now_is_refused_and_nothing_is_ordered(
    command: tuple[str, ...], happens: Any, aside: Lake, run: Run, found: Json
) -> None:
    happens(aside)
    acts = acts_of(aside)
    assert run(*command, *WHY, *at(DUE))[0] == FAILED
    assert (acts_of(aside), found("hold", "--list")) == (acts, [])
    with aside.opened() as ledger:
        assert len(set_aside_in(ledger, "lake/d")) == 5


def test_what_could_not_be_emptied_does_not_go_later(aside: Lake, run: Run) -> None:
    is_away(aside)
    assert run("trash", "empty", *WHY, *at(DUE))[0] == FAILED
    (aside.folder / "away").rename(aside.folder / "log")
    aside.sweeps(DUE + timedelta(days=3))
    assert len(in_trash(aside)) == 5
    assert run("restore", "lake/d", "S1", *WHY, *at(DUE + timedelta(days=3)))[0] == DONE
    assert aside.there() - {""} == {"S1", "S6"}


@pytest.mark.parametrize("command", [("restore", "lake/d", "S1", "S2"), ("trash", "empty")])
@pytest.mark.parametrize("fault", ["no answer", "no permit", "an error", "stopped"])
def test_what_was_begun_and_could_not_be_done_is_taken_back_at_once(
    command: tuple[str, ...], fault: str, aside: Lake, run: Run, found: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> list[Any]:
        if fault == "no answer":
            return []
        raise {"no permit": Withheld("no permit"), "an error": ValueError("broken"), "stopped": KeyboardInterrupt()}[fault]

    before, target = aside.left(), "retention_assets.stores.files.store.FilesStore.carry_out"
    with monkeypatch.context() as patch:
        patch.setattr(target, fails)
        code, out, err = run(*command, *WHY, *at(DUE))
    assert code == (130 if fault == "stopped" else FAILED)
    assert out in ("", "Restored: 0 transactions of lake/d, 0 B.\n", "Deleted for good: 0 transactions, 0 B freed.\n")
    assert "None" not in err
    with aside.opened() as ledger:
        assert len(set_aside_in(ledger, "lake/d")) == 5
    assert found("hold", "--list") == []
    aside.sweeps(DUE + timedelta(days=3))
    assert (aside.left(), aside.verified()) == (before, ())


def test_no_policy_brake_or_objection_stands_between_a_person_and_her_data(aside: Lake, run: Run) -> None:
    with aside.opened() as ledger:
        ledger.objections.object({"lake/d": "two are needed"}, "some_check", "run 1")
    aside.configures(brake={"usual": 1, "share": 0.0001})
    (aside.folder / "policies" / "p.yaml").write_text("policies: [{name: broken")
    code, out, err = run("restore", "lake/d", "S1", *WHY, *at(DUE))
    assert (code, out.splitlines()[0]) == (DONE, "Restored: 1 transaction of lake/d, 29 B."), err
    assert run("trash", "empty", *WHY, *at(DUE))[0] == 2
    assert len(in_trash(aside)) == 4


@pytest.mark.large
def test_a_restore_of_very_many_comes_back_under_one_hold_that_can_be_read(lake: Lake, run: Run, found: Json) -> None:
    names = [f"R{number:04}" for number in range(999)]
    lake.has("-: " + " - ".join(f"{name}:RECORD@90d=10" for name in names), "lake/many")
    lake.marks()
    lake.sweeps(DUE)
    code, out, _ = run("restore", "lake/many", *names, *WHY, *at(DUE))
    assert (code, out.splitlines()[0]) == (DONE, "Restored: 999 transactions of lake/many, 48.8 KiB.")
    (hold,) = found("hold", "--list")
    assert (hold["name"], hold["scope"]["transactions"]) == ("restored-lake/many-R0000-and-998-more", names)
    shown = run("hold", "--list")[1]
    assert ("R0002" in shown, "996" in shown, "R0003" in shown, len(shown.splitlines()) < 20) == (True, True, False, True)
    assert lake.marks(DUE + timedelta(days=30)) == 0


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
    code, out, err = run("trash", "empty", "-d", "lake/*", *WHY, *at(DUE))
    assert (code, out) == (FAILED, "Deleted for good: 3 transactions, 87 B freed.\n")
    assert "S1 of lake/d: It stays set aside." in err
    assert "S4 of lake/d: It stays set aside. Hold 'legal' keeps it." in err
    assert in_trash(aside) == {"S1", "S4"}
    # They were asked about, and not begun.
    assert "attempts" not in found("history", "lake/d", "S4")["transactions"][0]["words"]
    with aside.opened() as ledger:
        assert {row["attempts"] for row in ledger.marks.table(["lake/d"], ["SWEPT"]).to_pylist()} == {0}
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


@pytest.mark.parametrize(("answer", "left"), [("n", 5), ("y", 0)])
def test_a_terminal_shows_what_goes_and_asks(answer: str, left: int, aside: Lake) -> None:
    code, lines = at_terminal(aside.folder, "trash", "empty", *WHY, *at(DUE), types=f"{answer}\n")
    shown = "\n".join(lines)
    assert shown.index("Set aside: 5 transactions, 145 B not yet freed") < shown.index("Delete it for good? [y/N]")
    assert (code, len(in_trash(aside))) == ((FAILED, 5) if left else (DONE, 0)), shown


def test_a_yes_empties_at_most_what_was_shown(lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it asks, more is set aside: of the same dataset, and of another one."""
    lake.hold("lake/d", "S5")
    lake.sweeps(DUE)
    later = DUE + timedelta(days=8)

    def answers(_: str) -> str:
        with lake.opened() as ledger:
            ledger.holds.release("legal", "ann", "over")
        lake.has(FIVE, "lake/e").marks(DUE)
        lake.sweeps(later)
        return "y"

    monkeypatch.setattr("retention_assets.people.trash.is_on_terminal", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", answers)
    assert in_trash(lake) == {"S1", "S2", "S3", "S4"}
    code, out, _ = run("trash", "empty", *WHY, *at(later))
    assert (code, "Set aside: 4 transactions, 116 B not yet freed" in out) == (DONE, True)
    assert out.splitlines()[-1] == "Deleted for good: 4 transactions, 116 B freed."
    with lake.opened() as ledger:
        assert [row[:3] for row in ledger.trash.sums()] == [("lake/d", "old", 1), ("lake/e", "old", 5)]
    assert in_trash(lake) == {"S1", "S2", "S3", "S4", "S5"}


@pytest.mark.parametrize(
    ("glob", "sentence"),
    [("lake/D", "Nothing of lake/D is set aside. Did you mean lake/d?\n"), ("ice/*", "Nothing of ice/* is set aside.\n")],
)
def test_a_glob_that_matches_nothing_is_said_and_asked_about_by_nobody(glob: str, sentence: str, aside: Lake, run: Run) -> None:
    assert error_of(run("trash", "empty", "-d", glob, *WHY, *at(DUE)), FAILED) == sentence
    code, lines = at_terminal(aside.folder, "trash", "empty", "-d", glob, *WHY, *at(DUE))
    assert (code, sentence.strip() in lines, "Delete it for good?" in "".join(lines)) == (FAILED, True, False)
    assert len(in_trash(aside)) == 5


def test_an_empty_trash_is_emptied_without_a_fault(lake: Lake, run: Run) -> None:
    assert run("trash", "empty", *WHY, *at(DUE)) == (DONE, "Deleted for good: 0 transactions, 0 B freed.\n", "")


def test_the_list_says_what_goes_with_the_next_run(aside: Lake, run: Run) -> None:
    assert "is over" not in run("trash", *at(UNTIL - timedelta(seconds=1)))[1]
    said = run("trash", *at(UNTIL))[1]
    assert said.startswith("The time of 5 transactions, 145 B of it is over: the next run deletes it for good.\n")
    aside.configures(clock={}, ledger=f"sqlite:///{aside.folder}/real.db")
    with aside.opened():
        pass
    assert run("trash", *at(DUE))[0] == 2


def test_the_list_says_where_the_trash_is_not_any_more(aside: Lake, run: Run) -> None:
    assert "any more" not in run("trash")[2]
    has_moved(aside)
    code, out, err = run("trash")
    assert (code, "Set aside: 5 transactions, 145 B not yet freed" in out) == (DONE, True)
    assert "lake/d is not at " in err
    assert "any more: what lies in the trash there, and its bytes, may be gone." in err


# --- trash forget ---


def loses(lake: Lake, *names: str) -> None:
    """Somebody removes it by hand."""
    for name in names:
        (folder,) = (lake.folder / "data" / ".retention-trash").glob(f"*/*/{name}")
        shutil.rmtree(folder.parent)


def test_what_is_gone_from_the_trash_is_forgotten_by_name_and_frees_nothing(aside: Lake, run: Run, found: Json) -> None:
    loses(aside, "S1", "S2")
    before = aside.left()
    answer = found("trash", "forget", "lake/d", "S2", "S1", *WHY, *at(DUE))
    assert answer == {"dataset": "lake/d", "forgotten": ["S1", "S2"]}
    assert (aside.left(), found("trash")[0]["transactions"], aside.verified()) == (before, 3, ())
    life = found("history", "lake/d", "S1")["transactions"][0]
    assert "and already gone at " in life["words"]
    assert "by ann, because: we need them; policy old@1 marked it" in life["words"]
    rows = {row["transaction"]: row for row in found("marks", "-s", "SWEPT")}
    assert [(rows[name]["status"], rows[name]["until"]) for name in ("S1", "S2")] == [("SWEPT", None)] * 2
    with aside.opened() as ledger:
        ends = ledger.marks.by_ids(ids(ledger, "S1", "S2"), columns=("outcome", "freed")).to_pylist()
        assert ends == [{"outcome": "ALREADY_GONE", "freed": 0}] * 2
        assert sum(row["bytes_freed"] for row in ledger.reports.of(DUE.date())) == 0
    again = error_of(run("trash", "forget", "lake/d", "S1", *WHY, *at(DUE)), FAILED)
    assert "S1 of lake/d is not set aside" in again


def test_what_somebody_took_out_of_the_trash_is_not_called_deleted(aside: Lake, run: Run) -> None:
    """Neither by a person who empties it, nor by the sweep at the end of its time, however often."""
    loses(aside, "S1")
    code, out, err = run("trash", "empty", *WHY, *at(DUE), "--yes")
    assert (code, "Deleted for good: 4 transactions" in out) == (FAILED, True)
    assert "S1 of lake/d: It stays set aside. Nothing of it is in the trash." in err
    assert "retention trash forget" in err
    for day in (14, 15):
        swept = aside.sweeps(DUE + timedelta(days=day))["lake/d"]
        assert ({*swept.outcomes}, "retention trash forget" in swept.errors[0]) == ({"FAILED"}, True)
    assert aside.verified() == ()


@pytest.mark.parametrize("names", ["S2", "S1 S2", "S1 S2 S3 S4 S5"])
def test_nothing_is_forgotten_that_is_in_the_trash(names: str, aside: Lake, run: Run) -> None:
    loses(aside, "S1")
    before, acts = aside.left(), acts_of(aside)
    refused = error_of(run("trash", "forget", "lake/d", *names.split(), *WHY, *at(DUE)), FAILED)
    assert "of lake/d: something of it is in the trash, or the store can't tell" in refused
    assert ("S2" in refused, "S1" in refused, refused.endswith("Nothing was changed.\n")) == (True, False, True)
    assert (aside.left(), acts_of(aside)) == (before, acts)


def test_nothing_is_forgotten_while_there_is_no_sign_of_the_data(aside: Lake, run: Run) -> None:
    """The disk is not mounted."""
    shutil.rmtree(aside.folder / "data")
    (aside.folder / "data").mkdir()
    acts = acts_of(aside)
    assert "Nothing was changed." in error_of(run("trash", "forget", "lake/d", "S1", *WHY, *at(DUE)), FAILED)
    assert acts_of(aside) == acts


def test_a_file_that_was_put_into_the_trash_is_not_forgotten(aside: Lake, run: Run) -> None:
    (folder,) = (aside.folder / "data" / ".retention-trash").glob("*/*/S1")
    (folder / "late").write_text("from somebody")
    before = aside.left()
    assert "S1 of lake/d: " in error_of(run("trash", "forget", "lake/d", "S1", *WHY, *at(DUE)), FAILED)
    assert aside.left() == before


def test_what_stands_in_the_place_of_something_set_aside_is_not_called_back(aside: Lake, run: Run, local_spark: None) -> None:
    aside._fill("lake/d", "S1")
    code, out, _ = run("run", *at(DUE), "--yes", "--format", "json")
    assert (code, json.loads(out)["warnings"]) == (DONE, [])
    life = json.loads(run("history", "lake/d", "S1", "--format", "json")[1])["transactions"][0]
    assert (life["there_again"], life["message"]) == (False, "Transaction data is set aside until 2026-04-21 12:00 UTC.")


def test_a_store_that_the_settings_lack_refuses_before_anything_is_recorded(aside: Lake, run: Run) -> None:
    assert error_of(run("restore", "ice/d", "S1", *WHY, *at(DUE)), FAILED).startswith(
        "Nothing was changed. The settings have no store named ice."
    )


@pytest.mark.parametrize(
    "command", [("restore", "lake/d", "S1"), ("trash", "empty", "--yes"), ("trash", "forget", "lake/d", "S1")]
)
@pytest.mark.parametrize("before", [MARKED - timedelta(days=1), DUE - timedelta(minutes=6)], ids=["the mark", "the sweep"])
def test_a_time_before_that_of_the_last_run_is_refused_before_anything_is_recorded(
    aside: Lake, run: Run, command: tuple[str, ...], before: datetime
) -> None:
    code, _, err = run(*command, *WHY, *at(before))
    assert (code, "clock of this environment is simulated" in err) == (FAILED, True)
    with aside.opened() as ledger:
        assert len(set_aside_in(ledger, "lake/d")) == 5
        assert ledger.holds.recorded(DUE).placed == []
