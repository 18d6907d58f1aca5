"""The policy language: rules for what may go, written by people.

Pure Python: nothing here knows Dagster, Spark, the ledger or a store, and nothing here reads a clock.
"""

from retention_assets.policy.book import Loaded, Stored, as_loaded, scope_of
from retention_assets.policy.datahub import AspectEntry, policies_for
from retention_assets.policy.durations import Duration, from_micros, micros, parse_duration, parse_instant, text_of
from retention_assets.policy.globs import matches
from retention_assets.policy.language import Policies, load_policies, policy_schema
from retention_assets.policy.loading import BookDecision, LoadOutcome, compare, datasets_touched
from retention_assets.policy.model import (
    Datasets,
    Hold,
    KeepAll,
    Keeper,
    Limits,
    Policy,
    RetainRule,
    Sweep,
    VisibilityRule,
)
from retention_assets.policy.realms import purge_named, purge_of
from retention_assets.policy.selection import (
    BRANCHED,
    INDEPENDENT,
    STATUSES,
    AttributeTime,
    Beyond,
    Branches,
    Newest,
    OlderThan,
    Selection,
    Window,
)
from retention_assets.policy.sentences import SCHEDULED, deletion_message, hold_sentence, sentence
from retention_assets.policy.where import parse_condition

__all__ = [
    "BRANCHED", "INDEPENDENT", "SCHEDULED", "STATUSES", "AspectEntry", "AttributeTime", "Beyond", "BookDecision", "Branches",
    "Datasets", "Duration", "Hold", "KeepAll", "Keeper", "Limits", "LoadOutcome", "Loaded", "Newest", "OlderThan",
    "Policies", "Policy", "RetainRule", "Selection", "Stored", "Sweep", "VisibilityRule", "Window", "as_loaded", "compare",
    "datasets_touched", "deletion_message", "from_micros", "hold_sentence", "load_policies", "matches", "micros",
    "parse_condition", "parse_duration", "parse_instant", "policies_for", "policy_schema", "purge_named", "purge_of",
    "scope_of", "sentence", "text_of",
]  # fmt: skip
