"""List of all jobs of operations."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.dagster.operations.forecast import forecast
from retention_assets.dagster.operations.operation_job import OperationJob, declared
from retention_assets.dagster.operations.preview import preview
from retention_assets.dagster.operations.questions import explain, history, upcoming
from retention_assets.people.audit import audit_accept, audit_verify
from retention_assets.people.clock import clock_accept, clock_reset
from retention_assets.people.holds import hold, release
from retention_assets.people.housekeeping import housekeeping
from retention_assets.people.marks import keep, unmark
from retention_assets.people.operation import Operation
from retention_assets.people.policies import policy_overwrite, policy_revoke
from retention_assets.people.realms import change_realm
from retention_assets.people.scans import scan_accept
from retention_assets.people.visibility import advance_visibility

_DECLARED: Sequence[Operation[Any, Any]] = (
    keep, unmark, hold, release, advance_visibility, change_realm, policy_overwrite, policy_revoke, clock_accept, clock_reset,
    audit_verify, audit_accept, scan_accept, housekeeping,
)  # fmt: skip
JOBS: Sequence[OperationJob[Any]] = (upcoming, explain, history, preview, forecast, *map(declared, _DECLARED))


def operation_jobs(names: Names) -> list[dg.JobDefinition]:
    """All of them, as the jobs of an environment."""
    return [one.job(names) for one in JOBS]
