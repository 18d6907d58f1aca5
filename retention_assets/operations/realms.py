"""Change and describe realms. Purging marks everything in one, so it needs a confirmation, and a name that a store knows."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import Log
from retention_assets.frames.realms import own_realms, realm_rows
from retention_assets.ledger import Ledger
from retention_assets.ledger.realms import INITIAL, Realm
from retention_assets.operations.request import NamedRequest
from retention_assets.pipeline.realm_counts import LeftOfRealm, published_counts
from retention_assets.pipeline.stage import Source, read_datasets, read_transactions
from retention_assets.policy.durations import Duration
from retention_assets.policy.realms import REALM, is_realm_name, is_within
from retention_assets.report import ReportedRealm
from retention_assets.stores.logs import choose_datasets, read_share, shares_of

PURGING = "PURGING"


@dataclass(frozen=True, kw_only=True)
class RealmRequest(NamedRequest):
    """Request to change a realm. Without `grace` the grace of the marks that purging makes stays as it is.

    Purging has to be `confirmed`; and where no store knows the realm, it is done `anyway` or not at all.
    """

    status: str
    grace: Duration | None = None
    confirmed: bool = False
    anyway: bool = False


@dataclass(frozen=True)
class RealmState:
    """Realm, one above it that counts for it as well, and what the last evaluations found left in it."""

    realm: Realm
    above: Realm | None = None
    left: tuple[LeftOfRealm, ...] = ()

    @property
    def words(self) -> str:
        """Reason why it is not over yet, or the realm whose status counts."""
        found = [f"{one.why}: {_transactions(one.transactions)}" for one in self.left if one.why]
        if going := sum(one.transactions for one in self.left if not one.why):
            found.append(f"on their way out: {_transactions(going)}")
        if self.above:
            found.append(f"{self.above.name} above it is {self.above.status}")
        return "; ".join(found)

    def as_dict(self) -> dict[str, Any]:
        above = {"name": self.above.name, "status": self.above.status} if self.above else None
        return {**self.realm.as_dict(), "above": above, "left": [one.as_dict() for one in self.left]}


def _transactions(count: int) -> str:
    return f"{count:,} transaction{'' if count == 1 else 's'}"


def realm_states(ledger: Ledger, name: str | None = None) -> list[RealmState]:
    """Describe a realm, or all that were ever changed."""
    realms = list(ledger.realms.all().values()) if name is None else [ledger.realms.of(name)]
    counted = {one.name for one in realms if one.status in (PURGING, "PURGED")}
    found = published_counts(ledger.publications.named("candidate_marks")) if counted else {}
    left = {name: some for name, some in found.items() if name in counted}
    return [RealmState(one, ledger.realms.above(one.name), tuple(left.get(one.name, ()))) for one in realms]


def reported_realms(ledger: Ledger) -> tuple[ReportedRealm, ...]:
    """Realms for a report: purges with something left, and purged realms in which something appeared."""
    return tuple(ReportedRealm(one.realm.name, one.realm.status, one.words) for one in realm_states(ledger) if one.left)


def purge_warning(name: str, grace: Duration | None, environment: Environment) -> str:
    """Warn of what purging a realm does, and when."""
    _check_grace(grace, environment)
    if grace is None:
        with environment.ledger_if_any() as ledger:
            grace = ledger.realms.of(name).grace if ledger else Duration()
    grace = environment.settings.realms.grace_of(grace)
    due = f"{grace.words()} later" if grace else "at once"
    return (
        f"Purging {name}: the next evaluation marks everything of it, whatever the policies say; holds still stop it. The marks"
        f" are due {due}."
    )


def _check_grace(grace: Duration | None, environment: Environment) -> None:
    least = environment.settings.realms
    if grace is not None and least.grace_of(grace) != grace:
        raise BadInput(
            Problem(
                "is shorter than realms.min_grace in the settings",
                key="grace",
                value=str(grace),
                expected=f"at least {least.min_grace}",
                remedy="Whoever keeps the settings may lower realms.min_grace; 0s needs `confirm: no-grace` beside it.",
            )
        )


def refuse_unknown(name: str, environment: Environment) -> None:
    """Refuse to purge a realm in which no store has anything: it is probably misspelt."""
    if not is_realm_name(name):
        # the ledger refuses it with its own sentence
        return
    known, away = known_realms(environment)
    if any(is_within(one, name) for one in known):
        return
    guess = nearest(name, sorted(known))
    raise Refused(
        f"Nothing was changed. No store knows a realm {name}."
        + (f" Did you mean {guess}?" if guess else "")
        + "".join(f" {store} could not be asked: {fault}." for store, fault in away.items())
        + " If it is meant all the same, say --anyway, or set `anyway: true` in a launchpad."
    )


def known_realms(environment: Environment) -> tuple[frozenset[str], Mapping[str, str]]:
    """Realms in which a store had something when its logs were read last, and the stores that can't be asked.

    Where no run has read any log yet, the stores are asked.
    """
    with environment.ledger_if_any() as ledger:
        folders = ledger.publications.named("transaction_log") if ledger else {}
    found = set[str]()
    if folders:
        for source in _sources(folders):
            with suppress(FileNotFoundError):
                found |= _published_realms(source)
        return frozenset(found), {}
    away: dict[str, str] = {}
    silent: dict[str, Exception] = {}
    for one in choose_datasets(environment.stores().values(), DatasetFilter()):
        if one.fault:
            away[one.store.name] = one.fault
        for share in shares_of(one) if one.datasets else ():
            log = read_share(one.store, share, silent)
            found |= _realms_of(log.datasets, [log])
    return frozenset(found), away


def _sources(folders: Mapping[str, str]) -> Iterator[Source]:
    by_folder: dict[str, set[str]] = {}
    for dataset, folder in folders.items():
        by_folder.setdefault(folder, set()).add(dataset)
    for folder, datasets in by_folder.items():
        yield Source(folder, frozenset(datasets))


def _published_realms(source: Source) -> set[str]:
    datasets = read_datasets([source])
    mixed = sorted(realm_rows(datasets).mixed)
    # One at a time: a dataset of many realms may be large.
    logs = (Log(read_transactions([source], [name], ["dataset", "attributes"]), datasets) for name in mixed)
    return _realms_of(datasets, logs)


def _realms_of(datasets: pa.Table, logs: Iterable[Log]) -> set[str]:
    said = pc.map_lookup(join_chunks(datasets["attributes"]), pa.scalar(REALM), "first")
    found = {name for name in said.to_pylist() if name is not None}
    for log in logs if realm_rows(datasets).mixed else ():
        found |= {name for name in pc.unique(own_realms(log.transactions["attributes"])).to_pylist() if name is not None}
    return found


def change_realm(request: RealmRequest, environment: Environment) -> Realm:
    """Change a realm. Purging is refused unless it was confirmed, and unless a store knows the realm, or it is to be anyway.

    A realm gets at least the grace that the settings ask for.
    """
    _check_grace(request.grace, environment)
    if request.status == PURGING and not request.anyway:
        refuse_unknown(request.name, environment)
    if request.status == PURGING and not request.confirmed:
        warning = purge_warning(request.name, request.grace, environment)
        raise Refused(f"Nothing was changed. {warning} If that is meant, say --yes, or set `yes: true` in a launchpad.")
    with environment.ledger() as ledger:
        grace = request.grace
        if request.status == PURGING:
            grace = environment.settings.realms.grace_of(grace if grace is not None else ledger.realms.of(request.name).grace)
        return ledger.realms.change(request.name, request.status, request.actor, request.reason, grace)


def unseen_realm(name: str) -> RealmState:
    return RealmState(Realm(name, INITIAL, Duration()))


def note_above(name: str, environment: Environment) -> str | None:
    """Note for a realm of which one above it counts as well."""
    with environment.ledger_if_any() as ledger:
        above = ledger.realms.above(name) if ledger else None
    return f"{above.name} is {above.status}, and {name} with it, whatever its own status." if above else None
