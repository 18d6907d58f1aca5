"""Operations as jobs, for people who look at Dagster and have no shell.

Belongs here: how an operation becomes a job of one step, the form that the launchpad shows, and what the run shows of the
result. What can't be done ends as a failed run, with the sentence that the command would print.
Does not belong here: the operations themselves (operations), and when one runs by itself (automation/schedules.py).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar

import dagster as dg
from pydantic import Field

from retention_assets.clock import now
from retention_assets.dagster.naming import Names
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Metadata, resources_in, show_unseen
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.rules_in_force import read_policies
from retention_assets.failures import failure_text
from retention_assets.ledger.clock_guard import LedgerTimes
from retention_assets.operations import audit, clock, holds, marks, policy_book, realms, visibility
from retention_assets.operations.housekeeping import HousekeepingRequest, preview_housekeeping, run_housekeeping
from retention_assets.operations.plan import PlanRequest, RetentionPlan, make_plan
from retention_assets.operations.request import NamedRequest, ReasonedRequest
from retention_assets.pipeline.stage import write_text
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy.durations import (
    EXPECTED_DURATION,
    EXPECTED_MOMENT,
    Duration,
    parse_duration,
    parse_moment,
    text_of,
)
from retention_assets.policy.sentences import hold_sentence

V = TypeVar("V")
_MOST_SHOWN = 1000


class OperationForm(dg.Config):
    """What every operation asks for."""

    actor: str = Field(default="", description="Who does it: the record keeps it. Left out, it is the run.")


class ReasonForm(OperationForm):
    """What an operation asks for that changes something."""

    reason: str = Field(description="Why it is done: the record keeps it.")


@dataclass(frozen=True)
class OperationContext:
    """What an operation works on, and where its run is. `actor` is who filled in the form, or the run."""

    actor: str
    run_id: str
    log: dg.DagsterLogManager
    environment: Environment
    warehouse: Warehouse
    names: Names


F = TypeVar("F", bound=dg.Config)


@dataclass(frozen=True)
class OperationJob(Generic[F]):
    """An operation with its form, before an environment has given its job a name."""

    form: type[F]
    run: Callable[[OperationContext, F], Metadata]

    def job(self, names: Names) -> dg.JobDefinition:
        """The job of an environment: called like the function, with its docstring; its form is the run's configuration."""
        op = self._op(names)

        @dg.graph(name=names.of(self.run.__name__), description=self.run.__doc__)
        def graph() -> None:
            op()

        flat = dg.ConfigMapping(lambda form: {"ops": {op.name: {"config": form}}}, self.form.to_config_schema(), False)
        return graph.to_job(config=flat, executor_def=dg.in_process_executor)

    def _op(self, names: Names) -> dg.OpDefinition:
        @dg.op(
            name=names.of(f"{self.run.__name__}_act"),
            config_schema=self.form.to_config_schema().config_type,
            out=dg.Out(dg.Nothing),
            required_resource_keys=names.resources,
        )
        def op(context: dg.OpExecutionContext) -> None:
            form, resources = self.form(**context.op_config), resources_in(context.resources, names)
            context.log.addFilter(show_unseen)
            typed = form.actor if isinstance(form, OperationForm) else ""
            actor = typed.strip() or f"run {context.run_id}"
            works_on = OperationContext(actor, context.run_id, context.log, resources.retention, resources.warehouse, names)
            try:
                context.add_output_metadata(dict(self.run(works_on, form)))
            except Exception as fault:
                words = failure_text(fault)
                if words is None:
                    raise
                # Of a refusal the sentence is all there is to know.
                raise dg.Failure(words, allow_retries=False) from (None if isinstance(fault, Refused | BadInput) else fault)

        return op


def operation_job(form: type[F]) -> Callable[[Callable[[OperationContext, F], Metadata]], OperationJob[F]]:
    """Make a job of a function that runs an operation, by the form that is filled in for it."""
    return lambda run: OperationJob(form, run)


class UnmarkForm(ReasonForm):
    """Whose marks are taken back."""

    dataset: str = Field(default="", description="A dataset, as store/name.")
    transactions: list[str] = Field(default=[], description="Only these of the dataset: all of them are taken back, or none.")
    policy: str = Field(default="", description="A policy; with a dataset, only what it marked there.")


