"""Which rules are in force for some datasets: policies as written, and DataHub entries as policies about what they win.

Belongs here: the join of policies with settings, because only settings know which stores hold aspects. Everything that judges
takes `Rules`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from retention_assets.policy.datahub import policies_for
from retention_assets.policy.language import Policies
from retention_assets.policy.model import Hold, Policy
from retention_assets.settings import Settings
from retention_assets.stores.kinds import AspectsSettings


@dataclass(frozen=True)
class Rules:
    """What is in force for the datasets of one log: DataHub entries have become policies about the datasets that they win."""

    policies: tuple[Policy, ...]
    holds: tuple[Hold, ...]
    # Datasets whose store the settings do not know: DataHub entries were applied to them by the form of their name.
    guessed: tuple[str, ...] = ()


def rules_for(policies: Policies, datasets: Sequence[str], settings: Settings) -> Rules:
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
    return Rules(tuple(own), policies.holds, tuple(guessed))


def _by_store(datasets: Sequence[str]) -> dict[str, list[str]]:
    stores: dict[str, list[str]] = {}
    for name in datasets:
        stores.setdefault(name.partition("/")[0], []).append(name)
    return stores
