"""Jobs about sweeps: preview a run, and postpone what a database would expire by itself."""

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from retention_assets.dagster.operations.job_kinds import JobKind
from retention_assets.dagster.operations.operation_job import (
    MOST_SHOWN,
    OperationContext,
    OperationForm,
    metadata_table,
    operation_job,
    typed_instant_if_any,
)
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Metadata
from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import read_policies
from retention_assets.operations.housekeeping import HousekeepingRequest, preview_housekeeping, run_housekeeping
from retention_assets.operations.plan import PlanRequest, RetentionPlan, make_plan
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.policy.durations import text_of
from retention_assets.render.markdown import Answer, plain
from retention_assets.render.text import size_of


@operation_job(JudgingConfig, JobKind.LOOK)
def preview(context: OperationContext, form: JudgingConfig) -> Metadata:
    """Show what a run over the chosen datasets would mark, delete and spare: the plan. Marks nothing, deletes nothing.

    It judges and sweeps as a run does, on a copy of the ledger and on stores that write down instead of deleting.
    """
    found = make_plan(PlanRequest(as_of=form.given(), datasets=tuple(form.datasets)), context.environment)
    file = inside(context.warehouse.folder(context.names.key("preview").to_user_string(), context.run_id), "preview.json")
    write_text(json.dumps(found.as_dict(), ensure_ascii=False, indent=2), file)
    troubles = (*found.failures, *found.warnings, *found.notes)
    for warning in troubles:
        context.log.warning(warning)
    free = found.total(found.deleted).bytes
    would = (
        f"A run would mark {len(found.newly_marked):,} transactions, delete {len(found.deleted):,} ({size_of(free)}) and spare"
        f" {len(found.spared):,}."
    )
    fields = {
        "as_of": text_of(found.as_of),
        "datasets": len(found.results),
        "refused": len(found.refused),
        "would_mark": len(found.newly_marked),
        "would_delete": len(found.deleted),
        "would_free": free,
        "would_spare": len(found.spared),
        "file": dg.MetadataValue.path(file),
        "transactions": _transactions(found),
    }
    next_ = "Nothing was changed. The job `cycle` does it; `keep` takes something out of it for good."
    return context.answer(Answer(would, (*map(plain, troubles), next_)), fields)


def _transactions(found: RetentionPlan) -> dg.MetadataValue:
    """First transactions that would be deleted, spared (with the reason) and marked. The file has all of them."""
    parts = (("delete", found.deleted), ("spare", found.spared), ("mark", found.newly_marked))
    rows: list[Sequence[Any]] = [
        (one["dataset"], one["transaction"], would, one["bytes"] or 0, one.get("why", ""))
        for would, part in parts
        for one in part.slice(0, MOST_SHOWN).to_pylist()
    ]
    columns = {"dataset": "string", "transaction": "string", "would": "string", "bytes": "int", "why": "string"}
    return metadata_table(columns, rows)


class HousekeepingForm(OperationForm):
    """Which stores are meant, and as of when."""

    stores: list[str] = Field(default=[], description="Only these; every one that expires rows by itself when left out.")
    as_of: str = Field(default="", description="Looked ahead from this instant; the present when left out.")
    dry_run: bool = Field(default=False, description="Change nothing; tell what would be put off.")


@operation_job(HousekeepingForm, JobKind.ACT)
def housekeeping(context: OperationContext, form: HousekeepingForm) -> Metadata:
    """Put off what a store would expire and must not yet: unfinished, held, or not archived though a policy asks for it.

    How far ahead is looked, and for how long it is put off, the store's settings say (`ttl`). Then tell what expires tomorrow.
    """
    request = HousekeepingRequest(
        actor=context.actor,
        as_of=typed_instant_if_any(form.as_of),
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
    postponed = sum(one.postponed for one in found.datasets)
    done = "would be put off" if form.dry_run else "were put off"
    fields = {
        "as_of": text_of(found.as_of),
        "datasets": len(found.datasets),
        "postponed": postponed,
        "left_for_the_next_time": sum(one.left for one in found.datasets),
        "expires_tomorrow": sum(kind.transactions for one in found.datasets for kind in one.tomorrow),
        "tomorrow": metadata_table(columns, tomorrow),
    }
    answer = Answer(f"{postponed:,} transactions {done}.", (f"By itself, tomorrow expires: {fields['expires_tomorrow']:,}.",))
    return context.answer(answer, fields)
