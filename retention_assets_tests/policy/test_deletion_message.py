"""What is said of a transaction that is marked or swept: word for word, so that people and programs can look for it."""

from datetime import UTC, datetime
from functools import partial

import pytest

from retention_assets.policy.sentences import deletion_message

DUE, BEFORE, CHANGED = (datetime(2026, 1, day, tzinfo=UTC) for day in (8, 7, 9))
KEEP = "To keep it: the job `keep`, or `retention keep 'lake/a b' T1 --reason …`."
SCHEDULED = "This transaction has been scheduled for deletion."
message_of = partial(deletion_message, dataset="lake/a b", transaction="T1", policy="p@1", due_at=DUE, changed_at=CHANGED)


@pytest.mark.parametrize(
    ("status", "as_of", "message", "details"),
    [
        ("MARKED", BEFORE, SCHEDULED, f"It is due at 2026-01-08T00:00:00Z, by policy p@1. {KEEP}"),
        ("MARKED", DUE, SCHEDULED, f"It is due since 2026-01-08T00:00:00Z, by policy p@1. {KEEP}"),
        (
            "SWEEPING", DUE, SCHEDULED,
            "It is being deleted since 2026-01-09T00:00:00Z, by policy p@1, and can't be taken back any more.",
        ),
        (
            "SWEPT", DUE, "Transaction data has been deleted.",
            "It was deleted at 2026-01-09T00:00:00Z, by policy p@1, and can't be recovered.",
        ),
    ],
)  # fmt: skip
def test_the_message_is_followed_by_when_by_whom_and_what_to_do(
    status: str, as_of: datetime, message: str, details: str
) -> None:
    said = message_of(status, as_of=as_of)
    assert said is not None
    assert (said.message, said.details, str(said)) == (message, details, f"{message} {details}")


@pytest.mark.parametrize(("status", "hidden"), [("UNMARKED", False), ("SPARED", False), ("SWEPT", True)])
def test_of_what_stays_nothing_is_said(status: str, hidden: bool) -> None:
    assert message_of(status, as_of=DUE, hidden=hidden) is None
