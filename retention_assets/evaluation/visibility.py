"""Visibility marks, which rise by the entries of the policy book.

The longest retention that was in force at any time of the past week counts, and nothing rises while a part of that week had
none: a new or shortened entry hides nothing for 7 days, while somebody may still take it back, and a longer one holds at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import keys_of
from retention_assets.frames.log import selects_dataset
from retention_assets.ledger import Ledger
from retention_assets.ledger.book import Raise, raise_by
from retention_assets.policy.book import Stored, item_of
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import VISIBILITY_PREFIX, VisibilityRule

# time before a new or shortened entry hides anything
WAIT = Duration(days=7)


@dataclass(frozen=True)
class RuleInTime:
    """Version of an entry, and its time in force; without an end it is in force now."""

    rule: VisibilityRule
    begin: datetime
    end: datetime | None


@dataclass(frozen=True)
class ReadableTime:
    """Rule by which a dataset's history stays readable. It raises no mark before `waits_until`."""

    rule: VisibilityRule
    waits_until: datetime | None = None


@dataclass(frozen=True)
class VisibilityRules:
    """Visibility entries of the book at an instant and in the week before."""

    versions: tuple[RuleInTime, ...]
    at: datetime

    @classmethod
    def of(cls, ledger: Ledger, at: datetime) -> "VisibilityRules":
        return cls(tuple(_in_time(ledger.policy_book.histories(VISIBILITY_PREFIX), at)), at)

    def for_dataset(self, dataset: str, attributes: Mapping[str, str]) -> ReadableTime | None:
        own = [version for version in self.versions if selects_dataset(version.rule.datasets, dataset, dict(attributes))]
        in_force_since = self._in_force_since(own)
        if in_force_since is None:
            return None
        begin = WAIT.before(self.at)
        counting = [version for version in own if version.begin <= self.at and (version.end is None or version.end > begin)]
        longest = min(counting, key=lambda version: version.rule.retention.before(self.at))
        return ReadableTime(longest.rule, None if in_force_since <= begin else WAIT.after(in_force_since))

    def _in_force_since(self, versions: Iterable[RuleInTime]) -> datetime | None:
        begin: datetime | None = None
        for version in sorted(versions, key=lambda version: (version.end is None, version.end or version.begin), reverse=True):
            if version.begin > self.at:
                continue
            if version.end is None or (version.end > self.at if begin is None else version.end >= begin):
                begin = version.begin if begin is None else min(begin, version.begin)
        return begin


def _in_time(histories: Iterable[list[Stored]], at: datetime) -> Iterator[RuleInTime]:
    # The book's clock may be ahead of the instant: a version written later counts as written at it.
    for versions in histories:
        for stored, following in zip(versions, [*versions[1:], None], strict=True):
            item = None if stored.revoked else item_of(stored.name, stored.content)
            if isinstance(item, VisibilityRule):
                yield RuleInTime(item, min(stored.written_at, at), min(following.written_at, at) if following else None)


def raise_visibility(ledger: Ledger, parts: Iterable[tuple[pa.Table, pa.Table]], at: datetime, actor: str) -> int:
    """Raise the marks of some datasets by the book's entries at an instant; return how many rose.

    Each part is some datasets with their `newest_closes`. Nothing is read where the book has no entry.
    """
    rules = VisibilityRules.of(ledger, at)
    parts = parts if rules.versions else ()
    proposed = (raise_ for datasets, newest in parts for raise_ in propose_raises(rules, datasets, newest))
    return sum(before != after for before, after in raise_proposed(ledger, proposed, actor).values())


def raise_proposed(ledger: Ledger, proposed: Iterable["ProposedRaise"], actor: str) -> dict[str, tuple[datetime | None, ...]]:
    """Raise what may rise now. Returns by dataset the marks before and after."""
    raises = {proposal.dataset: proposal.to for proposal in proposed}
    before = ledger.visibility.of_all(raises)
    after = ledger.visibility.raise_to({name: to for name, to in raises.items() if to is not None}, actor)
    return {name: (before.get(name), after.get(name, before.get(name))) for name in raises}


@dataclass(frozen=True)
class ProposedRaise:
    """Raise of a dataset's mark that an entry asks for; `to` is None while the entry waits."""

    dataset: str
    to: Raise | None
    waits_until: datetime | None


def propose_raises(rules: VisibilityRules, datasets: pa.Table, newest: pa.Table) -> Iterator[ProposedRaise]:
    """Propose a raise for each dataset that an entry is about and that ever had something to read."""
    if not rules.versions:
        return
    closes = dict(zip(newest["dataset"].to_pylist(), newest["closed_at_max"].to_pylist(), strict=True))
    for row in datasets.select(["dataset", "attributes"]).to_pylist():
        name = row["dataset"]
        readable = rules.for_dataset(name, dict(row["attributes"] or ())) if closes.get(name) else None
        if readable is not None:
            to = raise_by(readable.rule.retention, rules.at, closes[name], f" ({readable.rule.name})")
            yield ProposedRaise(name, None if readable.waits_until else to, readable.waits_until)


def readable_but_swept(views: pa.Table, swept: pa.Table, visible_from: Mapping[str, datetime]) -> pa.Table:
    """Find swept transactions, still listed, that were current at a time which readers may still ask for."""
    old = views.filter(pc.greater(views["view"], 0)).select(["dataset", "transaction", "superseded_at"])
    again = old.filter(pc.is_in(keys_of(old), value_set=keys_of(swept)))
    marks = [visible_from.get(name) for name in again["dataset"].to_pylist()]
    return again.filter(pc.greater(again["superseded_at"], pa.array(marks, again.schema.field("superseded_at").type)))
