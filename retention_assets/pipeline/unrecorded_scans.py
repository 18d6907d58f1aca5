"""Scans of a dry run: with the last scan, brakes, realms and accepted scan of a run, but recorded nowhere.

The ledger is read and never written; no lease is taken, and the folder is removed afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.frames.log import LINES
from retention_assets.ledger import Ledger
from retention_assets.ledger.stores import scan_lease
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.scans import HeldAt, SparkScanner, accepted_scan, is_running, log_shares, next_scan, why_failed
from retention_assets.pipeline.spark import spark_session
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.settings.reach import is_local_master
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects.classes import log_lines
from retention_assets.stores.objects.folder import ScanFolder
from retention_assets.stores.objects.scan import scan_in
from retention_assets.stores.objects.scan_result import ScanFailed, ScanResult, find_brakes, find_source_faults
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import Only

# objects and references from which local tasks are faster than one program, with their start
_WORTH_TASKS = 5_000_000


@dataclass(frozen=True)
class UnrecordedScan:
    """Result of a scan, its folder, and why its datasets would be refused, if they would."""

    folder: str
    result: ScanResult
    fault: str | None = None


@dataclass(frozen=True)
class UnrecordedScans:
    """Scans stores for a dry run: with the ledger that a run would use, if there is one, its warehouse and its Spark."""

    ledger: Ledger | None
    warehouse: Warehouse
    master: str
    conf: Mapping[str, str]
    held: HeldAt
    # nothing is judged that was younger at this instant, if given
    as_of: datetime | None = None

    @contextmanager
    def scan(self, settings: ObjectsSettings) -> Iterator[UnrecordedScan]:
        """Scan a store, or take the scan that a run would take. Raises Refused where the scan of a run would fail.

        The folder lasts as long as the block.
        """
        if self.ledger is not None:
            if lease := self.ledger.leases.holder_of(scan_lease(settings.name)):
                raise Refused(is_running(self.ledger, settings.name, f"it is being scanned by {lease.holder}"))
            if accepted := accepted_scan(self.ledger, self.warehouse, settings):
                record, result = accepted
                yield UnrecordedScan(self.warehouse.scan_folder(settings.name, record.id), result)
                return
        is_local = is_local_master(self.master)
        # remote tasks need a folder that they reach, and only they may reach the store; local tasks are for large scans
        folders = temporary_folder("scan") if is_local else self.warehouse.passing_scan_folder(settings.name)
        with ExitStack() as stack:
            try:
                scan = next_scan(self.ledger, settings, self.as_of, self.held)
                folder, last = stack.enter_context(folders), scan.last
                if is_local and (last is None or last.scanned + last.distinct_references < _WORTH_TASKS):
                    result = scan_in(TasksHere(), scan, ScanFolder(folder))
                else:
                    session = partial(spark_session, self.master, self.conf, self.warehouse.root)
                    result = SparkScanner(session).scan(scan, folder)
                if faults := find_source_faults(settings.brakes, result, last):
                    raise ScanFailed(settings.name, "; ".join(faults))
            except Exception as fault:
                # foreign sources may raise anything
                raise Refused(f"its scan would fail: {why_failed(fault)}") from fault
            braked = None
            if brakes := find_brakes(settings.brakes, result, last):
                braked = (
                    f"its scan would be braked: {'; '.join(brakes)}. A run keeps the scan, and `retention scans"
                    f" {settings.name} accept SCAN --reason …` lets it mark then"
                )
            yield UnrecordedScan(folder, result, braked)


class ScannedObjects(ObjectsStore):
    """A store whose log is a finished scan. Everything else is asked of the real store."""

    def __init__(self, settings: ObjectsSettings, scan: UnrecordedScan) -> None:
        super().__init__(settings)
        self._scan = scan

    def datasets(self) -> list[str]:
        return sorted(dataset.name for dataset in self._scan.result.datasets)

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        return list(log_shares(self._scan.result, datasets))

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        """Return the log of the scan; if it was braked, the refusal."""
        if only is not None:
            return super().read(datasets, only)
        if self._scan.fault:
            names = sorted(set(self.datasets()).intersection(datasets))
            return pa.Table.from_pylist([{"dataset": name, "fault": self._scan.fault} for name in names], LINES)
        lines = log_lines(ScanFolder(self._scan.folder, place_of), self._scan.result, self.settings, datasets)
        return lines.take(pc.sort_indices(lines, [("dataset", "ascending"), ("transaction", "ascending")]))
