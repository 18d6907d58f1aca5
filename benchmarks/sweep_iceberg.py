"""The `iceberg` store at size: expiring snapshots with their files, long metadata, and a catalog of very many tables.

Belongs here: tables written with PyIceberg's own writers, but many snapshots at a time (a commit for each would write metadata
of growing length a thousand times), and both sides of each comparison. What a contender changes is put back before its clock runs.
Does not belong here: the kernel beside PyIceberg's planning (iceberg.py).

Beside the store stands what is there without it: PyIceberg's expiry, which takes snapshots out of the metadata and deletes no
file, and then a bare unlink of files that it is told, in as many threads. It reads no manifest and looks at nothing twice. A second such side finds the files by PyIceberg's own reading first.
"""

import os
import uuid
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile, write_manifest, write_manifest_list
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from benchmarks.environments import AS_OF
from benchmarks.measures import timed
from retention_assets.outcomes import Outcome
from retention_assets.policy import micros
from retention_assets.stores.iceberg.commit import remove_snapshots
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.iceberg.tables import Warehouse, entry_of, place, reaches, written

THREADS, BATCH = 8, 500
DATASET = "ice/db.t"
_FIRST = 2**52
_HOUR = timedelta(hours=1)


class Expiry:
    """A table of overwrites, each of which replaced the only data file; the older half is to go."""

    def __init__(self, folder: Path, snapshots: int) -> None:
        self.folder, self._saved = folder, folder.with_name(f"{folder.name}-saved")
        half = snapshots // 2
        self.ids = [_FIRST + at for at in range(half)]
        self._cut = AS_OF - _HOUR * (snapshots - half)
        folder.mkdir(parents=True)
        with Warehouse(folder) as warehouse:
            table = warehouse.table("made")
            file, size = _data_file(table)
            made = [_overwrite(table, at, file, size) for at in range(snapshots)]
            _register(warehouse, table, "t", [files[-1] for files in made])
            # No table that has a second name is ever swept.
            warehouse.catalog.drop_table("db.made")
        self.files = [place(file) for files in made[:half] for file in files]
        copytree(folder, self._saved)

    def restored(self) -> Warehouse:
        """As it was made."""
        rmtree(self.folder)
        copytree(self._saved, self.folder)
        return Warehouse(self.folder)

    def by_store(self) -> float:
        """Seconds of the store, in one batch: what it writes down beforehand, the commit, the files."""
        names = [str(one) for one in self.ids]

        def sweep(store: IcebergStore) -> None:
            notes = store.prepare(DATASET, names)
            swept = store.sweep(DATASET, [Target(one.transaction, one.note) for one in notes], THREADS)
            assert all(one.outcome is Outcome.DELETED and one.error is None for one in swept)

        with self.restored() as warehouse:
            store = warehouse.store()
            seconds = timed(lambda: sweep(store))
            store.close()
        return seconds

    def by_pyiceberg(self, looks: bool = False) -> float:
        """Seconds of PyIceberg's expiry by age, and of unlinking what it is told or, if it `looks`, what it found to be free."""

        def sweep(warehouse: Warehouse) -> None:
            table = warehouse.load()
            with ThreadPoolExecutor(THREADS) as threads:
                files = self._found(table, threads) if looks else self.files
                table.maintenance.expire_snapshots().older_than(self._cut).commit()
                for _ in threads.map(os.unlink, files):
                    pass

        with self.restored() as warehouse:
            return timed(lambda: sweep(warehouse))

    def _found(self, table: Table, threads: Executor) -> set[str]:
        """What the old snapshots reach and no other does, by PyIceberg's own reading of every manifest."""
        going, staying = set[str](), set[str]()
        snapshots = table.metadata.snapshots
        for one, files in zip(snapshots, threads.map(lambda one: reaches(table, one), snapshots), strict=True):
            (going if one.snapshot_id < self.ids[0] + len(self.ids) else staying).update(files)
        return going - staying

    def left(self) -> set[str]:
        """What is there now: snapshots in the metadata, and files but for the metadata's own."""
        with Warehouse(self.folder) as warehouse:
            snapshots = {str(one.snapshot_id) for one in warehouse.load().metadata.snapshots}
            return snapshots | {name for name in warehouse.files() if not name.endswith(".metadata.json")}


class Long:
    """A table with very many snapshots that share a few manifest lists: all that matters is in its metadata."""

    def __init__(self, folder: Path, snapshots: int) -> None:
        self.folder, self._saved, self.snapshots = folder, folder.with_name(f"{folder.name}-saved"), snapshots
        folder.mkdir(parents=True)
        with Warehouse(folder) as warehouse:
            table = warehouse.table("made")
            file, size = _data_file(table)
            lists = [_overwrite(table, at, file, size)[-1] for at in range(10)]
            _register(warehouse, table, "t", [lists[at % len(lists)] for at in range(snapshots)])
            warehouse.catalog.drop_table("db.made")
        copytree(folder, self._saved)

    def read(self) -> pa.Table:
        """The log, by the store."""
        with Warehouse(self.folder) as warehouse:
            store = warehouse.store()
            try:
                return store.read([DATASET])
            finally:
                store.close()

    def commit(self, amount: int) -> float:
        """Seconds of the store's commit that takes out the oldest."""
        with self._restored() as warehouse:
            table = warehouse.load()
            return timed(lambda: remove_snapshots(table, range(_FIRST, _FIRST + amount)))

    def commit_by_pyiceberg(self, amount: int) -> float:
        """Seconds of PyIceberg's own, by ids."""
        with self._restored() as warehouse:
            table = warehouse.load()
            ids = list(range(_FIRST, _FIRST + amount))
            return timed(lambda: table.maintenance.expire_snapshots().by_ids(ids).commit())

    def left(self) -> set[int]:
        """The snapshots that it has now."""
        with Warehouse(self.folder) as warehouse:
            return {one.snapshot_id for one in warehouse.load().metadata.snapshots}

    def _restored(self) -> Warehouse:
        rmtree(self.folder)
        copytree(self._saved, self.folder)
        return Warehouse(self.folder)


