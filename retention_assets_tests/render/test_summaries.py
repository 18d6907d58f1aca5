"""What a person reads before any number: sentences that are true, short, and take no orders from names."""

from datetime import UTC, date, datetime, timedelta

import pytest

from retention_assets.ledger import VerdictCount, Waiting
from retention_assets.ledger.reports import DayLook
from retention_assets.ledger.states import DatasetState, LastSweep, Totals
from retention_assets.policy import SCHEDULED
from retention_assets.render import DayReport
from retention_assets.render.summaries import (
    day_summary,
    example_of,
    judged_summary,
    look_words,
    state_summary,
    swept_summary,
    who_of,
)

# A Tuesday.
AS_OF = datetime(2026, 6, 9, 12, tzinfo=UTC)
DAY = timedelta(days=1)
DONE = {"deleted": 275, "already_gone": 0, "hidden": 0, "failed": 0, "spared": 5, "bytes_freed": 2048}


def test_the_state_is_told_with_what_is_wrong_and_what_falls_due() -> None:
    waiting = Waiting(42, 2048, next_due=AS_OF + 5 * DAY, next_marks=17)
    totals = Totals(3, AS_OF, [VerdictCount("mark", "p", 42, 2048)], {"lake/x": "a cycle"})
    shown = state_summary(totals, waiting, LastSweep(date(2026, 6, 8), DONE), ["log_is_sound"])
    assert shown == (
        "**42 transactions are marked** (2.0 KiB): 17 due on 14 June 2026. **1 dataset is refused**: `lake/x`. A cycle."
        " **1 check fails**: `log_is_sound`. Last sweep on 8 June 2026: 275 deleted, 5 spared, 2.0 KiB freed."
    )
    quiet = state_summary(Totals(0, None, [], {}), Waiting(), None, [])
    assert quiet == "**Nothing is marked.** No check fails. Nothing has been swept yet."


def test_a_dataset_says_what_waits_and_why_for_example() -> None:
    counts = [VerdictCount("mark", "p", 2, 20), VerdictCount("swept", "p", 7, 70)]
    state = DatasetState("lake/a", AS_OF, counts, None, Waiting(2, 20, 1, 10, AS_OF + DAY, 1), ["c failed in r: s"])
    row = {"transaction": "T*1", "code": "SELECTED", "witness": "p"}
    assert judged_summary(state, [], example_of(row, SCHEDULED)).splitlines() == [
        "- **2 transactions are marked** (20 B): 1 due now (10 B), 1 due on 10 June 2026.",
        "- 9 transactions (90 B): 2 to go, 7 swept",
        "- For example `T*1`: This transaction has been scheduled for deletion. Policy 'p' selects it.",
        "- **Not swept**: c failed in r: s",
        "- Nothing has been swept yet.",
    ]
    assert swept_summary(state).startswith("- Nothing has been swept yet.\n- **Not swept**")


@pytest.mark.parametrize(
    ("actor", "shown"),
    [
        ("ann", "ann"), ("run 3f2504e0-4f89-41d3-9a0c-0305e82c3301", "run 3f2504e0"),
        ("sensor sweep_tick (run 3f2504e0-4f89-41d3-9a0c-0305e82c3301)", "sensor sweep_tick"),
        ("ann (bob@example.org, run 3f2504e0-4f89-41d3-9a0c-0305e82c3301)", "ann (bob@example.org)"),
    ],
)  # fmt: skip
def test_an_actor_is_shown_without_the_run(actor: str, shown: str) -> None:
    assert who_of(actor) == shown


def test_a_quiet_day_and_a_day_on_which_nobody_came_are_not_the_same() -> None:
    look = DayLook(AS_OF, AS_OF, AS_OF - DAY, 23, 0)
    quiet = DayReport(AS_OF.date(), (), looks={AS_OF.date(): look})
    assert "nothing was due" in day_summary(quiet)
    assert "Judged by then: 23 datasets, the last at 2026-06-08 12:00 UTC." in day_summary(quiet)
    assert look_words(None) == "No run looked on this day."
    assert look_words(look._replace(due=2, looked_at=AS_OF + 3 * DAY)).startswith(
        "The run of 2026-06-09 12:00 UTC (recorded 2026-06-12 12:00 UTC) found 2 marks due."
    )
