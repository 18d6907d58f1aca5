"""The commands about the audit: whether the record still says what was written, and the record as lines for elsewhere.

Belongs here: `audit verify` and `audit export`, and the file in which a head is kept. A head that is kept where whoever could
rewrite the ledger can't write rules out that the whole chain was written anew.
"""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retention_assets.commands.options import FORMAT
from retention_assets.commands.output import print_json, progress, say
from retention_assets.commands.sources import find_settings, ledger_to_read
from retention_assets.errors import BadInput, Problem, Refused

if TYPE_CHECKING:
    from retention_assets.ledger.audit.verify import AuditResult, ChainHead

_EXPECTED = 'what --save-head wrote: {"position": N, "hash": "…"}'
_HASH_LENGTH = 64


@click.group()
def audit() -> None:
    """The permanent record of every decision and act: check it, or write it out."""


@audit.command()
@click.option("--known", type=click.Path(path_type=Path), help="A head that was saved before; the record has to contain it.")
@click.option("--save-head", "saved", type=click.Path(path_type=Path), help="Write the head there if the record is sound.")
@FORMAT
def verify(known: Path | None, saved: Path | None, format_: str) -> None:
    """Compute the whole record again and name everything that was changed past the ledger."""
    head = _head_of(known) if known else None
    with ledger_to_read(find_settings()) as ledger:
        if ledger is None:
            verdict = _of_nothing(head)
        else:
            with progress("verifying the audit"):
                verdict = ledger.verify(head)
    if format_ == "json":
        print_json(asdict(verdict))
    else:
        _tell(verdict)
    if verdict.faults:
        unsaved = f" {saved} was not written." if saved else ""
        raise Refused(f"{len(verdict.faults):,} faults: the record does not say what was written.{unsaved}")
    if saved:
        _save(verdict.head, saved)


def _of_nothing(known: "ChainHead | None") -> "AuditResult":
    """What is to be said where there is no ledger: sound, unless somebody noted a row of one."""
    from retention_assets.ledger.audit.chain import GENESIS
    from retention_assets.ledger.audit.verify import AuditResult, ChainHead

    lost = (f"Row {known.position} of the audit was noted before, and there is no ledger.",) if known and known.position else ()
    return AuditResult(0, 0, ChainHead(0, GENESIS), lost)


def _tell(verdict: "AuditResult") -> None:
    for fault in verdict.faults:
        click.echo(fault)
    if not verdict.faults:
        click.echo(f"The record is sound: {verdict.rows:,} rows with {verdict.members:,} members say what was written.")
    click.echo(f"head: {verdict.head.position} {verdict.head.hash}")


def _head_of(file: Path) -> "ChainHead":
    from retention_assets.ledger.audit.verify import ChainHead

    try:
        said = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise BadInput(Problem("is not there", file=str(file), expected=_EXPECTED)) from None
    except ValueError:
        raise BadInput(Problem("is no JSON", file=str(file), expected=_EXPECTED)) from None
    match said:
        case {"position": int(position), "hash": str(digest)} if position >= 0 and len(digest) == _HASH_LENGTH:
            return ChainHead(position, digest)
    raise BadInput(Problem("is no head of an audit", file=str(file), expected=_EXPECTED))


def _save(head: "ChainHead", file: Path) -> None:
    """At once or not at all: half a head would be a fault of a ledger that has none."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(head)) + "\n")
    os.replace(name, file)
    say(f"the head is in {file}; keep it where nobody who can write the ledger can write it")


@audit.command()
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only the rows after position N.")
def export(after: int) -> None:
    """Print the record as JSON lines, from which anybody can compute its hashes again."""
    with ledger_to_read(find_settings()) as ledger:
        for line in ledger.audit_lines(after) if ledger else ():
            click.echo(line)
