"""Sentences and details about a transaction that is marked or swept.

The sentences never change: people and programs search for them. A transaction that was taken back or spared has none.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from retention_assets.policy.durations import text_of

SCHEDULED = "This transaction has been scheduled for deletion."
DELETED = "Transaction data has been deleted."
THERE_AGAIN = "Transaction data was deleted, and is there again."


@dataclass(frozen=True)
class DeletionMessage:
    """Sentence about a transaction, with its details."""

    message: str
    details: str

    def __str__(self) -> str:
        return f"{self.message} {self.details}"


def deletion_message(
    status: str,
    *,
    dataset: str,
    transaction: str,
    policy: str,
    due_at: datetime,
    changed_at: datetime | None,
    as_of: datetime,
    hidden: bool = False,
    holds: Sequence[str] = (),
    spared: str | None = None,
    there_again: bool = False,
) -> DeletionMessage | None:
    """Build the message from the newest mark: its status, and the policy as `name@version`.

    None where `message_of` returns None.
    """
    hold = ", ".join(holds) or None
    message = message_of(status, hidden=hidden, hold=hold, spared=spared)
    if message is None:
        return None
    if status == "MARKED" and (hold or spared):
        then = "when the hold ends, the policies in force decide" if hold else "the next sweep that looks takes its mark back"
        return DeletionMessage(message, f"Policy {policy} marked it; {then}.")
    if status == "MARKED":
        due = f"It is due since {text_of(due_at)}" if due_at <= as_of else f"It is due at {text_of(due_at)}"
        name = " ".join(shlex.quote(one) for one in (dataset, transaction))
        keep = f"To keep it: the job `keep`, or `retention keep {name} --reason …`."
        return DeletionMessage(message, f"{due}, by policy {policy}. {keep}")
    if status == "SWEEPING":
        since = f" since {text_of(changed_at)}" if changed_at else ""
        return DeletionMessage(message, f"It is being deleted{since}, by policy {policy}, and can't be taken back any more.")
    at = f" at {text_of(changed_at)}" if changed_at else ""
    if there_again:
        remedy = "remove it by hand, or give it other times in its log or table, and it is judged as a new one"
        why = f"A backup may have brought it back. Its record says that it is gone, so no policy marks it again: {remedy}."
        return DeletionMessage(THERE_AGAIN, f"It was deleted{at}, by policy {policy}. {why}")
    return DeletionMessage(message, f"It was deleted{at}, by policy {policy}, and can't be recovered.")


def message_of(status: str, *, hidden: bool = False, hold: str | None = None, spared: str | None = None) -> str | None:
    """Choose the sentence: what is marked goes, unless a hold keeps it or the sweep will spare it for a reason.

    None where the mark was taken back, and where a sweep only hid it: what deletes nothing is not called deleted.
    """
    if status == "SWEPT":
        return None if hidden else DELETED
    if status not in ("MARKED", "SWEEPING"):
        return None
    if hold is not None and status == "MARKED":
        return f"This transaction is marked, and the hold {hold} keeps it."
    return SCHEDULED if spared is None else f"This transaction is marked, and the sweep will spare it: {spared}."
