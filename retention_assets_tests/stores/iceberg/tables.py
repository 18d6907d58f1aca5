"""Real Iceberg tables for tests: a SQL catalog on SQLite, files in a folder, and eyes of their own."""

import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
)
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.iceberg.store import IcebergStore

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
STORE = "ice"
Made = TypeVar("Made")
_READ: dict[tuple[str, int, int, int], list[Any]] = {}


class Warehouse:
    """A catalog and its files in one folder; by `data` the files are in one of that name, by `root` they are elsewhere."""

    def __init__(self, folder: Path, data: str = "data", root: str | None = None, **properties: str) -> None:
        self.folder = folder
        self.data = folder / data
        place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": root or f"file://{self.data}"}
        self.properties = {"type": "sql", **place, **properties}
        self.catalog = SqlCatalog(STORE, **self.properties)
        self.catalog.create_namespace_if_not_exists("db")

    def store(self, **settings: Any) -> IcebergStore:
        return IcebergStore(IcebergSettings(name=STORE, catalog=self.properties, **settings))

    def table(self, name: str = "t", namespace: str = "db", **properties: str) -> Table:
        self.catalog.create_namespace_if_not_exists(namespace)
        return self.catalog.create_table(f"{namespace}.{name}", SCHEMA, properties=properties)

    def load(self, name: str = "t") -> Table:
        return self.catalog.load_table(f"db.{name}")

    def files(self) -> dict[str, bytes]:
        return {str(file): file.read_bytes() for file in self.data.rglob("*") if file.is_file()}

    def close(self) -> None:
        self.catalog.close()

    def __enter__(self) -> "Warehouse":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class KeptWarehouse(Generic[Made]):
    """A warehouse that is written once and put back for each test as it was: writing one takes longer than most tests of it.

    Its files name each other by their full paths, so it is always in the same place.
    """

    above: Path
    write: Callable[[Warehouse], Made]

    @cached_property
    def made(self) -> Made:
        self.folder.mkdir()
        with Warehouse(self.folder) as warehouse:
            made = self.write(warehouse)
        self.folder.rename(self.above / "kept")
        return made

    @property
    def folder(self) -> Path:
        return self.above / "warehouse"

    @contextmanager
    def opened(self) -> Iterator[Warehouse]:
        assert self.made is not None
        shutil.copytree(self.above / "kept", self.folder)
        try:
            with Warehouse(self.folder) as warehouse:
                yield warehouse
        finally:
            shutil.rmtree(self.folder)


