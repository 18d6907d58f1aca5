"""Which rules are in force for some datasets: policies as written, and DataHub entries as policies about what they win.

Belongs here: the join of policies with settings, because only settings know which stores hold aspects, and what the policy book
says is in force. Everything that judges takes `Rules`.
Does not belong here: reading files or a ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from retention_assets.errors import Refused
from retention_assets.policy.book import Stored, item_of
from retention_assets.policy.datahub import AspectEntry, policies_for
from retention_assets.policy.language import Policies
from retention_assets.policy.model import Hold, Policy
from retention_assets.settings.model import Settings
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


def rules_for(policies: Policies, datasets: Sequence[str], settings: Settings) -> RulesInForce:
    """The rules in force for some datasets. DataHub entries apply to `aspects` stores, each with its own way of counting."""
    own = list(policies.policies)
    guessed: list[str] = []
    if policies.entries:
        for store, names in _by_store(datasets).items():
            found = settings.store(store)
            if isinstance(found, AspectsSettings):
                own += policies_for(policies.entries, names, found.current_counts)
            elif found is None:
                mine = policies_for(policies.entries, names)
                guessed += [name for policy in mine for name in policy.datasets.include]
                own += mine
    return RulesInForce(tuple(own), policies.holds, tuple(guessed))


def rules_of_book(
    stored: Iterable[Stored], order: Sequence[str], holds: Sequence[Hold], datasets: Sequence[str], settings: Settings
) -> RulesInForce:
    """The same from entries of the policy book. Credit goes in the order of the files, then by name."""
    place = {name: number for number, name in enumerate(order)}
    ordered = sorted(stored, key=lambda one: (place.get(one.name, len(place)), one.name))
    items = [_item(one) for one in ordered]
    policies = tuple(item for item in items if isinstance(item, Policy))
    entries = tuple(item for item in items if isinstance(item, AspectEntry))
    rules = rules_for(Policies(policies, tuple(holds), entries), datasets, settings)
    return RulesInForce(rules.policies, rules.holds, rules.guessed, {one.name: one.version for one in ordered})


def _item(stored: Stored) -> Policy | AspectEntry:
    item = item_of(stored.name, stored.content)
    if item is None:
        # A rule that is left out because nobody understands it could be the one that keeps.
        raise Refused(
            f"Version {stored.version} of policy {stored.name} in the policy book was written by another release, which this"
            " one does not understand. Load the files anew, or run the release that wrote it; until then nothing is judged."
        )
    return item


def _by_store(datasets: Sequence[str]) -> dict[str, list[str]]:
    stores: dict[str, list[str]] = {}
    for name in datasets:
        stores.setdefault(name.partition("/")[0], []).append(name)
    return stores
