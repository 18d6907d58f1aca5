"""What is shown of policies: what loading did with each, and what it means in words.

Belongs here: decisions of the policy book as a table.
"""

from collections.abc import Sequence

import dagster as dg

from retention_assets.policy.book import BookDecision, LoadOutcome, Stored, item_of
from retention_assets.policy.datahub import sentence as entry_sentence
from retention_assets.policy.model import Policy
from retention_assets.policy.sentences import sentence
from retention_assets.render.dagster_tables import MOST_SHOWN, table

_COLUMNS = {"policy": "string", "sentence": "string", "outcome": "string", "version": "int", "reason": "string"}
_ABOUT = {
    "outcome": "written, skipped (book and file say the same), drifted (a person's version stays) or absent (in no file)",
    "version": "the one in force",
    "sentence": "the version in force, in words",
    "reason": "why loading did what it did, where that is not a matter of course",
}
# What a person has to look at stands first, should the table be cut.
_ORDER = (LoadOutcome.DRIFTED, LoadOutcome.ABSENT, LoadOutcome.WRITTEN, LoadOutcome.SKIPPED)


def policy_metadata(decisions: Sequence[BookDecision], in_force: Sequence[Stored]) -> dg.MetadataValue:
    """One row per entry, in the order of the files among those that ended alike."""
    stored = {one.name: one for one in in_force}
    rows = sorted(decisions, key=lambda one: _ORDER.index(one.outcome))[:MOST_SHOWN]
    return table(
        _COLUMNS,
        (
            {
                "policy": one.name,
                "outcome": one.outcome.value.lower(),
                "version": stored[one.name].version if one.name in stored else None,
                "sentence": _sentence(stored.get(one.name)),
                # That book and file say the same is said by the outcome.
                "reason": "" if one.outcome is LoadOutcome.SKIPPED else one.reason,
            }
            for one in rows
        ),
        _ABOUT,
    )


def _sentence(stored: Stored | None) -> str:
    if stored is None:
        return "It is not in force."
    item = item_of(stored.name, stored.content)
    if item is None:
        return "This release no longer understands it."
    return sentence(item) if isinstance(item, Policy) else entry_sentence(item)