def rows(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def place(location: str) -> str:
    return location.removeprefix("file://")


def head(table: Table) -> int:
    current = table.refresh().current_snapshot()
    assert current is not None
    return current.snapshot_id


def append(table: Table, *values: int, branch: str = "main") -> int:
    table.append(rows(*values), branch=branch)
    return table.refresh().refs()[branch].snapshot_id


def written(table: Table, *values: int) -> DataFile:
    [file] = _dataframe_to_data_files(table.metadata, rows(*values), table.io)
    file.spec_id = table.spec().spec_id
    return file


def change(table: Table, adding: Sequence[DataFile] = (), removing: Sequence[DataFile] = ()) -> int:
    """One snapshot that adds and removes whole data files. What stays of a manifest is rewritten."""
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for file in removing:
            snapshot.delete_data_file(file)
        for file in adding:
            snapshot.append_data_file(file)
    return head(table)


def files_of(table: Table) -> list[DataFile]:
    current = table.refresh().current_snapshot()
    held = [] if current is None else [m.fetch_manifest_entry(table.io) for m in current.manifests(table.io)]
    # Not `is`: in the first format, which had only data files, PyIceberg answers with the number.
    return [entry.data_file for entries in held for entry in entries if entry.data_file.content == DataFileContent.DATA]


def replace(table: Table, *values: int) -> int:
    return change(table, [written(table, *values)], files_of(table))


def replaced(warehouse: Warehouse, times: int) -> tuple[Table, list[int]]:
    """A table whose whole content was replaced so often, and its snapshots."""
    table = warehouse.table()
    return table, [replace(table, number) for number in range(1, times + 1)]


def live(table: Table, snapshot: Snapshot) -> set[str]:
    """The data and delete files that a snapshot holds, by PyIceberg's own reading."""

    def entries(manifest: ManifestFile) -> list[str]:
        return [place(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]

    return {file for one in manifests_of(table, snapshot) for file in read_once(one.manifest_path, partial(entries, one))}


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    return read_once(snapshot.manifest_list, lambda: snapshot.manifests(table.io))


def read_once(location: str, read: Callable[[], list[Made]]) -> list[Made]:
    """Content of a file that is read anew only if it was written anew: reading Avro takes most of what a test of a table takes."""
    if "://" in place(location):
        return read()
    state = Path(place(location)).stat()
    key = location, state.st_ino, state.st_mtime_ns, state.st_size
    if key not in _READ:
        _READ[key] = read()
    return _READ[key]


def reaches(table: Table, snapshot: Snapshot) -> set[str]:
    manifests = {place(manifest.manifest_path) for manifest in manifests_of(table, snapshot)}
    statistics = [*table.metadata.statistics, *table.metadata.partition_statistics]
    kept = {place(one.statistics_path) for one in statistics if one.snapshot_id == snapshot.snapshot_id}
    return live(table, snapshot) | manifests | kept | {place(snapshot.manifest_list)}


def add_statistics(table: Table, snapshot: int, file: str, partitions: str = "") -> None:
    """Name files of statistics, ten bytes each."""
    named: dict[str, Any] = {"snapshot-id": snapshot, "file-size-in-bytes": 10}
    whole = named | {"statistics-path": file, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    parts = PartitionStatisticsFile.model_validate(named | {"statistics-path": partitions})
    updates = (SetStatisticsUpdate(statistics=StatisticsFile.model_validate(whole)),)
    table._do_commit(updates + (SetPartitionStatisticsUpdate(partition_statistics=parts),) * bool(partitions), ())


def own_files(table: Table, snapshot: int) -> set[str]:
    found = {one.snapshot_id: reaches(table, one) for one in table.refresh().metadata.snapshots}
    return found.pop(snapshot).difference(*found.values())


def reachable(table: Table) -> set[str]:
    """All files that a table needs, its metadata files included."""
    table.refresh()
    metadata = {place(entry.metadata_file) for entry in table.metadata.metadata_log} | {place(table.metadata_location)}
    return metadata.union(*(reaches(table, snapshot) for snapshot in table.metadata.snapshots))


def content(table: Table) -> dict[int, list[int]]:
    return {one.snapshot_id: _read(table, one.snapshot_id) for one in table.refresh().metadata.snapshots}


def _read(table: Table, snapshot: int) -> list[int]:
    by_pyiceberg = sorted(table.scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist())
    with warnings.catch_warnings():
        # Polars would rather plan with a package of its own. It then asks PyIceberg for the files, and reads them itself.
        warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)
        by_polars = sorted(pl.scan_iceberg(table, snapshot_id=snapshot).collect()["id"].to_list())
    assert by_pyiceberg == by_polars
    return by_pyiceberg


class DeletesWriter(ManifestWriterV2):
    """PyIceberg reads delete manifests and has no writer for them."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def entry_of(table: Table, location: str, size: int, content: DataFileContent = DataFileContent.POSITION_DELETES) -> DataFile:
    """An entry that names a file, whatever is in it."""
    file = DataFile.from_args(
        content=content,
        file_path=location,
        file_format=FileFormat.PUFFIN if location.endswith(".puffin") else FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
    )
    file.spec_id = table.spec().spec_id
    return file


def position_deletes(table: Table, data_file: str, positions: Sequence[int]) -> DataFile:
    """A real position delete file: these rows of a data file are gone."""
    location = f"{table.location()}/data/deletes-{time.perf_counter_ns()}.parquet"
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": "2147483545"}),
        ]
    )
    deletes = pa.table({"file_path": [data_file] * len(positions), "pos": list(positions)}, schema=schema)
    pq.write_table(deletes, place(location))
    return entry_of(table, location, Path(place(location)).stat().st_size)


def add_deletes(table: Table, *deletes: DataFile, branch: str = "main") -> int:
    """A snapshot that adds delete files to what its parent holds, as merge-on-read writers do."""
    table.refresh()
    metadata = table.metadata
    parent = metadata.snapshot_by_name(branch)
    assert parent is not None
    assert isinstance(metadata, TableMetadataV2)
    one, number = parent.snapshot_id + 1, metadata.last_sequence_number + 1
    folder = f"{table.location()}/metadata"
    writer = DeletesWriter(table.spec(), table.schema(), table.io.new_output(f"{folder}/{one}-m0.avro"), one, "null")
    with writer:
        for file in deletes:
            writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=one, data_file=file))
    return _commit(table, parent, one, number, [writer.to_manifest_file(), *parent.manifests(table.io)], branch)


COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")


def write_counts(table: Table, counts: Mapping[str, int | None]) -> None:
    """Have the lists of all snapshots say this of each manifest; nothing of a count is what the writers of old said."""
    fields = MANIFEST_LIST_FILE_SCHEMAS[2].fields
    optional = [one.model_copy(update={"required": False}) if one.name in COUNTS else one for one in fields]
    schema, said = Schema(*optional), {at: counts[one.name] for at, one in enumerate(fields) if one.name in counts}
    for snapshot in table.refresh().metadata.snapshots:
        manifests = [copy(manifest) for manifest in snapshot.manifests(table.io)]
        for manifest in manifests:
            manifest._data = [said.get(at, value) for at, value in enumerate(manifest._data)]
        output = table.io.new_output(snapshot.manifest_list)
        with AvroOutputFile[ManifestFile](output, schema, "manifest_file", schema, {"format-version": "2"}) as writer:
            writer.write_block(manifests)


def _commit(table: Table, parent: Snapshot, one: int, number: int, manifests: list[ManifestFile], branch: str) -> int:
    location = f"{table.location()}/metadata/snap-{one}.avro"
    with write_manifest_list(2, table.io.new_output(location), one, parent.snapshot_id, number, "null") as writer:
        writer.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=one,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=number,
        timestamp_ms=parent.timestamp_ms + 1,
        manifest_list=location,
        summary=Summary(Operation.OVERWRITE),
        schema_id=table.schema().schema_id,
    )
    updates = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate.model_validate({"ref-name": branch, "type": SnapshotRefType.BRANCH.value, "snapshot-id": one}),
    )
    table._do_commit(updates, ())
    return one


@contextmanager
def undeletable(*places: str) -> Iterator[None]:
    """While open, these files can't be deleted: each is exchanged for a folder that holds it."""
    for file in map(Path, places):
        held = file.with_name(f"{file.name}.held")
        file.rename(held)
        file.mkdir()
        held.rename(file / "held")
    try:
        yield
    finally:
        for file in map(Path, places):
            held = file.with_name(f"{file.name}.held")
            (file / "held").rename(held)
            file.rmdir()
            held.rename(file)
