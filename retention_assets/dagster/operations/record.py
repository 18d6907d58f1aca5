"""Jobs about the record and the clock: verify the record, vouch for it, vouch for the present."""

from pydantic import Field

from retention_assets.dagster.operations.job_kinds import JobKind
from retention_assets.dagster.operations.operation_job import (
    MOST_SHOWN,
    OperationContext,
    OperationForm,
    ReasonForm,
    operation_job,
    typed_instant_if_any,
)
from retention_assets.dagster.step import Metadata
from retention_assets.errors import Refused
from retention_assets.ledger.clock_guard import LedgerTimes
from retention_assets.operations import audit, clock
from retention_assets.policy.durations import text_of
from retention_assets.render.markdown import Answer


class VerifyForm(OperationForm):
    """How much is verified."""

    only_new: bool = Field(default=False, description="Only what came after the last verification that found no fault.")


@operation_job(VerifyForm, JobKind.ACT)
def audit_verify(context: OperationContext, form: VerifyForm) -> Metadata:
    """Compute the whole record again, and name every change that the ledger did not make. Without a fault, that is recorded."""
    request = audit.VerifyRequest(actor=context.actor, only_new=form.only_new)
    found = audit.verify_audit(request, context.environment)
    for fault in found.faults[:MOST_SHOWN]:
        context.log.error(fault)
    for remark in found.remarks[:MOST_SHOWN]:
        context.log.warning(remark)
    if found.faults:
        raise Refused(found.summary)
    fields = {"rows": found.rows, "members": found.members, "head": f"{found.head.position} {found.head.hash}"}
    headline = f"The record is as it was written: {found.rows:,} acts, about {found.members:,} marks and steps."
    return context.answer(Answer(headline), fields)


class VouchForm(ReasonForm):
    """Parts of a ledger to accept; when none is chosen, the ledger with its heads and its rows."""

    head: bool = Field(default=False, description="Only that a noted head is missing, or ahead of the ledger.")
    store: str = Field(default="", description="Only this store, which is at another place, or had another ledger.")
    policies: bool = Field(default=False, description="Only the policies, which share none with what was loaded last.")


@operation_job(VouchForm, JobKind.ACT)
def audit_accept(context: OperationContext, form: VouchForm) -> Metadata:
    """Vouch for the ledger as it is: after an older one was put back, another one took its place, or rows were changed past it.

    Sweeps go on from then. The record keeps who vouched, why, and for what.
    """
    request = audit.AcceptRequest(
        actor=context.actor,
        reason=form.reason,
        only_heads=form.head,
        store=form.store or None,
        policies=form.policies,
    )
    accepted = audit.accept_ledger(request, context.environment)
    for fault in (*accepted.faults, *accepted.places)[:MOST_SHOWN]:
        context.log.warning(f"accepted: {fault}")
    fields = {"ledger": accepted.ledger, "position": accepted.position, "accepted_rows": len(accepted.faults)}
    headline = f"{accepted.words}, with {len(accepted.faults):,} rows that were changed past it."
    return context.answer(Answer(headline, ("No mark was touched. Sweeps go on from the next run.",)), fields)


_SIMULATED = "The present, where the settings have a simulated clock."


class AcceptForm(OperationForm):
    """Who vouches for the present."""

    reason: str = Field(default="", description="Why: the record keeps it. May be left out.")
    as_of: str = Field(default="", description=_SIMULATED)


class ResetForm(ReasonForm):
    """Who says that an earlier clock was fast."""

    as_of: str = Field(default="", description=_SIMULATED)


@operation_job(AcceptForm, JobKind.ACT)
def clock_accept(context: OperationContext, form: AcceptForm) -> Metadata:
    """Vouch for the present where the clock guard refuses to sweep: the next run sweeps."""
    request = clock.ClockRequest(actor=context.actor, reason=form.reason, as_of=typed_instant_if_any(form.as_of))
    times = _times(clock.accept_clock(request, context.environment))
    return context.answer(Answer("The present is accepted.", ("No mark was touched. The next run sweeps.",)), times)


@operation_job(ResetForm, JobKind.ACT)
def clock_reset(context: OperationContext, form: ResetForm) -> Metadata:
    """Take back the marks that were made later than now, by a clock that was fast. What is swept stays swept."""
    request = clock.ClockResetRequest(actor=context.actor, reason=form.reason, as_of=typed_instant_if_any(form.as_of))
    done = clock.reset_clock(request, context.environment)
    counts = {"unmarked": done.reset.unmarked, "sweeping": done.reset.sweeping}
    fields = {"reset_to": text_of(done.reset.at), **counts, **_times(done.times)}
    late = f"Too late for {done.reset.sweeping:,} that are being swept." if done.reset.sweeping else ""
    headline = f"{done.reset.unmarked:,} marks of a fast clock were taken back."
    return context.answer(Answer(headline, (late, "The next evaluation marks again what policies select.")), fields)


def _times(times: LedgerTimes) -> Metadata:
    return {name: text_of(time) for name, time in times.as_dict().items() if time}
