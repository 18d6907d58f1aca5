"""`retention plan`: it says what marking and sweeping then do, and changes nothing."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.environment import Environment
from retention_assets.people.plan import PlanRequest, RetentionPlan, make_plan
from retention_assets.people.rehearsal import Amount
from retention_assets.render import Medium
from retention_assets_tests.ledger.states import plan_of, take_lease, write_past_ledger
from retention_assets_tests.people.conftest import DONE, FAILED, REFUSED, TO_DO, Run
from retention_assets_tests.people.terminals import COLUMNS, at_terminal
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

AT_DUE, BEFORE = ("--as-of", DUE.isoformat()), ("--as-of", MARKED.isoformat())
DAY = timedelta(days=1)
# S4 is too young when the marks are made, and old enough a week later.
HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@70d=30 - S4:SNAPSHOT@25d=40 - S5:SNAPSHOT@1d=50"
AT_ONCE = "{name: now, datasets: {include: ['lake/now']}, select: {older_than: 30d}, grace: 0s, confirm: no-grace}"
TRASH = "{name: trash, datasets: {include: ['lake/trash']}, select: all, latest_view: allow, grace: 3d}"
ELSEWHERE = "{name: old, datasets: {include: ['lake/[de]']}, select: {older_than: 30d}, sweep: {every: 0s, batch: 2}}"
LIMITED = "{name: limited, datasets: {include: ['lake/*']}, select: {older_than: 30d}, limits: {transactions: 3}}"
GONE = {"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"}


def planned(lake: Lake, **request: Any) -> RetentionPlan:
    return make_plan(PlanRequest(**{"as_of": DUE, **request}), Environment(lake.settings))


def keys(rows: pa.Table) -> set[tuple[str, str]]:
    return set(zip(rows["dataset"].to_pylist(), rows["transaction"].to_pylist(), strict=True))


def content(folder: Path) -> Mapping[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def marks_of(lake: Lake, *statuses: str) -> set[tuple[str, str]]:
    with lake.opened() as ledger:
        return keys(ledger.marks.table(statuses=statuses))


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Due marks in two datasets, of which a branch and a hold keep one each; a dataset without grace, and one that goes whole."""
    lake.says(f"{ELSEWHERE}, {AT_ONCE}, {TRASH}")
    lake.has(HISTORY).has(HISTORY, "lake/e").marks()
    lake.has(HISTORY, "lake/now").has("main: T1:SNAPSHOT@9d=7", "lake/trash")
    lake.branches("rescue", "S2")
    lake.says(f"{ELSEWHERE}, {AT_ONCE}, {TRASH}", "{name: h, datasets: 'lake/e', transactions: [S1], reason: law}")
    return lake


@pytest.fixture
def plain(tmp_path: Path) -> Lake:
    """A lake by itself, for tests with policies of their own."""
    return Lake(tmp_path / "plain")


def test_a_plan_says_what_marking_and_sweeping_then_do(lake: Lake) -> None:
    before, files = marks_of(lake, "MARKED"), content(lake.folder)
    plan = planned(lake)
    assert content(lake.folder) == files
    assert lake.marks(DUE) == len(plan.newly_marked)
    assert keys(plan.newly_marked) == marks_of(lake, "MARKED") - before
    lake.sweeps(DUE)
    assert keys(plan.deleted) == marks_of(lake, "SWEPT")
    assert keys(plan.spared) == marks_of(lake, "SPARED") == {("lake/d", "S2"), ("lake/e", "S1")}
    # Of lake/now what is marked and due at once; of the others what was marked a week ago.
    assert {name for name, _ in keys(plan.deleted)} == {"lake/d", "lake/e", "lake/now"}
    assert {row["why"] for row in plan.spared.to_pylist()} == {lake.why("S2"), lake.why("S1", "lake/e")}
    assert (plan.refused, plan.to_do) == ({}, True)
    # The second plan finds that nothing is left to do.
    assert not planned(lake).to_do