@operation_job(UnmarkForm)
def unmark(context: OperationContext, form: UnmarkForm) -> Metadata:
    """Take marks back: of transactions of a dataset, or all of a dataset, of a policy, or of a policy in a dataset.

    What is being swept or was swept can't be taken back.
    """
    request = marks.UnmarkRequest(
        actor=context.actor,
        reason=form.reason,
        dataset=form.dataset or None,
        transactions=tuple(form.transactions),
        policy=form.policy or None,
    )
    return marks.unmark(request, context.environment).as_dict()


class HoldForm(ReasonForm):
    """What is held, under which name."""

    name: str = Field(description="What it is called; by this it is released.")
    datasets: list[str] = Field(description="Globs over store/name: what is held.")
    transactions: list[str] = Field(default=[], description="Globs; only these transactions. All when left out.")
    owner: str = Field(default="", description="Who answers for it. Left out, it is whoever places it.")
    until: str = Field(
        default="", description="When it ends by itself, such as 2026-12-31T00:00:00Z or 'in 30d'; never when left out."
    )


@operation_job(HoldForm)
def hold(context: OperationContext, form: HoldForm) -> Metadata:
    """Place a hold: nothing that it holds is marked or swept, by any policy, until it ends or is released."""
    request = holds.HoldRequest(
        actor=context.actor,
        reason=form.reason,
        name=form.name,
        datasets=tuple(form.datasets),
        transactions=tuple(form.transactions),
        owner=form.owner.strip() or None,
        until=_instant(form.until, "until") if form.until else None,
        at=now(),
    )
    placed = holds.place_hold(request, context.environment)
    for warning in placed.warnings:
        context.log.warning(warning)
    return {"holds": hold_sentence(placed.hold), **placed.reach.as_dict()}


class NameForm(ReasonForm):
    """Something that has a name."""

    name: str


@operation_job(NameForm)
def release(context: OperationContext, form: NameForm) -> Metadata:
    """Release a hold. What it kept is judged by the policies alone from the next evaluation on."""
    released = holds.release_hold(_named_request(context, form), context.environment)
    return {"name": released.name, "released_by": released.released_by}


def _named_request(context: OperationContext, form: NameForm) -> NamedRequest:
    return NamedRequest(actor=context.actor, reason=form.reason, name=form.name)


class AdvanceForm(OperationForm):
    """How far history stays readable."""

    dataset: str = Field(default="", description="A dataset, as store/name; all that the policy files name when left out.")
    retention: str = Field(default="", description="How long its history stays readable, such as 30d.")
    as_of: str = Field(default="", description="Counted back from this instant; the present when left out.")


@operation_job(AdvanceForm)
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
        retention=_duration(form.retention, "retention"),
        as_of=_instant(form.as_of, "as_of") if form.as_of else now(),
    )
    found = visibility.advance_visibility(request, context.environment)
    return {"dataset": found.dataset, "visible_from": text_of(found.visible_from), "raised": found.raised}


def _advance_by_rules(context: OperationContext, form: AdvanceForm) -> Metadata:
    as_of = _instant(form.as_of, "as_of") if form.as_of else None
    found = visibility.advance_by_rules(visibility.AdvanceByRulesRequest(actor=context.actor, as_of=as_of), context.environment)
    for name, why in (*found.refused.items(), *found.away.items()):
        context.log.warning(f"{name}: {why}")
    rows = [one.as_dict() for one in found.datasets]
    return {
        "datasets": len(rows),
        "raised": sum(row["raised"] for row in rows),
        "waiting": sum(bool(row["waits_until"]) for row in rows),
    }


class RealmStatus(Enum):
    """What a person may say of a realm."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    PURGING = "PURGING"


class RealmForm(ReasonForm):
    """What a realm is to become."""

    name: str
    status: RealmStatus
    grace: str = Field(default="", description="The grace of the marks that purging makes, such as 7d; as it is when left out.")
    yes: bool = Field(default=False, description="Purging marks everything of the realm. Say yes to it.")


@operation_job(RealmForm)
def change_realm(context: OperationContext, form: RealmForm) -> Metadata:
    """Change a realm. ACTIVE and INACTIVE ones are retained; PURGING marks everything of one, whatever the policies say."""
    request = realms.RealmRequest(
        actor=context.actor,
        reason=form.reason,
        name=form.name,
        status=form.status.value,
        grace=_duration(form.grace, "grace") if form.grace else None,
        confirmed=form.yes,
    )
    return realms.change_realm(request, context.environment).as_dict()


@operation_job(NameForm)
def policy_overwrite(context: OperationContext, form: NameForm) -> Metadata:
    """Take what the files say of an entry into the policy book, as a person's decision; this ends a drift."""
    return _version(policy_book.overwrite_policy(_named_request(context, form), context.environment))


