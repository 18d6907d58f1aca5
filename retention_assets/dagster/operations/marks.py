"""Jobs about marks and holds: keep something for good, take marks back, hold, release."""

import shlex

from pydantic import Field

from retention_assets.clock import now
from retention_assets.dagster.operations.job_kinds import JobKind
from retention_assets.dagster.operations.operation_job import (
    OperationContext,
    ReasonForm,
    operation_job,
    typed_instant_if_any,
)
from retention_assets.dagster.step import Metadata
from retention_assets.operations import holds, marks
from retention_assets.operations.keep import KeepRequest
from retention_assets.operations.keep import keep as keep_marks
from retention_assets.operations.request import NamedRequest
from retention_assets.policy.sentences import count, hold_sentence
from retention_assets.render.markdown import Answer, code, plain, with_code

_DATASET = "A dataset, as store/name, such as lake/raw.events."
_UNTIL = "When it ends by itself, such as 2026-12-31T00:00:00Z or 'in 30d'; never when left out."
_DATASETS = "Globs over store/name: what is held, such as ['lake/raw.*']."


class KeepForm(ReasonForm):
    """What is kept."""

    dataset: str = Field(default="", description=_DATASET)
    transactions: list[str] = Field(
        default=[], description="Ids, such as ['T1', 'T2']: just these of the dataset. All of it when left out."
    )
    until: str = Field(default="", description=_UNTIL)
    name: str = Field(default="", description="What the hold is called; one is found when left out.")


@operation_job(KeepForm, JobKind.ACT)
def keep(context: OperationContext, form: KeepForm) -> Metadata:
    """Keep transactions for good, or a dataset: their marks are taken back, and a hold keeps them from being marked again.

    Both at once. Refused, and nothing is changed, where one of the transactions is being swept or was swept.
    """
    request = KeepRequest(
        actor=context.actor,
        reason=form.reason,
        dataset=form.dataset.strip(),
        transactions=tuple(one.strip() for one in form.transactions),
        name=form.name.strip() or None,
        until=typed_instant_if_any(form.until, "until"),
        at=now(),
    )
    done = keep_marks(request, context.environment)
    for warning in done.warnings:
        context.log.warning(warning)
    fields = {name: value for name, value in done.as_dict().items() if name not in ("warnings", "transactions", "until")}
    shown = {name: value for name, value in fields.items() if value is not None}
    answer = Answer(done.headline, tuple(map(with_code, done.words())))
    return context.answer(answer, {**shown, "transactions": list(done.transactions)})


class UnmarkForm(ReasonForm):
    """Whose marks are taken back."""

    dataset: str = Field(default="", description=_DATASET)
    transactions: list[str] = Field(
        default=[], description="Ids, such as ['T1', 'T2']: only these of the dataset, all of them or none."
    )
    policy: str = Field(default="", description="A policy, such as raw-30-days; with a dataset, only what it marked there.")


@operation_job(UnmarkForm, JobKind.ACT)
def unmark(context: OperationContext, form: UnmarkForm) -> Metadata:
    """Take marks back: of transactions of a dataset, or all of a dataset, of a policy, or of a policy in a dataset.

    What is being swept or was swept can't be taken back. What a policy still selects is marked again; `keep` keeps it for good.
    """
    request = marks.UnmarkRequest(
        actor=context.actor,
        reason=form.reason,
        dataset=form.dataset or None,
        transactions=tuple(form.transactions),
        policy=form.policy or None,
    )
    done = marks.unmark(request, context.environment)
    late = done.sweeping or done.swept
    too_late = f"Too late for {done.sweeping:,} that are being swept and {done.swept:,} that were swept." if late else ""
    headline = f"{count(done.unmarked, 'mark')} taken back."
    return context.answer(Answer(headline, (too_late, plain(done.note), "The job `keep` does both at once.")), done.as_dict())


class HoldForm(ReasonForm):
    """What is held, under which name."""

    name: str = Field(default="", description="What it is called, such as audit-2026; by this it is released.")
    datasets: list[str] = Field(default=[], description=_DATASETS)
    transactions: list[str] = Field(
        default=[], description="Globs over ids, such as ['T1*']: only these transactions. All when left out."
    )
    owner: str = Field(default="", description="Who answers for it, such as legal. Whoever places it, when left out.")
    until: str = Field(default="", description=_UNTIL)


@operation_job(HoldForm, JobKind.ACT)
def hold(context: OperationContext, form: HoldForm) -> Metadata:
    """Place a hold: nothing that it holds is marked or swept, by any policy, until it ends or is released."""
    request = holds.HoldRequest(
        actor=context.actor,
        reason=form.reason,
        name=form.name,
        datasets=tuple(form.datasets),
        transactions=tuple(form.transactions),
        owner=form.owner.strip() or None,
        until=typed_instant_if_any(form.until, "until"),
        at=now(),
    )
    placed = holds.place_hold(request, context.environment)
    for warning in placed.warnings:
        context.log.warning(warning)
    reach, name = placed.reach, placed.hold.name or ""
    about = ""
    if reach.datasets is not None:
        about = f" It is about {reach.datasets:,} datasets and {reach.transactions:,} transactions of the last evaluation."
    next_ = (
        "What of it is marked already stays marked, and the sweep spares it; `keep` takes the marks back as well."
        f" To end it: launch `release`, or {code(f'retention release {shlex.quote(name)} --reason …')}."
    )
    sentence = hold_sentence(placed.hold)
    answer = Answer(f"The hold {name} is placed.{about}", (plain(sentence), *map(plain, placed.warnings), next_))
    return context.answer(answer, {"holds": sentence, **reach.as_dict()})


class ReleaseForm(ReasonForm):
    """Which hold is over."""

    name: str = Field(default="", description="The name of the hold, such as audit-2026. `retention hold --list` lists them.")


@operation_job(ReleaseForm, JobKind.ACT)
def release(context: OperationContext, form: ReleaseForm) -> Metadata:
    """Release a hold. What it kept is judged by the policies alone from the next evaluation on."""
    request = NamedRequest(actor=context.actor, reason=form.reason, name=form.name)
    released = holds.release_hold(request, context.environment)
    next_ = "From the next evaluation on policies alone decide about what it held. `upcoming` shows what goes then."
    fields = {"name": released.name, "released_by": released.released_by}
    return context.answer(Answer(f"The hold {released.name} is released.", (next_,)), fields)
