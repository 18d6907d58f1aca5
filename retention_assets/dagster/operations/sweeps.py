"""What people launch about sweeps: a preview of one, and putting off what a database would expire by itself.

Belongs here: the forms of these jobs, and what their runs say. What each does is in operations/.
"""

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from retention_assets.dagster.job_kinds import JobKind
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
from retention_assets.operations import sweep_preview
from retention_assets.operations.housekeeping import HousekeepingRequest, preview_housekeeping, run_housekeeping
from retention_assets.pipeline.stage import write_text
from retention_assets.policy.durations import text_of
from retention_assets.render.markdown import Answer, plain
from retention_assets.render.text import size_of
from retention_assets.sweep.dry_run import DryRun


@operation_job(JudgingConfig, JobKind.LOOK)
def preview(context: OperationContext, form: JudgingConfig) -> Metadata:
    """Show what a sweep of the chosen datasets would delete and spare. Marks nothing, deletes nothing.

    It is the very sweep, on a copy of the open marks and on stores that write down instead of deleting.
    """
    request = sweep_preview.SweepPreviewRequest(as_of=form.given(), datasets=tuple(form.datasets))
    found = sweep_preview.preview_sweep(request, context.environment)
    file = f"{context.warehouse.folder(context.names.key('preview').to_user_string(), context.run_id)}/preview.json"
    write_text(json.dumps(found.as_dict(), ensure_ascii=False, indent=2), file)
    for warning in (*found.warnings, *([found.note] if found.note else [])):
        context.log.warning(warning)
    free = sum(one.bytes or 0 for one in found.deleted)
    would = f"A sweep would delete {len(found.deleted):,} transactions ({size_of(free)}) and spare {len(found.spared):,}."
    fields = {
        "as_of": text_of(found.as_of),
        "datasets": len(found.results),
        "refused": len(found.refused),
        "would_delete": len(found.deleted),
        "would_free": free,
        "would_spare": len(found.spared),
        "file": dg.MetadataValue.path(file),
        "transactions": _transactions(found),
    }
    next_ = "Nothing was deleted. The job `sweep` does it; `keep` takes something out of it for good."
    return context.answer(Answer(found.note or would, (*map(plain, found.warnings), next_)), fields)


def _transactions(found: DryRun) -> dg.MetadataValue:
    """The first of what would go, and of what would be spared and why. All of it is in the file."""
    rows: list[Sequence[Any]] = [
        (one.dataset, one.transaction, "delete", one.bytes or 0, "") for one in found.deleted[:MOST_SHOWN]
    ]
    rows += [(one.dataset, one.transaction, "spare", 0, one.why) for one in found.spared[:MOST_SHOWN]]
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