@operation_job(NameForm)
def policy_revoke(context: OperationContext, form: NameForm) -> Metadata:
    """Put an entry of the policy book out of force. The marks that it made stay, until they are taken back."""
    revoked = policy_book.revoke_policy(_named_request(context, form), context.environment)
    return {**_version(revoked), "orphaned_marks": revoked.orphaned_marks}


def _version(entry: policy_book.EntryResult) -> dict[str, Any]:
    return {name: getattr(entry.written, name) for name in ("name", "version", "written_by", "revoked")}


class VerifyForm(OperationForm):
    """How much is verified."""

    only_new: bool = Field(default=False, description="Only what came after the last verification that found no fault.")


@operation_job(VerifyForm)
def audit_verify(context: OperationContext, form: VerifyForm) -> Metadata:
    """Compute the whole record again, and name every change that the ledger did not make. Without a fault, that is recorded."""
    request = audit.VerifyRequest(actor=context.actor, only_new=form.only_new)
    found = audit.verify_audit(request, context.environment)
    for fault in found.faults[:_MOST_SHOWN]:
        context.log.error(fault)
    if found.faults:
        raise Refused(found.summary)
    return {"rows": found.rows, "members": found.members, "head": f"{found.head.position} {found.head.hash}"}


@operation_job(ReasonForm)
def audit_accept(context: OperationContext, form: ReasonForm) -> Metadata:
    """Vouch for the ledger as it is: after an older one was put back, another one took its place, or rows were changed past it.

    Sweeps go on from then. The record keeps who vouched, why, and for what.
    """
    found = audit.accept_ledger(ReasonedRequest(actor=context.actor, reason=form.reason), context.environment)
    for fault in found.faults[:_MOST_SHOWN]:
        context.log.warning(f"accepted: {fault}")
    return {"ledger": found.ledger, "position": found.position, "accepted_rows": len(found.faults)}


_SIMULATED = "The present, where the settings have a simulated clock."


class AcceptForm(OperationForm):
    """Who vouches for the present."""

    reason: str = Field(default="", description="Why: the record keeps it. May be left out.")
    as_of: str = Field(default="", description=_SIMULATED)


class ResetForm(ReasonForm):
    """Who says that an earlier clock was fast."""

    as_of: str = Field(default="", description=_SIMULATED)


@operation_job(AcceptForm)
def clock_accept(context: OperationContext, form: AcceptForm) -> Metadata:
    """Vouch for the present where the clock guard refuses to sweep: the next run sweeps."""
    request = clock.ClockRequest(actor=context.actor, reason=form.reason, as_of=_instant_if_any(form.as_of))
    return _times(clock.accept_clock(request, context.environment))


@operation_job(ResetForm)
def clock_reset(context: OperationContext, form: ResetForm) -> Metadata:
    """Take back the marks that were made later than now, by a clock that was fast. What is swept stays swept."""
    request = clock.ClockResetRequest(actor=context.actor, reason=form.reason, as_of=_instant_if_any(form.as_of))
    done = clock.reset_clock(request, context.environment)
    counts = {"unmarked": done.reset.unmarked, "sweeping": done.reset.sweeping}
    return {"reset_to": text_of(done.reset.at), **counts, **_times(done.times)}


def _times(times: LedgerTimes) -> Metadata:
    return {name: text_of(time) for name, time in times.as_dict().items() if time}


