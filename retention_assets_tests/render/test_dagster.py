"""What Dagster's pages show: tables whose columns mean something, numbers that add up, and nothing without bounds.

Belongs here: the tables of retention_assets/render/dagster.py, from values made here, as Dagster reads them back.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from retention_assets.frames import BRANCH_VIEWS, CANDIDATE_MARKS, LARGEST, LOG, Reason, column_statistics
from retention_assets.frames.statistics import WHY
from retention_assets.frames.views.branch_views import BRANCH_ENDS
from retention_assets.ledger import PendingGroup, SparedGroup
from retention_assets.policy import Policy, as_loaded, compare
from retention_assets.render.dagster import (
    LOG_COLUMNS,
    MOST_SHOWN,
    VERDICT_COLUMNS,
    VIEW_COLUMNS,
    bar,
    branch_metadata,
    grouped,
    log_metadata,
    pending_metadata,
    policy_metadata,
    reason_metadata,
    spared_metadata,
    verdict_metadata,
)

AS_OF = datetime(2026, 6, 9, tzinfo=UTC)
DAY = timedelta(days=1)


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "most", "shown"),
    [(0, 10, ""), (10, 10, "██████████"), (5, 10, "█████"), (1, 10**9, "▏"), (0, 0, ""), (-1, 5, ""), (33, 80, "████▏")],
)
def test_a_bar_is_as_long_as_its_value(value: int, most: int, shown: str) -> None:
    assert bar(value, most) == shown


@pytest.mark.parametrize(
    ("shown", "schema"),
    [(LOG_COLUMNS, LOG), (VIEW_COLUMNS, BRANCH_VIEWS), (VERDICT_COLUMNS, CANDIDATE_MARKS)],
    ids=["log", "views", "verdicts"],
)
def test_every_column_of_an_asset_says_what_it_means(shown: dg.TableSchema, schema: pa.Schema) -> None:
    assert [column.name for column in shown.columns] == schema.names
    assert all(column.description for column in shown.columns)
    assert not any("dictionary" in column.type for column in shown.columns)


# --- logs and branches ------------------------------------------------------------------------------------------------


def test_a_log_is_shown_by_its_columns_and_its_largest_datasets() -> None:
    log = pa.Table.from_pylist(
        [
            {
                "dataset": "lake/a",
                "type": "SNAPSHOT",
                "closed_at": AS_OF,
                "bytes": 2048,
                "heads": ["main", "dev"],
                "tags": None,
            },
            {"dataset": "lake/b", "type": "APPEND", "closed_at": None, "bytes": None, "heads": [], "tags": ["v1"]},
        ],
        LOG,
    )
    largest = [{"dataset": f"lake/{name}", "transactions": 1, "bytes": amount} for name, amount in (("b", 0), ("a", 2048))]
    shown = log_metadata(column_statistics(log), largest)
    assert {name: shown[name] for name in ("bytes", "branches", "tags")} == {"bytes": 2048, "branches": 2, "tags": 1}
    columns = {row["column"]: row for row in shown["columns"]}
    assert columns["closed_at"] == {
        "column": "closed_at", "nulls": 1, "least": "2026-06-09 00:00", "most": "2026-06-09 00:00", "distinct": None,
        "total": "", "words": "",
    }  # fmt: skip
    assert columns["type"]["words"] == "APPEND, SNAPSHOT"
    assert (columns["bytes"]["least"], columns["bytes"]["total"]) == ("2,048", "2.0\u00a0KiB")
    assert (columns["dataset"]["distinct"], columns["dataset"]["words"]) == (2, "")
    assert [(row["dataset"], row["share"]) for row in shown["largest_datasets"]] == [("lake/a", "█" * 10), ("lake/b", "")]


def test_no_more_than_the_largest_datasets_are_shown_and_none_of_none() -> None:
    many = [{"dataset": f"lake/{number}", "transactions": 1, "bytes": number} for number in range(100)]
    shown = log_metadata(column_statistics(LOG.empty_table()), many)["largest_datasets"]
    assert [row["bytes"] for row in shown] == list(range(99, 99 - LARGEST, -1))
    assert log_metadata(column_statistics(LOG.empty_table()), [])["largest_datasets"] == []


def test_the_largest_branches_of_all_parts_stand_first_and_the_table_ends() -> None:
    ends = pa.Table.from_pylist(
        [
            {"dataset": "lake/d", "branch": f"b{number}", "views": 2, "transactions": number, "newest_close": None}
            for number in range(MOST_SHOWN + 5)
        ],
        BRANCH_ENDS,
    )
    shown = branch_metadata(ends)
    assert len(shown) == MOST_SHOWN
    assert shown[0] == {
        "dataset": "lake/d", "branch": f"b{MOST_SHOWN + 4}", "views": 2, "transactions": MOST_SHOWN + 4, "newest_close": "",
    }  # fmt: skip


# --- policies and verdicts --------------------------------------------------------------------------------------------


def policy(name: str, days: int) -> Policy:
    about = {"include": ["lake/*"]}
    return Policy.model_validate({"name": name, "datasets": about, "select": {"older_than": f"{days}d"}})


def test_a_policy_is_shown_with_its_sentence_and_what_a_person_must_look_at_first() -> None:
    loaded = [as_loaded(policy(name, 30)) for name in ("new", "same", "changed")]
    stored = [
        compare([], [as_loaded(policy(name, days))])[0].written(by, AS_OF)
        for name, days, by in (("same", 30, "::"), ("changed", 90, "ann"), ("gone", 7, "::"))
    ]
    stored[1] = stored[1].__class__(**{**stored[1].__dict__, "system": False})
    shown = {row["policy"]: row for row in policy_metadata(compare(stored, loaded), stored)}
    assert list(shown) == ["changed", "gone", "new", "same"]
    assert {name: row["outcome"] for name, row in shown.items()} == {
        "changed": "drifted", "gone": "absent", "new": "written", "same": "skipped",
    }  # fmt: skip
    assert "more than 90 days ago" in shown["changed"]["sentence"]
    assert "ann" in shown["changed"]["reason"]
    assert shown["new"]["sentence"] == "It is not in force."
    assert (shown["same"]["version"], shown["same"]["reason"]) == (1, "")


def test_verdicts_are_summed_over_parts() -> None:
    part = {"closed_at_max": None}
    sums = pa.Table.from_pylist(
        [
            {"verdict": "mark", "policy": "p", "count_all": 2, "bytes_sum": 10, **part},
            {"verdict": "mark", "policy": "p", "count_all": 3, "bytes_sum": 5, **part},
            {"verdict": "keep", "policy": None, "count_all": 4, "bytes_sum": None, **part},
        ]
    )
    shown = verdict_metadata(sums, {})
    assert {name: value for name, value in shown.items() if name != "by_policy"} == {
        "dagster/row_count": 9, "mark": 5, "mark_bytes": 15, "spare": 0, "spare_bytes": 0, "keep": 4, "keep_bytes": 0,
        "open": 0, "open_bytes": 0,
    }  # fmt: skip
    assert [(row["verdict"], row["policy"], row["transactions"], row["bytes"]) for row in shown["by_policy"]] == [
        ("mark", "p", 5, 15), ("keep", "", 4, 0),
    ]  # fmt: skip


def test_what_was_swept_long_ago_is_no_mark() -> None:
    sums = pa.Table.from_pylist(
        [
            {"verdict": "mark", "policy": "p", "count_all": 5, "bytes_sum": 50, "closed_at_max": None},
            {"verdict": "mark", "policy": "q", "count_all": 2, "bytes_sum": 7, "closed_at_max": None},
        ]
    )
    shown = verdict_metadata(sums, {("lake/a", "p"): (1, 10), ("lake/b", "p"): (1, 20), ("lake/b", "q"): (2, 7)})
    assert (shown["mark"], shown["mark_bytes"], shown["dagster/row_count"]) == (3, 20, 7)
    assert [(row["verdict"], row["policy"], row["transactions"], row["bytes"]) for row in shown["by_policy"]] == [
        ("mark", "p", 3, 20), ("swept", "p", 2, 30), ("swept", "q", 2, 7),
    ]  # fmt: skip


def test_a_page_begins_with_words_then_numbers_and_tables_for_programs_stand_last() -> None:
    filled, empty = [{"dataset": "lake/a", "marks": 2}], list[Any]()
    shown = grouped("- All is well", {"marked": 2, "by_day": filled}, {"dagster/row_count": 7, "new": 1, "by_day_": empty})
    assert list(shown) == [
        "summary", "state/by_day", "state/marked", "dagster/row_count", "run/new", "data/by_day", "data/by_day_",
    ]  # fmt: skip
    assert shown["state/by_day"].value == "- **lake/a**: 2 marks"
    assert (shown["data/by_day"].value, shown["data/by_day_"].value) == ([{"dataset": "lake/a", "marks": 2}], [])


def test_a_reason_is_shown_with_examples_and_the_sentence_about_each() -> None:
    example = {"dataset": "lake/d", "transaction": "T1", "policy": "p", "witness": "main"}
    reasons = pa.Table.from_pylist(
        [
            {"verdict": "spare", "code": "LATEST_VIEW", "transactions": 2, "bytes": 3, "examples": [example]},
            {"verdict": "spare", "code": "LATEST_VIEW", "transactions": 5, "bytes": 4, "examples": []},
        ],
        WHY,
    )
    shown = reason_metadata(reasons)
    (reason,) = shown["reasons"]
    assert (reason["transactions"], reason["bytes"], reason["meaning"]) == (7, 7, Reason.LATEST_VIEW.text("…"))
    (one,) = shown["why"]
    assert one == {
        "verdict": "spare", "dataset": "lake/d", "transaction": "T1", "policy": "p", "reason": "LATEST_VIEW", "witness": "main",
        "sentence": "It is in the latest view of branch 'main': readers of that branch need it.",
    }  # fmt: skip


# --- what waits, and what was spared ----------------------------------------------------------------------------------


def test_what_waits_is_due_or_has_time_and_is_listed_by_day() -> None:
    waiting = [
        PendingGroup("p", AS_OF - 8 * DAY, AS_OF - DAY, False, 2, 20),
        PendingGroup("p", AS_OF - 7 * DAY, AS_OF, False, 1, 10),
        PendingGroup("q", AS_OF, AS_OF + 9 * DAY, True, 4, 40),  # a sweep has begun on it, whatever its day was
        PendingGroup("q", AS_OF, AS_OF + timedelta(hours=30), False, 8, 80),
        PendingGroup("p", AS_OF, AS_OF + timedelta(hours=47), False, 16, 160),
    ]
    shown = pending_metadata(waiting, AS_OF)
    by_day = shown.pop("due_by_day")
    assert shown == {
        "marked": 31, "marked_bytes": 310, "due": 7, "due_bytes": 70, "waiting": 24, "waiting_bytes": 240,
        "held": 0, "to_be_spared": 0,
    }  # fmt: skip
    assert [(row["due"], row["marks"], row["bytes"], row["policies"]) for row in by_day] == [
        ("now", 7, 70, "p, q"), ("2026-06-10", 24, 240, "p, q"),
    ]  # fmt: skip
    assert not any(pending_metadata([], AS_OF).values())


def test_what_was_spared_is_shown_by_reason_with_most_marks_first() -> None:
    shown = spared_metadata([SparedGroup("lake/a", "held", 1, "T9"), SparedGroup("lake/b", "a tag pins it", 5, "T1")])
    assert [(row["dataset"], row["marks"], row["for_example"]) for row in shown] == [("lake/b", 5, "T1"), ("lake/a", 1, "T9")]
