"""Change and describe realms. Purging marks everything in one, so it needs a confirmation, and a name that a store knows."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from shlex import quote
from typing import Annotated, Any

import click
from pydantic import Field

from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.frames.log import realms_of
from retention_assets.ledger import Ledger
from retention_assets.ledger.book import INITIAL, Realm, refuse_realm_name
from retention_assets.people.command import FORMAT, ask_and_show, examples, find_environment, given_fields, options
from retention_assets.people.operation import (
    Flags,
    Kind,
    ReasonedRequest,
    Request,
    Result,
    Span,
    Text,
    operation,
    what_is_missing,
)
from retention_assets.people.output import ExitCode, confirm, say
from retention_assets.pipeline.part_frames import LeftOfRealm, published_counts
from retention_assets.pipeline.stage import Source, by_folder, read_datasets
from retention_assets.policy.durations import Duration
from retention_assets.policy.realms import is_within
from retention_assets.policy.sentences import count
from retention_assets.render.page import Table
from retention_assets.render.report import ReportedRealm
from retention_assets.render.tables import REALMS
from retention_assets.stores.logs import choose_datasets, read_chosen


class Status(Enum):
    """Status that a person may give a realm."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    PURGING = "PURGING"


class RealmRequest(ReasonedRequest):
    """Change of a realm. A purge needs `yes`, and `anyway` if no store knows the realm."""

    name: Annotated[Text, Flags()] = Field(description="A realm, such as acme, or a catalog in it, such as acme/sales.")
    status: Annotated[Status, Flags("-s", "--status")] = Field(
        description="ACTIVE and INACTIVE realms are retained; PURGING marks everything in the realm."
    )
    grace: Span | None = Field(
        default=None, description="The grace of the marks of a purge, such as 7d; by default realms.min_grace."
    )
    yes: Annotated[bool, Flags("-y", "--yes")] = Field(
        default=False, description="Confirm that the purge marks everything in the realm."
    )
    anyway: bool = Field(default=False, description="Purge also a realm that no store knows.")


@dataclass(frozen=True)
class RealmState:
    """Realm, the one above it whose status counts instead, and what the last evaluations counted in it."""

    realm: Realm
    above: Realm | None = None
    left: tuple[LeftOfRealm, ...] = ()

    @property
    def words(self) -> str:
        """Reason why it is not over yet, or the realm whose status counts."""
        parts = [f"{group.why}: {count(group.transactions, 'transaction')}" for group in self.left if group.why]
        if going := sum(group.transactions for group in self.left if not group.why):
            parts.append(f"on their way out: {count(going, 'transaction')}")
        if self.above:
            parts.append(f"{self.above.name} above it is {self.above.status}")
        return "; ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        above = {"name": self.above.name, "status": self.above.status} if self.above else None
        return {**self.realm.as_dict(), "above": above, "left": [one.as_dict() for one in self.left]}


def realm_states(ledger: Ledger, name: str | None = None) -> list[RealmState]:
    """Describe a realm, or all that were ever changed."""
    realms = list(ledger.realms.all().values()) if name is None else [ledger.realms.of(name)]
    purged = {realm.name for realm in realms if realm.status in ("PURGING", "PURGED")}
    counts = published_counts(ledger.publications.named("candidate_marks")) if purged else {}
    left = {name: groups for name, groups in counts.items() if name in purged}
    return [RealmState(realm, ledger.realms.above(realm.name), tuple(left.get(realm.name, ()))) for realm in realms]


def reported_realms(ledger: Ledger) -> tuple[ReportedRealm, ...]:
    """Realms for a report: purges with something left, and purged realms in which something appeared."""
    return tuple(
        ReportedRealm(state.realm.name, state.realm.status, state.words) for state in realm_states(ledger) if state.left
    )


def _purge_warning(name: str, grace: Duration | None, environment: Environment) -> str:
    _check_grace(grace, environment)
    if grace is None:
        with environment.ledger_if_any() as ledger:
            grace = ledger.realms.of(name).grace if ledger else Duration()
    grace = environment.settings.realms.grace_of(grace)
    due = f"{grace.words()} later" if grace else "at once"
    settings, back = environment.settings, ""
    if settings.realms.undo:
        unless = f", except in {' and '.join(settings.undo_faults)}" if settings.undo_faults else ""
        back = f" What is swept can be restored for {settings.realms.undo.words()}{unless}."
    return (
        f"Purging {name}: the next evaluation marks everything in it, whatever the policies say. Only holds stop it. The "
        f"marks are due {due}.{back}"
    )


def _check_grace(grace: Duration | None, environment: Environment) -> None:
    least = environment.settings.realms
    if grace is not None and least.grace_of(grace) != grace:
        words, expected = "is shorter than realms.min_grace in the settings", f"at least {least.min_grace}"
        remedy = "Give a longer grace, or lower realms.min_grace in the settings (0s needs `confirm: no-grace`)."
        raise BadInput(Problem(words, key="grace", value=str(grace), expected=expected, remedy=remedy))