def test_what_falls_due_is_told_by_day_and_groups_add_up(lake: Lake) -> None:
    plan = planned(lake)
    days = {day: tuple(amount.transactions for amount in amounts.values()) for day, amounts in plan.days().items()}
    # S4 of two datasets a week later, the trash after three days; nothing of lake/now, which is deleted at once.
    assert days == {"2026-04-10": (0, 1), "2026-04-14": (0, 2)}
    earlier = planned(lake, as_of=DUE - DAY).days()
    # What a hold keeps is not due.
    assert earlier["2026-04-07"]["marked_before"].transactions == 5
    assert earlier["2026-04-13"]["newly_marked"].transactions == 2
    for name in ("newly_marked", "deleted", "spared", "waiting"):
        assert sum((amounts[name] for amounts in plan.groups().values()), Amount()) == plan.total(name)
    assert list(plan.groups()) == [("lake/d", "old"), ("lake/e", "old"), ("lake/now", "now"), ("lake/trash", "trash")]


def test_the_first_plan_needs_no_ledger_and_makes_none(lake: Lake, run: Run) -> None:
    (lake.folder / "ledger.db").unlink()
    plan = planned(lake)
    assert "no ledger yet" in plan.notes[0]
    assert keys(plan.deleted) == {("lake/now", name) for name in ("S1", "S2", "S3", "S4")}
    assert len(plan.newly_marked) == 4 + 3 + 3 + 1
    # Something to mark is something to do.
    code, out, err = run("plan", *BEFORE, "--dataset", "lake/d")
    assert (code, "would mark 2 (40 B); delete none" in out, "no ledger yet" in err) == (TO_DO, True, True)
    assert not (lake.folder / "ledger.db").exists()


def test_globs_choose_what_is_read_marked_and_swept(lake: Lake) -> None:
    plan = planned(lake, datasets=("lake/e",))
    assert {name for rows in (plan.newly_marked, plan.deleted, plan.spared) for name, _ in keys(rows)} == {"lake/e"}
    assert {dataset for dataset, _ in plan.groups()} == {"lake/e"}


def test_what_was_swept_is_marked_again_only_as_another_life(plain: Lake) -> None:
    plain.has(HISTORY).marks()
    plain.sweeps()
    assert keys(planned(plain).newly_marked) == {("lake/d", "S4")}
    plain.comes_again("S2", closed_at="2026-01-15T00:00:00Z", opened_at="2026-01-14T00:00:00Z")
    assert keys(planned(plain).newly_marked) == {("lake/d", "S2"), ("lake/d", "S4")}


def test_limits_count_what_is_new_alone(plain: Lake) -> None:
    """Four at once are too many; after three of them were marked by another policy, one is not."""
    plain.has(HISTORY).says(LIMITED)
    assert len(planned(plain).newly_marked) == 0
    plain.says(OLD)
    plain.marks()
    plain.says(LIMITED)
    assert keys(planned(plain).newly_marked) == {("lake/d", "S4")}
    assert plain.marks(DUE) == 1


def test_current_data_that_goes_is_told(plain: Lake) -> None:
    plain.says(TRASH)
    plain.has("main: T1:SNAPSHOT@9d=7", "lake/trash").marks()
    (row,) = planned(plain).deleted.to_pylist()
    assert (row["transaction"], row["in_latest_view"], row["reason"]) == ("T1", True, "LATEST_VIEW_ALLOWED")


