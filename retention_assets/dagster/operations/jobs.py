"""List of all jobs of operations."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.dagster.operations.forecast import forecast
from retention_assets.dagster.operations.marks import hold, keep, release, unmark
from retention_assets.dagster.operations.operation_job import OperationJob
from retention_assets.dagster.operations.questions import explain, history, upcoming
from retention_assets.dagster.operations.record import audit_accept, audit_verify, clock_accept, clock_reset
from retention_assets.dagster.operations.rules import advance_visibility, change_realm, policy_overwrite, policy_revoke
from retention_assets.dagster.operations.scans import scan_accept
from retention_assets.dagster.operations.sweeps import housekeeping, preview

JOBS: Sequence[OperationJob[Any]] = (
    upcoming, explain, history, preview, forecast,
    keep, unmark, hold, release, advance_visibility, change_realm, policy_overwrite, policy_revoke, clock_accept, clock_reset,
    audit_verify, audit_accept, scan_accept,
    housekeeping,
)  # fmt: skip


def operation_jobs(names: Names) -> list[dg.JobDefinition]:
    """All of them, as the jobs of an environment."""
    return [one.job(names) for one in JOBS]
