"""The plan against what then happens: what it says is what marking and sweeping do, and making it changes nothing.

Belongs here: plans of lakes with real bytes. How one looks is test_plan.py's; what a sweep does in every case sweep's.
"""

import json
import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.environment import Environment
from retention_assets.people.amounts import Amount
from retention_assets.people.plan import PlanRequest, RetentionPlan, make_plan
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

DAY = timedelta(days=1)
# S4 is too young when the marks are made, and old enough a week later.
HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@70d=30 - S4:SNAPSHOT@25d=40 - S5:SNAPSHOT@1d=50"
AT_ONCE = "{name: now, datasets: {include: ['lake/now']}, select: {older_than: 30d}, grace: 0s, confirm: no-grace}"
TRASH = "{name: trash, datasets: {include: ['lake/trash']}, select: all, latest_view: allow, grace: 3d}"
ELSEWHERE = "{name: old, datasets: {include: ['lake/[de]']}, select: {older_than: 30d}, sweep: {every: 0s, batch: 2}}"
LIMITED = "{name: limited, datasets: {include: ['lake/*']}, select: {older_than: 30d}, limits: {transactions: 3}}"


def planned(lake: Lake, **request: Any) -> RetentionPlan:
    return make_plan(PlanRequest(**{"as_of": DUE, **request}), Environment(lake.settings))


def keys(rows: pa.Table) -> set[tuple[str, str]]:
    return set(zip(rows["dataset"].to_pylist(), rows["transaction"].to_pylist(), strict=True))


def content(folder: Path) -> Mapping[str, bytes]:
    """Every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def marks_of(lake: Lake, *statuses: str) -> set[tuple[str, str]]:
    with lake.opened() as ledger:
        return keys(ledger.marks.table(statuses=statuses))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Due marks in two datasets, of which a branch and a hold keep one each; a dataset without grace, and one that goes whole."""
    made = Lake(tmp_path / "lake", policies=f"{ELSEWHERE}, {AT_ONCE}, {TRASH}")
    made.has(HISTORY).has(HISTORY, "lake/e").marks()
    made.has(HISTORY, "lake/now").has("main: T1:SNAPSHOT@9d=7", "lake/trash")
    made.branches("rescue", "S2")
    made.says(f"{ELSEWHERE}, {AT_ONCE}, {TRASH}", "{name: h, datasets: 'lake/e', transactions: [S1], reason: law}")
    return made


def test_a_plan_says_what_marking_and_sweeping_then_do(lake: Lake) -> None:
    found, before = planned(lake), marks_of(lake, "MARKED")
    assert lake.marks(DUE) == len(found.newly_marked)
    assert keys(found.newly_marked) == marks_of(lake, "MARKED") - before
    lake.sweeps(DUE)
    assert keys(found.deleted) == marks_of(lake, "SWEPT")
    assert keys(found.spared) == marks_of(lake, "SPARED") == {("lake/d", "S2"), ("lake/e", "S1")}
    # Of lake/now what is marked and due at once; of the others what was marked a week ago.
    assert {name for name, _ in keys(found.deleted)} == {"lake/d", "lake/e", "lake/now"}
    assert {row["why"] for row in found.spared.to_pylist()} == {lake.why("S2"), lake.why("S1", "lake/e")}
    assert (found.refused, found.to_do) == ({}, True)
    # The second plan finds that nothing is left to do.
    assert not planned(lake).to_do


def test_what_falls_due_is_told_by_day(lake: Lake) -> None:
    days = {day: tuple(amount.transactions for amount in amounts.values()) for day, amounts in planned(lake).days().items()}
    # S4 of two datasets a week later, the trash after three days; nothing of lake/now, which is deleted at once.
    assert days == {"2026-04-10": (0, 1), "2026-04-14": (0, 2)}
    earlier = planned(lake, as_of=DUE - DAY).days()
    # What a hold keeps is not due.
    assert earlier["2026-04-07"]["marked_before"].transactions == 5
    assert earlier["2026-04-13"]["newly_marked"].transactions == 2


def test_groups_add_up(lake: Lake) -> None:
    found = planned(lake)
    for name in ("newly_marked", "deleted", "spared", "waiting"):
        assert sum((amounts[name] for amounts in found.groups().values()), Amount()) == found.total(name)
    assert list(found.groups()) == [
        ("lake/d", "old"), ("lake/e", "old"), ("lake/now", "now"), ("lake/trash", "trash")
    ]  # fmt: skip


def test_making_a_plan_changes_no_byte(lake: Lake) -> None:
    before = content(lake.folder)
    assert planned(lake).to_do
    assert content(lake.folder) == before


def test_the_first_plan_needs_no_ledger_and_makes_none(lake: Lake) -> None:
    (lake.folder / "ledger.db").unlink()
    found = planned(lake)
    assert "no ledger yet" in found.notes[0]
    assert keys(found.deleted) == {("lake/now", name) for name in ("S1", "S2", "S3", "S4")}
    assert len(found.newly_marked) == 4 + 3 + 3 + 1
    assert not (lake.folder / "ledger.db").exists()


def test_globs_choose_what_is_read_marked_and_swept(lake: Lake) -> None:
    found = planned(lake, datasets=("lake/e",))
    assert {name for rows in (found.newly_marked, found.deleted, found.spared) for name, _ in keys(rows)} == {"lake/e"}
    assert {dataset for dataset, _ in found.groups()} == {"lake/e"}


