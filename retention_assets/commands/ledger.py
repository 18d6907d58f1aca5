"""The commands about the ledger itself: whether its record is sound, and the times by which its clock guard goes.

Belongs here: `audit` and `clock` with what stands below them, and the file in which a head is kept. A head that is kept where
nobody who can write the ledger can write proves that the whole chain was not written anew.
"""

import json
import os
import tempfile
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retention_assets.commands.common.options import ACTOR, FORMAT, REASON, InstantParam, examples
from retention_assets.commands.common.output import echo, echo_json, print_json, print_tables, progress, say, say_next
from retention_assets.commands.common.sources import find_environment, ledger_to_read
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.render.text import visible_line

if TYPE_CHECKING:
    from retention_assets.ledger.audit.verify import AuditResult, ChainHead
    from retention_assets.ledger.clock_guard import LedgerTimes

SIMULATED = click.option("-t", "--as-of", type=InstantParam(), help="The present, where the settings have a simulated clock.")
_EXPECTED = 'what --save-head wrote: {"position": N, "hash": "…"}'
_HASH_LENGTH = 64


@examples("retention audit verify", "retention audit verify --new")
@click.group()
def audit() -> None:
    """Verify or export the permanent record of every decision and act."""


@examples("retention audit verify", "retention audit verify --known /safe/head.json --save-head /safe/head.json")
@audit.command()
@click.option("--known", type=click.Path(path_type=Path), help="A head saved earlier: the record must contain it.")
@click.option(
    "--save-head", "saved", type=click.Path(path_type=Path), help="Write the head to this file if the record is sound."
)
@click.option("--new", "only_new", is_flag=True, help="Only what came after the last verification that found no fault.")
@ACTOR
@FORMAT
def verify(known: Path | None, saved: Path | None, only_new: bool, actor: str, format_: str) -> None:
    """Compute the whole record again, and list every change that the ledger did not make. Without a fault, that is recorded."""
    from retention_assets.operations.audit import VerifyRequest, verify_audit

    request = VerifyRequest(actor=actor, only_new=only_new, known=_head_of(known) if known else None)
    environment = find_environment()
    with ledger_to_read(environment):
        # Says on stderr where there is none.
        pass
    with progress("verifying the audit"):
        result = verify_audit(request, environment)
    if format_ == "json":
        print_json(asdict(result))
    else:
        _print_audit(result)
    if result.faults:
        unsaved = f" {saved} was not written." if saved else ""
        raise Refused(f"{result.summary}{unsaved}")
    if saved:
        _save(result.head, saved)


@examples(
    "retention audit accept -r 'the backup of Monday was put back'",
    "retention audit accept --head -r 'the warehouse was lost'",
    "retention audit accept --store lake -r 'its data moved to another disk'",
)
@audit.command("accept")
@click.option("--head", "only_heads", is_flag=True, help="Only that a noted head is missing, or ahead of the ledger.")
@click.option("--store", metavar="NAME", help="Only that a store is at another place, or that its data was another ledger's.")
@click.option("-p", "--policies", is_flag=True, help="Only the policies, which share none with what was loaded last.")
@REASON
@ACTOR
@FORMAT
def accept_audit(only_heads: bool, store: str | None, policies: bool, reason: str, actor: str, format_: str) -> None:
    """Vouch for the ledger as it is: after an older one was put back, another one took its place, or rows were changed past it.

    Sweeps go on from then. The record keeps who vouched, why, and for what.
    """
    from retention_assets.operations.audit import AcceptRequest, accept_ledger

    request = AcceptRequest(actor=actor, reason=reason, only_heads=only_heads, store=store, policies=policies)
    accepted = accept_ledger(request, find_environment())
    if format_ == "json":
        print_json(accepted.as_dict())
        return
    for fault in (*accepted.faults, *accepted.places):
        echo(visible_line(f"accepted: {fault}"))
    echo(f"{accepted.words}, up to row {accepted.position} of its record.")
    say_next("`retention run` sweeps again.")