@dataclass(frozen=True)
class Many:
    """A catalog of many small tables."""

    folder: Path
    tables: int
    snapshots: int = 10

    def made(self) -> "Many":
        """Write it: one real table, and metadata of its own for each of the others."""
        self.folder.mkdir(parents=True)
        with Warehouse(self.folder) as warehouse:
            table = warehouse.table("made", "origin")
            file, size = _data_file(table)
            lists = [_overwrite(table, at, file, size)[-1] for at in range(self.snapshots)]
            for number in range(self.tables):
                _register(warehouse, table, f"t{number}", lists)
        return self

    def store(self) -> IcebergStore:
        """The store over its tables."""
        with Warehouse(self.folder) as warehouse:
            return warehouse.store(namespaces=["db"])

    def by_pyiceberg(self) -> int:
        """How many snapshots PyIceberg finds when it loads every table, in threads of one Python."""
        with Warehouse(self.folder) as warehouse, ThreadPoolExecutor(THREADS) as threads:
            loaded = threads.map(warehouse.catalog.load_table, warehouse.catalog.list_tables("db"))
            return sum(len(table.metadata.snapshots) for table in loaded)


@dataclass(frozen=True)
class Apart:
    """A catalog of many small tables, each with files of its own."""

    folder: Path
    tables: int
    snapshots: int = 10

    def made(self) -> dict[str, Any]:
        """Write it; the settings of a store over it."""
        self.folder.mkdir(parents=True)
        with Warehouse(self.folder) as warehouse:
            file, size = _data_file(warehouse.table("origin", "other"))
            for number in range(self.tables):
                table = warehouse.table(f"made{number}")
                (Path(place(table.location())) / "data").mkdir()
                lists = [_overwrite(table, at, file, size)[-1] for at in range(self.snapshots)]
                _register(warehouse, table, f"t{number}", lists)
                warehouse.catalog.drop_table(f"db.made{number}")
            return {"name": "ice", "kind": "iceberg", "catalog": warehouse.properties, "namespaces": ["db"]}


def _data_file(table: Table) -> tuple[bytes, int]:
    """A real data file: its bytes, which every snapshot gets a copy of."""
    content = Path(place(written(table, 1).file_path)).read_bytes()
    return content, len(content)


def _overwrite(table: Table, at: int, content: bytes, size: int) -> list[str]:
    """The files of one overwrite: data, a manifest that adds it, a manifest that ends the one before, and last their list."""
    one, root = _FIRST + at, table.location()
    data, listed = f"{root}/data/{at}.parquet", f"{root}/metadata/snap-{at}.avro"
    Path(place(data)).write_bytes(content)
    manifests = [_manifest(table, f"{root}/metadata/{at}-m0.avro", at, data, size, ended=False)]
    if at:
        before = f"{root}/data/{at - 1}.parquet"
        manifests.append(_manifest(table, f"{root}/metadata/{at}-m1.avro", at, before, size, ended=True))
    with write_manifest_list(2, table.io.new_output(listed), one, one - 1, at + 1, "null") as listing:
        listing.add_manifests(manifests)
    return [data, *(manifest.manifest_path for manifest in manifests), listed]


def _manifest(table: Table, location: str, at: int, data: str, size: int, ended: bool) -> ManifestFile:
    """A manifest of one entry, which says that a data file is there from now on, or until now."""
    entry = ManifestEntry.from_args(
        snapshot_id=_FIRST + at, sequence_number=at + 1, data_file=entry_of(table, data, size, DataFileContent.DATA)
    )
    with write_manifest(2, table.spec(), table.schema(), table.io.new_output(location), _FIRST + at, "null") as writer:
        (writer.delete if ended else writer.add)(entry)
    return writer.to_manifest_file()


def _register(warehouse: Warehouse, table: Table, name: str, lists: list[str]) -> None:
    """A table of as many snapshots as there are lists, at the location of the table that they were written for."""
    made = [
        Snapshot(
            snapshot_id=_FIRST + at,
            parent_snapshot_id=_FIRST + at - 1 if at else None,
            sequence_number=at + 1,
            timestamp_ms=micros(AS_OF - _HOUR * (len(lists) - at)) // 1000,
            manifest_list=location,
            summary=Summary(Operation.OVERWRITE),
            schema_id=table.schema().schema_id,
        )
        for at, location in enumerate(lists)
    ]
    head = _FIRST + len(made) - 1
    refs = {"main": SnapshotRef.model_validate({"snapshot-id": head, "type": SnapshotRefType.BRANCH})}
    metadata = table.metadata.model_copy(
        update={
            "table_uuid": uuid.uuid4(), "snapshots": made, "refs": refs, "current_snapshot_id": head,
            "last_sequence_number": len(made), "last_updated_ms": made[-1].timestamp_ms,
        }
    )  # fmt: skip
    assert isinstance(metadata, TableMetadataV2)
    _write(metadata, table.io, location := f"{table.location()}/metadata/00000-{metadata.table_uuid}.metadata.json")
    warehouse.catalog.register_table(f"db.{name}", location)


def _write(metadata: TableMetadataV2, io: FileIO, location: str) -> None:
    ToOutputFile.table_metadata(metadata, io.new_output(location))
