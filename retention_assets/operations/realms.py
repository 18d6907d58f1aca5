"""Realms: what a person says of one. Purging marks everything of it, so nobody does it in passing.

Belongs here: the confirmation that purging needs, and the sentence that says what it does.
"""

from dataclasses import dataclass

from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.ledger.realms import Realm
from retention_assets.operations.request import NamedRequest
from retention_assets.policy.durations import Duration

PURGING = "PURGING"


@dataclass(frozen=True, kw_only=True)
class RealmRequest(NamedRequest):
    """What a realm is to become. Without `grace` the grace of the marks that purging makes stays as it is."""

    status: str
    grace: Duration | None = None
    confirmed: bool = False


def purge_warning(name: str, grace: Duration | None, environment: Environment) -> str:
    """What purging a realm does, and when."""
    if grace is None:
        with environment.ledger_if_any() as ledger:
            grace = ledger.realms.of(name).grace if ledger else Duration()
    due = f"{grace.words()} later" if grace else "at once"
    return (
        f"Purging {name}: the next evaluation marks everything of it, whatever the policies say; holds still stop it. The marks"
        f" are due {due}."
    )


def change_realm(request: RealmRequest, environment: Environment) -> Realm:
    """Change a realm. Purging is refused unless it was confirmed."""
    if request.status == PURGING and not request.confirmed:
        warning = purge_warning(request.name, request.grace, environment)
        raise Refused(f"Nothing was changed. {warning} If that is meant, say --yes, or set `yes: true` in a launchpad.")
    with environment.ledger() as ledger:
        return ledger.realms.change(request.name, request.status, request.actor, request.reason, request.grace)
