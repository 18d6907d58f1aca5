"""Jobs about rules: realms, entries of the policy book, and how far history stays readable."""

from enum import Enum
from typing import Any

from pydantic import Field

from retention_assets.clock import now
from retention_assets.dagster.operations.job_kinds import JobKind
from retention_assets.dagster.operations.operation_job import (
    OperationContext,
    OperationForm,
    ReasonForm,
    operation_job,
    typed_duration,
    typed_instant_if_any,
)
from retention_assets.dagster.step import Metadata
from retention_assets.operations import policy_book, realms, visibility
from retention_assets.operations.request import NamedRequest
from retention_assets.policy.durations import text_of
from retention_assets.render.markdown import Answer


class AdvanceForm(OperationForm):
    """How far history stays readable."""

    dataset: str = Field(
        default="", description="A dataset, such as lake/raw.events; all that the policy files name when left out."
    )
    retention: str = Field(default="", description="How long its history stays readable, such as 30d.")
    as_of: str = Field(
        default="", description="Counted back from this instant, such as 2026-01-01T00:00:00Z; the present when left out."
    )


@operation_job(AdvanceForm, JobKind.ACT)
def advance_visibility(context: OperationContext, form: AdvanceForm) -> Metadata:
    """Raise the visibility mark of a dataset: the time before which its history is not to be read.

    It is raised to as_of less the retention, but never past the newest transaction, and it only rises. Without a dataset the
    marks of all datasets rise that `visibility` in the policy files names.
    """
    if not form.dataset and not form.retention:
        return _advance_by_rules(context, form)
    request = visibility.AdvanceRequest(
        actor=context.actor,
        dataset=form.dataset,
        retention=typed_duration(form.retention, "retention"),
        as_of=typed_instant_if_any(form.as_of) or now(),
    )
    found = visibility.advance_visibility(request, context.environment)
    at = text_of(found.visible_from)
    done = f"is readable from {at} on" if found.raised else f"was readable from {at} on already: nothing was changed"
    fields = {"dataset": found.dataset, "visible_from": at, "raised": found.raised}
    next_ = "Nothing is deleted by it, and it can't be lowered. `history` lists what is older only by its name."
    return context.answer(Answer(f"The history of {found.dataset} {done}.", (next_,)), fields)


def _advance_by_rules(context: OperationContext, form: AdvanceForm) -> Metadata:
    request = visibility.AdvanceByRulesRequest(actor=context.actor, as_of=typed_instant_if_any(form.as_of))
    found = visibility.advance_by_rules(request, context.environment)
    for name, why in (*found.refused.items(), *found.away.items()):
        context.log.warning(f"{name}: {why}")
    rows = [one.as_dict() for one in found.datasets]
    raised, waiting = sum(row["raised"] for row in rows), sum(bool(row["waits_until"]) for row in rows)
    headline = f"The visibility marks of {raised:,} of {len(rows):,} datasets were raised."
    more = (f"{waiting:,} wait until their entry is a week old.",) if waiting else ()
    return context.answer(Answer(headline, more), {"datasets": len(rows), "raised": raised, "waiting": waiting})


class RealmStatus(Enum):
    """What a person may say of a realm."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    PURGING = "PURGING"


class RealmForm(ReasonForm):
    """What a realm is to become."""

    name: str = Field(description="A realm, such as acme, or a catalog in it, such as acme/sales.")
    status: RealmStatus = Field(description="ACTIVE and INACTIVE are retained; of PURGING everything is marked.")
    grace: str = Field(default="", description="The grace of the marks that purging makes, such as 7d; as it is when left out.")
    yes: bool = Field(default=False, description="Purging marks everything of the realm. Say yes to it.")
    anyway: bool = Field(default=False, description="Purge also a realm that no store knows.")


@operation_job(RealmForm, JobKind.ACT)
def change_realm(context: OperationContext, form: RealmForm) -> Metadata:
    """Change a realm. ACTIVE and INACTIVE ones are retained; PURGING marks everything of one, whatever the policies say."""
    request = realms.RealmRequest(
        actor=context.actor,
        reason=form.reason,
        name=form.name,
        status=form.status.value,
        grace=typed_duration(form.grace, "grace") if form.grace else None,
        confirmed=form.yes,
        anyway=form.anyway,
    )
    changed = realms.change_realm(request, context.environment).as_dict()
    next_ = "It is retained: the policies decide."
    if form.status is RealmStatus.PURGING:
        next_ = (
            "No transaction is marked yet. The next evaluation marks everything of it, whatever the policies say; holds still"
            " stop it. `upcoming` shows then what goes. To stop it, launch this job with ACTIVE, and `unmark`."
        )
    above = realms.note_above(form.name, context.environment)
    answer = Answer(f"The realm {changed['name']} is {changed['status']}.", (next_, *((above,) if above else ())))
    return context.answer(answer, changed)


class EntryForm(ReasonForm):
    """Which entry of the policy book."""

    name: str = Field(default="", description="The name of the policy, such as raw-30-days.")


@operation_job(EntryForm, JobKind.ACT)
def policy_overwrite(context: OperationContext, form: EntryForm) -> Metadata:
    """Take what the files say of an entry into the policy book, as a person's decision; this ends a drift."""
    request = NamedRequest(actor=context.actor, reason=form.reason, name=form.name)
    version = _version(policy_book.overwrite_policy(request, context.environment))
    headline = f"Version {version['version']} of {version['name']} is in force, as the files have it."
    return context.answer(Answer(headline, ("No mark was touched. The next evaluation judges by it.",)), version)


@operation_job(EntryForm, JobKind.ACT)
def policy_revoke(context: OperationContext, form: EntryForm) -> Metadata:
    """Put an entry of the policy book out of force. The marks that it made stay, until they are taken back."""
    request = NamedRequest(actor=context.actor, reason=form.reason, name=form.name)
    revoked = policy_book.revoke_policy(request, context.environment)
    version = _version(revoked)
    headline = f"{version['name']} is in force no more."
    next_ = (
        f"The next sweep spares those of its {revoked.orphaned_marks:,} open marks that no other policy in force selects. To"
        " take them back now, launch `unmark` with the policy."
    )
    return context.answer(Answer(headline, (next_,)), {**version, "orphaned_marks": revoked.orphaned_marks})


def _version(entry: policy_book.EntryResult) -> dict[str, Any]:
    return {name: getattr(entry.written, name) for name in ("name", "version", "written_by", "revoked")}
