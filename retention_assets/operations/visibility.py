"""Visibility: raising the time before which the history of a dataset is not to be read.

Belongs here: how far it may be raised, by the dataset's log as it is now.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.dataset_log import read_dataset
from retention_assets.operations.request import Request
from retention_assets.policy.durations import Duration


@dataclass(frozen=True, kw_only=True)
class AdvanceRequest(Request):
    """How long history stays readable, counted back from an instant. Without `log` the dataset's store is read."""

    dataset: str
    retention: Duration
    as_of: datetime
    log: Path | None = None


@dataclass(frozen=True)
class AdvanceResult:
    """From when on the history is readable, and from when on it was."""

    dataset: str
    visible_from: datetime
    before: datetime | None

    @property
    def raised(self) -> bool:
        """Whether the visibility mark was raised."""
        return self.visible_from != self.before

    def as_dict(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        return {**vars(self), "raised": self.raised}


def advance_visibility(request: AdvanceRequest, environment: Environment) -> AdvanceResult:
    """Raise it to the instant less the retention, but never past the newest transaction; a lower value changes nothing."""
    dataset = request.dataset
    newest = _newest_close(read_dataset(environment, dataset, request.log).transactions, dataset)
    with environment.ledger() as ledger:
        before = ledger.visibility.of(dataset)
        after = ledger.visibility.advance(dataset, request.as_of, request.retention, newest, request.actor)
    return AdvanceResult(dataset, after, before)


def _newest_close(rows: pa.Table, dataset: str) -> datetime:
    """When the newest transaction that readers of a dataset can see was committed."""
    committed = rows.filter(pc.equal(rows["status"].cast(pa.string()), "COMMITTED"))
    newest: datetime | None = pc.max(committed["closed_at"]).as_py()
    if newest is None:
        raise Refused(f"Nothing of {dataset} was ever committed: there is no view to keep visible.")
    return newest
