"""Rules in force: policy files loaded into the policy book, joined with holds, realms being purged and DataHub entries.

Everything that judges takes `RulesInForce`. Loading is decided in policy/book.py.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from retention_assets.datasets import by_store
from retention_assets.environment import Environment
from retention_assets.errors import Refused, suggest
from retention_assets.evaluation.keepers import Keepers, files_of, folders_of_policies, read_policies
from retention_assets.ledger import Ledger
from retention_assets.policy.book import BookItem, Loaded, Stored, as_loaded, item_of
from retention_assets.policy.datahub import ALL, AspectEntry, policies_for
from retention_assets.policy.language import Policies, digests
from retention_assets.policy.loading import BookDecision, LoadOutcome, compare
from retention_assets.policy.model import Keeper, Policy, VisibilityRule
from retention_assets.policy.realms import purge_of
from retention_assets.settings.model import Settings
from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.protocol import call_store


@dataclass(frozen=True)
class RulesInForce:
    """Rules for the datasets of one log; DataHub entries have become policies about the datasets that they win."""

    policies: tuple[Policy, ...]
    # holds and retain rules
    holds: tuple[Keeper, ...]
    # Datasets of stores that the settings lack: DataHub entries were applied by the form of the name.
    guessed: tuple[str, ...] = ()
    # policy name to version in the policy book; no entry for a policy of no book
    versions: Mapping[str, int] = field(default_factory=dict)
    visibility: tuple[VisibilityRule, ...] = ()


def rules_for(policies: Policies, datasets: Sequence[str], settings: Settings) -> RulesInForce:
    """Build the rules for some datasets. DataHub entries apply to `aspects` stores, by each one's `current_counts`."""
    own = list(policies.policies)
    guessed: list[str] = []
    if policies.entries:
        for store, names in by_store(datasets).items():
            store_settings = settings.store(store)
            if isinstance(store_settings, AspectsSettings):
                own += policies_for(policies.entries, names, store_settings.current_counts)
            elif store_settings is None:
                applied = policies_for(policies.entries, names)
                guessed += [name for policy in applied for name in policy.datasets.include]
                own += applied
    return RulesInForce(tuple(own), policies.holds, tuple(guessed), visibility=policies.visibility)


def drifted_entries(book: Sequence[Stored], loaded: Sequence[Loaded]) -> frozenset[str]:
    differing = (LoadOutcome.DRIFTED, LoadOutcome.WRITTEN)
    return frozenset(decision.name for decision in compare(book, loaded) if decision.stored and decision.outcome in differing)


def justifying_rules(
    book: Sequence[Stored],
    files: Policies,
    drifted: Collection[str],
    holds: Sequence[Keeper],
    datasets: Sequence[str],
    settings: Settings,
) -> Iterator[tuple[RulesInForce, ...]]:
    """Yield the alternatives that justify a mark today: all rules of one of them have to select it.

    Where an entry differs between file and book, both have to. Of the others the one with the shortest grace is named.
    """
    items, written = [_item(stored) for stored in book], {item.name: item for item in items_of(files)}

    def rules(items: Sequence[BookItem]) -> RulesInForce:
        unsorted = rules_for(_sorted_by_kind(items, holds), datasets, settings)
        return replace(unsorted, policies=tuple(sorted(unsorted.policies, key=lambda policy: policy.grace.length)))

    yield (rules([item for item in items if isinstance(item, Policy) and item.name not in drifted]),)
    yield from (
        (rules([item]), rules([written[item.name]])) for item in items if isinstance(item, Policy) and item.name in drifted
    )
    # The most specific DataHub entry wins, so they are asked together.
    entries = [item for item in items if isinstance(item, AspectEntry)]
    if entries:
        in_files = [written[item.name] if item.name in drifted else item for item in entries]
        yield (rules(entries),) if in_files == entries else (rules(entries), rules(in_files))


def _item(stored: Stored) -> BookItem:
    item = item_of(stored.name, stored.content)
    if item is None:
        # An entry that this release can't read could be the one that keeps.
        raise Refused(
            f"Version {stored.version} of policy {stored.name} in the policy book was written by another release, and this "
            "one can't read it. Load the files again, or use the release that wrote it. Until then nothing is judged."
        )
    return item


def _sorted_by_kind(items: Iterable[BookItem], holds: Sequence[Keeper] = ()) -> Policies:
    items = list(items)
    entries = tuple(item for item in items if isinstance(item, AspectEntry))
    visibility = tuple(item for item in items if isinstance(item, VisibilityRule))
    return Policies(tuple(item for item in items if isinstance(item, Policy)), tuple(holds), entries, visibility)


