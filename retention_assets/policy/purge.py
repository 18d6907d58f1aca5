"""The system's policy that purges a realm, and the system's holds on PURGED and reserved realms.

The policy looks at no other policy, and no latest view, branch or tag stops it; holds do (frames decide so).
"""

from retention_assets.policy.durations import Duration
from retention_assets.policy.fields import Type
from retention_assets.policy.model import Branches, Datasets, Hold, Policy, Selection
from retention_assets.policy.realms import REALM, RESERVED

_PREFIX = "::realm/"
# A DELETE owns no bytes, and a sweep may itself add one: purging it as well would never end.
PURGED_TYPES: tuple[Type, ...] = ("SNAPSHOT", "APPEND", "UPDATE", "RECORD", "OBJECT")


def of_realm(realm: str) -> Datasets:
    return Datasets.model_validate({"include": ("*",), "with": {REALM: realm}})


# Nothing of a reserved realm is ever marked.
RESERVED_HOLD = Hold.model_construct(
    name="reserved realm",
    datasets=of_realm(RESERVED),
    reason="Names of realms that begin with :: are reserved.",
)


def purged_hold(realm: str) -> Hold:
    """Hold what appears in a realm that is PURGED until the realm begins anew."""
    return Hold.model_construct(
        name=f"realm {realm} is PURGED",
        datasets=of_realm(realm),
        reason=f"Realm {realm} was purged. What appears in it stays until it is ACTIVE again.",
    )


def purge_of(realm: str, grace: Duration) -> Policy:
    """Policy that purges a realm. No file can use its name."""
    return Policy.model_construct(
        name=purge_named(realm),
        description=f"Realm {realm} is being purged.",
        datasets=of_realm(realm),
        branches=Branches(reach="any"),
        select=Selection(types=PURGED_TYPES),
        grace=grace,
        latest_view="allow",
    )


def purge_named(realm: str) -> str:
    """Name of the policy that purges a realm."""
    return f"{_PREFIX}{realm}"


def realm_of(policy: str) -> str | None:
    """Realm that a policy of this name purges; None for any other policy."""
    return policy.removeprefix(_PREFIX) if policy.startswith(_PREFIX) else None
