"""Times of versions, the window of a table, pins and empty versions, as policies judge them."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import candidate_marks, sound_log
from retention_assets.policy import Hold, Policy
from retention_assets_tests.stores.delta.environments import open_tables
from retention_assets_tests.stores.delta.golden import BEGIN, DAY, GoldenTable, timed
from retention_assets_tests.stores.delta.tables import Table
from retention_assets_tests.stores.delta.test_cases import overwritten

START = datetime.fromtimestamp(BEGIN / 1000, UTC)
YOUNG = {"name": "p", "datasets": {"include": ["*"]}, "select": {"older_than": "1d"}}
WINDOW = "delta.deletedFileRetentionDuration"


def daily(folder: Path, days: int, **properties: str) -> GoldenTable:
    """A version a day, each of which replaces the one before it."""
    table = GoldenTable(folder, properties=properties)
    for number in range(days):
        table.replace(table.add_file(number)) if number else table.commit(table.add_file(0))
    return table


def judged(
    folder: Path, policy: dict[str, Any], days: float, *holds: Hold, **settings: Any
) -> tuple[set[int], dict[int, set[str]]]:
    """The versions that are marked so many days after the first one, and the reasons for the others."""
    log = sound_log(open_tables(folder.parent, **settings).read([f"lh/{folder.name}"]))
    assert log.datasets["fault"].to_pylist() == [None]
    as_of = START + timedelta(days=days)
    rows = candidate_marks(log.transactions, log.datasets, [Policy.model_validate(policy)], holds, as_of).to_pylist()
    marks = {int(row["transaction"]) for row in rows if row["verdict"] == "mark"}
    reasons = {int(row["transaction"]): {one["code"] for one in row["reasons"]} for row in rows if row["verdict"] != "mark"}
    return marks, reasons


def test_versions_inside_the_window_of_their_table_are_spared(tmp_path: Path) -> None:
    """Version 3 is superseded by version 4 on the fourth day, so the week of its window ends on the eleventh."""
    table = daily(tmp_path / "t", 10)
    marks, reasons = judged(table.folder, YOUNG, 11)
    assert marks == {0, 1, 2}
    assert reasons[3] == {"TABLE_WINDOW"}
    assert judged(table.folder, YOUNG, 11.001)[0] == {0, 1, 2, 3}
    assert judged(table.folder, YOUNG, 11, window_below_table="allow")[0] == set(range(9))


def test_the_window_of_a_table_is_taken_as_the_rule(tmp_path: Path) -> None:
    table = daily(tmp_path / "t", 10, **{WINDOW: "interval 2 days 12 hours"})
    own = {"name": "p", "datasets": {"include": ["*"]}, "select": {"from_table": True}}
    assert judged(table.folder, own, 9)[0] == set(range(6))
    assert judged(table.folder, own, 100)[0] == set(range(9))


def test_14_a_copied_table_is_judged_by_no_age(tmp_path: Path) -> None:
    table = daily(tmp_path / "t", 10)
    for file in table.log.iterdir():
        os.utime(file, (BEGIN / 1000, BEGIN / 1000))
    marks, reasons = judged(table.folder, YOUNG, 400, window_below_table="allow")
    assert marks == set()
    assert reasons[0] == {"TIMES_COPIED"}
    counted = {"name": "p", "datasets": {"include": ["*"]}, "select": {"beyond": {"transactions": 3}}}
    assert judged(table.folder, counted, 400, window_below_table="allow")[0] == set(range(7))
    assert judged(table.folder, YOUNG, 400, times="commit_info")[0] == set(range(9))


def test_the_time_of_a_version_is_the_later_of_two_and_never_goes_back(tmp_path: Path) -> None:
    table = daily(tmp_path / "t", 5)
    os.utime(table.log / f"{1:020}.json", (BEGIN / 1000, (BEGIN + 10 * DAY) / 1000))
    log = sound_log(open_tables(tmp_path).read(["lh/t"])).transactions
    days = [(at - START) / timedelta(days=1) for at in log["closed_at"].to_pylist()]
    assert days[:2] == [0, 10]
    assert days == sorted(days)
    assert days[4] < 10.001


def test_times_in_commits_are_taken_where_the_table_has_them(tmp_path: Path) -> None:
    table = timed(tmp_path / "t")
    log = sound_log(open_tables(tmp_path).read(["lh/t"])).transactions
    assert [(at - START) / timedelta(days=1) for at in log["closed_at"].to_pylist()] == list(range(table.version + 1))


def test_what_a_commit_says_of_itself_is_in_its_attributes(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 1)
    table.compact()
    table.set_properties({"delta.appendOnly": "false"})
    rows = sound_log(open_tables(tmp_path).read(["lh/t"])).transactions.to_pylist()
    kinds = [(row["type"], dict(row["attributes"])["operation"], dict(row["attributes"])["data_change"]) for row in rows]
    assert kinds == [("SNAPSHOT", "WRITE", "true"), ("DELETE", "SET TBLPROPERTIES", "false")]
    assert dict(rows[0]["attributes"])["engine"].startswith("delta-rs")


def empties(folder: Path) -> GoldenTable:
    """Between two versions that replace all two that change no file: 0, (1), 2, (3), 4, (5)."""
    table = GoldenTable(folder)
    for number in range(3):
        table.replace(table.add_file(number)) if number else table.commit(table.add_file(0))
        table.commit(operation="SET TBLPROPERTIES")
    return table


def test_a_version_without_files_is_neither_counted_nor_marked(tmp_path: Path) -> None:
    table = empties(tmp_path / "t")
    counted = {"name": "p", "datasets": {"include": ["*"]}, "select": {"beyond": {"transactions": 2}}}
    marks, reasons = judged(table.folder, counted, 400)
    assert marks == {0}
    assert reasons[1] == reasons[3] == reasons[5] == {"NO_FILES"}
    marks, reasons = judged(table.folder, YOUNG, 400)
    assert marks == {0, 2}
    assert "LATEST_VIEW" in reasons[4]


def test_a_hold_on_a_version_without_files_holds_the_one_whose_files_it_has(tmp_path: Path) -> None:
    table = empties(tmp_path / "t")
    hold = Hold.model_validate(
        {"name": "h", "datasets": {"include": ["*"]}, "transactions": ["1"], "reason": "r", "owner": "o"}
    )
    marks, reasons = judged(table.folder, YOUNG, 400, hold)
    assert marks == {2}
    assert reasons[0] == {"HOLD"}


@pytest.mark.parametrize("since_made", [False, True])
@pytest.mark.parametrize(
    ("kept", "is_list"),
    [("-1", False), ("", False), (" ", False), ("7", False), ("1,", False), ("6", True), ("0, 5", True)],
)
def test_pins_of_versions_that_are_none_refuse_the_table_unless_they_came_with_it(
    kept: str, is_list: bool, since_made: bool, tmp_path: Path
) -> None:
    """The newest version is 6; a number may be that, and none after it."""
    if since_made:
        daily(tmp_path / "t", 7, **{"retention.keep_versions": kept})
    else:
        assert overwritten(tmp_path / "t", 6).set_properties({"retention.keep_versions": kept}) == 6
    store = open_tables(tmp_path)
    faults = [line["fault"] for line in store.read(["lh/t"]).to_pylist() if line["fault"]]
    refused = ["refused"] if not is_list and not since_made else []
    assert [f"is {kept!r}, and not versions such as '3,17' up to the newest, 6" in fault for fault in faults] == [True] * len(
        refused
    )
    assert len([text for text in store.warnings() if "it pins nothing" in text]) == (not is_list and since_made)


@pytest.mark.parametrize("written", ["retention.keep_version", "retention.Keep_Versions", "retention.keep_versoins"])
def test_a_property_that_is_misspelt_is_named(written: str, tmp_path: Path) -> None:
    daily(tmp_path / "t", 3, **{written: "1", "delta.appendOnly": "false", "retention.other": "1"})
    [warning] = [text for text in open_tables(tmp_path).warnings() if "Did you mean" in text]
    assert warning == f"lh/t has the property {written}, which nobody knows. Did you mean retention.keep_versions?"


def test_pins_are_tags(tmp_path: Path) -> None:
    table = daily(tmp_path / "t", 5, **{"retention.keep_versions": "1"})
    assert judged(table.folder, YOUNG, 400)[1] == {1: {"TAG"}, 4: {"LATEST_VIEW", "TABLE_WINDOW"}}


@pytest.mark.parametrize(
    ("age", "properties", "wanted"),
    [
        ("365d", {}, ["Spark 4.1 and newer refuse", "cleanup of the log may make version 0 unreachable"]),
        ("365d", {WINDOW: "interval 365 days", "delta.enableExpiredLogCleanup": "false"}, []),
        ("2d", {}, ["are spared (TABLE_WINDOW)"]),
    ],
)
def test_29_what_a_policy_promises_and_readers_refuse_is_named(
    age: str, properties: dict[str, str], wanted: list[str], tmp_path: Path
) -> None:
    for name in ("t", "u"):
        daily(tmp_path / name, 3, **properties)
    policy = Policy.model_validate({**YOUNG, "select": {"older_than": age}})
    warnings = open_tables(tmp_path).policy_warnings([policy])
    assert [text in warning for text, warning in zip(wanted, warnings, strict=True)] == [True] * len(wanted)
    assert all("lh/t, lh/u" in warning for warning in warnings)


def test_a_date_says_when_cleanup_of_the_log_takes_a_version(tmp_path: Path) -> None:
    daily(tmp_path / "t", 3)
    [_, warning] = open_tables(tmp_path).policy_warnings([Policy.model_validate({**YOUNG, "select": {"older_than": "90d"}})])
    assert warning.startswith(f"From {START + timedelta(days=30):%Y-%m-%d} on")
