"""Decide one combination of facts at a time, in plain Python that reads like the rules of design section 5.

Few combinations occur in a log, however long it is, so nothing here has to be fast, and everything here has to be obvious.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retention_assets.frames.verdicts.reasons import REASONS, Reason
from retention_assets.policy.model import Policy
from retention_assets.policy.realms import realm_of

VERDICTS = ("mark", "spare", "keep", "open")


@dataclass(frozen=True)
class Decision:
    """Verdict on one combination of facts. `row` names the kind of witness that differs from row to row."""

    verdict: str
    policy: int
    also: tuple[int, ...]
    reasons: tuple[tuple[Reason, int], ...]


@dataclass(frozen=True)
class Facts:
    """One combination: the first unmet line of each policy (0: selects), who may, and what protects."""

    unmet: tuple[int, ...]
    over: tuple[bool, ...]
    latest: bool
    pinned: bool
    held: bool
    open: bool
    # once the branches and tags that are over were dropped: for policies that drop them
    latest_then: bool
    pinned_then: bool
    # Its dataset lets nobody delete its files.
    forbidden: bool
    # It is an OBJECT, and a scan has found a reference to it.
    referenced: bool
    # Its store can't commit to its table.
    uncommittable: bool

    def in_latest(self, policy: Policy) -> bool:
        return self.latest_then if policy.drops_refs else self.latest

    def is_pinned(self, policy: Policy) -> bool:
        return self.pinned_then if policy.drops_refs else self.pinned


def decide(facts: Facts, policies: Sequence[Policy]) -> Decision:
    """One combination of facts to its verdict. The rules of design section 5, in their order."""
    if facts.open:
        return Decision("open", -1, (), ((Reason.OPEN, -1),))
    selecting = [number for number, line in enumerate(facts.unmet) if line == 0]
    if not selecting:
        unmet_lines = [(REASONS[line] or Reason.NO_POLICY, number) for number, line in enumerate(facts.unmet)]
        return Decision("keep", -1, (), tuple(unmet_lines) or ((Reason.NO_POLICY, -1),))
    allowed = [number for number in selecting if policies[number].latest_view or not facts.in_latest(policies[number])]
    within = [number for number in allowed if not facts.over[number]]
    # A realm that is purged goes whole, whoever refers to it: only a hold, and a table that forbids it, keeps anything of it.
    purging = [number for number in within if realm_of(policies[number].name) is not None]
    free = purging or [number for number in within if not facts.is_pinned(policies[number])]
    credit = (free or within or selecting)[0]
    also = tuple(number for number in selecting if number != credit)
    needed = facts.referenced and not purging
    if free and not (facts.held or facts.forbidden or facts.uncommittable or needed):
        return Decision("mark", credit, also, tuple(_why(facts, policies[credit], credit, bool(purging))))
    sparing: list[tuple[Reason, int]] = []
    if not allowed:
        sparing.append((Reason.LATEST_VIEW, -1))
    if not purging and any(facts.is_pinned(policies[number]) for number in selecting):
        sparing.append((Reason.TAG, -1))
    if facts.held:
        sparing.append((Reason.HOLD, -1))
    if facts.forbidden:
        sparing.append((Reason.GC_DISABLED, -1))
    if facts.uncommittable:
        sparing.append((Reason.FORMAT_V3, -1))
    if needed:
        sparing.append((Reason.REFERRED_TO, -1))
    if not within:
        sparing += [(Reason.LIMIT, number) for number in allowed]
    return Decision("spare", credit, also, tuple(sparing))


def _why(facts: Facts, policy: Policy, credit: int, purging: bool) -> Iterator[tuple[Reason, int]]:
    yield Reason.PURGING if purging else Reason.SELECTED, credit
    if policy.drops_refs and (facts.latest, facts.pinned) != (facts.latest_then, facts.pinned_then):
        yield Reason.EXPIRED_REF, -1
    if facts.in_latest(policy):
        yield Reason.LATEST_VIEW_ALLOWED, -1