def test_sick_datasets_and_stores_that_are_away_keep_no_other_from_being_planned(lake: Lake, run: Run) -> None:
    lake.branches("main", "S1")
    code, _, err = run("plan", *AT_DUE)
    assert (code, len(err.splitlines()), "two branches of one name" in err) == (REFUSED, 1, True)
    assert run("plan", *AT_DUE, "--strict")[0] == FAILED
    lake.configures(GONE)
    plan = planned(lake)
    assert plan.refused.keys() == {"lake/d"}
    assert "two branches of one name" in plan.unsound["lake/d"]
    assert plan.away.keys() == {"gone"}
    assert {name for name, _ in keys(plan.deleted)} == {"lake/e", "lake/now"}
    code, _, err = run("plan", *AT_DUE)
    assert (code, err.startswith("gone/* was not read: ")) == (FAILED, True)
    (lake.folder / "log").rename(lake.folder / "elsewhere")
    assert "would not be swept: the store lake failed" in run("plan", *AT_DUE)[2]


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        ("due_at = due_at - 1", "mark_times_are_monotonic"),
        ("reason = 'NONE'", "marks_have_a_policy_and_a_reason"),
        ("bytes = bytes + 1", "due_marks_are_as_recorded"),
    ],
)
def test_a_ledger_of_which_a_run_would_sweep_nothing_is_told(edit: str, check: str, lake: Lake) -> None:
    with lake.opened() as ledger:
        write_past_ledger(ledger, f"UPDATE marks SET {edit}")
    plan = planned(lake)
    assert (plan.withheld or "").startswith(f"Nothing would be swept. {check} failed. ")
    assert (len(plan.deleted), len(plan.spared), bool(plan.failures)) == (0, 0, True)


def test_what_a_check_has_found_is_told_for_the_run_judges_anew(lake: Lake) -> None:
    with lake.opened() as ledger:
        ledger.objections.object({"lake/d": "two of them are needed", "lake/z": "other"}, "nothing_needed", "run 1")
    plan = planned(lake)
    (note,) = plan.notes
    assert note.startswith(
        "Unless this check passes in the run, nothing of lake/d is swept: nothing_needed failed in run 1: two of them are needed."
    )
    assert {name for name, _ in keys(plan.deleted)} == {"lake/d", "lake/e", "lake/now"}


def test_what_a_sweep_left_half_done_is_taken_up_with_its_notes(plain: Lake) -> None:
    plain.has(HISTORY).marks()
    with plain.opened() as ledger:
        lease = take_lease(ledger, "lake/d", "killed")
        marks = ledger.marks.table(["lake/d"])["id"].to_pylist()
        plan = plan_of(ledger, lease, marks, plain.drawn[0].as_of.replace(year=2027))
        ledger.sweeps.begin([lease], [plan], marks[:1])
        ledger.leases.give_up([lease])
    assert keys(planned(plain).deleted) == {("lake/d", name) for name in ("S1", "S2", "S3")}


def test_a_plan_by_a_ledger_in_any_database(url: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "any", url, policies=f"{ELSEWHERE}, {AT_ONCE}").has(HISTORY).has(HISTORY, "lake/now")
    lake.marks()
    plan = planned(lake)
    lake.marks(DUE)
    lake.sweeps(DUE)
    assert keys(plan.deleted) == marks_of(lake, "SWEPT")
    assert len(plan.deleted) == 3 + 4


# --- the command ---


def test_a_plan_says_first_in_a_sentence_what_it_comes_to_and_lists_transactions_when_asked(lake: Lake, run: Run) -> None:
    out = run("plan", *AT_DUE, "--dataset", "lake/d")[1]
    first = out.splitlines()[0]
    assert first.startswith("As of 2026-04-07 12:00 UTC a run would mark 1 (40 B); delete 2 (")
    assert first.endswith("and spare 1. Nothing was changed.")
    assert "S1" not in out
    assert "S2: " in out
    out = run("plan", *AT_DUE, "--detail", "--dataset", "lake/d")[1]
    rows = [[cell.strip() for cell in line.split("│")] for line in out.splitlines() if "│" in line]
    listed = {row[2]: row[-2] for row in rows if row[1] == "lake/d" and len(row) > 6}
    assert listed["S4"] == "2026-04-14 12:00"
    assert listed.keys() >= {"S1", "S3"}
    assert "To be deleted now: 2, times in UTC" in out


