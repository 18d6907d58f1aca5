"""The job `preview`: what a run would mark, delete and spare."""

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.operations.operation_job import (
    MOST_SHOWN,
    OperationContext,
    metadata_table,
    operation_job,
)
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Metadata
from retention_assets.people.operation import Kind
from retention_assets.people.plan import PlanRequest, RetentionPlan, make_plan
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.policy.durations import text_of
from retention_assets.render.markdown import Answer, plain
from retention_assets.render.text import size_of


@operation_job(JudgingConfig, Kind.LOOK)
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
