"""Verify the record, and vouch for a ledger that differs from it: an older one put back, or a changed row."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, did_you_mean
from retention_assets.evaluation.rules_in_force import folders_of_policies, policies_to_accept, read_policies
from retention_assets.ledger import Ledger
from retention_assets.ledger.audit.chain import GENESIS
from retention_assets.ledger.audit.heads import LedgerHead, NotedPlace, head_of, noted_places, remember_places
from retention_assets.ledger.audit.verify import AuditResult, ChainHead
from retention_assets.operations.request import ReasonedRequest, Request
from retention_assets.pipeline.head_file import HeadFile, head_file_of, other_place, place_of_store


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(Request):
    """Verify all, or what came after the last verification without a fault; and compare with a head kept elsewhere."""

    only_new: bool = False
    known: ChainHead | None = None


def verify_audit(request: VerifyRequest, environment: Environment) -> AuditResult:
    """Compute the record again. Without a fault, that is an act itself; where there is no ledger, its record is sound."""
    with environment.ledger_if_any() as ledger:
        if ledger is not None:
            return ledger.verify_and_record(request.actor, request.known, request.only_new)
    known = request.known
    lost = (f"Row {known.position} of the audit was noted before, and there is no ledger.",) if known and known.position else ()
    return AuditResult(0, 0, ChainHead(0, GENESIS), lost)


@dataclass(frozen=True)
class AcceptResult:
    """Accepted parts of a ledger: a noted head that it does not hold, and rows that stay as they are."""

    # beginning of the sentence
    words: str
    ledger: str
    position: int
    noted: LedgerHead | None
    faults: tuple[str, ...]
    # faults of noted heads, or of the place of a store
    places: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        own = {"ledger": self.ledger, "position": self.position, "noted": asdict(self.noted) if self.noted else None}
        return {**own, "faults": list(self.faults), "places": list(self.places)}


@dataclass(frozen=True, kw_only=True)
class AcceptRequest(ReasonedRequest):
    """Accept a store's present place, the heads alone, the policies, or by default the ledger with its heads and rows."""

    only_heads: bool = False
    store: str | None = None
    policies: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum((self.only_heads, self.store is not None, self.policies)) > 1:
            raise BadInput(
                Problem("stand beside each other", key="head, store, policies", remedy="Accept one after the other.")
            )


def accept_ledger(request: AcceptRequest, environment: Environment) -> AcceptResult:
    """Vouch for the ledger as it is: sweeps go on. The record keeps what was noted, and each row that was not as recorded."""
    with environment.existing_ledger() as ledger:
        if request.store is not None:
            return _accept_store(request.store, request, environment, ledger)
        if request.policies:
            return _accept_policies(request, environment, ledger)
        faults = environment.head_faults(ledger)
        if request.only_heads and not faults:
            raise Refused(
                "This ledger holds every head that was noted: there is nothing to accept. `retention audit verify` looks for"
                " rows that were changed."
            )
        files = [file for file in environment.head_files() if _is_written(file, ledger)]
        present = [NotedPlace(file.key, file.store, True) for file in files]
        with ledger.database.reading() as connection:
            known = noted_places(connection)
        gone = _given_up(request, (known[key] for key in faults.keys() & known.keys() - {file.key for file in files}))
        noted, fault = _noted(files), " ".join(faults.values()) or None
        accepted = ledger.accept(
            request.actor,
            request.reason,
            asdict(noted) if noted else None,
            fault,
            [*present, *gone],
            with_rows=not request.only_heads,
        )
        head = accepted.head
        _write(files, head)
    words = f"Ledger {head.ledger} is accepted as it is"
    return AcceptResult(words, head.ledger, head.position, noted, accepted.faults, tuple(faults.values()))


def _given_up(request: AcceptRequest, places: Iterable[NotedPlace]) -> list[NotedPlace]:
    return [place._replace(noted=False, fault=f"Given up: {request.reason}") for place in places]


def _accept_policies(request: AcceptRequest, environment: Environment, ledger: Ledger) -> AcceptResult:
    settings = environment.settings
    files = read_policies(settings)
    about = policies_to_accept(ledger, files, settings)
    if about is None:
        raise Refused(
            "The policies have something in common with what was loaded last: there is nothing to accept. `retention run` loads"
            " them."
        )
    ledger.holds.note_files(files.holds, request.actor, folders_of_policies(settings), ends=False, takes_over=True)
    accepted = ledger.accept(request.actor, request.reason, None, with_rows=False, policies=about)
    head = accepted.head
    return AcceptResult(f"The policies are accepted by ledger {head.ledger}", head.ledger, head.position, None, accepted.faults)


def _is_written(file: HeadFile, ledger: Ledger) -> bool:
    """Only the warehouse's, and those at writable roots that belong to no other ledger."""
    heads: list[LedgerHead] = []
    # a damaged one is written anew
    with suppress(Refused):
        heads = file.heads()
    if file.store is None or heads:
        return file.store is None or all(head.ledger == ledger.id for head in heads)
    with suppress(OSError):
        return file.write()
    return False


def _write(files: Sequence[HeadFile], head: LedgerHead) -> None:
    for file in files:
        try:
            file.write(head)
        except (OSError, pa.ArrowException) as away:
            raise Refused(
                f"{file.path} can't be written: {away}. The record has your word; sweeps go on once the file has it too. Mend"
                " the access to it and say it again."
            ) from None


def _noted(files: Sequence[HeadFile]) -> LedgerHead | None:
    """None where nobody can read it."""
    with suppress(Refused):
        return next(iter(files[0].heads()), None)
    return None


def _accept_store(name: str, request: AcceptRequest, environment: Environment, ledger: Ledger) -> AcceptResult:
    """Accept a store's present place. Its earlier marks are spared; a head of another ledger beside its data is replaced."""
    store = environment.stores([name]).get(name)
    if store is None:
        names = [one.name for one in environment.settings.stores]
        remedy = did_you_mean(name, names) or f"The settings have {', '.join(names) or 'no store'}."
        raise BadInput(Problem("is no store of the settings", key="store", value=f"'{name}'", remedy=remedy))
    known = ledger.places.newest()
    fault, place = other_place(ledger, store, known.get(name)), place_of_store(store, claim=True)
    if fault is None or place is None:
        raise Refused(
            f"{name} is where this ledger knows it, or has not joined yet: there is nothing to accept. `retention run` notes a"
            " store that is new."
        )
    ledger.places.note({name: place}, request.actor, request.reason, known)
    file = head_file_of(store)
    with ledger.database.reading() as connection:
        head = head_of(connection)
        earlier = [one for one in noted_places(connection).values() if one.store == name and one.noted]
    if gone := _given_up(request, (one for one in earlier if not file or one.place != file.key)):
        ledger.database.write(lambda tx: remember_places(tx, gone, request.actor))
    if file is not None and file.other_owner(ledger.database) is not None:
        _write([file], head)
    if file is not None:
        file.note(ledger.database)
    words = f"{name} is accepted where it is by ledger {head.ledger}"
    return AcceptResult(words, head.ledger, head.position, None, (), (fault,))
