"""The job `housekeeping`: what a store would expire and must not yet is put off, and what goes tomorrow is told.

Belongs here: the form, and what the run shows of the result. The work is housekeeping.py's, the same as in a terminal.
Does not belong here: when it runs by itself (dagster/automation/schedules.py).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from retention_assets.clock import now
from retention_assets.dagster.operation_forms import OperationContext, OperationForm, instant_of, operation_job
from retention_assets.dagster.step import Metadata
from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import read_policies
from retention_assets.policy.durations import text_of
from retention_assets.sweep.postpone_expiry import PostponementResult, postpone_expiry, troubles


class HousekeepingForm(OperationForm):
    """Which stores are meant, and as of when."""

    stores: list[str] = Field(default=[], description="Only these; every one that expires rows by itself when left out.")
    as_of: str = Field(default="", description="Looked ahead from this instant; the present when left out.")
    dry_run: bool = Field(default=False, description="Change nothing; tell what would be put off.")


@operation_job(HousekeepingForm)
def housekeeping(doing: OperationContext, form: HousekeepingForm) -> Metadata:
    """Put off what a store would expire and must not yet: unfinished, held, or not archived though a policy asks for it.

    How far ahead is looked, and for how long it is put off, the store's settings say (`ttl`). Then tell what expires tomorrow.
    """
    as_of = instant_of(form.as_of, "as_of") if form.as_of else now()
    stores = doing.retention.stores(form.stores or None)
    holds = read_policies(doing.retention.settings).holds
    with doing.retention.ledger() as ledger:
        found = postpone_expiry(ledger, stores, as_of, doing.actor, holds, form.dry_run)
    if left := troubles(found):
        raise Refused("\n".join(left))
    return {
        "as_of": text_of(as_of),
        "datasets": len(found),
        "postponed": sum(one.postponed for one in found),
        "left_for_the_next_time": sum(one.left for one in found),
        "expires_tomorrow": sum(kind.transactions for one in found for kind in one.tomorrow),
        "tomorrow": _table(found),
    }


def _table(found: Iterable[PostponementResult]) -> dg.MetadataValue:
    columns: Sequence[str] = ("dataset", "type", "transactions", "unfinished", "not_archived")
    rows: list[tuple[Any, ...]] = [
        (one.dataset, kind.type or "", kind.transactions, kind.unfinished, kind.unarchived)
        for one in found
        for kind in one.tomorrow
    ]
    records = [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows]
    schema = [dg.TableColumn(name, "string" if name in ("dataset", "type") else "int") for name in columns]
    return dg.MetadataValue.table(records, dg.TableSchema(schema))