def _print_audit(result: "AuditResult") -> None:
    for line in (*result.faults, *(f"remark: {remark}" for remark in result.remarks)):
        echo(visible_line(line))
    if not result.faults:
        echo(f"The record is sound: {result.rows:,} rows with {result.members:,} members say what was written.")
    echo(f"head: {result.head.position} {result.head.hash}")


def _head_of(file: Path) -> "ChainHead":
    from retention_assets.ledger.audit.verify import ChainHead

    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise BadInput(Problem("is not there", file=str(file), expected=_EXPECTED)) from None
    except ValueError:
        raise BadInput(Problem("is no JSON", file=str(file), expected=_EXPECTED)) from None
    match found:
        case {"position": int(position), "hash": str(digest)} if position >= 0 and len(digest) == _HASH_LENGTH:
            return ChainHead(position, digest)
    raise BadInput(Problem("is no head of an audit", file=str(file), expected=_EXPECTED))


def _save(head: "ChainHead", file: Path) -> None:
    """At once or not at all: half a head would look like a fault of the ledger."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(head)) + "\n")
    os.replace(name, file)
    say(f"the head is in {file}; keep it where nobody who can write the ledger can write it")


@examples("retention audit export > record.jsonl", "retention audit export --after 1200")
@audit.command()
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only rows after position N.")
def export(after: int) -> None:
    """Print the record as JSON lines, from which anybody can compute its hashes again."""
    with ledger_to_read(find_environment()) as ledger:
        for line in ledger.audit_lines(after) if ledger else ():
            echo_json(line)


@examples("retention clock")
@click.group(invoke_without_command=True)
@FORMAT
@click.pass_context
def clock(context: click.Context, format_: str) -> None:
    """Show the times by which the clock guard goes: the newest mark, the newest run, when a person vouched for the clock."""
    if context.invoked_subcommand is not None:
        return
    from retention_assets.ledger.clock_guard import LedgerTimes

    with ledger_to_read(find_environment()) as ledger:
        times = ledger.clock.times() if ledger else LedgerTimes()
    _print_times(times, format_)


@examples("retention clock accept", "retention clock accept -r 'nothing ran over the holidays'")
@clock.command()
@SIMULATED
@click.option("-r", "--reason", help="Why: the record keeps it. May be left out.")
@ACTOR
@FORMAT
def accept(as_of: datetime | None, reason: str | None, actor: str, format_: str) -> None:
    """Vouch for the present where the clock guard refuses to sweep: the next run sweeps.

    It is the way on after a pause of which no other clock is a witness.
    """
    from retention_assets.operations.clock import ClockRequest, accept_clock

    _print_times(accept_clock(ClockRequest(actor=actor, reason=reason, as_of=as_of), find_environment()), format_)
    if format_ != "json":
        say_next("`retention run` sweeps again.")


@examples("retention clock reset -r 'the clock was a year ahead'")
@clock.command()
@SIMULATED
@REASON
@ACTOR
@FORMAT
def reset(as_of: datetime | None, reason: str, actor: str, format_: str) -> None:
    """Take back the marks that were made later than now, by a clock that was fast. What is swept stays swept.

    What batches of sweeps wait for (`sweep.every`) begins anew as well.

    It is the way on where every run is refused because the newest mark is later than now.
    """
    from retention_assets.operations.clock import ClockResetRequest, reset_clock

    done = reset_clock(ClockResetRequest(actor=actor, reason=reason, as_of=as_of), find_environment())
    if format_ == "json":
        print_json(done.as_dict())
        return
    say(f"{done.reset.unmarked:,} marks taken back.")
    if done.reset.sweeping:
        say(f"Too late for {done.reset.sweeping:,} that are being swept.")
    _print_times(done.times, format_)
    say_next("`retention run` marks anew what policies select.")


def _print_times(times: "LedgerTimes", format_: str) -> None:
    if format_ == "json":
        print_json(times.as_dict())
        return
    from retention_assets.render.ledger_tables import clock_table

    print_tables([clock_table(times.as_dict())])
