"""The audit: verifying the record, and vouching for a ledger that is not what was recorded.

Belongs here: what a verification is asked for, and what somebody accepts who puts back an older ledger, or lets a row stay as
it is.
"""

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import folders_of_policies, policies_to_accept, read_policies
from retention_assets.ledger.audit.chain import GENESIS
from retention_assets.ledger.audit.heads import LedgerHead
from retention_assets.ledger.audit.verify import AuditResult, ChainHead
from retention_assets.operations.request import ReasonedRequest, Request


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(Request):
    """What is verified: all of it, or what came after the last verification without a fault; and a head kept elsewhere."""

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
    """What was accepted: the note in the warehouse that the ledger does not hold, and rows that stay as they are."""

    ledger: str
    position: int
    noted: LedgerHead | None
    faults: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        noted = asdict(self.noted) if self.noted else None
        return {"ledger": self.ledger, "position": self.position, "noted": noted, "faults": list(self.faults)}


def accept_ledger(request: ReasonedRequest, environment: Environment, policies: bool = False) -> AcceptResult:
    """Vouch for the ledger as it is: sweeps go on. The record keeps what was noted, and each row that was not as recorded."""
    file = environment.head_file
    with environment.existing_ledger() as ledger:
        noted, fault = _noted(environment)
        about = None
        if policies:
            files = read_policies(environment.settings)
            about = policies_to_accept(ledger, files)
            folders = folders_of_policies(environment.settings)
            ledger.holds.note_files(files.holds, request.actor, folders, ends=False, takes_over=True)
        accepted = ledger.accept(request.actor, request.reason, asdict(noted) if noted else None, fault, about)
        try:
            file.write(accepted.head)
        except (OSError, pa.ArrowException) as away:
            raise Refused(
                f"{file.path} can't be written: {away}. The record has your word; sweeps go on once the file has it too. Mend"
                " the access to the warehouse and say it again."
            ) from None
    return AcceptResult(accepted.head.ledger, accepted.head.position, noted, accepted.faults)


def _noted(environment: Environment) -> tuple[LedgerHead | None, str | None]:
    """What the warehouse knows, or why nobody can read it."""
    try:
        return environment.head_file.read(), None
    except Refused as fault:
        return None, str(fault)
