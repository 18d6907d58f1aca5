"""The job that lets a braked scan mark."""

from pydantic import Field

from retention_assets.dagster.operations.job_kinds import JobKind
from retention_assets.dagster.operations.operation_job import OperationContext, ReasonForm, operation_job
from retention_assets.dagster.step import Metadata
from retention_assets.operations.scans import AcceptScanRequest, scan_dict
from retention_assets.operations.scans import accept_scan as accept
from retention_assets.render.markdown import Answer, plain


class ScanForm(ReasonForm):
    """Which scan may mark."""

    store: str = Field(default="", description="A store of kind objects, such as blobs.")
    scan: int = Field(default=0, description="The number of its braked scan, such as 12, as `transaction_log` shows it.")


@operation_job(ScanForm, JobKind.ACT)
def scan_accept(context: OperationContext, form: ScanForm) -> Metadata:
    """Let a braked scan mark, though its numbers look odd: the next run judges it. Only the newest scan of a store can be."""
    request = AcceptScanRequest(actor=context.actor, reason=form.reason, store=form.store.strip(), scan=form.scan)
    accepted = accept(request, context.environment)
    headline = f"Scan {accepted.id} of {accepted.store} is accepted."
    next_ = "No object is marked yet. The next evaluation judges the scan; `upcoming` shows then what goes."
    shown = scan_dict(accepted)
    fields = {name: shown[name] for name in ("id", "store", "status", "reason", "accepted_by", "accept_reason")}
    return context.answer(Answer(headline, (plain(f"What looked odd: {accepted.reason}."), next_)), fields)