@dataclass(frozen=True)
class Rulebook:
    ledger: Ledger
    settings: Settings
    files: Policies
    keepers: Keepers
    decisions: tuple[BookDecision, ...] = ()
    # the book after the next load, where that is only foreseen; None: the ledger is asked
    book: tuple[Stored, ...] | None = None
    # further warnings about the origin of entries
    warnings: tuple[str, ...] = ()
    # reason why the files revoke nothing and nothing is swept by them
    unaccepted: str | None = None
    # Stores whose own policies can't be read, and why. One could keep data: nothing of such a store is judged or swept.
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def rules(self, datasets: Sequence[str], as_of: datetime) -> RulesInForce:
        """Join the book's policies, holds of files and people, and realms being purged into rules for these datasets.

        Of several policies that select a transaction the first is named: in the order of the files, then by name.
        """
        place = {item.name: number for number, item in enumerate(items_of(self.files))}
        with self.ledger.database.one_moment():
            in_force, keepers, realms = self.in_force, self.keepers.in_force(as_of), self.ledger.realms.all().values()
        book = sorted(in_force, key=lambda entry: (place.get(entry.name, len(place)), entry.name))
        rules = rules_for(_sorted_by_kind(map(_item, book), keepers), datasets, self.settings)
        # none with less grace than the settings allow
        purges = tuple(
            purge_of(realm.name, self.settings.realms.grace_of(realm.grace), self.settings.realms.undo)
            for realm in realms
            if realm.status == "PURGING"
        )
        versions = {entry.name: entry.version for entry in book} | {purge.name: 1 for purge in purges}
        return replace(rules, policies=(*purges, *rules.policies), versions=versions)

    @property
    def in_force(self) -> Sequence[Stored]:
        return self.ledger.policy_book.in_force() if self.book is None else self.book

    @property
    def entries(self) -> tuple[AspectEntry, ...]:
        return _sorted_by_kind(map(_item, self.in_force)).entries

    @property
    def drifted(self) -> tuple[str, ...]:
        """Warnings about entries whose stored version differs from the files."""
        own = (self.unaccepted,) if self.unaccepted else ()
        return (*own, *self.warnings, *(decision.warning for decision in self.decisions if decision.warning))


def items_of(files: Policies) -> list[BookItem]:
    """Entries for the book, in its order. Holds are not among them: they are placed and released, not amended."""
    return [*files.policies, *files.entries, *files.visibility]


def policies_to_accept(ledger: Ledger, files: Policies, settings: Settings) -> dict[str, list[str]] | None:
    """Describe files and book that have nothing in common; None where they have something, or nothing was loaded yet."""
    if ledger.policy_book.loaded_files() & {str(file.resolve()) for file in files_of(settings)}:
        return None
    entries, holds = [item.name for item in items_of(files)], [row.keeper for row in ledger.holds.recorded().files]
    book = [entry.name for entry in ledger.policy_book.in_force() if entry.system]
    if not (book or holds) or set(entries) & set(book) or any(hold in holds for hold in files.holds):
        return None
    return {"files": sorted([*entries, *(hold.name or "" for hold in files.holds)]), "book": sorted(book)}


def _unaccepted_rulebook(ledger: Ledger, record: Ledger, files: Policies, settings: Settings) -> "Rulebook | None":
    names = policies_to_accept(record, files, settings)
    if names is None or names in record.accepted_policies():
        return None
    where = ", ".join(folders_of_policies(settings))
    has = "share nothing with those loaded last" if names["files"] else "are empty, but some were loaded before"
    last = ", ".join(names["book"][:3]) or "holds alone"
    fault = (
        f"The policies at {where} {has} ({last}), so they are not loaded, they revoke nothing, and nothing is swept. Set "
        "`policies` in the settings to the right folder. If this is the right one, run `retention audit accept --policies "
        "--reason …`, which revokes the earlier policies."
    )
    kept = [row.keeper for row in record.holds.recorded().files if row.keeper not in files.holds]
    return Rulebook(ledger, settings, files, Keepers.of_run(ledger, settings, kept), unaccepted=fault)


def load_rulebook(
    ledger: Ledger, settings: Settings, actor: str, as_of: datetime | None = None, record: Ledger | None = None
) -> Rulebook:
    """Load the policy files into the book. Raises at a broken file: a rule that is skipped could be one that keeps.

    `as_of` is the present where the clock is simulated: the wait of a visibility entry begins there. `record` is the real
    ledger, which knows what was loaded last, where `ledger` is a copy.
    """
    files, record = read_policies(settings), record or ledger
    if unaccepted := _unaccepted_rulebook(ledger, record, files, settings):
        return unaccepted
    entries = [as_loaded(item) for item in items_of(files)]
    present = ledger.clock.present(as_of) if as_of and settings.clock.simulated else None
    names = [str(file.resolve()) for file in files_of(settings)]
    overwrite, stores = settings.overwrite_user_policies, aspects_stores(settings)
    decisions = ledger.policy_book.load(entries, actor, overwrite, stores, present, names)
    ledger.holds.note_files(files.holds, actor, folders_of_policies(settings))
    return Rulebook(ledger, settings, files, _keepers(ledger, record, settings), tuple(decisions))


