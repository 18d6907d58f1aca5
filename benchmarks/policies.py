"""The policies that every contender applies, written once: as ours, and as the numbers that the others put into their queries.

Belongs here: three rules as a data platform has them. Old raw views, counted on every branch; failed writes; and what lies on
feature branches alone, judged by those branches. They need three scopes (all branches, features, main) and both ways to count.
"""

from datetime import datetime

from benchmarks.environments import AS_OF
from retention_assets.policy import Policy, micros

OLD_DAYS, OLD_VIEWS = 30, 3
FAILED_DAYS = 3
FEATURE_DAYS, FEATURE_TRANSACTIONS = 7, 4
FEATURES = "feature/"

DOCUMENTS = (
    {
        "name": "old-views",
        "datasets": {"include": ["lake/*"]},
        "select": {"older_than": f"{OLD_DAYS}d", "beyond": {"views": OLD_VIEWS}},
    },
    {
        "name": "failed",
        "datasets": {"include": ["lake/*"]},
        "select": {"older_than": f"{FAILED_DAYS}d", "status": ["ABORTED"]},
    },
    {
        "name": "features",
        "datasets": {"include": ["lake/*"]},
        "branches": {"include": [f"{FEATURES}*"], "not_in": "main"},
        "select": {"older_than": f"{FEATURE_DAYS}d", "beyond": {"transactions": FEATURE_TRANSACTIONS}},
    },
)
# What the newest transactions are counted by, each alone.
COUNTS = {
    "beyond.transactions": {"transactions": 7},
    "three periods": {"daily": 7, "weekly": 5, "monthly": 12},
    "three periods of a time zone": {"hourly": 24, "daily": 7, "yearly": 3, "zone": "Europe/Berlin"},
    "bytes": {"bytes": "10MiB"},
}
COUNTING = {
    name: Policy.model_validate({"name": "counts", "datasets": {"include": ["lake/*"]}, "select": {"beyond": beyond}})
    for name, beyond in COUNTS.items()
}
POLICIES = tuple(Policy.model_validate(document) for document in DOCUMENTS)


def bound(days: int, as_of: datetime = AS_OF) -> int:
    """The instant before which something is old enough, in microseconds."""
    return micros(as_of) - days * 86_400_000_000
