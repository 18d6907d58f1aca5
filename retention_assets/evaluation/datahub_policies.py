"""Take the policies that people made in DataHub into the policy book, for stores with `datahub_policies: read`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from retention_assets.datasets import by_store
from retention_assets.environment import Environment
from retention_assets.errors import Refused, suggest
from retention_assets.evaluation.rules_in_force import Rulebook, load_rulebook, read_policies
from retention_assets.ledger import Ledger
from retention_assets.policy.book import LoadOutcome
from retention_assets.policy.datahub import ALL, AspectEntry
from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.protocol import call_store


@dataclass(frozen=True)
class LoadedRules:
    """Rulebook with DataHub's entries, and by store why its policies can't be read."""

    rulebook: Rulebook
    unreadable: dict[str, str]

    def refuse_unreadable(self, datasets: Iterable[str]) -> None:
        """Refuse to judge datasets of a store whose own policies can't be read: one of them could keep data."""
        for store in by_store(datasets):
            if store in self.unreadable:
                raise Refused(self.unreadable[store])


def load_rules(
    ledger: Ledger, environment: Environment, actor: str, as_of: datetime | None = None, record: Ledger | None = None
) -> LoadedRules:
    """Take over what people wrote in DataHub, then load the policy files: an entry that differs there is drift."""
    warnings, unreadable = list[str](), dict[str, str]()
    for store in reading_stores(environment):
        try:
            warnings += _take_over(ledger, environment, store, actor)
        except Refused as fault:
            unreadable[store] = str(fault)
    rulebook = load_rulebook(ledger, environment.settings, actor, as_of, record)
    return LoadedRules(replace(rulebook, warnings=tuple(warnings)), unreadable)


def reading_stores(environment: Environment) -> list[str]:
    return [one.name for one in environment.settings.stores if one.reads_policies]


def _take_over(ledger: Ledger, environment: Environment, name: str, actor: str) -> list[str]:
    from retention_assets.stores.aspects.store import AspectsStore

    store = environment.stores([name])[name]
    if not isinstance(store, AspectsStore):
        return []
    entries = call_store(store, store.policies)
    files = read_policies(environment.settings)
    everything = environment.settings.overwrite_user_policies
    forced = {entry.name for entry in files.entries if entry.force_overwrite or everything}
    decisions = ledger.policy_book.take_over(entries, f"datahub:{name}", actor, forced)
    return [one.decision.reason for one in decisions if one.decision.outcome is not LoadOutcome.SKIPPED]


def warn_of_unknown(entries: Iterable[AspectEntry], datasets: Sequence[str], environment: Environment) -> list[str]:
    """Warn of entries whose entity or aspect occurs in no row of the `aspects` stores: it is probably misspelt."""
    stores = {one.name for one in environment.settings.stores if isinstance(one, AspectsSettings)}
    names = [name.partition("/")[2] for store, own in by_store(datasets).items() if store in stores for name in own]
    words = {"entity": {name.partition(".")[0] for name in names}, "aspect": {name.partition(".")[2] for name in names}}
    if not names:
        return []
    warnings = []
    for entry in entries:
        for kind, word in (("entity", entry.entity), ("aspect", entry.aspect)):
            if word != ALL and word not in words[kind]:
                remedy = suggest(word, sorted(words[kind])) or ""
                warnings.append(
                    f"DataHub entry '{entry.entity}.{entry.aspect}': no row has the {kind} {word}. {remedy}".rstrip()
                )
    return warnings
