"""Postpones what a store would expire by itself and must not yet (decided in sweep/postpone_expiry.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import click
from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.evaluation.rules_in_force import holds_of_files
from retention_assets.people.command import ask, options
from retention_assets.people.common.options import FORMAT, examples
from retention_assets.people.common.output import ExitCode, print_json, print_tables, say_next
from retention_assets.people.operation import Flags, Instant, Kind, Request, Result, operation
from retention_assets.render.terminal import table
from retention_assets.render.text import minute_of
from retention_assets.stores.protocol import Store, call_store
from retention_assets.sweep.postpone_expiry import PostponementResult, postpone_expiry, postpone_expiry_dry_run


class HousekeepingRequest(Request):
    """Stores of which expiry is to be postponed; by default every one that expires rows by itself."""

    stores: Annotated[tuple[str, ...], Flags("-s", "--store", metavar="NAME")] = Field(
        default=(), description="Only this store; every store that expires rows by itself when left out."
    )
    as_of: Annotated[Instant | None, Flags("-t", "--as-of")] = Field(
        default=None, description="Look ahead from this instant, such as 2026-03-01 or 'in 7d'; the present when left out."
    )
    dry_run: bool = Field(default=False, description="Show what would be postponed, and change nothing.")


class HousekeepingResult(Result):
    """Rows that were postponed, or would be in a dry run, and rows that expire tomorrow."""

    as_of: datetime
    dry_run: bool
    datasets: tuple[PostponementResult, ...]

    @property
    def headline(self) -> str:
        if self.troubles:
            return "\n".join(self.troubles)
        return f"{self.postponed:,} transactions {'would be' if self.dry_run else 'were'} postponed."

    def sentences(self) -> Sequence[str]:
        return (f"By itself, tomorrow expires: {self.expires_tomorrow:,}.",)

    @property
    def postponed(self) -> int:
        return sum(each.postponed for each in self.datasets)

    @property
    def expires_tomorrow(self) -> int:
        return sum(kind.transactions for each in self.datasets for kind in each.tomorrow)

    @property
    def troubles(self) -> tuple[str, ...]:
        """Reasons why nothing was done, and rows that could not be postponed."""
        return tuple(trouble for each in self.datasets for trouble in each.troubles)

    @property
    def failed(self) -> bool:
        return bool(self.troubles)

    def as_dict(self) -> dict[str, Any]:
        sums = {"postponed": self.postponed, "expires_tomorrow": self.expires_tomorrow}
        return {"as_of": self.as_of, "dry_run": self.dry_run, **sums, "datasets": [asdict(each) for each in self.datasets]}


@operation(Kind.ACT, "retention housekeeping --dry-run", "retention housekeeping -s ods", progress="reading what expires")
def housekeeping(request: HousekeepingRequest, environment: Environment) -> HousekeepingResult:
    """Postpone what a store would expire too early, and show what expires tomorrow.

    Too early is what is unfinished, held, or not archived though a policy asks for it. The settings of the store (`ttl`) say
    how many days ahead housekeeping looks, and for how long it postpones.
    """
    at = (request.as_of or environment.present()) if request.dry_run else environment.instant(request.as_of)
    stores, holds = _stores(request, environment), holds_of_files(environment.settings)
    with environment.ledger() as ledger:
        if request.dry_run:
            results = postpone_expiry_dry_run(ledger, stores, at, holds)
        else:
            results = postpone_expiry(ledger, stores, at, request.actor, holds)
    return HousekeepingResult(as_of=at, dry_run=request.dry_run, datasets=tuple(results))


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
    return call_store(store, lambda: store.capabilities).expiry


@examples(*housekeeping.examples)
@click.command("housekeeping", help=housekeeping.help)
@options(housekeeping)
@FORMAT
def housekeeping_command(format_: str, **given: Any) -> ExitCode:
    result = ask(housekeeping, **given)
    waits = result.dry_run and result.postponed > 0
    if format_ == "json":
        print_json(result.as_dict())
    else:
        _print(result)
        if waits:
            say_next("`retention housekeeping` postpones it.")
    if result.troubles:
        raise Refused(result.headline)
    return ExitCode.TO_DO if waits else ExitCode.DONE


def _print(found: HousekeepingResult) -> None:
    rows = [
        (one.dataset, minute_of(one.within), minute_of(one.until), f"{one.postponed:,}", f"{one.left:,}")
        for one in found.datasets
        if not one.refused
    ]
    title = "What would be postponed. Nothing was changed." if found.dry_run else "What was postponed"
    columns = ("dataset", "what expires until", "postponed to", "transactions", "left for the next time")
    tables = [table(title if rows else "No store expires anything by itself", columns, rows, columns[3:])]
    tomorrow = [
        (one.dataset, kind.type or "", f"{kind.transactions:,}", f"{kind.unfinished:,}", f"{kind.unarchived:,}")
        for one in found.datasets
        for kind in one.tomorrow
    ]
    if tomorrow:
        columns = ("dataset", "type", "transactions", "unfinished", "not archived")
        tables.append(table("What expires tomorrow", columns, tomorrow, columns[2:]))
    print_tables(tables)
