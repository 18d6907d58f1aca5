"""`retention run` at a terminal: it shows what it would delete, asks, and deletes at most that. Elsewhere it never asks.

Belongs here: the question and its answers, and the bound on what is swept after a yes.
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.dagster.headless import JobResult, run_job
from retention_assets.environment import Environment
from retention_assets.frames.log import TIMES
from retention_assets.outcomes import Outcome
from retention_assets.people.output import echo
from retention_assets.people.plan import PlanRequest, make_plan
from retention_assets.settings.model import Settings
from retention_assets.sweep.preconditions import write_confirmed
from retention_assets_tests.people.terminals import at_terminal
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@40d=10 - S4:SNAPSHOT@1d=10"
DAY = ("--as-of", DUE.isoformat())


def without_run() -> None:
    """In a program: the run itself is not what is asked about. In its place stands one that says what it was given."""
    headless = ModuleType("retention_assets.dagster.headless")
    vars(headless).update(run_job=_say_run)
    sys.modules[headless.__name__] = headless
    pytest.MonkeyPatch().setattr(Environment, "start_spark", lambda _: None)


def _say_run(
    settings: Settings,
    job: str,
    as_of: datetime,
    datasets: Any,
    log_level: str,
    confirmed: Path | None,
    accept_large: bool,
    actor: str,
) -> SimpleNamespace:
    # Who has seen what goes has agreed to it, however large it is.
    assert accept_large == (confirmed is not None)
    shown = sorted(pq.read_table(confirmed)["transaction"].to_pylist()) if confirmed else None
    echo(f"RUN {job} {shown}")
    nothing: dict[str, Any] = {"said": {}, "bad_input": (), "failed": (), "refused": (), "troubles": (), "warnings": ()}
    return SimpleNamespace(run_id="run", as_of=as_of, number=lambda *_: 0, **nothing)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three due marks."""
    made = Lake(tmp_path / "lake").has(HISTORY)
    made.marks()
    return made


def ran(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("RUN")]


def test_a_yes_sweeps_what_was_shown(lake: Lake) -> None:
    code, lines = at_terminal(lake.folder, "run", *DAY, types="y\n", first=without_run)
    assert (code, ran(lines)) == (0, ["RUN cycle ['S1', 'S2', 'S3']"])
    shown = "\n".join(lines)
    assert "This run would delete 3 (" in shown
    assert shown.index("This run would delete") < shown.index("Go on? [y/N]") < shown.index("RUN")
    assert "lake/d" in shown


@pytest.mark.parametrize("answer", ["n\n", "\n"], ids=["no", "nothing"])
def test_a_no_does_nothing_at_all(answer: str, lake: Lake) -> None:
    with lake.opened() as ledger:
        before = ledger.verify().head
    code, lines = at_terminal(lake.folder, "run", *DAY, types=answer, first=without_run)
    assert (code, ran(lines)) == (1, [])
    assert "Nothing was done: nothing was marked and nothing deleted." in lines
    with lake.opened() as ledger:
        assert ledger.verify().head == before


@pytest.mark.parametrize(
    ("arguments", "redirected", "said"),
    [
        (("--yes",), False, "RUN cycle None"),
        (("-y",), False, "RUN cycle None"),
        (("--mark-only",), False, "RUN evaluate None"),
        ((), True, "RUN cycle None"),
    ],
    ids=["yes", "y", "mark only", "stdout is no terminal"],
)
def test_nobody_is_asked(arguments: tuple[str, ...], redirected: bool, said: str, lake: Lake) -> None:
    code, lines = at_terminal(lake.folder, "run", *DAY, *arguments, types="n\n", first=without_run, redirected=redirected)
    assert (code, ran(lines)) == (0, [said])
    assert "Go on?" not in "\n".join(lines)


def test_where_nothing_is_due_nobody_is_asked_and_nothing_is_swept(tmp_path: Path) -> None:
    """What falls due while the run is at work was shown to nobody."""
    lake = Lake(tmp_path / "lake").has(HISTORY)
    lake.marks()
    code, lines = at_terminal(lake.folder, "run", "--as-of", MARKED.isoformat(), first=without_run)
    assert (code, ran(lines)) == (0, ["RUN cycle []"])
    assert "This run deletes nothing." in lines


