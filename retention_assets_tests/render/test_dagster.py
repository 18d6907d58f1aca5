"""What Dagster's pages show: tables whose columns mean something, numbers that add up, and nothing without bounds.

Belongs here: the tables of retention_assets/render/assets.py, from values made here, as Dagster reads them back.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from retention_assets.dagster.assets import LOG_COLUMNS, VERDICT_COLUMNS, VIEW_COLUMNS
from retention_assets.frames import BRANCH_VIEWS, CANDIDATE_MARKS, LARGEST, LOG, Reason
from retention_assets.frames.statistics import WHY
from retention_assets.ledger import FreedGroup, PendingGroup, SparedGroup
from retention_assets.policy import Policy, as_loaded, compare
from retention_assets.render import MOST_INLINE, MOST_SHOWN, Medium, Page, Size, Table, plain_json
from retention_assets.render.assets import (
    largest_table,
    pending_numbers,
    policy_table,
    reason_tables,
    spared_table,
    verdict_counts,
    verdict_numbers,
    verdict_table,
    week_table,
)
from retention_assets.render.dagster import draw_page, draw_table

AS_OF = datetime(2026, 6, 9, tzinfo=UTC)
DAY = timedelta(days=1)


def data(table: Table) -> list[dict[str, Any]]:
    """The rows of a table as programs read them."""
    rows: list[dict[str, Any]] = plain_json(table.records(Medium.RUN))
    return rows


# --- tables -----------------------------------------------------------------------------------------------------------


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


def test_no_more_than_the_largest_datasets_are_shown() -> None:
    many = [{"dataset": f"lake/{number}", "transactions": 1, "bytes": number} for number in range(100)]
    assert [row["bytes"] for row in data(largest_table(many))] == list(range(99, 99 - LARGEST, -1))
    assert data(largest_table([])) == []


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
    shown = {row["policy"]: row for row in data(policy_table(compare(stored, loaded), stored))}
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
    counts = verdict_counts(sums, {})
    assert verdict_numbers(counts) == {
        "mark": 5, "mark_bytes": 15, "spare": 0, "spare_bytes": 0, "keep": 4, "keep_bytes": 0,
        "open": 0, "open_bytes": 0,
    }  # fmt: skip
    assert [(row["verdict"], row["policy"], row["transactions"], row["bytes"]) for row in data(verdict_table(counts))] == [
        ("mark", "p", 5, 15), ("keep", "", 4, 0),
    ]  # fmt: skip


def test_what_was_swept_long_ago_is_no_mark() -> None:
    sums = pa.Table.from_pylist(
        [
            {"verdict": "mark", "policy": "p", "count_all": 5, "bytes_sum": 50, "closed_at_max": None},
            {"verdict": "mark", "policy": "q", "count_all": 2, "bytes_sum": 7, "closed_at_max": None},
        ]
    )
    counts = verdict_counts(sums, {("lake/a", "p"): (1, 10), ("lake/b", "p"): (1, 20), ("lake/b", "q"): (2, 7)})
    shown = verdict_numbers(counts)
    assert (shown["mark"], shown["mark_bytes"]) == (3, 20)
    assert [(row["verdict"], row["policy"], row["transactions"], row["bytes"]) for row in data(verdict_table(counts))] == [
        ("mark", "p", 3, 20), ("swept", "p", 2, 30), ("swept", "q", 2, 7),
    ]  # fmt: skip


def test_a_page_begins_with_a_sentence_and_ends_with_the_data_for_programs() -> None:
    columns = ("dataset", Size("size", "bytes"))
    tables = [Table("all", columns, [{"dataset": "lake/a", "bytes": 2_048}], "by_day"), Table("none", columns, (), "nothing")]
    shown = draw_page(Page("**All is well.**", tables, {"size (KiB)": 0.1}, {"more": 1}), {"dagster/row_count": 7})
    assert list(shown) == ["summary", "dagster/row_count", "all", "size (KiB)", "data"]
    assert shown["all"].value.rstrip() == "| dataset | size |\n| --- | --- |\n| lake/a | 2.0\u00a0KiB |"
    assert len(shown["all"].value) >= MOST_INLINE, "a wide table would hide the ends of all sentences"
    assert shown["data"].value == {"by_day": [{"dataset": "lake/a", "bytes": 2_048}], "nothing": [], "more": 1}


def test_no_table_of_a_page_is_longer_than_a_page_can_show() -> None:
    table = Table("all", ("dataset",), [{"dataset": f"d{number}"} for number in range(MOST_SHOWN + 5)], "all_rows")
    shown = draw_page(Page("", [table]))
    assert len(shown["all"].value.splitlines()) == MOST_SHOWN + 2
    assert len(shown["data"].value["all_rows"]) == MOST_SHOWN
    drawn = draw_table(table)
    assert isinstance(drawn, dg.TableMetadataValue)
    assert len(drawn.records) == MOST_SHOWN


def test_a_week_is_by_day_policy_and_who_ordered_it() -> None:
    run = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    freed = [
        FreedGroup(AS_OF - DAY, "p", f"ann (run {run})", 2, 20), FreedGroup(AS_OF, "p", f"run {run}", 1, 10),
        FreedGroup(AS_OF - DAY, "p", f"ann (run {run.replace('3f', '4a')})", 3, 30),
    ]  # fmt: skip
    rows = data(week_table(freed))
    assert [(row["day"], row["policy"], row["deleted"], row["bytes"], row["ordered_by"]) for row in rows] == [
        ("2026-06-09", "p", 1, 10, "run 3f2504e0"), ("2026-06-08", "p", 5, 50, "ann"),
    ]  # fmt: skip


def test_a_reason_is_shown_with_examples_and_the_sentence_about_each() -> None:
    example = {"dataset": "lake/d", "transaction": "T1", "policy": "p", "witness": "main"}
    reasons = pa.Table.from_pylist(
        [
            {"verdict": "spare", "code": "LATEST_VIEW", "transactions": 2, "bytes": 3, "examples": [example]},
            {"verdict": "spare", "code": "LATEST_VIEW", "transactions": 5, "bytes": 4, "examples": []},
        ],
        WHY,
    )
    (reason,), (one,) = map(data, reason_tables(reasons))
    assert (reason["transactions"], reason["bytes"], reason["meaning"]) == (7, 7, Reason.LATEST_VIEW.text("…"))
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
    shown = pending_numbers(waiting, AS_OF)
    by_day = plain_json(shown.pop("due_by_day"))
    assert shown == {
        "marked": 31, "marked_bytes": 310, "due": 7, "due_bytes": 70, "waiting": 24, "waiting_bytes": 240,
        "held": 0, "to_be_spared": 0,
    }  # fmt: skip
    assert [(row["due"], row["marks"], row["bytes"], row["policies"]) for row in by_day] == [
        ("now", 7, 70, "p, q"), ("2026-06-10", 24, 240, "p, q"),
    ]  # fmt: skip
    assert not any(pending_numbers([], AS_OF).values())


def test_what_was_spared_is_shown_by_reason_with_most_marks_first() -> None:
    shown = data(spared_table([SparedGroup("lake/a", "held", 1, "T9"), SparedGroup("lake/b", "a tag pins it", 5, "T1")]))
    assert [(row["dataset"], row["marks"], row["for_example"]) for row in shown] == [("lake/b", 5, "T1"), ("lake/a", 1, "T9")]
