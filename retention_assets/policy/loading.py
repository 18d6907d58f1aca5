"""Decisions of a load: whether an entry of the files, or of another system, becomes the next version in the book."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from retention_assets.errors import BadInput, Problem
from retention_assets.policy.book import Loaded, Stored, canonical, item_of, scope_of
from retention_assets.policy.datahub import PREFIX
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import VISIBILITY_PREFIX, Datasets


class LoadOutcome(StrEnum):
    WRITTEN = "WRITTEN"  # the file's content becomes the next version
    SKIPPED = "SKIPPED"  # book and file say the same
    DRIFTED = "DRIFTED"  # they differ and the book's stays, because a person wrote it
    ABSENT = "ABSENT"  # in the book and in no file: revoked if it came from a file, else it stays as it is


@dataclass(frozen=True)
class BookDecision:
    """Effect of loading on one entry, its reason, and the datasets that have to be judged again."""

    name: str
    outcome: LoadOutcome
    reason: str
    loaded: Loaded | None
    stored: Stored | None
    touched: tuple[Datasets, ...] = ()

    @property
    def revokes(self) -> bool:
        """An entry that came from a file is in no file any more: removing a policy takes effect."""
        return self.outcome is LoadOutcome.ABSENT and self.stored is not None and self.stored.system

    @property
    def warning(self) -> str | None:
        """Text for a person, if anything needs attention."""
        return self.reason if self.outcome is LoadOutcome.DRIFTED else None

    def written(self, author: str, written_at: datetime) -> Stored:
        """Build the version of a WRITTEN entry. The system loads files, whoever starts it."""
        if self.outcome is not LoadOutcome.WRITTEN or self.loaded is None:
            raise ValueError(f"{self.name} is {self.outcome}, not written")
        version = self.stored.version + 1 if self.stored else 1
        return Stored(self.name, self.loaded.content, self.loaded.digest, version, author, written_at, system=True)


def compare(
    stored: Iterable[Stored], loaded: Sequence[Loaded], overwrite_user_policies: bool = False, stores: Collection[str] = ()
) -> list[BookDecision]:
    """Decide about each entry: the loaded ones in their order, then those that are in the book alone, by name.

    `stores` are the names of the `aspects` stores, whose datasets DataHub entries reach; without any they reach all stores.
    """
    newest = {version.name: version for version in sorted(stored, key=lambda version: version.version)}
    names = Counter(entry.name for entry in loaded)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise BadInput([Problem("is loaded twice", policy=name, expected="each entry once") for name in twice])
    decisions = []
    for entry in loaded:
        old = newest.get(entry.name)
        outcome, reason = _judged(entry, old, overwrite_user_policies)
        scopes: tuple[Datasets, ...] = ()
        if outcome is LoadOutcome.WRITTEN:
            new_scope = scope_of(entry.name, entry.content, stores)
            old_scope = scope_of(old.name, old.content, stores) if old and not old.revoked else new_scope
            scopes = (new_scope,) if old_scope == new_scope else (new_scope, old_scope)
        decisions.append(BookDecision(entry.name, outcome, f"{_display_name(entry.name)} {reason}", entry, old, scopes))
    for absent in (newest[name] for name in sorted(newest.keys() - names.keys()) if not newest[name].revoked):
        reason = f"is in no file. Until it is revoked, this stays in force: {_last(absent)}."
        if absent.system:
            reason = f"is in no file any more, so it is revoked. In force until now: {_last(absent)}."
        decisions.append(BookDecision(absent.name, LoadOutcome.ABSENT, f"{_display_name(absent.name)} {reason}", None, absent))
    return decisions


def _judged(entry: Loaded, stored: Stored | None, overwrite: bool) -> tuple[LoadOutcome, str]:
    # Equality comes first: neither a force nor a setting writes a version that says nothing new.
    if stored is None:
        return LoadOutcome.WRITTEN, "is new: nothing is stored under its name."
    if not stored.revoked and _is_same(entry, stored):
        return LoadOutcome.SKIPPED, f"equals version {stored.version} in the book."
    differs = f"in the files differs from {_last(stored)}"
    if stored.system:
        return LoadOutcome.WRITTEN, f"{differs}. The system wrote it, so the files replace it."
    if entry.force_overwrite:
        return LoadOutcome.WRITTEN, f"{differs}. The entry says `{_force(entry.name)}`, so the files replace it."
    if overwrite:
        return LoadOutcome.WRITTEN, f"{differs}. The settings say `overwrite_user_policies: true`, so the files replace it."
    stays = "It stays revoked" if stored.revoked else "That version stays in force"
    return LoadOutcome.DRIFTED, (
        f"{differs}. {stays}. To use the files instead: change the entry in the policy book, write `{_force(entry.name)}` "
        "into the entry, or set `overwrite_user_policies: true` in the settings."
    )


def _last(stored: Stored) -> str:
    act = "revoked" if stored.revoked else "wrote"
    return f"version {stored.version} in the book, which {stored.written_by} {act} at {text_of(stored.written_at)}"


def _is_same(entry: Loaded, stored: Stored) -> bool:
    if entry.digest == stored.digest:
        return True
    # a key that a later release adds is missing from what is stored: it has its default there
    item = item_of(stored.name, stored.content)
    return item is not None and canonical(item) == entry.content


def _display_name(name: str) -> str:
    if name.startswith(VISIBILITY_PREFIX):
        return f"Visibility entry '{name.removeprefix(VISIBILITY_PREFIX)}'"
    return f"DataHub entry '{name.removeprefix(PREFIX)}'" if name.startswith(PREFIX) else f"Policy '{name}'"


def _force(name: str) -> str:
    return "forceOverwrite: true" if name.startswith(PREFIX) else "force_overwrite: true"


def datasets_touched(decisions: Iterable[BookDecision]) -> list[Datasets]:
    """Scopes to judge again after a load, each once. A dataset in none of them keeps its verdicts."""
    scopes: list[Datasets] = []
    for decision in decisions:
        scopes += [scope for scope in decision.touched if scope not in scopes]
    return scopes


@dataclass(frozen=True)
class OutsideEntry:
    """Entry as another system has it, its author, and when it was written."""

    loaded: Loaded
    written_by: str
    written_at: datetime


def decide_outside(
    newest: Iterable[Stored], entries: Sequence[OutsideEntry], source: str, forced: Collection[str] = ()
) -> list[BookDecision]:
    """Decide about each entry, and about each that came from this source and is gone. Between two people the later writer wins.

    `source` begins the name of whoever wrote an entry there; `forced` are the names that the files force.
    """
    stored = {old.name: old for old in newest}
    decisions = []
    for entry in entries:
        loaded, held = entry.loaded, stored.get(entry.loaded.name)
        outcome, reason = _judged_outside(entry, held, source, forced)
        decisions.append(BookDecision(loaded.name, outcome, f"{_display_name(loaded.name)} {reason}", loaded, held))
    present = {entry.loaded.name for entry in entries}
    removed = [old for old in stored.values() if old.name not in present and not old.revoked and _is_from(old, source)]
    reason = "is no longer in DataHub, so it is no longer in force."
    return decisions + [
        BookDecision(old.name, LoadOutcome.ABSENT, f"{_display_name(old.name)} {reason}", None, old) for old in removed
    ]


def _is_from(stored: Stored, source: str) -> bool:
    return stored.written_by.startswith(f"{source} ")


def _judged_outside(
    entry: OutsideEntry, stored: Stored | None, source: str, forced: Collection[str]
) -> tuple[LoadOutcome, str]:
    origin = f"was written in DataHub by {entry.written_by} at {text_of(entry.written_at)}"
    if stored is not None and not stored.revoked and _is_same(entry.loaded, stored):
        return LoadOutcome.SKIPPED, f"equals version {stored.version} in the book."
    if entry.loaded.name in forced:
        return LoadOutcome.DRIFTED, f"{origin}, but the policy files force another one, which is in force."
    if stored is None or stored.system or _is_from(stored, source) or stored.written_at < entry.written_at:
        return LoadOutcome.WRITTEN, f"{origin}."
    act = "revoked it" if stored.revoked else f"wrote version {stored.version}, which stays in force"
    return LoadOutcome.DRIFTED, (
        f"{origin}. In the book {stored.written_by} later {act}. To use DataHub's policy: write it there again, or revoke "
        "the version of the book."
    )