@operation_job(JudgingConfig)
def preview(context: OperationContext, form: JudgingConfig) -> Metadata:
    """Show what a run over the chosen datasets would mark, delete and spare: the plan. Marks nothing, deletes nothing.

    It judges and sweeps as a run does, on a copy of the ledger and on stores that write down instead of deleting.
    """
    found = make_plan(PlanRequest(as_of=form.given(), datasets=tuple(form.datasets)), context.environment)
    file = f"{context.warehouse.folder(context.names.key('preview').to_user_string(), context.run_id)}/preview.json"
    write_text(json.dumps(found.as_dict(), ensure_ascii=False, indent=2), file)
    for warning in (*found.failures, *found.warnings, *found.notes):
        context.log.warning(warning)
    return {
        "as_of": text_of(found.as_of),
        "datasets": len(found.results),
        "refused": len(found.refused),
        "would_mark": len(found.newly_marked),
        "would_delete": len(found.deleted),
        "would_free": found.total(found.deleted).bytes,
        "would_spare": len(found.spared),
        "file": dg.MetadataValue.path(file),
        "transactions": _transactions(found),
    }


def _transactions(found: RetentionPlan) -> dg.MetadataValue:
    """The first of what would go, be spared and why, and be marked. All of it is in the file."""
    parts = (("delete", found.deleted), ("spare", found.spared), ("mark", found.newly_marked))
    rows: list[Sequence[Any]] = [
        (one["dataset"], one["transaction"], would, one["bytes"] or 0, one.get("why", ""))
        for would, part in parts
        for one in part.slice(0, _MOST_SHOWN).to_pylist()
    ]
    return _table({"dataset": "string", "transaction": "string", "would": "string", "bytes": "int", "why": "string"}, rows)


class HousekeepingForm(OperationForm):
    """Which stores are meant, and as of when."""

    stores: list[str] = Field(default=[], description="Only these; every one that expires rows by itself when left out.")
    as_of: str = Field(default="", description="Looked ahead from this instant; the present when left out.")
    dry_run: bool = Field(default=False, description="Change nothing; tell what would be put off.")


@operation_job(HousekeepingForm)
def housekeeping(context: OperationContext, form: HousekeepingForm) -> Metadata:
    """Put off what a store would expire and must not yet: unfinished, held, or not archived though a policy asks for it.

    How far ahead is looked, and for how long it is put off, the store's settings say (`ttl`). Then tell what expires tomorrow.
    """
    request = HousekeepingRequest(
        actor=context.actor,
        as_of=_instant_if_any(form.as_of),
        stores=tuple(form.stores),
        holds=read_policies(context.environment.settings).holds,
    )
    found = (preview_housekeeping if form.dry_run else run_housekeeping)(request, context.environment)
    if found.troubles:
        raise Refused("\n".join(found.troubles))
    tomorrow: list[Sequence[Any]] = [
        (one.dataset, kind.type or "", kind.transactions, kind.unfinished, kind.unarchived)
        for one in found.datasets
        for kind in one.tomorrow
    ]
    columns = {"dataset": "string", "type": "string", "transactions": "int", "unfinished": "int", "not_archived": "int"}
    return {
        "as_of": text_of(found.as_of),
        "datasets": len(found.datasets),
        "postponed": sum(one.postponed for one in found.datasets),
        "left_for_the_next_time": sum(one.left for one in found.datasets),
        "expires_tomorrow": sum(kind.transactions for one in found.datasets for kind in one.tomorrow),
        "tomorrow": _table(columns, tomorrow),
    }


def _table(columns: dict[str, str], rows: Sequence[Sequence[Any]]) -> dg.MetadataValue:
    """A table as Dagster shows it: the type of each column by its name."""
    records = [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(*column) for column in columns.items()]))


def _duration(text: str, key: str) -> Duration:
    return _parsed(text, key, parse_duration, EXPECTED_DURATION)


def _instant(text: str, key: str) -> datetime:
    return _parsed(text, key, lambda typed: parse_moment(typed, now()), EXPECTED_MOMENT)


def _instant_if_any(text: str) -> datetime | None:
    return _instant(text, "as_of") if text else None


def _parsed(text: str, key: str, parse: Callable[[str], V], expected: str) -> V:
    try:
        return parse(text.strip())
    except (ValueError, OverflowError) as fault:
        raise BadInput(Problem(str(fault), key=key, value=f"'{text}'", expected=expected)) from None


JOBS: Sequence[OperationJob[Any]] = (
    unmark, hold, release, advance_visibility, change_realm, policy_overwrite, policy_revoke, clock_accept, clock_reset,
    audit_verify, audit_accept,
    preview, housekeeping,
)  # fmt: skip


def operation_jobs(names: Names) -> list[dg.JobDefinition]:
    """All of them, as the jobs of an environment."""
    return [one.job(names) for one in JOBS]
