"""What a person reads before any number: sentences that are true, short, and take no orders from names."""

from datetime import UTC, date, datetime, timedelta

import pytest

from retention_assets.ledger import PendingGroup, VerdictCount, Waiting
from retention_assets.ledger.reports import DayLook
from retention_assets.ledger.states import DatasetState, LastSweep, Totals
from retention_assets.policy import SCHEDULED
from retention_assets.render.markdown import MOST_INLINE, readable
from retention_assets.render.summaries import (
    day_of,
    environment_summary,
    example_of,
    judged_summary,
    look_words,
    report_summary,
    swept_summary,
)
from retention_assets.report import DayReport

# A Tuesday.
AS_OF = datetime(2026, 6, 9, 12, tzinfo=UTC)
DAY = timedelta(days=1)
DONE = {"deleted": 275, "already_gone": 0, "hidden": 0, "failed": 0, "spared": 5, "bytes_freed": 2048}


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (AS_OF - DAY, "yesterday"), (AS_OF + timedelta(hours=3), "today"), (AS_OF + DAY, "tomorrow"),
        (AS_OF + 5 * DAY, "on Sunday"), (AS_OF + 7 * DAY, "on 16 June (in 7 days)"), (AS_OF - 9 * DAY, "on 31 May (9 days ago)"), (AS_OF + 300 * DAY, "on 5 April 2027"),
    ],
)  # fmt: skip
def test_a_day_is_said_as_people_say_it(at: datetime, words: str) -> None:
    assert day_of(at, AS_OF) == words


def test_an_environment_is_four_lines() -> None:
    waiting = [
        PendingGroup("p", AS_OF, AS_OF + 5 * DAY, False, 17, 1024), PendingGroup("q", AS_OF, AS_OF + 9 * DAY, False, 25, 1024),
    ]  # fmt: skip
    totals = Totals(3, AS_OF, [VerdictCount("mark", "p", 42, 2048)], {"lake/x": "a cycle"})
    assert environment_summary(totals, waiting, LastSweep(date(2026, 6, 8), DONE), AS_OF).splitlines() == [
        "- **42 marked** (2.0 KiB), 17 due on Sunday",
        "- **1 dataset refused**: `lake/x`. A cycle",
        "- Last sweep yesterday: 275 deleted, 5 spared, 2.0 KiB freed",
        "- 3 datasets with 42 transactions (2.0 KiB)",
    ]


def test_a_dataset_says_what_waits_and_why_for_example() -> None:
    counts = [VerdictCount("mark", "p", 2, 20), VerdictCount("swept", "p", 7, 70)]
    state = DatasetState("lake/a", AS_OF, counts, None, Waiting(2, 20, 1, 10, AS_OF + DAY), ["c failed in r: s"])
    row = {"transaction": "T*1", "code": "SELECTED", "witness": "p"}
    assert judged_summary(state, [], AS_OF, example_of(row, SCHEDULED)).splitlines() == [
        "- **2 marked** (20 B), **1 due now** (10 B), the next due tomorrow",
        "- 9 transactions (90 B): 2 to go, 7 swept",
        "- For example `T*1`: This transaction has been scheduled for deletion. Policy 'p' selects it.",
        "- **Not swept**: c failed in r: s",
        "- Nothing was swept yet",
    ]
    assert swept_summary(state).startswith("- 1 due now, the next of 2 marks on 2026-06-10\n- Nothing was swept yet")


def test_a_quiet_day_and_a_day_on_which_nobody_came_are_not_the_same() -> None:
    look = DayLook(AS_OF, AS_OF, AS_OF - DAY, 23, 0)
    quiet = DayReport(AS_OF.date(), (), looks={AS_OF.date(): look})
    assert "nothing was due" in report_summary(quiet)
    assert "23 datasets had been judged, the last one as of 2026-06-08 12:00 UTC." in report_summary(quiet)
    assert look_words(None) == "Nobody looked on this day: no run came to its report."
    assert look_words(look._replace(due=2, looked_at=AS_OF + 3 * DAY)).startswith(
        "Looked as of 2026-06-09 12:00 UTC, noted 2026-06-12 12:00 UTC: 2 marks were due."
    )


def test_rows_are_a_list_that_wraps_or_a_table_on_a_click() -> None:
    rows = [{"verdict": "mark", "policy": "p", "transactions": 2, "bytes": 20, "size": "20 B", "failed": 0}]
    assert readable(rows) == "- **mark p**: 2 transactions, 20 B"
    # Of records nobody knows a size, and of 1 there are not several.
    assert readable([{"verdict": "keep", "transactions": 1, "bytes": 0, "size": "0 B"}]) == "- **keep**: 1 transaction"
    many = readable([{"dataset": f"lake/{number}", "why": "a tag | pins it"} for number in range(99)])
    assert many.startswith("| dataset | why |\n| --- | --- |\n| lake/0 | a tag \\| pins it |")
    assert len(many) >= MOST_INLINE