def _keepers(ledger: Ledger, record: Ledger, settings: Settings) -> Keepers:
    # A copy has no record of files. Keepers that other folders have recorded by now count until the run ends.
    folders = frozenset(folders_of_policies(settings))
    return Keepers.of_run(ledger, settings, [row.keeper for row in record.holds.recorded().files if not row.folders <= folders])


def foreseen_rulebook(ledger: Ledger, settings: Settings, as_of: datetime) -> Rulebook:
    """Foresee what loading the files would do, and write nothing: only a run changes the book, together with verdicts."""
    files = read_policies(settings)
    if unaccepted := _unaccepted_rulebook(ledger, ledger, files, settings):
        return unaccepted
    newest = ledger.policy_book.newest()
    decisions = compare_with_files(newest, files, settings, settings.overwrite_user_policies)
    written = (decision.written("", as_of) for decision in decisions if decision.outcome is LoadOutcome.WRITTEN)
    book = {entry.name: entry for entry in (*newest, *written)}
    removed = {decision.name for decision in decisions if decision.revokes}
    in_force = tuple(entry for entry in book.values() if not entry.revoked and entry.name not in removed)
    return Rulebook(ledger, settings, files, _keepers(ledger, ledger, settings), tuple(decisions), in_force)


def compare_with_files(newest: Sequence[Stored], files: Policies, settings: Settings, overwrite: bool) -> list[BookDecision]:
    return compare(newest, [as_loaded(item) for item in items_of(files)], overwrite, aspects_stores(settings))


def aspects_stores(settings: Settings) -> list[str]:
    return [store.name for store in settings.stores if isinstance(store, AspectsSettings)]


def rules_digests(rules: RulesInForce, datasets: Sequence[str], as_of: datetime) -> list[str]:
    """Digest the policies, holds and purged realms that can reach each dataset; it changes when these do.

    A policy's scope is left out: a DataHub entry that wins one more dataset changes nothing for the others.
    """
    policies = []
    for policy in rules.policies:
        content = [policy.model_dump_json(by_alias=True, exclude={"datasets"}), sorted(policy.datasets.with_.items())]
        policies.append((policy.datasets, json.dumps([policy.name, rules.versions.get(policy.name), content])))
    holds = [hold for hold in rules.holds if hold.is_live(as_of)]
    policies += [(hold.datasets, hold.model_dump_json(by_alias=True)) for hold in holds]
    policies += [(rule.datasets, rule.model_dump_json(by_alias=True)) for rule in rules.visibility]
    return digests(datasets, policies)


def load_rules(
    ledger: Ledger, environment: Environment, actor: str, as_of: datetime | None = None, record: Ledger | None = None
) -> Rulebook:
    """Take over what people wrote in DataHub, then load the policy files: an entry that differs there is drift."""
    warnings, unreadable = list[str](), dict[str, str]()
    for store in environment.settings.stores:
        try:
            warnings += _take_over(ledger, environment, store.name, actor) if store.reads_policies else ()
        except Refused as fault:
            unreadable[store.name] = str(fault)
    rulebook = load_rulebook(ledger, environment.settings, actor, as_of, record)
    return replace(rulebook, warnings=tuple(warnings), unreadable=unreadable)


def _take_over(ledger: Ledger, environment: Environment, name: str, actor: str) -> list[str]:
    store = environment.stores([name])[name]
    entries = call_store(store, store.policies)
    files = read_policies(environment.settings)
    everything = environment.settings.overwrite_user_policies
    forced = {entry.name for entry in files.entries if entry.force_overwrite or everything}
    decisions = ledger.policy_book.take_over(entries, f"datahub:{name}", actor, forced)
    return [decision.reason for decision in decisions if decision.outcome is not LoadOutcome.SKIPPED]


def warn_of_unknown(entries: Iterable[AspectEntry], datasets: Sequence[str], environment: Environment) -> list[str]:
    """Warn of entries whose entity or aspect occurs in no row of the `aspects` stores: it is probably misspelt."""
    stores = aspects_stores(environment.settings)
    names = [name.partition("/")[2] for store, own in by_store(datasets).items() if store in stores for name in own]
    occurring = {"entity": {name.partition(".")[0] for name in names}, "aspect": {name.partition(".")[2] for name in names}}
    if not names:
        return []
    warnings = []
    for entry in entries:
        for kind, word in (("entity", entry.entity), ("aspect", entry.aspect)):
            if word != ALL and word not in occurring[kind]:
                remedy = suggest(word, sorted(occurring[kind])) or ""
                warning = f"DataHub entry '{entry.entity}.{entry.aspect}': no row has the {kind} {word}. {remedy}"
                warnings.append(warning.rstrip())
    return warnings
