"""Verdicts of the re-check: one for each mark, with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple


class Fate(Enum):
    GOES = auto()
    # justified, but not now: its grace is longer today, nobody has confirmed it, or its store can't do what its policy asks for
    STAYS = auto()
    SPARED = auto()
    # of what is set aside: not deleted for good, or brought back
    KEPT = auto()
    COMES_BACK = auto()
    # for others with which it shares all of its data
    WAITS = auto()


class Verdict(NamedTuple):
    fate: Fate
    why: str = ""
    # of what goes: from a latest view, where its policy may select
    in_latest_view: bool = False
    # ended branches and tags on it that its policy drops with it
    ended_refs: tuple[str, ...] = ()
    # where transactions share data, the first of those that go together
    together: int | None = None


@dataclass(frozen=True)
class Verdicts:
    by_mark: Mapping[int, Verdict] = field(default_factory=dict)

    def __or__(self, newer: "Verdicts") -> "Verdicts":
        """Replace the verdicts of marks that were asked about again."""
        return Verdicts({**self.by_mark, **newer.by_mark})

    def reasons(self, *fates: Fate) -> dict[int, str]:
        return {mark: verdict.why for mark, verdict in self.by_mark.items() if verdict.fate in fates}

    @cached_property
    def go(self) -> frozenset[int]:
        return frozenset(self.reasons(Fate.GOES))

    @cached_property
    def spared(self) -> dict[int, str]:
        return self.reasons(Fate.SPARED)

    @cached_property
    def back(self) -> dict[int, str]:
        return self.reasons(Fate.COMES_BACK)


def verdicts_of(fate: Fate, reasons: Mapping[int, str]) -> dict[int, Verdict]:
    return {mark: Verdict(fate, why) for mark, why in reasons.items()}