def test_what_was_swept_is_marked_again_only_as_another_life(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake").has(HISTORY)
    lake.marks()
    lake.sweeps()
    assert keys(planned(lake).newly_marked) == {("lake/d", "S4")}
    lake.comes_again("S2", closed_at="2026-01-15T00:00:00Z", opened_at="2026-01-14T00:00:00Z")
    assert keys(planned(lake).newly_marked) == {("lake/d", "S2"), ("lake/d", "S4")}


def test_limits_count_what_is_new_alone(tmp_path: Path) -> None:
    """Four at once are too many; after three of them were marked by another policy, one is not."""
    lake = Lake(tmp_path / "lake", policies=LIMITED).has(HISTORY)
    assert len(planned(lake).newly_marked) == 0
    lake.says(OLD)
    lake.marks()
    lake.says(LIMITED)
    assert keys(planned(lake).newly_marked) == {("lake/d", "S4")}
    assert lake.marks(DUE) == 1


def test_current_data_that_goes_is_told(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", policies=TRASH).has("main: T1:SNAPSHOT@9d=7", "lake/trash")
    lake.marks()
    (row,) = planned(lake).deleted.to_pylist()
    assert (row["transaction"], row["in_latest_view"], row["reason"]) == ("T1", True, "LATEST_VIEW_ALLOWED")


def test_sick_datasets_and_stores_that_are_away_keep_no_other_from_being_planned(lake: Lake) -> None:
    lake.branches("main", "S1")
    settings = json.loads(lake.settings_file.read_text())
    gone = {"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"}
    lake.settings_file.write_text(json.dumps({**settings, "stores": [*settings["stores"], gone]}))
    found = planned(lake)
    assert found.refused.keys() == {"lake/d"}
    assert "two branches of one name" in found.unsound["lake/d"]
    assert found.away.keys() == {"gone"}
    assert {name for name, _ in keys(found.deleted)} == {"lake/e", "lake/now"}


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
    found = planned(lake)
    assert (found.withheld or "").startswith(f"Nothing would be swept: {check} fails. ")
    assert (len(found.deleted), len(found.spared)) == (0, 0)
    assert found.failures


def test_an_older_ledger_that_was_put_back_sweeps_nothing(lake: Lake) -> None:
    shutil.copy(lake.folder / "ledger.db", lake.folder / "older.db")
    with Environment(lake.settings).ledger() as ledger:
        ledger.unmark.transactions("lake/e", ["S2"], "ann", "needed")
    shutil.move(lake.folder / "older.db", lake.folder / "ledger.db")
    assert "Nothing would be swept" in (planned(lake).withheld or "")


def test_what_a_check_has_found_is_told_for_the_run_judges_anew(lake: Lake) -> None:
    with lake.opened() as ledger:
        ledger.objections.object({"lake/d": "two of them are needed", "lake/z": "other"}, "nothing_needed", "run 1")
    found = planned(lake)
    (note,) = found.notes
    assert note.startswith("lake/d: nothing_needed failed in run 1: two of them are needed. Unless the run's own check")
    assert {name for name, _ in keys(found.deleted)} == {"lake/d", "lake/e", "lake/now"}


def test_a_plan_by_a_ledger_in_any_database(url: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", url, policies=f"{ELSEWHERE}, {AT_ONCE}").has(HISTORY).has(HISTORY, "lake/now")
    lake.marks()
    found = planned(lake)
    lake.marks(DUE)
    lake.sweeps(DUE)
    assert keys(found.deleted) == marks_of(lake, "SWEPT")
    assert len(found.deleted) == 3 + 4


# --- money ---------------------------------------------------------------------------------------------------------------

GIB = 2**30
PRICES = {
    "currency": "EUR",
    "stores": {"lake": {"gib_month": 0.5, "thousand_deletes": 10, "minimum_days": 100}},
    "classes": {"COLD": {"gib_month": 0.125}},
}
PRICED = f"""main: W1:SNAPSHOT@93d={2 * GIB}[#4] - W2:SNAPSHOT@83d={4 * GIB}[#1]{{storage_class=COLD}} - W3:SNAPSHOT@1d=1"""


def priced(lake: Lake, prices: Mapping[str, Any]) -> Lake:
    lake.settings_file.write_text(json.dumps({**json.loads(lake.settings_file.read_text()), "prices": prices}))
    return lake


def test_money_is_told_by_store_and_class(tmp_path: Path) -> None:
    """W1: 2 GiB at 0.5; four requests; deleted when it is 100 days old. W2: 4 GiB at the price of its class."""
    lake = priced(Lake(tmp_path / "lake").has(PRICED), PRICES)
    found = planned(lake, as_of=MARKED)
    costs = found.total("newly_marked").costs
    assert costs is not None
    assert (costs.saved_monthly, costs.requests) == pytest.approx((2 * 0.5 + 4 * 0.125, 4 * 0.01))
    assert (found.currency, costs.ended_early) == ("EUR", 0)


def test_what_is_deleted_early_is_billed_on(tmp_path: Path) -> None:
    """It is 93 days old, and would be 100 when its grace is over. Three days of a month are billed without that."""
    early = {"stores": {"lake": {"gib_month": 0.5, "minimum_days": 103}}}
    lake = priced(Lake(tmp_path / "lake").has(PRICED.split(" - ")[0] + " - W3:SNAPSHOT@1d=1"), early)
    costs = planned(lake, as_of=MARKED).total("newly_marked").costs
    assert costs is not None
    assert costs.ended_early == pytest.approx(2 * 0.5 * 3 / 30)


def test_nothing_is_said_of_money_where_nothing_has_a_price(lake: Lake) -> None:
    found = planned(priced(lake, {"stores": {}, "currency": "EUR"}))
    assert (found.currency, found.total("newly_marked").costs) == (None, None)
    assert "saved_monthly" not in str(found.as_dict())
