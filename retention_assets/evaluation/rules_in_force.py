"""The rules in force: policy files loaded into the policy book, and what book, holds and realms then say of some datasets.

Belongs here: the join of files, policy book, holds and realms that are being purged, and DataHub entries as policies about the
datasets that they win (only settings know which stores hold aspects). Everything that judges takes `RulesInForce`.
Does not belong here: what loading decides (policy/book.py), and judging (frames).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from retention_assets.datasets import by_store
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.policy.book import BookDecision, BookItem, LoadOutcome, Stored, as_loaded, compare, item_of
from retention_assets.policy.datahub import AspectEntry, policies_for
from retention_assets.policy.language import Policies, load_policies
from retention_assets.policy.model import Hold, Policy
from retention_assets.policy.purge import purge_of
from retention_assets.policy.scope import digests
from retention_assets.policy.visibility import VisibilityRule
from retention_assets.settings.model import Settings
from retention_assets.settings.yaml import yaml_files
from retention_assets.stores.aspects.settings import AspectsSettings


@dataclass(frozen=True)
class RulesInForce:
    """What is in force for the datasets of one log: DataHub entries have become policies about the datasets that they win."""

    policies: tuple[Policy, ...]
    holds: tuple[Hold, ...]
    # Datasets whose store the settings do not know: DataHub entries were applied to them by the form of their name.
    guessed: tuple[str, ...] = ()
    # By the name of a policy the version of the policy book that it is. What is of no book has no version.
    versions: Mapping[str, int] = field(default_factory=dict)
    visibility: tuple[VisibilityRule, ...] = ()


def rules_for(policies: Policies, datasets: Sequence[str], settings: Settings) -> RulesInForce:
    """The rules in force for some datasets. DataHub entries apply to `aspects` stores, each with its own way of counting."""
    own = list(policies.policies)
    guessed: list[str] = []
    if policies.entries:
        for store, names in by_store(datasets).items():
            found = settings.store(store)
            if isinstance(found, AspectsSettings):
                own += policies_for(policies.entries, names, found.current_counts)
            elif found is None:
                mine = policies_for(policies.entries, names)
                guessed += [name for policy in mine for name in policy.datasets.include]
                own += mine
    return RulesInForce(tuple(own), policies.holds, tuple(guessed), visibility=policies.visibility)


def rules_of_book(
    stored: Iterable[Stored], order: Sequence[str], holds: Sequence[Hold], datasets: Sequence[str], settings: Settings
) -> RulesInForce:
    """The same from entries of the policy book. Credit goes in the order of the files, then by name."""
    place = {name: number for number, name in enumerate(order)}
    ordered = sorted(stored, key=lambda one: (place.get(one.name, len(place)), one.name))
    items = [_item(one) for one in ordered]
    policies = tuple(item for item in items if isinstance(item, Policy))
    entries = tuple(item for item in items if isinstance(item, AspectEntry))
    readable = tuple(item for item in items if isinstance(item, VisibilityRule))
    rules = rules_for(Policies(policies, tuple(holds), entries, readable), datasets, settings)
    return replace(rules, versions={one.name: one.version for one in ordered})


def _item(stored: Stored) -> BookItem:
    item = item_of(stored.name, stored.content)
    if item is None:
        # A rule that is left out because nobody understands it could be the one that keeps.
        raise Refused(
            f"Version {stored.version} of policy {stored.name} in the policy book was written by another release, which this"
            " one does not understand. Load the files anew, or run the release that wrote it; until then nothing is judged."
        )
    return item


@dataclass(frozen=True)
class Rulebook:
    """The files as they are now, and what loading them into the book decided of each entry."""

    ledger: Ledger
    settings: Settings
    files: Policies
    decisions: tuple[BookDecision, ...]
    # The book as it will be, where it is only foreseen; otherwise it is asked.
    book: tuple[Stored, ...] | None = None
    # What is to be said besides of where entries come from.
    warnings: tuple[str, ...] = ()
    # The files are on another machine. Their holds are those that it was sent with, and those that the ledger knows since.
    is_remote: bool = False

    def rules(self, datasets: Sequence[str], as_of: datetime) -> RulesInForce:
        """What is in force for some datasets: the book's policies, holds of the files and of people, realms being purged."""
        order = [item.name for item in items_of(self.files)]
        holds = (*self.files.holds, *self.ledger.holds.in_force(as_of))
        book = self.ledger.policy_book.in_force() if self.book is None else self.book
        rules = rules_of_book(book, order, holds, datasets, self.settings)
        realms = [realm for realm in self.ledger.realms.all().values() if realm.status == "PURGING"]
        purges = tuple(purge_of(realm.name, realm.grace) for realm in realms)
        versions = {**rules.versions, **{purge.name: 1 for purge in purges}}
        return replace(rules, policies=(*purges, *rules.policies), versions=versions)

    @property
    def entries(self) -> tuple[AspectEntry, ...]:
        """The DataHub entries of the book."""
        book = self.ledger.policy_book.in_force() if self.book is None else self.book
        return tuple(item for item in map(_item, book) if isinstance(item, AspectEntry))

    def file_holds(self) -> Callable[[], tuple[Hold, ...]]:
        """The holds of the policy files, read anew whenever a file has changed. A file that is broken by then raises."""
        if self.is_remote:
            # A hold that is gone from the files since holds on until the run is over: nobody here can know who took it out.
            return lambda: (*self.files.holds, *(one for one in self.ledger.holds.of_files() if one not in self.files.holds))
        # They may have changed since they were read for this rulebook, so they are read once more.
        seen: list[tuple[str, int, int]] | None = None
        holds = self.files.holds

        def present() -> tuple[Hold, ...]:
            nonlocal seen, holds
            if (now := _stamps(self.settings)) != seen:
                holds = read_policies(self.settings).holds
                seen = now
            return holds

        return present

    @property
    def drifted(self) -> tuple[str, ...]:
        """What a person has to be told about entries whose stored version differs from the files."""
        return (*self.warnings, *(decision.warning for decision in self.decisions if decision.warning))


