"""A finished list of objects in an Iceberg table, such as S3 Metadata's, read at the snapshot current when it began."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan, Table

from retention_assets.errors import Refused
from retention_assets.policy.durations import from_micros
from retention_assets.settings.urls import mask_text
from retention_assets.stores.iceberg.place import open_catalog
from retention_assets.stores.objects.listings.columns import ColumnRoles, objects_of, some_roles
from retention_assets.stores.objects.source_settings import ListingTable


@dataclass(frozen=True)
class TableShare:
    """Every `of`-th data file of a snapshot, by name."""

    snapshot: int
    number: int
    of: int


@dataclass
class TableObjects:
    store: str
    table: ListingTable
    roles: ColumnRoles
    # snapshot that begin() chose
    _snapshot: int | None = None

    def begin(self) -> datetime:
        with self._opened() as table:
            snapshot = table.current_snapshot()
            if snapshot is None:
                raise Refused(f"The table {self.table.name} has no snapshot, so it lists nothing yet. Write it first.")
            self._snapshot = snapshot.snapshot_id
            return from_micros(snapshot.timestamp_ms * 1000)

    def shares(self, wanted: int) -> Sequence[TableShare]:
        if self._snapshot is None:
            self.begin()
        assert self._snapshot is not None, "begin sets it"
        with self._opened() as table:
            scan, _ = self._scan(table, self._snapshot)
            files = sum(1 for _ in scan.plan_files())
        parts = max(1, min(wanted, files))
        return [TableShare(self._snapshot, number, parts) for number in range(parts)]

    def read(self, share: TableShare, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        where = f"the table {self.table.name}"
        with self._opened() as table:
            scan, roles = self._scan(table, share.snapshot, columns)
            files = sorted(scan.plan_files(), key=lambda one: one.file.file_path)[share.number :: share.of]
            rows = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
            for batch in rows.to_record_batches(files):
                yield objects_of(batch, roles, self.roles.whole_seconds, where)

    def _scan(self, table: Table, snapshot: int, columns: Collection[str] | None = None) -> tuple[DataScan, dict[str, str]]:
        there = [field.name for field in table.scan(snapshot_id=snapshot).projection().fields]
        roles = some_roles(self.roles.among(there, f"The table {self.table.name}"), columns)
        return table.scan(selected_fields=tuple(dict.fromkeys(roles.values())), snapshot_id=snapshot), roles

    @contextmanager
    def _opened(self) -> Iterator[Table]:
        properties = {"init_catalog_tables": "false", **self.table.catalog}
        try:
            catalog = open_catalog(self.store, properties)
            try:
                yield catalog.load_table(self.table.name)
            finally:
                catalog.close()
        except Refused:
            raise
        # Catalogs raise their drivers' exceptions: any of them means that the table cannot be read.
        except Exception as fault:
            [line, *_] = str(fault).strip().splitlines() or [""]
            raise Refused(
                f"The table {self.table.name} that lists the objects of the store {self.store} can't be read:"
                f" {type(fault).__name__}: {mask_text(line)}. Check `listing.table`, and that its catalog is up."
            ) from fault
