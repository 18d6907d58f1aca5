"""Fate of a mark by ledger and policies: goes at a time, held by a hold, to be spared, or over; and what goes next.

Words and counts about a mark's state, due time or holds come from here. Only the sweep, its rehearsal (`plan`) and
`explain` read the log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

import pyarrow as pa

from retention_assets.evaluation.keepers import Keepers
from retention_assets.frames.log import keepers_about, selects_name, sums_by
from retention_assets.ledger import Ledger
from retention_assets.ledger.mark_rows import OPENED
from retention_assets.ledger.states import PendingGroup
from retention_assets.policy.book import Stored, item_of
from retention_assets.policy.model import Hold, Keeper, Policy, RetainRule
from retention_assets.policy.realms import realm_of
from retention_assets.policy.sentences import message_of

_NOT_ABOUT = "no policy in force matches its dataset any more"


@dataclass(frozen=True)
class Fate:
    """Time at which a mark goes, unless a hold keeps it or the sweep spares it."""

    status: str
    at: datetime
    hold: str | None = None
    spared: str | None = None
    outcome: str | None = None
    until: datetime | None = None

    @property
    def goes(self) -> bool:
        return self.status in OPENED and self.hold is None and self.spared is None

    @property
    def message(self) -> str | None:
        return message_of(self.status, outcome=self.outcome, until=self.until, hold=self.hold, spared=self.spared)


class Fates:
    # `book`: the newest version of every entry, also of revoked ones
    def __init__(self, book: Sequence[Stored], keepers: Sequence[Keeper], as_of: datetime) -> None:
        live = [keeper for keeper in keepers if keeper.is_live(as_of)]
        # Names of keepers whose answer needs the log: its attributes, or the lines of a retain rule.
        unclear = (keeper for keeper in live if isinstance(keeper, RetainRule) or keeper.datasets.with_)
        self.unclear = tuple(keeper.name or "" for keeper in unclear)
        in_force = [entry for entry in book if not entry.revoked]
        items = [item_of(entry.name, entry.content) for entry in in_force]
        versions = {(entry.name, entry.version) for entry in in_force}
        names = {entry.name for entry in book}

        @cache
        def holds_of(dataset: str) -> tuple[Hold, ...]:
            return keepers_about(live, dataset, {}, as_of).holds

        @cache
        def due_of(dataset: str, policy: str, version: int, marked_at: datetime, due_at: datetime) -> datetime | None:
            if realm_of(policy) is not None or policy not in names or (policy, version) in versions:
                return due_at
            about = [item for item in items if not isinstance(item, Policy) or selects_name(item.datasets, dataset)]
            ends = (item.grace.after(marked_at) if isinstance(item, Policy) else due_at for item in about)
            soonest = min(ends, default=None)
            return None if soonest is None else max(due_at, soonest)

        self._holds_of, self._due_of = holds_of, due_of

    @classmethod
    def recorded(cls, ledger: Ledger, as_of: datetime) -> "Fates":
        """Go by the policies and holds in the ledger, without reading any policy file."""
        return cls(ledger.policy_book.newest(), Keepers(ledger).in_force(as_of), as_of)

    def pending(self, ledger: Ledger, datasets: Iterable[str] | None = None) -> list[PendingGroup]:
        """List open marks in groups, each with its fate.

        The database adds them up; single marks are read only for datasets with holds on named transactions.
        """
        groups, single = list[PendingGroup](), set[str]()
        for group in ledger.pending.waiting(datasets):
            holds = self._holds_of(group.dataset)
            if holds and all(hold.transactions is not None for hold in holds):
                single.add(group.dataset)
            else:
                groups.append(replace(group, held=bool(holds)))
        groups += self._groups_of_marks(ledger, single) if single else ()
        for place, group in enumerate(groups):
            if not group.sweeping:
                at = self._due_of(group.dataset, group.policy, group.version, group.marked_at, group.due_at)
                groups[place] = replace(group, due_at=at or group.due_at, spared=at is None)
        return groups

    def _groups_of_marks(self, ledger: Ledger, datasets: Iterable[str]) -> Iterator[PendingGroup]:
        for batch in ledger.marks.read(datasets, OPENED):
            rows = pa.Table.from_batches([batch])
            marks = zip(rows["dataset"].to_pylist(), rows["transaction"].to_pylist(), strict=True)
            rows = rows.append_column("held", pa.array([self._hold_on(*mark) is not None for mark in marks]))
            for row in sums_by(rows, ("policy", "marked_at", "due_at", "status", "dataset", "policy_version", "held")):
                when = row["policy"], row["marked_at"], row["due_at"], row["status"] == "SWEEPING"
                yield PendingGroup(*when, row["transactions"], row["bytes"], row["dataset"], row["policy_version"], row["held"])

    def _hold_on(self, dataset: str, transaction: str) -> str | None:
        return next((hold.name or "" for hold in self._holds_of(dataset) if hold.covers(transaction)), None)

    def of(self, mark: Mapping[str, Any], outcome: str | None = None, until: datetime | None = None) -> Fate:
        status, due_at = mark["status"], mark["due_at"]
        hold = self._hold_on(mark["dataset"], mark["transaction"]) if status in OPENED else None
        at = due_at
        if status == "MARKED":
            at = self._due_of(*(mark[name] for name in ("dataset", "policy", "policy_version", "marked_at", "due_at")))
        return Fate(status, at or due_at, hold, None if at else _NOT_ABOUT, outcome, until)
