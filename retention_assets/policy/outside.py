"""Entries that people wrote outside of the policy book, as in DataHub's own table, and their comparison with the book.

The last version by a person counts. An entry of the files gives way to it, unless the files force it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from retention_assets.policy.book import BookDecision, Loaded, LoadOutcome, Stored, display_name
from retention_assets.policy.durations import text_of


@dataclass(frozen=True)
class OutsideEntry:
    """Entry as it stands outside, its author, and when it was written."""

    loaded: Loaded
    written_by: str
    written_at: datetime


@dataclass(frozen=True)
class OutsideDecision:
    """Decision about one entry: WRITTEN as a person's version, or ABSENT: put out of force, because it is gone outside."""

    decision: BookDecision
    written_by: str


def decide_outside(
    newest: Iterable[Stored], found: Sequence[OutsideEntry], source: str, forced: Collection[str] = ()
) -> list[OutsideDecision]:
    """Decide about each entry, and about each that came from this source and is gone.

    `source` begins the name of whoever wrote an entry there; `forced` are the names that the files force.
    """
    stored = {one.name: one for one in newest}
    decisions = [_decided(entry, stored.get(entry.loaded.name), source, forced) for entry in found]
    present = {entry.loaded.name for entry in found}
    gone = [one for one in stored.values() if one.name not in present and not one.revoked and is_from(one, source)]
    reason = "is in DataHub no more, so it is in force no more."
    return decisions + [
        OutsideDecision(BookDecision(one.name, LoadOutcome.ABSENT, f"{display_name(one.name)} {reason}", None, one), source)
        for one in gone
    ]


def is_from(stored: Stored, source: str) -> bool:
    return stored.written_by.startswith(f"{source} ")


def _decided(entry: OutsideEntry, stored: Stored | None, source: str, forced: Collection[str]) -> OutsideDecision:
    outcome, reason = _judged(entry, stored, source, forced)
    words = f"{display_name(entry.loaded.name)} {reason}"
    return OutsideDecision(
        BookDecision(entry.loaded.name, outcome, words, entry.loaded, stored), f"{source} {entry.written_by}"
    )


def _judged(entry: OutsideEntry, stored: Stored | None, source: str, forced: Collection[str]) -> tuple[LoadOutcome, str]:
    there = f"was written in DataHub by {entry.written_by} at {text_of(entry.written_at)}"
    if stored is not None and not stored.revoked and stored.content == entry.loaded.content:
        return LoadOutcome.SKIPPED, f"says what version {stored.version} in the book says."
    if entry.loaded.name in forced:
        return LoadOutcome.DRIFTED, f"{there}, and the policy files force another one: theirs is in force."
    if stored is None or stored.system or is_from(stored, source) or stored.written_at < entry.written_at:
        return LoadOutcome.WRITTEN, f"{there}."
    act = "revoked it" if stored.revoked else f"wrote version {stored.version}, which stays in force"
    return LoadOutcome.DRIFTED, (
        f"{there}. In the book {stored.written_by} later {act}. To have what DataHub says: write it there anew, or revoke"
        " the book's version."
    )
