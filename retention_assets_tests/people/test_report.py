"""`report`: which days are meant, what is printed and written, and what is said where there is nothing."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.ledger import COUNTERS, Ledger, OpenedReport, Settlement
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import LATER, T0, candidates, planned
from retention_assets_tests.people.conftest import LEDGER, Json, Run, error_of

DAY = timedelta(days=1)
FIRST, SECOND, BETWEEN = "2026-01-08", "2026-01-10", "2026-01-09"


@pytest.fixture
def reported(ledger: Ledger) -> Ledger:
    """2026-01-08: two of three of lake/d deleted, one failed; one of ice/l not begun. 2026-01-10: the last of lake/d deleted."""
    ledger.marks.mark(candidates(["T1", "T2", "T3"]), T0, "evaluation")
    ledger.marks.mark(candidates(["L1"], "ice/l", policy="long", size=7), T0, "evaluation")
    rules = OpenedReport({"p": 1}, {"p": "2025-12-09T00:00:00Z"}, True, ("PAYMENT",), {"due": 3, "kept": 1}, {"p": "P30D"})
    ledger.reports.open(LATER.date(), {"lake/d": rules}, LATER, "sweeper")
    ledger.reports.open(LATER.date(), {"ice/l": OpenedReport({"long": 4}, classes={"due": 1})}, LATER, "sweeper")
    lease, plan, marks = planned(ledger)
    ledger.sweeps.begin([lease], [plan], marks)
    gone = [Settlement(mark, Outcome.DELETED, 10) for mark in marks[:2]]
    ledger.sweeps.settle([lease], [*gone, Settlement(marks[2], Outcome.FAILED, error="disk")], LATER.date())
    ledger.leases.give_up([lease])
    day = LATER.date() + 2 * DAY
    ledger.reports.open(day, {"lake/d": OpenedReport({"p": 2}, classes={"swept": 2, "due": 1})}, LATER + 2 * DAY, "sweeper")
    lease, plan, marks = planned(ledger)
    ledger.sweeps.begin([lease], [plan], marks)
    ledger.sweeps.settle([lease], [Settlement(marks[0], Outcome.DELETED, 10)], day)
    ledger.reports.finish_done("sweeper", ["lake/d"])
    return ledger


def test_the_newest_day_is_reported_when_none_is_named(reported: Ledger, found: Json) -> None:
    told = found("report")
    assert (told["execution_date"], told["deleted"], told["to_delete"]) == (SECOND, 1, 1)
    assert told["finished_at"]
    assert told["duration"].startswith("PT")
    assert [one["dataset"] for one in told["datasets"]] == ["lake/d"]
    # A page that nobody asked for is not written.
    assert sorted(path.name for path in Path().iterdir()) == [".retention", "retention.yaml"]


def test_a_day_is_reported_summed_and_by_dataset(reported: Ledger, found: Json) -> None:
    told = found("report", FIRST)
    assert {name: told[name] for name in COUNTERS} == {
        "to_delete": 4, "deleted": 2, "already_gone": 0, "failed": 1, "spared": 0, "unmarked": 0, "set_aside": 0, "restored": 0,
        "replayed": 0, "bytes_set_aside": 0,
        "hidden": 0, "left": 0, "bytes_to_free": 37, "bytes_freed": 20, "bytes_hidden": 0,
    }  # fmt: skip
    assert (told["policies"], told["bounds"]) == ({"long": [4], "p": [1]}, {"p": ["2025-12-09T00:00:00Z"]})
    assert told["periods"] == {"p": ["P30D"]}
    assert (told["terminal_only"], told["archived_types"]) == (True, ["PAYMENT"])
    assert told["classes"] == {"due": 4, "kept": 1}
    assert (told["finished_at"], told["duration"]) == (None, None)
    assert [(one["dataset"], one["deleted"]) for one in told["datasets"]] == [("ice/l", 0), ("lake/d", 2)]


@pytest.mark.parametrize(
    ("options", "when", "deleted"),
    [
        (("--from", FIRST, "--to", SECOND), f"{FIRST}/{SECOND}", 3),
        (("--from", FIRST), f"{FIRST}/{SECOND}", 3),
        (("--to", BETWEEN), f"{FIRST}/{BETWEEN}", 2),
        (("--from", BETWEEN), f"{BETWEEN}/{SECOND}", 1),
        (("--from", "2025-01-01", "--to", "2027-01-01"), "2025-01-01/2027-01-01", 3),
    ],
)
def test_days_add_up(options: tuple[str, ...], when: str, deleted: int, reported: Ledger, found: Json) -> None:
    told = found("report", *options)
    assert (told["execution_date"], told["deleted"]) == (when, deleted)
    assert told["deleted"] == sum(one["deleted"] for one in told["datasets"])
    assert len({one["dataset"] for one in told["datasets"]}) == len(told["datasets"])


def test_a_report_names_who_had_it_deleted(ledger: Ledger, run: Run, found: Json) -> None:
    for name, who in (("lake/d", "ann <x> (run 1)"), ("lake/e", "bob (run 2)"), ("lake/f", "")):
        ledger.marks.mark(candidates(["T1"], name), T0, "evaluation")
        ledger.reports.open(LATER.date(), {name: OpenedReport({"p": 1})}, LATER, "sweeper")
        if who:
            planned(ledger, name, who)
    told = found("report", FIRST)
    assert told["ordered_by"] == ["ann <x> (run 1)", "bob (run 2)"]
    assert [one["ordered_by"] for one in told["datasets"]] == [["ann <x> (run 1)"], ["bob (run 2)"], []]
    assert found("report", "--from", FIRST, "--to", "9999-12-31")["ordered_by"] == told["ordered_by"]
    assert found("report", "--to", FIRST, "--dataset", "lake/e")["ordered_by"] == ["bob (run 2)"]
    _, out, _ = run("report", FIRST, "--html", "day.html")
    assert "ordered by" in out
    assert "ann <x> (run 1), bob (run 2)" in out
    assert "Deletions were ordered by ann &lt;x&gt; (run 1), bob (run 2)." in Path("day.html").read_text("utf-8")


def test_only_some_datasets_are_reported(reported: Ledger, found: Json) -> None:
    told = found("report", FIRST, "--dataset", "ice/*")
    assert (told["to_delete"], told["policies"]) == (1, {"long": [4]})
    assert found("report", FIRST, "--dataset", "ice/*", "--dataset", "lake/d")["to_delete"] == 4


def test_the_table_is_for_people(reported: Ledger, run: Run) -> None:
    code, out, err = run("report", FIRST)
    assert (code, err) == (0, "")
    cells = [[cell.strip() for cell in row.split("│")[1:-1]] for row in out.splitlines()]
    for row in (
        ["not finished", "1 of 2 datasets"], ["records", "only finished ones may go"], ["archived first", "PAYMENT"],
        ["to delete, sizes by the log", "4", "37 B"], ["deleted", "2", "20 B"], ["failed attempts", "1", ""], ["still to delete", "2", ""],
        ["p", "1", "30 days", "2025-12-09 00:00"], ["long", "4", "", ""], ["due", "4", "80.0 %", "marked, and its grace is over"],
        ["ice/l", "1", "0", "7 B", "0 B", "not finished"],
    ):  # fmt: skip
        assert row in cells
    assert "Datasets: 2 of 2" in out
    assert "Datasets: 1 of 2" in run("report", FIRST, "--most", "1")[1]
    assert "Datasets" not in run("report", FIRST, "--most", "0")[1]
    assert re.search(r"duration .*\d (ms|second)", run("report", SECOND)[1])


def test_the_page_is_written_besides(reported: Ledger, run: Run) -> None:
    code, out, err = run("report", FIRST, "--format", "json", "--html", "day.html")
    assert (code, json.loads(out)["to_delete"], err) == (0, 4, "the page is in day.html\n")
    assert "<title>Retention report 2026-01-08</title>" in Path("day.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((BETWEEN,), "of 2026-01-09."),
        (("--from", BETWEEN, "--to", BETWEEN), "of 2026-01-09."),
        (("--from", "2026-02-01"), "from 2026-02-01."),
        (("--to", "2026-01-01"), "to 2026-01-01."),
    ],
)
def test_days_without_a_report_are_refused_with_those_that_have_one(
    arguments: tuple[str, ...], named: str, reported: Ledger, run: Run
) -> None:
    err = error_of(run("report", *arguments, "--html", "day.html"), 1)
    assert f"{named} Days that have one: 2026-01-10, 2026-01-08." in err
    assert not Path("day.html").exists()


def test_a_glob_that_fits_nothing_is_refused(reported: Ledger, run: Run) -> None:
    code, out, err = run("report", "--dataset", "lak/*")
    assert (code, out, err) == (1, "", "No dataset in the report of 2026-01-10 matches lak/*.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--html", "missing/day.html"), "missing/day.html"),
        ((FIRST, "--to", SECOND), "DATE stands beside"),
        (("--from", SECOND, "--to", FIRST), "--to 2026-01-08 is before --from 2026-01-10"),
        (("yesterday",), "is not a day (found 'yesterday'); expected one such as 2026-01-31"),
        (("2026-02-30",), "is not a day (found '2026-02-30')"),
    ],
)
def test_what_names_no_days_or_no_page_is_bad_input(arguments: tuple[str, ...], words: str, reported: Ledger, run: Run) -> None:
    assert words in " ".join(error_of(run("report", *arguments), 2).split())


NOTHING: dict[str, object] = {
    "execution_date": None, "policies": {}, "periods": {}, "bounds": {}, "terminal_only": None, "archived_types": [], **dict.fromkeys(COUNTERS, 0),
    "started_at": None, "finished_at": None, "duration": None, "classes": {}, "ordered_by": [], "looked": [], "realms": [], "datasets": [],
}  # fmt: skip


def test_who_looks_before_there_is_a_ledger_finds_nothing_and_makes_none(run: Run) -> None:
    code, out, err = run("report", "--format", "json", "--html", "day.html")
    assert (code, json.loads(out)) == (0, NOTHING)
    assert "no ledger yet at sqlite:///" in err
    assert "no day has a report yet: the first sweep opens one. day.html was not written\n" in err
    code, out, err = run("report")
    assert (code, out) == (0, "")
    err = error_of(run("report", FIRST), 1)
    assert "There is no report of 2026-01-08. No day has one yet: the first sweep opens one." in err
    assert not LEDGER.parent.exists()
    assert not Path("day.html").exists()


def test_many_days_are_named_by_the_newest(ledger: Ledger, run: Run) -> None:
    for after in range(8):
        ledger.reports.open(LATER.date() + after * DAY, {"lake/d": OpenedReport()}, LATER, "sweeper")
    assert (
        "2026-01-15, 2026-01-14, 2026-01-13, 2026-01-12, 2026-01-11 and 3 more back to 2026-01-08."
        in run("report", "2025-01-01")[2]
    )
