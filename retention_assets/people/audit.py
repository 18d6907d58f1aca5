"""Verifies and exports the record, and vouches for a ledger that differs from it: an older one put back, or a changed row.

A head that is kept where nobody who can write the ledger can write proves that the whole chain was not written anew.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import click
import pyarrow as pa
from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, did_you_mean
from retention_assets.evaluation.keepers import folders_of_policies, read_policies
from retention_assets.evaluation.rules_in_force import policies_to_accept
from retention_assets.ledger import Ledger
from retention_assets.ledger.audit.chain import GENESIS
from retention_assets.ledger.audit.verify import AuditResult
from retention_assets.ledger.audit.walk import ChainHead
from retention_assets.ledger.ledger import LedgerHead, NotedPlace, head_of, noted_places, remember_places
from retention_assets.people.command import command, examples, find_environment
from retention_assets.people.operation import (
    Flags,
    Kind,
    Only,
    ReasonedRequest,
    RecordedRequest,
    Result,
    Text,
    operation,
    what_is_missing,
)
from retention_assets.people.output import echo_json, say
from retention_assets.pipeline.head_file import HeadFile, head_file_of, other_place, place_of_store
from retention_assets.stores.protocol import IN_FOLDER, is_same_place

_EXPECTED = 'a file of --save-head: {"position": N, "hash": "…"}'
_HASH_LENGTH = 64


class VerifyRequest(RecordedRequest):
    """Verification of the whole record or of its new rows, with files of saved heads."""

    known: Annotated[Path | None, Only.COMMAND] = Field(
        default=None, description="A head saved earlier: the record must contain it."
    )
    save_head: Annotated[Path | None, Only.COMMAND] = Field(
        default=None, description="Write the head to this file if the record is sound."
    )
    only_new: Annotated[bool, Flags("--new")] = Field(
        default=False, description="Only rows after the last verification without a fault."
    )


@operation(
    Kind.ACT,
    "retention audit verify",
    "retention audit verify --known /safe/head.json --save-head /safe/head.json",
    progress="verifying the audit",
)
def audit_verify(request: VerifyRequest, environment: Environment) -> Result:
    """Verify the whole record, and list the changes that the ledger did not make. A sound record is noted."""
    noted = _read_head(request.known) if request.known else None
    with environment.ledger_if_any() as ledger:
        if ledger is not None:
            result = ledger.verify_and_record(request.actor, noted, request.only_new)
        else:
            # where there is no ledger, its record is sound
            lost = f"Row {noted.position} of the audit was noted before, and there is no ledger." if noted else ""
            result = AuditResult(0, 0, ChainHead(0, GENESIS), (lost,) if noted and noted.position else ())
        notes = what_is_missing(environment, ledger)
    failures = [result.summary] if result.faults else []
    if request.save_head and failures:
        failures[0] += f" {request.save_head} was not written."
    elif request.save_head:
        # at once or not at all: half a head would look like a fault of the ledger
        descriptor, name = tempfile.mkstemp(dir=request.save_head.parent, prefix=f".{request.save_head.name}-")
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(result.head)) + "\n")
        os.replace(name, request.save_head)
        notes += (f"the head is in {request.save_head}; keep it where users of the ledger can't write",)
    sound = f"The record is sound: {result.rows:,} rows with {result.members:,} members are unchanged."
    remarks = (f"remark: {remark}" for remark in result.remarks)
    return Result(
        headline=result.summary if failures else sound,
        sentences=[*result.faults, *remarks, f"head: {result.head.position} {result.head.hash}"],
        notes=notes,
        failures=failures,
        failed=bool(failures),
        data=asdict(result),
    )


class AcceptRequest(ReasonedRequest):
    """Parts of a ledger to accept; by default the whole ledger."""

    head: Annotated[bool, Flags("--head")] = Field(
        default=False, description="Accept only that a noted head is missing, or ahead of the ledger."
    )
    store: Annotated[Text | None, Flags("--store", metavar="NAME")] = Field(
        default=None, description="Accept only that this store has moved, or that its data belonged to another ledger."
    )
    policies: Annotated[bool, Flags("-p", "--policies")] = Field(
        default=False, description="Accept only the policies, which share none with those loaded last."
    )


@operation(
    Kind.ACT,
    "retention audit accept -r 'the backup of Monday was put back'",
    "retention audit accept --head -r 'the warehouse was lost'",
    "retention audit accept --store lake -r 'its data moved to another disk'",
)
def audit_accept(request: AcceptRequest, environment: Environment) -> Result:
    """Accept the ledger as it is, after a restore, a replacement, or edits past this program.

    Sweeps go on after that. The record keeps who accepted what, and why.
    """
    if sum((request.head, request.store is not None, request.policies)) > 1:
        raise BadInput(Problem("are given together", key="head, store, policies", remedy="Accept them one by one."))
    with environment.existing_ledger() as ledger:
        if request.store is not None:
            return _accept_store(request.store, request, environment, ledger)
        if request.policies:
            return _accept_policies(request, environment, ledger)
        faults = environment.head_faults(ledger)
        if request.head and not faults:
            raise Refused(
                "This ledger has every noted head: there is nothing to accept. `retention audit verify` looks for changed rows."
            )
        files = [file for file in environment.head_files() if _may_write(file, ledger)]
        present = [NotedPlace(file.key, file.store, True) for file in files]
        with ledger.database.reading() as connection:
            known = noted_places(connection)
        gone = _give_up(request, (known[key] for key in faults.keys() & known.keys() - {file.key for file in files}))
        noted: LedgerHead | None = None
        with suppress(Refused):
            noted = next(iter(files[0].heads()), None)
        about, fault = asdict(noted) if noted else None, " ".join(faults.values()) or None
        places, with_rows = [*present, *gone], not request.head
        accepted = ledger.accept(request.actor, request.reason, about, fault, places, with_rows=with_rows)
        head = accepted.head
        _write(files, head)
    return _accepted(f"Ledger {head.ledger} is accepted as it is", head, noted, accepted.faults, tuple(faults.values()))


def _accepted(
    accepted: str, head: LedgerHead, noted: LedgerHead | None, faults: tuple[str, ...], places: tuple[str, ...] = ()
) -> Result:
    about = {"ledger": head.ledger, "position": head.position, "noted": asdict(noted) if noted else None}
    return Result(
        headline=f"{accepted}, up to row {head.position} of its record.",
        sentences=[f"accepted: {fault}" for fault in (*faults, *places)],
        next="`retention run` sweeps again. No mark was touched.",
        data={**about, "faults": list(faults), "places": list(places)},
    )


def _give_up(request: AcceptRequest, places: Iterable[NotedPlace]) -> list[NotedPlace]:
    return [place._replace(noted=False, fault=f"Given up: {request.reason}") for place in places]


def _accept_policies(request: AcceptRequest, environment: Environment, ledger: Ledger) -> Result:
    settings = environment.settings
    files = read_policies(settings)
    about = policies_to_accept(ledger, files, settings)
    if about is None:
        raise Refused(
            "The policies share entries with those loaded last: there is nothing to accept. `retention run` loads them."
        )
    ledger.holds.note_files(files.holds, request.actor, folders_of_policies(settings), ends=False, takes_over=True)
    accepted = ledger.accept(request.actor, request.reason, None, with_rows=False, policies=about)
    return _accepted(f"The policies are accepted by ledger {accepted.head.ledger}", accepted.head, None, accepted.faults)


def _may_write(file: HeadFile, ledger: Ledger) -> bool:
    # only the warehouse's, and those at writable roots that belong to no other ledger
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
        except (OSError, pa.ArrowException) as error:
            raise Refused(
                f"{file.path} can't be written: {error}. The record has your decision; sweeps go on once the file has it "
                "too. Mend the access to the file and repeat the command."
            ) from None


def _accept_store(name: str, request: AcceptRequest, environment: Environment, ledger: Ledger) -> Result:
    store = environment.stores([name]).get(name)
    if store is None:
        names = [one.name for one in environment.settings.stores]
        remedy = did_you_mean(name, names) or f"The settings have {', '.join(names) or 'no store'}."
        raise BadInput(Problem("is no store of the settings", key="store", value=f"'{name}'", remedy=remedy))
    known = ledger.places.newest()
    fault, place = other_place(ledger.id, store, known.get(name)), place_of_store(store, claim=True)
    if fault is None or place is None:
        raise Refused(
            f"{name} is at its known place, or is new: there is nothing to accept. `retention run` notes a new store."
        )
    if name in known and is_same_place(known[name].place, place):
        # a clone of a disk has the numbers of the first, whose marks are not its own
        place = place.partition(IN_FOLDER)[0]
    ledger.places.note({name: place}, request.actor, request.reason, known)
    file = head_file_of(store)
    with ledger.database.reading() as connection:
        head = head_of(connection)
        earlier = [one for one in noted_places(connection).values() if one.store == name and one.noted]
    if gone := _give_up(request, (one for one in earlier if not file or one.place != file.key)):
        ledger.database.write(lambda tx: remember_places(tx, gone, request.actor))
    # where a backup was put back without its head, no other decision is asked for
    if file is not None and (file.other_owner(ledger.id) or (not file.heads() and file.fault(ledger.database))):
        _write([file], head)
    if file is not None:
        file.note(ledger.database)
    return _accepted(f"{name} is accepted at its place by ledger {head.ledger}", head, None, (), (fault,))


def _read_head(file: Path) -> ChainHead:
    try:
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise BadInput(Problem("is not there", file=str(file), expected=_EXPECTED)) from None
    except ValueError:
        raise BadInput(Problem("is no JSON", file=str(file), expected=_EXPECTED)) from None
    match content:
        case {"position": int(position), "hash": str(digest)} if position >= 0 and len(digest) == _HASH_LENGTH:
            return ChainHead(position, digest)
    raise BadInput(Problem("is not a head of an audit", file=str(file), expected=_EXPECTED))


@examples("retention audit verify", "retention audit verify --new")
@click.group(commands=[command(audit_verify, "verify"), command(audit_accept, "accept")])
def audit() -> None:
    """Verify or export the permanent record of every decision and act."""


@examples("retention audit export > record.jsonl", "retention audit export --after 1200")
@audit.command()
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only rows after position N.")
def export(after: int) -> None:
    """Print the record as JSON lines, from which others can compute its hashes."""
    environment = find_environment()
    with environment.ledger_if_any() as ledger:
        for note in what_is_missing(environment, ledger):
            say(note)
        for line in ledger.audit_lines(after) if ledger else ():
            echo_json(f"{line}\n")
