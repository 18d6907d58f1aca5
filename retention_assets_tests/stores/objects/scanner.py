"""A scanner for tests of what becomes of a scan: it finds what a test says, and lists it into real files of the warehouse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.frames import LINES, sound_log
from retention_assets.pipeline.read_logs import write_read_log
from retention_assets.pipeline.scans import SparkScanner
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.scan_result import ClassCount, ObjectClass, ScannedDataset, ScanResult, SourceCount
from retention_assets.stores.protocol import Only, Store
from retention_assets.stores.settings import StoreSettings

LISTED = datetime(2026, 1, 1, tzinfo=UTC)
SIZE = 10


@dataclass
class Found:
    """What a scan finds: the names of objects by class and realm, and what its sources say."""

    objects: Mapping[ObjectClass, Sequence[str]] = field(default_factory=dict)
    references: int = 10
    unresolved: int = 0
    label: str = "lines refs"
    fault: Exception | None = None

    def result(self, store: str) -> ScanResult:
        """Its numbers. The realm of an object is the first part of its name."""
        realms = sorted({name.partition("/")[0] for names in self.objects.values() for name in names})
        classes = [
            ClassCount(realm, "", one, len(mine), SIZE * len(mine))
            for one, names in self.objects.items()
            for realm in realms
            if (mine := [name for name in names if name.startswith(f"{realm}/")])
        ]
        scanned = sum(map(len, self.objects.values()))
        datasets = [
            ScannedDataset(f"{store}/{realm}", realm, sum(one.objects for one in classes if one.realm == realm))
            for realm in realms
        ]
        return ScanResult(
            store, LISTED, LISTED + timedelta(seconds=9), LISTED, LISTED, "00", "fingerprints", 1e-12, scanned, SIZE * scanned,
            self.references, self.unresolved, classes, [SourceCount(self.label, self.references, self.references, 1, 0.5)], 0, datasets,
        )  # fmt: skip


class FoundScanner(SparkScanner):
    """Finds one thing after the other, and remembers by what it was asked to. There is no Spark."""

    def __init__(self, finds: list[Found]) -> None:
        self.finds = finds
        self.purging: list[frozenset[str]] = []
        self.last: list[ScanResult | None] = []
        self.refused: list[int | None] = []
        self.folders: list[str] = []

    def scan(self, scan: Any, folder: str) -> ScanResult:
        self.refused.append(scan.refused)
        found = self.finds.pop(0)
        self.purging.append(scan.purging)
        self.last.append(scan.last)
        self.folders.append(folder)
        Path(folder).mkdir(parents=True)
        rows = [{"name": name, "class": one.value} for one, names in found.objects.items() for name in names]
        pq.write_table(pa.Table.from_pylist(rows), f"{folder}/listed.parquet")
        if found.fault:
            raise found.fault
        return found.result(scan.settings.name)

    def write_log(
        self, folder: str, result: ScanResult, settings: ObjectsSettings, target: str, datasets: Sequence[str], first_share: int
    ) -> int:
        lines: list[dict[str, Any]] = []
        for row in pq.read_table(f"{folder}/listed.parquet").to_pylist():
            dataset = f"{settings.name}/{row['name'].partition('/')[0]}"
            if dataset in datasets:
                said = {"referenced": "false"} if row["class"] == ObjectClass.UNREFERENCED else {"referenced": "true"}
                times = {"opened_at": LISTED, "closed_at": LISTED, "bytes": SIZE, "attributes": list(said.items())}
                lines.append({"dataset": dataset, "transaction": row["name"], "type": "OBJECT", "status": "COMMITTED", **times})
        if not result.scanned:
            raise Refused("there is nothing to write")
        return write_read_log(sound_log(pa.Table.from_pylist(lines, schema=LINES)), target, first_share)


class NamedStore(Store):
    def __init__(self, name: str, token: str = "today") -> None:
        super().__init__(StoreSettings(name=name, kind="objects"))
        self.token = token

    def datasets(self) -> list[str]:
        raise NotImplementedError

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        raise NotImplementedError

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(datasets, self.token)
