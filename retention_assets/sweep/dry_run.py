"""The dry run: the very sweep, on a copy of the open marks and on stores that record instead of deleting.

Belongs here: putting the copy and the recording stores in place. What it finds is what a sweep would do at this moment.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.copies import copy_open_marks
from retention_assets.policy.durations import text_of
from retention_assets.policy.language import Policies
from retention_assets.settings.model import Settings
from retention_assets.stores.dry_run import RecordedDeletion, RecordingStore, totals_of
from retention_assets.stores.protocol import CascadedRows, Store
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper


@dataclass(frozen=True)
class SparedMark:
    """A mark that a sweep would spare, and why."""

    dataset: str
    transaction: str
    why: str


@dataclass(frozen=True)
class DryRun:
    """What a sweep would do."""

    as_of: datetime
    results: tuple[SweepResult, ...] = ()
    deleted: tuple[RecordedDeletion, ...] = ()
    spared: tuple[SparedMark, ...] = ()
    # What databases would delete or change besides, path by path, where their stores accept that.
    cascaded: tuple[CascadedRows, ...] = ()
    note: str | None = None

    @property
    def refused(self) -> dict[str, str]:
        """The datasets that would not be swept, and why."""
        return {one.dataset: one.refused for one in self.results if one.refused}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The same as sentences."""
        return tuple(f"{dataset} would not be swept: {why}" for dataset, why in self.refused.items())

    @property
    def store_failed(self) -> bool:
        """Whether one of them would not be, because its store can't do what it is asked."""
        return any(one.store_failed for one in self.results)

    def as_dict(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        rows = {"deleted": [vars(one) for one in self.deleted], "spared": [vars(one) for one in self.spared]}
        rows["cascaded"] = [vars(one) for one in self.cascaded]
        return {"as_of": text_of(self.as_of), "dry_run": True, **rows, "refused": self.refused}


def dry_run(
    ledger: Ledger, stores: Mapping[str, Store], settings: Settings, files: Policies, as_of: datetime, datasets: Sequence[str]
) -> DryRun:
    """Sweep the copy. Neither the ledger nor a store is changed."""
    recording = {name: RecordingStore(store) for name, store in stores.items()}
    with (
        tempfile.TemporaryDirectory(prefix="retention-dry-run-") as folder,
        open_ledger(f"sqlite:///{Path(folder) / 'ledger.db'}") as copy,
    ):
        # Ahead of the present, where a sweep may not go, the copy lives through the days.
        copy_open_marks(ledger, copy, datasets, ledger.clock.simulated or as_of > ledger.clock.present())
        rulebook = Rulebook(copy, settings, files, ())
        # The copy is a file; where the ledger is not, its server is a witness of the time for the copy as well.
        clocks = partial(filter, None, (ledger.clock.server_time(),))
        sweeper = Sweeper(copy, recording, rulebook, as_of, "dry run", wait=lambda *_: None, clocks=clocks)
        results = tuple(sweeper.run(datasets))
        rows = copy.marks.table(statuses=["SPARED"]).select(["dataset", "transaction", "why"]).to_pylist()
    deleted = tuple(one for store in recording.values() for one in store.recorded)
    cascaded = tuple(total for store in recording.values() for total in totals_of(store.cascaded))
    return DryRun(as_of, results, deleted, tuple(SparedMark(**row) for row in rows), cascaded)