def items_of(files: Policies) -> list[BookItem]:
    """What of the files goes into the book, in its order. Holds do not: they are placed and released, not amended."""
    return [*files.policies, *files.entries, *files.visibility]


def files_of(settings: Settings) -> list[Path]:
    """The policy files that are there."""
    return [file for path in settings.policies if path.exists() for file in yaml_files(path)]


def holds_of_files(settings: Settings) -> tuple[Hold, ...]:
    """The holds of the policy files; none where there are no files."""
    return read_policies(settings).holds if files_of(settings) else ()


def _stamps(settings: Settings) -> list[tuple[str, int, int]]:
    """The policy files with their sizes and times: another list if any of them was changed, added or removed."""
    return [(str(file), (about := file.stat()).st_size, about.st_mtime_ns) for file in files_of(settings)]


def load_rulebook(ledger: Ledger, settings: Settings, actor: str, as_of: datetime | None = None) -> Rulebook:
    """Load the policy files into the book. A broken file stops here: a rule that is skipped could be one that keeps.

    `as_of` is the present where the clock is simulated: an entry of visibility waits from then on.
    """
    files = read_policies(settings)
    entries = [as_loaded(item) for item in items_of(files)]
    present = ledger.clock.present(as_of) if as_of and settings.clock.simulated else None
    decisions = ledger.policy_book.load(entries, actor, settings.overwrite_user_policies, _aspects(settings), present)
    ledger.holds.note_files(files.holds, actor)
    return Rulebook(ledger, settings, files, tuple(decisions))


def foreseen_rulebook(ledger: Ledger, settings: Settings, as_of: datetime) -> Rulebook:
    """What loading the files would come to. Nothing is written: a run loads them, so that book and verdicts change together."""
    files = read_policies(settings)
    entries = [as_loaded(item) for item in items_of(files)]
    newest = ledger.policy_book.newest()
    decisions = compare(newest, entries, settings.overwrite_user_policies, _aspects(settings))
    written = (one.written("", as_of) for one in decisions if one.outcome is LoadOutcome.WRITTEN)
    book = {one.name: one for one in (*newest, *written)}
    return Rulebook(ledger, settings, files, tuple(decisions), tuple(one for one in book.values() if not one.revoked))


def read_policies(settings: Settings) -> Policies:
    """The policy files, as they are now."""
    return load_policies(settings.policies, {store.name for store in settings.stores}, settings.needing_grace)


def _aspects(settings: Settings) -> list[str]:
    return [store.name for store in settings.stores if isinstance(store, AspectsSettings)]


def rules_digests(rules: RulesInForce, datasets: Sequence[str], as_of: datetime) -> list[str]:
    """For each dataset a text that is another one whenever other rules could reach it: policies, holds, realms being purged.

    Where a policy reaches is left out of its words: a DataHub entry that wins one dataset more is the same to all others.
    """
    policies = [(one.datasets, json.dumps([one.name, rules.versions.get(one.name), _words(one)])) for one in rules.policies]
    holds = [hold for hold in rules.holds if hold.until is None or as_of < hold.until]
    policies += [(hold.datasets, hold.model_dump_json(by_alias=True)) for hold in holds]
    policies += [(rule.datasets, rule.model_dump_json(by_alias=True)) for rule in rules.visibility]
    return digests(datasets, policies)


def _words(policy: Policy) -> list[object]:
    return [policy.model_dump_json(by_alias=True, exclude={"datasets"}), sorted(policy.datasets.with_.items())]