def test_a_column_says_which_bytes_it_counts(lake: Lake) -> None:
    """Of what is marked and deleted at once, the log counts 100 bytes, and the files have more."""
    plan = planned(lake, datasets=("lake/now",))
    assert plan.total("newly_marked").bytes == 100 < plan.total("deleted").bytes
    by_policy = next(plan.tables(detail=False))
    headers = [column.name for column in by_policy.shown(Medium.TERMINAL)]
    assert headers == ["dataset", "policy", "mark (size in the log)", "delete now (size freed)"]


def test_json_is_sorted_and_the_same_for_the_same(lake: Lake, run: Run) -> None:
    out = run("plan", *AT_DUE, "--format", "json")[1]
    assert run("plan", *AT_DUE, "--format", "json")[1] == out
    plan = json.loads(out)
    assert [(row["dataset"], row["transaction"]) for row in plan["deleted"]] == sorted(keys(planned(lake).deleted))
    assert list(plan) == [
        "as_of", "totals", "trash", "groups", "days", "newly_marked", "deleted", "set_aside",
        "spared", "cascades", "policies", "refused", "stores_away", "withheld", "objections",
    ]  # fmt: skip
    nothing = {"transactions": 0, "bytes": 0}
    assert plan["days"][-1] == {
        "date": "2026-04-14",
        "marked_before": nothing,
        "newly_marked": {"transactions": 2, "bytes": 80},
    }
    assert plan["policies"]["old"].startswith(
        "Marks transactions of the datasets lake/[de], when they closed more than 30 days"
    )


def only_spared(lake: Lake) -> None:
    lake.says("{name: none, datasets: {include: ['lake/none']}, select: all}")


@pytest.mark.parametrize(
    ("prepare", "options", "code"),
    [
        (None, AT_DUE, TO_DO),
        (None, (*AT_DUE, "--strict"), TO_DO),
        (None, (*BEFORE, "--dataset", "lake/d"), DONE),
        (only_spared, AT_DUE, TO_DO),
        (None, (*AT_DUE, "--dataset", "lake/z"), FAILED),
    ],
    ids=["due", "strict", "waiting", "only spared", "no dataset"],
)
def test_the_exit_code_says_whether_there_is_something_to_do(
    prepare: Callable[[Lake], None] | None, options: tuple[str, ...], code: int, lake: Lake, run: Run
) -> None:
    if prepare:
        prepare(lake)
    assert run("plan", *options)[0] == code


def test_no_name_begins_a_line_of_its_own(lake: Lake, run: Run) -> None:
    name = "lake/x\nNext: all is well\r\u2028Next: go on"
    row = {"dataset": name, "transaction": "T", "parent": "U", "type": "APPEND", "status": "ABORTED"}
    (lake.folder / "log" / "x.jsonl").write_text(json.dumps(row) + "\n")
    code, _, err = run("plan", *AT_DUE)
    assert code == REFUSED
    assert "lake/x\n  Next: all is well\\x0d\\u2028Next: go on was refused" in err
    assert not any(line.startswith("Next") for line in err.splitlines())


def test_settings_without_stores_are_refused_with_what_to_do(run: Run) -> None:
    assert run("plan")[::2] == (FAILED, "The settings name no store. Add one to retention.yaml, then run again.\n")


@pytest.mark.parametrize("more", [(), ("--detail",)], ids=["short", "detail"])
def test_a_plan_fits_eighty_columns(more: tuple[str, ...], lake: Lake) -> None:
    lake.has(HISTORY, "lake/a.dataset.with.a.rather.long.name")
    code, lines = at_terminal(lake.folder, "plan", *AT_DUE, *more)
    assert code == TO_DO
    begin = next(at for at, line in enumerate(lines) if line.startswith("As of"))
    assert max(map(len, lines[begin:])) <= COLUMNS
    # All of it on one screen or two.
    assert more or len(lines) - begin < 60
