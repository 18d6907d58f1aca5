"""`retention run`: the whole cycle without a UI, its question at a terminal, and the bound on what is swept after a yes."""

import json
import os
import pkgutil
import re
import signal
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.dagster import headless
from retention_assets.dagster.headless import run_job
from retention_assets.definitions import build_defs
from retention_assets.environment import Environment
from retention_assets.frames import TIMES
from retention_assets.ledger import AskedBy
from retention_assets.outcomes import Order, Outcome
from retention_assets.people.operation import JobResult
from retention_assets.people.output import echo
from retention_assets.people.plan import PlanRequest, make_plan
from retention_assets.pipeline.confirmed import write_confirmed
from retention_assets.settings import Settings
from retention_assets_tests.dagster.launch import step_config
from retention_assets_tests.ledger.states import take_lease
from retention_assets_tests.local_spark import place_here
from retention_assets_tests.people.conftest import DONE, FAILED, REFUSED, Run
from retention_assets_tests.people.terminals import at_terminal
from retention_assets_tests.sweep.cycle import begin
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@40d=10 - S4:SNAPSHOT@1d=10"
WHOLE = {"S1", "S2", "S3", "S4"}
BEFORE, AT_DUE = ("--as-of", MARKED.isoformat()), ("--as-of", DUE.isoformat())


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Two datasets that were never judged, with three transactions each that may go."""
    return lake.has(HISTORY).has(HISTORY, "lake/e")


@pytest.mark.usefixtures("local_spark")
def test_a_run_marks_and_a_later_one_sweeps(lake: Lake, run: Run) -> None:
    code, out, _ = run("run", *BEFORE, "--format", "json")
    first = json.loads(out)
    assert (code, first["troubles"]) == (DONE, [])
    assert first["assets"]["candidate_marks"]["newly_marked"] == 6
    assert first["assets"]["swept_transactions"]["deleted"] == 0
    code, out, _ = run("run", *AT_DUE, "--dataset", "lake/d")
    assert (code, "bytes freed" in out) == (DONE, True)
    assert (lake.there("lake/d"), lake.there("lake/e")) == ({"S4"}, WHOLE)
    code, out, _ = run("report", f"{DUE.date()}", "--format", "json")
    assert (code, json.loads(out)["deleted"]) == (DONE, 3)
    # The page that the run left lies in the warehouse.
    assert list((lake.folder / "warehouse").rglob(f"{DUE.date()}.html"))


@pytest.mark.usefixtures("local_spark")
def test_what_was_refused_is_said_and_makes_exit_code_4_unless_something_failed(lake: Lake, run: Run) -> None:
    assert run("run", *BEFORE, "--mark-only")[0] == DONE
    lake.branches("main", "S1")
    with lake.opened() as ledger:
        take_lease(ledger, "lake/e", "the other one")
    code, _, err = run("run", *AT_DUE)
    assert (code, "Traceback" in err) == (REFUSED, False)
    assert "lake/d was refused: two branches of one name" in err
    assert "lake/d was not swept: nothing of lake/d is swept: its log is not sound" in err
    # What another sweeps is skipped, and nothing is wrong with it.
    assert "lake/e was not swept" not in err
    assert lake.there("lake/d") == lake.there("lake/e") == WHOLE
    assert run("run", *AT_DUE, "--mark-only", "--dataset", "lake/e")[0] == DONE
    assert run("run", *AT_DUE, "--mark-only", "--strict")[0] == FAILED
    lake.configures({"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"})
    code, _, err = run("run", *AT_DUE, "--mark-only")
    assert (code, err.splitlines()[0].startswith("gone/* was not read: ")) == (FAILED, True)
    assert err.splitlines()[1].startswith("lake/d was refused: two branches of one name")


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(("left", "words"), [(1234, "1,234 files of swept transactions were not deleted"), (0, "")])
def test_files_that_stay_are_said_on_stderr(left: int, words: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = JobResult("run", DUE, {"swept_transactions": {"left": left}}, ())
    monkeypatch.setattr(headless, "run_job", lambda *_: ran)
    code, out, err = run("run", *AT_DUE)
    assert (code, words in err, "were not deleted" in err) == (DONE, True, bool(words))
    assert ("files left behind" in out) == bool(left)


# --- the question at a terminal ---


def without_run() -> None:
    """In a program: the run itself is not what is asked about. In its place stands one that says what it was given."""
    module = ModuleType("retention_assets.dagster.headless")
    vars(module).update(run_job=_say_run)
    sys.modules[module.__name__] = module
    pytest.MonkeyPatch().setattr(Environment, "start_spark", lambda _: None)


def _say_run(
    settings: Settings, job: str, as_of: datetime, datasets: Any, log_level: str, confirmed: Path | None, accept_large: bool,
    actor: str,
) -> JobResult:  # fmt: skip
    # Who has seen what goes has agreed to it, however large it is.
    assert accept_large == (confirmed is not None)
    shown = sorted(pq.read_table(confirmed)["transaction"].to_pylist()) if confirmed else None
    echo(f"RUN {job} {shown}")
    return JobResult("run", as_of, {})


def in_this_python() -> None:
    """In a program: the run needs no Spark."""
    place_here(pytest.MonkeyPatch())
    pytest.MonkeyPatch().setattr(Environment, "start_spark", lambda _: None)


@pytest.fixture
def due(lake: Lake) -> Lake:
    """Three due marks of one dataset."""
    (lake.folder / "log" / "lake-e.jsonl").unlink()
    assert lake.marks() == 3
    return lake


def ran(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("RUN")]


def test_a_yes_sweeps_what_was_shown(due: Lake) -> None:
    code, lines = at_terminal(due.folder, "run", *AT_DUE, types="y\n", first=without_run)
    assert (code, ran(lines)) == (DONE, ["RUN cycle ['S1', 'S2', 'S3']"])
    shown = "\n".join(lines)
    assert "This run would delete 3 (" in shown
    assert shown.index("This run would delete") < shown.index("Go on? [y/N]") < shown.index("RUN")
    assert "lake/d" in shown
    code, lines = at_terminal(due.folder, "run", *AT_DUE, types="y\n", first=in_this_python)
    assert (code, due.there()) == (DONE, {"S4"}), lines


@pytest.mark.parametrize("answer", ["n\n", "\n"], ids=["no", "nothing"])
def test_a_no_does_nothing_at_all(answer: str, due: Lake) -> None:
    with due.opened() as ledger:
        before = ledger.verify().head
    code, lines = at_terminal(due.folder, "run", *AT_DUE, types=answer, first=without_run)
    assert (code, ran(lines)) == (FAILED, [])
    assert "Nothing was done: nothing was marked and nothing deleted." in lines
    with due.opened() as ledger:
        assert ledger.verify().head == before


@pytest.mark.parametrize(
    ("arguments", "redirected", "words"),
    [
        ((*AT_DUE, "--yes"), False, "RUN cycle None"),
        ((*AT_DUE, "-y"), False, "RUN cycle None"),
        ((*AT_DUE, "--mark-only"), False, "RUN evaluate None"),
        (AT_DUE, True, "RUN cycle None"),
        # What falls due while the run is at work was shown to nobody.
        (BEFORE, False, "RUN cycle []"),
    ],
    ids=["yes", "y", "mark only", "stdout is no terminal", "nothing is due"],
)
def test_nobody_is_asked(arguments: tuple[str, ...], redirected: bool, words: str, due: Lake) -> None:
    code, lines = at_terminal(due.folder, "run", *arguments, types="n\n", first=without_run, redirected=redirected)
    assert (code, ran(lines)) == (DONE, [words])
    assert "Go on?" not in "\n".join(lines)
    assert ("This run deletes nothing." in lines) == (arguments == BEFORE)


def two_named() -> None:
    without_run()
    pytest.MonkeyPatch().setattr("retention_assets.people.run._MOST_NAMED", 2)


def test_the_question_names_what_goes_and_lists_all_of_it_when_asked(due: Lake) -> None:
    code, lines = at_terminal(due.folder, "run", *AT_DUE, types="n\n", first=without_run)
    shown = "\n".join(lines)
    assert (code, "To be deleted now: 3, times in UTC" in shown, "d lists all" in shown) == (FAILED, True, False)
    assert [line.split()[0] for line in lines if line.startswith("  S")] == ["S1", "S2", "S3"]
    code, lines = at_terminal(due.folder, "run", *AT_DUE, types="d\ny\n", first=two_named)
    assert (code, ran(lines)) == (DONE, ["RUN cycle ['S1', 'S2', 'S3']"])
    assert [line.split()[0] for line in lines if line.startswith("  S")] == ["S1", "S2", "S1", "S2", "S3"]
    assert "\n".join(lines).count("Go on? (d lists all 3) [y/N]: ") == 2


def test_a_bare_run_after_days_that_were_simulated_says_what_to_type(lake: Lake, run: Run) -> None:
    lake.marks()
    code, out, err = run("run", "--as-of", (MARKED - timedelta(days=1)).isoformat())
    assert (code, out) == (FAILED, "")
    assert "The clock of this environment is simulated and stands at 2026-03-31 12:00 UTC" in err
    assert "Repeat the command with `--as-of 2026-03-31T12:00Z` or a later time." in err


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "3 marks are due now."),
        ({"candidate_marks": {"newly_marked": 1}}, "1 transaction newly marked. 3 marks are due now."),
        (
            {"candidate_marks": {}, "swept_transactions": {"deleted": 2, "bytes_freed": 2_048}},
            "Nothing newly marked. 2 transactions deleted, 2.0 KiB freed. 3 marks are due now.",
        ),
        ({"candidate_marks": {}, "swept_transactions": {}}, "Nothing newly marked. Nothing deleted. 3 marks are due now."),
    ],
)
def test_a_run_begins_with_what_it_did_and_says_nothing_of_what_it_did_not_come_to(
    said: dict[str, dict[str, int]], words: str, due: Lake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = JobResult("run", DUE, said)
    ran = replace(ran, waiting=replace(ran.waiting, marks=3, due=3))
    monkeypatch.setattr(headless, "run_job", lambda *_: ran)
    code, out, _ = run("run", *AT_DUE)
    assert (code, out.splitlines()[0]) == (DONE, words)
    assert due.there() == WHOLE
    assert not re.search(r" 0$", out, flags=re.MULTILINE)
    assert ("As of 2026-04-07 12:00 UTC" in out) == any(number for numbers in said.values() for number in numbers.values())


def test_a_reason_that_datasets_share_stands_once(lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake.there() == WHOLE
    refused = (*(f"lake/{name} was refused: cycle" for name in "abcd"), "lake/e was refused: unknown parent: A")
    monkeypatch.setattr(headless, "run_job", lambda *_: JobResult("run", DUE, {}, failed=("away", "away"), refused=refused))
    assert run("run", *AT_DUE)[2].splitlines() == [
        "away (2 times)", "4 datasets were refused: cycle (lake/a, lake/b, lake/c and 1 more)",
        "lake/e was refused: unknown parent: A",
    ]  # fmt: skip


def test_a_result_as_json_stays_json_and_the_question_is_beside_it(due: Lake) -> None:
    code, lines = at_terminal(due.folder, "run", *AT_DUE, "--format", "json", types="y\n", first=without_run)
    shown = " ".join(lines)
    assert (code, "This run would delete 3 (" in shown, "Go on? [y/N]" in shown) == (DONE, True, True)
    assert json.loads("\n".join(lines[lines.index("{") :]))["run"] == "run"


# --- the bound ---


def shown(lake: Lake, *transactions: str) -> pa.Table:
    """What a person saw, cut to some transactions."""
    plan = make_plan(PlanRequest(as_of=DUE), Environment(lake.settings)).deleted
    rows = [row for row in plan.to_pylist() if row["transaction"] in transactions]
    return pa.Table.from_pylist(rows, plan.schema).select(["dataset", "transaction", *TIMES])


@pytest.mark.parametrize("agreed", [(), ("S2",), ("S1", "S3"), ("S1", "S2", "S3")], ids=" ".join)
def test_a_sweep_deletes_at_most_what_was_shown(agreed: tuple[str, ...], due: Lake) -> None:
    due.sweeps(confirmed=shown(due, *agreed))
    assert due.there() == WHOLE - set(agreed)
    assert {name for name, status in due.statuses().items() if status == "MARKED"} == {"S1", "S2", "S3"} - set(agreed)
    # What was left is as due as before.
    due.sweeps()
    assert due.there() == {"S4"}
    assert due.verified() == ()


def test_the_bound_brings_nothing_about(due: Lake) -> None:
    """What is needed again is spared all the same, shown or not."""
    confirmed = shown(due, "S1", "S2")
    due.branches("rescue", "S1")
    due.branches("other", "S3")
    assert due.sweeps(confirmed=confirmed)["lake/d"].outcomes == {Outcome.DELETED: 1, Outcome.SPARED: 2}
    assert due.there() == {"S1", "S3", "S4"}


def test_what_comes_under_an_id_that_was_shown_was_not_shown(due: Lake) -> None:
    """Shown as the first life; a second one is marked without grace before the sweep."""
    confirmed = shown(due, "S1", "S2", "S3")
    due.sweeps(confirmed=shown(due, "S1"))
    due.says(f"{OLD.removesuffix('}')}, grace: 0s, confirm: no-grace}}")
    due.comes_again("S1", opened_at="2026-01-14T00:00:00Z", closed_at="2026-01-15T00:00:00Z")
    assert due.marks(DUE) == 1
    due.sweeps(confirmed=confirmed)
    assert due.there() == {"S1", "S4"}


def test_what_an_earlier_sweep_began_is_finished_only_if_it_was_shown(due: Lake) -> None:
    due.begins("S1", "S2")
    due.sweeps(confirmed=shown(due, "S2", "S3"))
    assert due.there() == {"S1", "S4"}
    assert due.statuses() == {"S1": "SWEEPING", "S2": "SWEPT", "S3": "SWEPT"}


ASIDE_UNTIL = DUE + timedelta(days=14)


@pytest.fixture
def over(due: Lake) -> Lake:
    """What was due is set aside, and another dataset has something due on the day on which that goes for good."""
    due.says(OLD.replace("sweep:", "undo: 14d, sweep:"))
    due.sweeps()
    due.says(OLD)
    due.has(HISTORY, "lake/f").marks(ASIDE_UNTIL - timedelta(days=8))
    return due


def in_trash(lake: Lake) -> set[str]:
    return {folder.name for folder in (lake.folder / "data" / ".retention-trash").glob("*/*/*")}


def agreed_at(lake: Lake, as_of: datetime) -> pa.Table:
    return make_plan(PlanRequest(as_of=as_of), Environment(lake.settings)).confirmable


def test_what_comes_to_the_end_of_its_window_after_it_was_asked_about_stays(over: Lake) -> None:
    agreed = agreed_at(over, ASIDE_UNTIL - timedelta(seconds=1))
    assert {row["dataset"] for row in agreed.to_pylist()} == {"lake/f"}
    swept = over.sweeps(ASIDE_UNTIL, confirmed=agreed)
    assert swept["lake/f"].outcomes == {Outcome.DELETED: 3}
    assert in_trash(over) == {"S1", "S2", "S3"}
    agreed = agreed_at(over, ASIDE_UNTIL)
    assert len(agreed) == 3
    # Of what was shown some is left out: it stays as well.
    over.sweeps(ASIDE_UNTIL, confirmed=agreed.filter(pa.compute.not_equal(agreed["transaction"], "S2")))
    assert (in_trash(over), over.verified()) == ({"S2"}, ())
    over.sweeps(ASIDE_UNTIL)
    assert in_trash(over) == set()


def test_what_a_person_brings_back_needs_no_yes(over: Lake) -> None:
    """The restore was killed, and the next run finishes it."""
    with over.opened() as ledger:
        begin(ledger, "lake/d", Order.RESTORE, AskedBy("ann", "we need it"), ["S1"])
    assert "S1" not in agreed_at(over, ASIDE_UNTIL).filter(pa.compute.field("dataset") == "lake/d")["transaction"].to_pylist()
    over.sweeps(ASIDE_UNTIL, confirmed=agreed_at(over, ASIDE_UNTIL - timedelta(days=8)))
    assert (over.there(), in_trash(over)) == ({"S1", "S4"}, {"S2", "S3"})


def test_a_yes_is_also_about_what_goes_from_the_trash(over: Lake) -> None:
    at_end = ("--as-of", ASIDE_UNTIL.isoformat())
    code, lines = at_terminal(over.folder, "run", *at_end, types="y\n", first=in_this_python)
    assert re.search(r"delete 3 \([^)]*\), delete 3 \([^)]*\) for good that were set aside", " ".join(lines)), lines
    assert (code, in_trash(over), over.there("lake/f")) == (DONE, set(), {"S4"}), lines
    said = [json.loads(line) for line in acts_of(over)]
    agreed = next(act["detail"] for act in said if act["deed"] == "CONFIRM")
    assert (agreed["datasets"], agreed["transactions"]) == (["lake/d", "lake/f"], 6)


def acts_of(lake: Lake) -> list[str]:
    with lake.opened() as ledger:
        return [*ledger.audit_lines()]


def test_a_simulated_clock_stands_where_a_report_was_made(due: Lake, run: Run) -> None:
    report = build_defs(due.settings).resolve_job_def("act_report")
    for days in (3, 1):
        assert report.execute_in_process(run_config=step_config(as_of=(DUE + timedelta(days=days)).isoformat())).success
    code, _, err = run("run", *AT_DUE)
    assert (code, "is simulated and stands at 2026-04-10 12:00 UTC" in err, due.there()) == (FAILED, True, WHOLE)


# --- Ctrl-C ---


def stopped_in_its_sweep() -> None:
    """In a program: somebody types Ctrl-C while the first batch is deleted."""
    in_this_python()
    sweep = "retention_assets.stores.files.store.FilesStore.sweep"
    deletes = pkgutil.resolve_name(sweep)

    def types(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return deletes(*given)

    pytest.MonkeyPatch().setattr(sweep, types)


def test_ctrl_c_in_a_sweep_ends_with_130_and_what_was_begun_is_settled(due: Lake) -> None:
    code, lines = at_terminal(due.folder, "run", *AT_DUE, "--yes", first=stopped_in_its_sweep)
    assert (code, "The sweep was stopped early. The next run continues it." in " ".join(lines)) == (130, True), lines
    # one batch of two
    assert sorted(due.statuses().values()) == ["MARKED", "SWEPT", "SWEPT"]
    assert len(due.there()) == 2
    due.sweeps()
    assert (due.there(), due.verified()) == ({"S4"}, ())


def test_a_job_is_bound_by_its_file_and_sweeps_nothing_without_it(due: Lake, tmp_path: Path) -> None:
    file = write_confirmed(shown(due, "S3"), str(tmp_path))
    assert run_job(due.settings, "sweep", DUE, confirmed=file).number("swept_transactions", "deleted") == 1
    assert due.there() == {"S1", "S2", "S4"}
    Path(file).unlink()
    (failure,) = run_job(due.settings, "sweep", DUE, confirmed=file).failed
    assert "the confirmed plan of this run can't be read any more" in failure
    assert due.there() == {"S1", "S2", "S4"}
