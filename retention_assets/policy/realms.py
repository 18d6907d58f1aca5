"""Realms: their names, the policy that purges one, and the holds on PURGED and reserved realms."""

import re
from collections.abc import Collection, Mapping

from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Datasets, Hold, Policy
from retention_assets.policy.selection import Branches, Selection, Type

REALM = "realm"
# maintained like every other realm, and never purged
SYSTEM = "::system::"
RESERVED = "::"
NAME_RULE = "letters, digits, _ . and -, in parts separated by /, such as acme/sales"
_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*", re.ASCII)


def is_realm_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def may_own_datasets(name: str) -> bool:
    """Accept also the system's own realm, which nobody may change or purge."""
    return is_realm_name(name) or name == SYSTEM


def is_within(name: str, realm: str) -> bool:
    """`acme/sales` is within `acme`, `acme-eu` is not. All reserved ones are below `::`."""
    if realm == RESERVED:
        return is_reserved(name)
    return name == realm or name.startswith(f"{realm}/")


def is_reserved(name: str) -> bool:
    """True for a realm of which nothing is ever marked."""
    return name.startswith(RESERVED) and not is_within(name, SYSTEM)


def is_within_any(name: str, realms: Collection[str]) -> bool:
    return any(realm in realms for realm in with_parents(name))


def with_parents(name: str) -> list[str]:
    """List the realm and its parents, the nearest first."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def has_attributes(attributes: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Tell whether a dataset has all attributes that a scope asks for (`with`). A realm also matches those above it."""
    return all(
        is_within(attributes[key], value) if key == REALM and key in attributes else attributes.get(key) == value
        for key, value in wanted.items()
    )


_PREFIX = "::realm/"
# A DELETE owns no bytes, and a sweep may itself add one: purging it as well would never end.
PURGED_TYPES: tuple[Type, ...] = ("SNAPSHOT", "APPEND", "UPDATE", "RECORD", "OBJECT")


def of_realm(realm: str) -> Datasets:
    return Datasets.model_validate({"include": ("*",), "with": {REALM: realm}})


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
        reason=f"Realm {realm} was purged. New data in it stays until it is ACTIVE again.",
    )


def purge_of(realm: str, grace: Duration, undo: Duration) -> Policy:
    """Policy that purges a realm, whatever other policies, latest views, branches and tags say. No file can use its name."""
    return Policy.model_construct(
        name=purge_named(realm),
        description=f"Realm {realm} is being purged.",
        datasets=of_realm(realm),
        branches=Branches(reach="any"),
        select=Selection(types=PURGED_TYPES),
        grace=grace,
        undo=undo or None,
        latest_view="allow",
    )


def purge_named(realm: str) -> str:
    return f"{_PREFIX}{realm}"


def realm_of(policy: str) -> str | None:
    return policy.removeprefix(_PREFIX) if policy.startswith(_PREFIX) else None
