"""The life of a transaction in words: whether it is to go and when, who took it back, what spared it, when it was deleted.

Belongs here: pure functions from what the ledger tells (history.py), holds and a log to rows and sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from retention_assets.ledger.marks.history import MarkHistory
from retention_assets.policy.durations import text_of
from retention_assets.policy.globs import matches
from retention_assets.policy.model import Hold

_OPEN = ("MARKED", "SWEEPING")


@dataclass(frozen=True)
class TransactionLife:
    """Everything that is known of one transaction. What only a log knows is none without one."""

    transaction: str
    in_log: bool
    type: str | None = None
    status: str | None = None
    closed_at: datetime | None = None
    bytes: int | None = None
    protected_by: str | None = None
    marks: tuple[MarkHistory, ...] = ()
    holds: tuple[str, ...] = ()
    words: str = ""

    @property
    def mark(self) -> MarkHistory | None:
        """Its newest mark: where it stands."""
        return self.marks[-1] if self.marks else None

    @property
    def ended_at(self) -> datetime | None:
        """When its newest mark was taken back, spared or swept; none while it is still to go."""
        return self.mark.changed_at if self.mark and self.mark.status not in _OPEN else None

    def as_dict(self) -> dict[str, Any]:
        """The same as fields, for `--format json`."""
        mark = self.mark
        return {
            **{name: value for name, value in vars(self).items() if name not in ("marks", "words")},
            "mark": mark.status if mark else None,
            "policy": f"{mark.policy}@{mark.policy_version}" if mark else None,
            "due_at": mark.due_at if mark and mark.status in _OPEN else None,
            "words": self.words,
            "marks": [{**vars(one), "events": [vars(event) for event in one.events]} for one in self.marks],
        }


def life_of(life: TransactionLife, holds: Sequence[Hold], as_of: datetime) -> TransactionLife:
    """The life with the holds that keep it, and in words."""
    names = tuple(hold.name or "" for hold in holds if _held(hold, life.transaction))
    over = life.mark is not None and life.mark.status == "SWEPT"
    known = replace(life, holds=() if over else names)
    return replace(known, words=_sentence(known, as_of))


def _held(hold: Hold, transaction: str) -> bool:
    return hold.transactions is None or matches(transaction, hold.transactions)


def _sentence(life: TransactionLife, as_of: datetime) -> str:
    said = [_where(life.mark, as_of) if life.mark else "not marked"]
    if life.mark and life.mark.attempts:
        times = "once" if life.mark.attempts == 1 else f"{life.mark.attempts} times"
        said.append(f"deleting it failed {times}, the last time with: {life.mark.last_error}")
    if life.holds:
        said.append(f"held by {', '.join(life.holds)}, so it is not swept" if life.mark else f"held by {', '.join(life.holds)}")
    if life.protected_by is not None:
        said.append(f"protected by {life.protected_by}")
    return "; ".join(said)


def _where(mark: MarkHistory, as_of: datetime) -> str:
    policy = f"policy {mark.policy}@{mark.policy_version}"
    since = f"{text_of(mark.changed_at) if mark.changed_at else 'an unknown time'} by {mark.changed_by}"
    if mark.status == "MARKED":
        marked = f"marked at {text_of(mark.marked_at)} by {policy}"
        return f"{'due since' if mark.due_at <= as_of else 'scheduled for deletion at'} {text_of(mark.due_at)}, {marked}"
    if mark.status == "UNMARKED":
        return f"taken back at {since}: {mark.why}"
    if mark.status == "SPARED":
        return f"spared by the sweep at {since}: {mark.why}"
    if mark.status == "SWEEPING":
        return f"being swept since {since}: its bytes may be gone; {policy} marked it"
    return f"{_deleted(mark)} at {since}; {policy} marked it"


def _deleted(mark: MarkHistory) -> str:
    last = mark.events[-1] if mark.events else None
    if last is not None and last.outcome == "ALREADY_GONE":
        return "found to be gone already"
    return f"deleted ({last.bytes:,} bytes)" if last is not None and last.bytes is not None else "deleted"