def _refuse_unknown(name: str, environment: Environment) -> None:
    # a realm in which no store has anything is probably misspelt
    known, away = _known_realms(environment)
    if any(is_within(realm, name) for realm in known):
        return
    guess = suggest(name, sorted(known))
    raise Refused(
        f"Nothing was changed. No store knows a realm {name}."
        + (f" {guess}" if guess else "")
        + "".join(f" {store} could not be read: {fault.rstrip('.')}." for store, fault in away.items())
        + " To purge it all the same, add --anyway, or set `anyway: true` in the launchpad."
    )


def _known_realms(environment: Environment) -> tuple[frozenset[str], Mapping[str, str]]:
    # by the logs as they were read last; where no run has read any yet, the stores are asked
    with environment.ledger_if_any() as ledger:
        folders = ledger.publications.named("transaction_log") if ledger else {}
    realms = set[str]()
    if folders:
        for folder, datasets in by_folder(folders).items():
            with suppress(FileNotFoundError):
                realms.update(realms_of(read_datasets([Source(folder, frozenset(datasets))])).drop_null().to_pylist())
        return frozenset(realms), {}
    chosen = choose_datasets(environment.stores().values(), DatasetFilter())
    for log in read_chosen(chosen):
        realms.update(realms_of(log.datasets).drop_null().to_pylist())
    return frozenset(realms), {choice.store.name: choice.fault for choice in chosen if choice.fault}


@operation(Kind.ACT, "retention realm", "retention realm acme --status INACTIVE -r 'the contract has ended'")
def change_realm(request: RealmRequest, environment: Environment) -> Result:
    """Change a realm. ACTIVE and INACTIVE realms are retained. PURGING marks everything in a realm, whatever the policies say.

    Only holds stop a purge. A later run that finds nothing left makes the realm PURGED. New data in a PURGED realm is kept.
    Names are paths: PURGING acme also purges acme/sales, but not acme-eu.
    """
    refuse_realm_name(request.name)
    _check_grace(request.grace, environment)
    purges = request.status is Status.PURGING
    if purges and not request.anyway:
        _refuse_unknown(request.name, environment)
    if purges and not request.yes:
        warning = _purge_warning(request.name, request.grace, environment)
        raise Refused(f"Nothing was changed. {warning} To confirm, add --yes, or set `yes: true` in the launchpad.")
    with environment.ledger() as ledger:
        grace = request.grace
        if purges:
            # at least what the settings ask for
            grace = environment.settings.realms.grace_of(grace if grace is not None else ledger.realms.of(request.name).grace)
        realm = ledger.realms.change(request.name, request.status.value, request.actor, request.reason, grace)
        above = ledger.realms.above(realm.name)
    return Result(
        headline=f"{realm.name} is {realm.status}; marks that purging makes have a grace of {realm.grace.words()}.",
        notes=(f"{above.name} is {above.status}, and {realm.name} with it, whatever its own status.",) if above else (),
        next=(
            f"the next `retention run` marks everything in it; `retention realm {quote(realm.name)} -s ACTIVE -r …` stops that."
            if purges
            else "it is retained: the policies decide."
        ),
        data=realm.as_dict(),
    )


class RealmsRequest(Request):
    """Realm to show; without a name, all that were ever changed."""

    name: str | None = None


@operation(Kind.LOOK)
def show_realms(request: RealmsRequest, environment: Environment) -> Result:
    """List realms, or show one."""
    with environment.ledger_if_any() as ledger:
        states = realm_states(ledger, request.name) if ledger else []
        notes = what_is_missing(environment, ledger)
    if request.name is not None and not states:
        states = [RealmState(Realm(request.name, INITIAL, Duration()))]
    rows = [state.as_dict() for state in states]
    return Result(
        data=rows if request.name is None else rows[0],
        tables=lambda: [Table("Realms", REALMS, states, empty="No realm was changed: all are ACTIVE")],
        notes=notes,
    )


@examples(*change_realm.examples)
@click.command("realm", help=f"List realms, show the realm NAME, or change it with --status.\n\n{change_realm.help}")
@options(RealmRequest, optional=True)
@FORMAT
def realm_command(format_: str, actor: str, **given: Any) -> ExitCode:
    name, status, reason, grace = given["name"], given["status"], given["reason"], given["grace"]
    yes, anyway = given["yes"], given["anyway"]
    if status is None:
        if grace is not None or reason is not None or yes or anyway:
            raise click.UsageError("--grace, --reason, --yes and --anyway change a realm: add --status.")
        return ask_and_show(show_realms, format_, name=name)
    if name is None or reason is None:
        raise click.UsageError("To change a realm, name it and say why: retention realm NAME --status STATUS --reason TEXT.")
    if (yes or anyway) and status != Status.PURGING.value:
        raise click.UsageError("--yes and --anyway confirm a purge: add --status PURGING.")
    if status == Status.PURGING.value and (yes or sys.stdin.isatty()):
        request, environment = RealmRequest(actor=actor, **given_fields(given)), find_environment()
        refuse_realm_name(name)
        if not anyway:
            _refuse_unknown(name, environment)
        say(_purge_warning(name, request.grace, environment))
        if not yes and not confirm(f"Purge {name}?", err=True):
            raise Refused("Nothing was changed.")
        # unknown names were refused above
        given |= {"yes": True, "anyway": True}
    return ask_and_show(change_realm, format_, actor=actor, **given)
