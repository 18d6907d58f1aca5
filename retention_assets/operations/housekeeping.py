"""Postpone what a store would expire by itself and must not yet (decided in sweep/postpone_expiry.py)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.operations.request import Request
from retention_assets.policy.model import Hold
from retention_assets.stores.protocol import Store, call_store
from retention_assets.sweep.postpone_expiry import PostponementResult, postpone_expiry, postpone_expiry_dry_run


@dataclass(frozen=True, kw_only=True)
class HousekeepingRequest(Request):
    """Instant (default: now), stores (default: every one that expires rows by itself), holds of policy files."""

    as_of: datetime | None = None
    stores: tuple[str, ...] = ()
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True)
class HousekeepingResult:
    """Rows that were postponed, or would be in a dry run, and rows that expire tomorrow."""

    as_of: datetime
    dry_run: bool
    datasets: tuple[PostponementResult, ...]

    @property
    def troubles(self) -> tuple[str, ...]:
        """Reasons why nothing was done, and rows that could not be postponed."""
        return tuple(words for one in self.datasets for words in one.troubles)

    def as_dict(self) -> dict[str, Any]:
        return {"as_of": self.as_of, "dry_run": self.dry_run, "datasets": [asdict(one) for one in self.datasets]}


def run_housekeeping(request: HousekeepingRequest, environment: Environment) -> HousekeepingResult:
    """Postpone what must not expire yet."""
    at, stores = environment.instant(request.as_of), _stores(request, environment)
    with environment.ledger() as ledger:
        found = postpone_expiry(ledger, stores, at, request.actor, request.holds)
    return HousekeepingResult(at, False, tuple(found))


def preview_housekeeping(request: HousekeepingRequest, environment: Environment) -> HousekeepingResult:
    """Preview what housekeeping would postpone now. Changes nothing."""
    at, stores = request.as_of or environment.present(), _stores(request, environment)
    with environment.ledger() as ledger:
        found = postpone_expiry_dry_run(ledger, stores, at, request.holds)
    return HousekeepingResult(at, True, tuple(found))


def _stores(request: HousekeepingRequest, environment: Environment) -> Mapping[str, Store]:
    known = [store.name for store in environment.settings.stores]
    for name in request.stores:
        if name not in known:
            guess = nearest(name, known)
            remedy = f"Did you mean {guess}?" if guess else None
            expected = f"one of {', '.join(known)}"
            raise BadInput(Problem("is no store of the settings", key="store", value=name, expected=expected, remedy=remedy))
    stores = environment.stores(request.stores or None)
    for name in request.stores:
        if not _expires(stores[name]):
            raise Refused(
                f"The store {name} expires nothing by itself, so there is nothing to postpone: its settings have no `ttl`."
            )
    return stores


def _expires(store: Store) -> bool:
    return call_store(store, lambda: store.capabilities).expiry
