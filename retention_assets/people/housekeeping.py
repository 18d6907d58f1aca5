"""Postpones what a store would expire too early, as sweep/postpone_expiry.py decides."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.evaluation.keepers import Keepers
from retention_assets.people.command import command
from retention_assets.people.operation import AsOf, Flags, Kind, RecordedRequest, Result, operation
from retention_assets.policy.sentences import count
from retention_assets.render.page import Count, Minute, Table
from retention_assets.stores.protocol import Store, call_store
from retention_assets.sweep.postpone_expiry import PostponementResult, postpone_expiry, postpone_expiry_dry_run


class HousekeepingRequest(RecordedRequest):
    """Stores whose expiry is postponed; by default all that expire rows by themselves."""

    stores: Annotated[tuple[str, ...], Flags("-s", "--store", metavar="NAME")] = Field(
        default=(), description="Only this store; by default every store that expires rows by itself."
    )
    as_of: AsOf = Field(
        default=None, description="Look ahead from this instant, such as 2026-03-01 or 'in 7d'; now by default."
    )
    dry_run: bool = Field(default=False, description="Show what would be postponed; change nothing.")


@operation(Kind.ACT, "retention housekeeping --dry-run", "retention housekeeping -s ods", progress="reading what expires")
def housekeeping(request: HousekeepingRequest, environment: Environment) -> Result:
    """Postpone rows that a database would expire too early, and list what expires tomorrow.

    Rows are too early if they are unfinished, held, or not archived as their policy requires. `ttl` in the store's settings
    says how many days ahead housekeeping looks and how long it postpones.
    """
    at = (request.as_of or environment.present()) if request.dry_run else environment.instant(request.as_of)
    stores = _stores(request, environment)
    with environment.ledger() as ledger:
        keepers = Keepers.of_settings(ledger, environment.settings)
        if request.dry_run:
            results = postpone_expiry_dry_run(ledger, stores, at, keepers)
        else:
            results = postpone_expiry(ledger, stores, at, keepers, request.actor)
    postponed = sum(result.postponed for result in results)
    tomorrow = sum(kind.transactions for result in results for kind in result.tomorrow)
    # why nothing was done, and rows that could not be postponed
    troubles = [trouble for result in results for trouble in result.troubles]
    to_do = request.dry_run and postponed > 0
    sums = {"postponed": postponed, "expires_tomorrow": tomorrow}
    return Result(
        headline=f"{'To be postponed' if request.dry_run else 'Postponed'}: {count(postponed, 'transaction')}.",
        sentences=(f"Expires by itself tomorrow: {tomorrow:,}.",),
        tables=lambda: _tables(request.dry_run, results),
        next="`retention housekeeping` postpones it." if to_do else "",
        to_do=to_do,
        failures=troubles,
        failed=bool(troubles),
        data={"as_of": at, "dry_run": request.dry_run, **sums, "datasets": [asdict(result) for result in results]},
    )


_POSTPONED = (
    "dataset",
    Minute("expires before", "within"),
    Minute("postponed to", "until"),
    Count("transactions", "postponed"),
    Count("left for next time", "left"),
)
_TOMORROW = ("dataset", "type", Count("transactions"), Count("unfinished"), Count("not archived", "unarchived"))


def _tables(dry_run: bool, results: Sequence[PostponementResult]) -> list[Table]:
    rows = [result for result in results if not result.refused]
    title = "What would be postponed. Nothing was changed." if dry_run else "What was postponed"
    tomorrow = [{"dataset": result.dataset, **asdict(kind)} for result in results for kind in result.tomorrow]
    return [
        Table(title, _POSTPONED, rows, empty="No store expires anything by itself"),
        Table("What expires tomorrow", _TOMORROW, tomorrow),
    ]


def _stores(request: HousekeepingRequest, environment: Environment) -> Mapping[str, Store]:
    known = [store.name for store in environment.settings.stores]
    for name in request.stores:
        if name not in known:
            expected, remedy = f"one of {', '.join(known)}", suggest(name, known)
            raise BadInput(Problem("is no store of the settings", key="store", value=name, expected=expected, remedy=remedy))
    stores = environment.stores(request.stores or None)
    for name in request.stores:
        if not _expires(stores[name]):
            raise Refused(
                f"The store {name} expires nothing by itself, so there is nothing to postpone: its settings have no `ttl`."
            )
    return stores


def _expires(store: Store) -> bool:
    return call_store(store, lambda: store.expiry) is not None


housekeeping_command = command(housekeeping, "housekeeping")
