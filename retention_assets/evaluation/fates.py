"""What becomes of a mark, as far as ledger and policies say it: goes at a time, held by a hold, to be spared, or over.

Everything that turns the state, the due time or the holds of a mark into words or counts asks here. The log is asked only by
the sweep, its rehearsal (`plan`) and `explain`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from retention_assets.frames.grouping import holds_dataset, selects_dataset
from retention_assets.policy.book import Stored, item_of
from retention_assets.policy.deletion_message import message_of
from retention_assets.policy.model import Datasets, Hold, Policy
from retention_assets.policy.purge import realm_of

_NOT_ABOUT = "no policy in force is about its dataset any more"


@dataclass(frozen=True)
class Fate:
    """When a mark goes, unless a hold keeps it or the sweep spares it."""

    status: str
    at: datetime
    hold: str | None = None
    spared: str | None = None
    hidden: bool = False

    @property
    def goes(self) -> bool:
        """A sweep takes it up, or has."""
        return self.status in ("MARKED", "SWEEPING") and self.hold is None and self.spared is None

    @property
    def message(self) -> str | None:
        """The sentence that is said of its transaction."""
        return message_of(self.status, hidden=self.hidden, hold=self.hold, spared=self.spared)


class Fates:
    """The fates of marks, by holds and by the policies in force at an instant."""

    # `book`: the newest version of every entry, revoked ones too.
    def __init__(self, book: Sequence[Stored], holds: Sequence[Hold], as_of: datetime) -> None:
        live = [hold for hold in holds if hold.is_live(as_of)]
        # What they keep only a log says, which has the attributes.
        self.unclear = tuple(hold.name or "" for hold in live if hold.datasets.with_)
        items = [item_of(one.name, one.content) for one in book if not one.revoked]
        versions = {(one.name, one.version) for one in book if not one.revoked}
        known = {one.name for one in book}

        @cache
        def holds_of(dataset: str) -> list[Hold]:
            return [hold for hold in live if holds_dataset(hold, dataset, {})]

        @cache
        def due_of(dataset: str, policy: str, version: int, marked_at: datetime, due_at: datetime) -> datetime | None:
            if realm_of(policy) is not None or policy not in known or (policy, version) in versions:
                return due_at
            mine = [one for one in items if not isinstance(one, Policy) or _may_be_about(one.datasets, dataset)]
            ends = (one.grace.after(marked_at) if isinstance(one, Policy) else due_at for one in mine)
            soonest = min(ends, default=None)
            return None if soonest is None else max(due_at, soonest)

        self._holds_of, self._due_of = holds_of, due_of

    def of(self, mark: Mapping[str, Any], hidden: bool = False) -> Fate:
        """Answer for a row of marks."""
        status, due_at = mark["status"], mark["due_at"]
        hold = holder_of(mark["transaction"], self._holds_of(mark["dataset"])) if status in ("MARKED", "SWEEPING") else None
        at = due_at
        if status == "MARKED":
            at = self._due_of(*(mark[name] for name in ("dataset", "policy", "policy_version", "marked_at", "due_at")))
        return Fate(status, at or due_at, hold, None if at else _NOT_ABOUT, hidden)


def holder_of(transaction: str, holds: Iterable[Hold]) -> str | None:
    """Name the first of some holds that keeps a transaction."""
    return next((hold.name or "" for hold in holds if hold.covers(transaction)), None)


def _may_be_about(datasets: Datasets, dataset: str) -> bool:
    return selects_dataset(datasets.model_copy(update={"with_": {}}), dataset, {})
