"""The preview of a sweep: what it would delete and spare at an instant, without doing any of it.

Belongs here: which datasets are meant. The dry run itself is the sweep's (sweep/dry_run.py).
"""

from dataclasses import dataclass
from datetime import datetime

from retention_assets.datasets import DatasetFilter, by_store
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import read_policies
from retention_assets.sweep.dry_run import DryRun, dry_run


@dataclass(frozen=True, kw_only=True)
class SweepPreviewRequest:
    """At which instant, or else now, and which datasets: globs over store/name. Nothing is recorded: nobody says who asks."""

    as_of: datetime | None = None
    datasets: tuple[str, ...] = ("*",)


def preview_sweep(request: SweepPreviewRequest, environment: Environment) -> DryRun:
    """Sweep the chosen datasets on a copy of their open marks and on stores that write down instead of deleting."""
    at = request.as_of or environment.present()
    with environment.ledger_if_any() as ledger:
        if ledger is None:
            return DryRun(at, note=environment.no_ledger)
        due = ledger.marks.datasets_to_sweep(at)
        names = DatasetFilter(request.datasets).select(due)
        stores = environment.stores(by_store(names))
        settings = environment.settings
        return dry_run(ledger, stores, settings, read_policies(settings), at, names)
