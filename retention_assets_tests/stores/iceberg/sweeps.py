"""A sweep of an Iceberg table as the engine does it, a whole cycle beside a warehouse without Spark, and a table on which everything
has happened once."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import Log, candidate_marks, new_marks, sound_log
from retention_assets.ledger import CANDIDATES
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Store, SweptTarget, Target
from retention_assets.sweep import SweepResult
from retention_assets_tests.stores.iceberg.tables import (
    Warehouse,
    add_deletes,
    append,
    change,
    files_of,
    place,
    position_deletes,
    replace,
)
from retention_assets_tests.sweep.datasets import DUE, MARKED, SettingsFolder

DATASET = "ice/db.t"


def sweep(store: Store, *snapshots: int, dataset: str = DATASET, parallelism: int = 2) -> dict[int, SweptTarget]:
    return swept(store, planned(store, *snapshots, dataset=dataset), dataset, parallelism)


def planned(store: Store, *snapshots: int, dataset: str = DATASET) -> list[Target]:
    return [Target(one.transaction, one.note) for one in store.prepare(dataset, [str(one) for one in snapshots])]


def swept(store: Store, targets: Sequence[Target], dataset: str = DATASET, parallelism: int = 2) -> dict[int, SweptTarget]:
    return {int(one.transaction): one for one in store.sweep(dataset, targets, parallelism)}


def outcomes(swept: dict[int, SweptTarget]) -> dict[int, Outcome]:
    return {one: result.outcome for one, result in swept.items()}


def snapshots(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def storied(warehouse: Warehouse, **properties: str) -> Table:
    table = warehouse.table(**properties)
    append(table, 1, 2, 3)
    append(table, 4, 5)
    [back] = [file for file in files_of(table) if file.record_count == 2]
    # A file is removed and, later, the very same file is added again.
    change(table, removing=[back])
    append(table, 6)
    # Rows are deleted: their file is written anew, and its manifest with it.
    table.delete("id == 2")
    tagged = append(table, 7)
    table.manage_snapshots().create_tag(tagged, "v1").commit()
    table.manage_snapshots().create_branch(tagged, "dev").commit()
    append(table, 70, branch="dev")
    change(table, adding=[back])
    # Rows are deleted without a rewrite, by positions in a file, as merge-on-read writers do.
    [six] = [file for file in files_of(table) if file.lower_bounds == {1: (6).to_bytes(8, "little")}]
    add_deletes(table, position_deletes(table, six.file_path, [0]))
    append(table, 8)
    append(table, 71, branch="dev")
    replace(table, 9)
    append(table, 10)
    return table


def own_metadata(table: Table, which: int, what: str) -> Path:
    """The manifest list, or the manifest with live files, of a snapshot."""
    [snapshot] = [one for one in table.refresh().metadata.snapshots if one.snapshot_id == which]
    if what == "list":
        return Path(place(snapshot.manifest_list))
    [manifest] = [one for one in snapshot.manifests(table.io) if one.has_added_files()]
    return Path(place(manifest.manifest_path))


DAY = 24 * 60 * 60 * 1000
TEN_YEARS = 3652 * DAY
# Nothing is young, and each branch keeps its newest.
SHORT = {"history.expire.max-snapshot-age-ms": "1"}
KEEP = "{name: own, datasets: {include: ['*']}, select: {from_table: true}, sweep: {every: 0s}}"
DROP = KEEP.replace("from_table: true", "from_table: true, expired_refs: drop")


class TableCycle(SettingsFolder):
    """A table of a warehouse, with what each verdict on it says."""

    usual = (DATASET,)
    marked_at, due_at = MARKED, DUE

    def __init__(self, warehouse: Warehouse, model: str = "states") -> None:
        self.folder = warehouse.folder
        self.writes({"name": "ice", "kind": "iceberg", "catalog": warehouse.properties, "model": model})
        self.says(DROP)

    def log(self) -> Log:
        (store,) = self.stores.values()
        return sound_log(store.read(store.datasets()))

    def judges(self, as_of: datetime = MARKED) -> dict[int, tuple[str, list[tuple[str, str | None]]]]:
        """Evaluate; each verdict with its reasons."""
        log = self.log()
        with self.opened() as ledger:
            rules = load_rulebook(ledger, self.settings, "test").rules([DATASET], as_of)
            verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, as_of)
            marks: pa.Table = new_marks(verdicts, log.transactions, rules.policies, rules.versions)
            ledger.marks.mark(marks.cast(CANDIDATES), as_of, "test")
        return {
            int(row["transaction"]): (row["verdict"], [(why["code"], why["witness"]) for why in row["reasons"]])
            for row in verdicts.to_pylist()
        }

    def sweep(self) -> SweepResult:
        [result] = self.sweeps().values()
        return result

    def fates(self) -> dict[int, tuple[str, str | None]]:
        with self.opened() as ledger:
            return {int(row["transaction"]): (row["status"], row["why"]) for row in ledger.marks.table([DATASET]).to_pylist()}

    def notes(self) -> list[str]:
        with self.opened() as ledger:
            return list(ledger.sweeps.notes(ledger.marks.table([DATASET])["id"].to_pylist()).values())
