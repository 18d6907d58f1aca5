"""Names of realms: paths of checked parts, some of them reserved for the system."""

import re
from collections.abc import Collection, Mapping

REALM = "realm"
# maintained like every other realm, and never purged
SYSTEM = "::system::"
RESERVED = "::"
NAME_RULE = "letters, digits, _ . and -, in parts separated by /, such as acme/sales"
_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*", re.ASCII)


def is_realm_name(name: str) -> bool:
    """Accept the names that a person may give to a realm."""
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
    """Nothing of a reserved realm is ever marked."""
    return name.startswith(RESERVED) and not is_within(name, SYSTEM)


def is_within_any(name: str, realms: Collection[str]) -> bool:
    return any(one in realms for one in with_parents(name))


def with_parents(name: str) -> list[str]:
    """The realm itself, then all that it is below."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def has_attributes(said: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Tell whether a dataset has all attributes that a scope asks for (`with`). A realm also matches those above it."""
    return all(
        is_within(said[key], value) if key == REALM and key in said else said.get(key) == value for key, value in wanted.items()
    )
