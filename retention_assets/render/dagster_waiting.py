"""What is shown of marks that wait: how many are due, how many still have time, and what goes when.

Belongs here: the outlook of the ledger (ledger/marks/pending.py) as numbers and as a table by the day on which marks fall due.
The numbers are about all marks of the ledger, whatever a run looked at: only so do they mean something over time.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from retention_assets.ledger.marks.pending import PendingGroup
from retention_assets.render.dagster_tables import MOST_SHOWN, bar, size, table

_BY_DAY = {
    "due": "string", "marks": "int", "size": "string", "share": "string", "policies": "string", "bytes": "int",
}  # fmt: skip
NOW = "now"


def pending_metadata(waiting: Sequence[PendingGroup], as_of: datetime) -> dict[str, Any]:
    """Numbers worth a plot over time, and what is swept when."""
    due = [one for one in waiting if _is_due(one, as_of)]
    still = [one for one in waiting if not _is_due(one, as_of)]
    return {
        "marked": sum(one.marks for one in waiting),
        "marked_bytes": sum(one.bytes for one in waiting),
        "due": sum(one.marks for one in due),
        "due_bytes": sum(one.bytes for one in due),
        "waiting": sum(one.marks for one in still),
        "waiting_bytes": sum(one.bytes for one in still),
        "due_by_day": _by_day(waiting, as_of),
    }


def _is_due(one: PendingGroup, as_of: datetime) -> bool:
    return one.sweeping or one.due_at <= as_of


def _by_day(waiting: Sequence[PendingGroup], as_of: datetime) -> Any:
    """What is due now, then day by day."""
    days: dict[date, list[PendingGroup]] = {}
    for one in waiting:
        days.setdefault(date.min if _is_due(one, as_of) else one.due_at.astimezone(UTC).date(), []).append(one)
    sums = {day: (sum(one.marks for one in ones), sum(one.bytes for one in ones)) for day, ones in days.items()}
    most = max((amount for _, amount in sums.values()), default=0)
    return table(
        _BY_DAY,
        (
            {
                "due": NOW if day == date.min else day.isoformat(),
                "marks": sums[day][0],
                "bytes": sums[day][1],
                "size": size(sums[day][1]),
                "share": bar(sums[day][1], most),
                "policies": ", ".join(sorted({one.policy for one in days[day]})),
            }
            for day in sorted(days)[:MOST_SHOWN]
        ),
        {
            "due": "the UTC day on which the grace is over; the sweep then looks once more",
            "share": "of bytes, beside the largest day",
        },
    )
