"""The sweep: deletes what due marks select and records every step, with any ledger and any store (design section 7)."""

from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper, cut_datasets, stop_on_signals
from retention_assets.sweep.execute import find_there
from retention_assets.sweep.opening import classes_of, opening_of
from retention_assets.sweep.permit import PartBegunAnew, SweepPermit, hold_leases
from retention_assets.sweep.postpone_expiry import PostponementResult, postpone_expiry, postpone_expiry_dry_run
from retention_assets.sweep.read import StoreReading, read_fresh
from retention_assets.sweep.recheck import Recheck
from retention_assets.sweep.verdicts import Fate, Verdict, Verdicts

__all__ = [
    "Fate", "PartBegunAnew", "PostponementResult", "Recheck", "StoreReading", "SweepPermit", "SweepResult", "Sweeper",
    "Verdict", "Verdicts", "classes_of", "cut_datasets", "find_there", "hold_leases", "opening_of", "postpone_expiry",
    "postpone_expiry_dry_run", "read_fresh", "stop_on_signals",
]  # fmt: skip