def test_a_result_as_json_stays_json_and_the_question_is_beside_it(lake: Lake) -> None:
    code, lines = at_terminal(lake.folder, "run", *DAY, "--format", "json", types="y\n", first=without_run)
    assert code == 0
    assert any("This run would delete 3 (" in line and "Go on? [y/N]" in line for line in [" ".join(lines)])
    assert json.loads("\n".join(lines[lines.index("{") :]))["run"] == "run"


@pytest.mark.spark
def test_a_run_that_was_agreed_to_deletes_it(lake: Lake) -> None:
    code, lines = at_terminal(lake.folder, "run", *DAY, types="y\n")
    assert code == 0, lines
    assert lake.there() == {"S4"}


# --- the bound -----------------------------------------------------------------------------------------------------------


def shown(lake: Lake, *transactions: str) -> pa.Table:
    """What a person saw, cut to some transactions."""
    found = make_plan(PlanRequest(as_of=DUE), Environment(lake.settings)).deleted
    rows = [row for row in found.to_pylist() if row["transaction"] in transactions]
    return pa.Table.from_pylist(rows, found.schema).select(["dataset", "transaction", *TIMES])


@pytest.mark.parametrize("some", [(), ("S2",), ("S1", "S3"), ("S1", "S2", "S3")], ids=" ".join)
def test_a_sweep_deletes_at_most_what_was_shown(some: tuple[str, ...], lake: Lake) -> None:
    confirmed = shown(lake, *some)
    lake.sweeps(confirmed=confirmed)
    assert lake.there() == {"S1", "S2", "S3", "S4"} - set(some)
    statuses = lake.statuses()
    assert {name for name, status in statuses.items() if status == "MARKED"} == {"S1", "S2", "S3"} - set(some)
    # What was left is as due as before.
    lake.sweeps()
    assert lake.there() == {"S4"}
    assert lake.verified() == ()


def test_the_bound_brings_nothing_about(lake: Lake) -> None:
    """What is needed again is spared all the same, shown or not."""
    confirmed = shown(lake, "S1", "S2")
    lake.branches("rescue", "S1")
    lake.branches("other", "S3")
    assert lake.sweeps(confirmed=confirmed)["lake/d"].outcomes == {Outcome.DELETED: 1, Outcome.SPARED: 2}
    assert lake.there() == {"S1", "S3", "S4"}


def test_what_comes_under_an_id_that_was_shown_was_not_shown(lake: Lake) -> None:
    """Shown as the first life; a second one is marked without grace before the sweep."""
    confirmed = shown(lake, "S1", "S2", "S3")
    lake.sweeps(confirmed=shown(lake, "S1"))
    lake.says(f"{OLD.removesuffix('}')}, grace: 0s, confirm: no-grace}}")
    lake.comes_again("S1", opened_at="2026-01-14T00:00:00Z", closed_at="2026-01-15T00:00:00Z")
    assert lake.marks(DUE) == 1
    lake.sweeps(confirmed=confirmed)
    assert lake.there() == {"S1", "S4"}


def test_what_an_earlier_sweep_began_is_finished_only_if_it_was_shown(lake: Lake) -> None:
    lake.begins("S1", "S2")
    lake.sweeps(confirmed=shown(lake, "S2", "S3"))
    assert lake.there() == {"S1", "S4"}
    assert lake.statuses() == {"S1": "SWEEPING", "S2": "SWEPT", "S3": "SWEPT"}


def run_of(lake: Lake, monkeypatch: pytest.MonkeyPatch, **job: Any) -> JobResult:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return run_job(lake.settings, "sweep", DUE, **job)


def test_a_job_is_bound_by_its_file_and_sweeps_nothing_without_it(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_confirmed(shown(lake, "S3"), tmp_path / "confirmed.parquet")
    assert run_of(lake, monkeypatch, confirmed=file).number("swept_transactions", "deleted") == 1
    assert lake.there() == {"S1", "S2", "S4"}
    file.unlink()
    (failure,) = run_of(lake, monkeypatch, confirmed=file).failed
    assert "what was confirmed for this run can't be read any more" in failure
    assert lake.there() == {"S1", "S2", "S4"}
