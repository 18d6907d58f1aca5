"""Lists of objects that somebody else made: their columns become those of `tables.OBJECTS`, without copying columns of the
right type. Lists are Parquet files, shared out by files and row groups, or Iceberg tables, such as S3 Metadata's, read at the
snapshot current when the listing began."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.exchange.attributes import attribute_texts
from retention_assets.frames.log import INSTANT
from retention_assets.policy.durations import from_micros
from retention_assets.settings.places import mask_secrets, mask_text
from retention_assets.sql.streams import instant_columns
from retention_assets.stores.files.log_files import LogFile, files_matching
from retention_assets.stores.objects.notes import tagged_conditions
from retention_assets.stores.objects.settings import FromColumn, ObjectsSettings
from retention_assets.stores.objects.source_settings import ListedColumns, ListingTable, ParquetFiles
from retention_assets.stores.objects.sources import ObjectListing, Pace
from retention_assets.stores.objects.tables import OBJECTS, constant_dataset, objects_batch
from retention_assets.stores.places.file_systems import is_local, open_file_system

if TYPE_CHECKING:
    from pyiceberg.table import DataScan, Table

_NEEDED = ("key", "created_at")
# roles that an object has only if the settings name their column
DERIVED = ("realm", "kind")
_ROLES = (*_NEEDED, "size", "etag", "version")


@dataclass(frozen=True)
class ColumnRoles:
    """Pairs of role and column: those that a list must have, and those that it may lack."""

    needed: tuple[tuple[str, str], ...]
    optional: tuple[tuple[str, str], ...]
    # truncate times to seconds, the precision of an object store's answer about one object
    whole_seconds: bool = False

    @classmethod
    def of(cls, columns: ListedColumns, settings: ObjectsSettings, whole_seconds: bool) -> Self:
        """Roles according to the settings. A column that is named there is needed."""
        named = {role: getattr(columns, role) for role in columns.model_fields_set} | derived_columns(settings)
        names = {role: named.get(role) or getattr(columns, role) or role for role in _ROLES}
        names |= {role: name for role in DERIVED if (name := named.get(role))}
        needed = [(role, name) for role, name in names.items() if role in _NEEDED or named.get(role)]
        return cls(tuple(needed), tuple(pair for pair in names.items() if pair not in needed), whole_seconds)

    @property
    def derived(self) -> bool:
        return any(role in DERIVED for role, _ in self.needed)

    def among(self, there: Collection[str], where: str, wanted: Collection[str] | None = None) -> dict[str, str]:
        """Columns of a list by role: the key and the wanted ones, or all. Raises Refused if a needed one is missing."""
        for role, name in self.needed:
            if name not in there:
                raise Refused(
                    f"{where} has no column {name} for the {role} of each object. It has {', '.join(there) or 'none'}. "
                    "Name the right one under `columns` in the settings."
                )
        roles = dict(self.needed) | {role: name for role, name in self.optional if name in there}
        return roles if wanted is None else {role: name for role, name in roles.items() if role in ("key", *wanted)}


def derived_columns(settings: ObjectsSettings) -> dict[str, str]:
    sources = {"realm": settings.realm, "kind": settings.kind_of}
    return {role: source.column for role, source in sources.items() if isinstance(source, FromColumn)}


def objects_of(batch: pa.RecordBatch, roles: dict[str, str], whole_seconds: bool, where: str) -> pa.RecordBatch:
    """Convert a batch of a list. Raises Refused for values that are no objects."""
    columns: dict[str, pa.Array] = {}
    for role, name in roles.items():
        column, kind = batch[name], pa.int64() if role == "size" else pa.string()
        try:
            if role == "created_at":
                columns[role] = instants(column, where, name, whole_seconds)
                continue
            if role in DERIVED:
                column, faults = attribute_texts(column)
                if fault := next(iter(faults.drop_null()), None):
                    raise pa.ArrowInvalid(f"a value {fault}")
            columns[role] = column if column.type == kind else column.cast(kind)
        except pa.ArrowException as fault:
            raise _refusal(where, name, str(fault)) from None
    key, tags = columns.pop("key"), {name: columns.pop(name) for name in ("version", "etag") if name in columns}
    if key.null_count:
        raise _refusal(where, roles["key"], "an object has no key")
    if tags:
        missing = pa.nulls(len(key), pa.string())
        columns["condition"] = tagged_conditions(tags.get("version", missing), tags.get("etag", missing))
    return objects_batch(key, columns)


def instants(column: pa.Array, where: str, name: str, whole_seconds: bool = False) -> pa.Array:
    """Convert a column of times to instants; without a zone they are UTC. Raises Refused for numbers, whose unit is unknown."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        if pa.types.is_timestamp(column.type):
            # Truncation makes no object younger.
            times = column.cast(INSTANT, safe=False)
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            times = instant_columns(column.cast(pa.string()))
        else:
            raise _refusal(where, name, f"it has the type {column.type}, not a timestamp")
    except pa.ArrowException as fault:
        raise _refusal(where, name, str(fault)) from None
    return pc.floor_temporal(times, unit="second") if whole_seconds else times


def _refusal(where: str, name: str, fault: str) -> Refused:
    [line, *_] = fault.splitlines()
    return Refused(
        f"The column {name} of {where} can't be read as a list of objects: {line}. Mend the list, or name another column."
    )


P = TypeVar("P")


def packed(parts: Iterable[P], weight: Callable[[P], int], shares: int) -> list[tuple[P, ...]]:
    """Pack parts into this many shares of about equal weight; heavy parts should come first."""
    packs: list[list[P]] = [[] for _ in range(max(1, shares))]
    weights = [0] * len(packs)
    for part in parts:
        least = weights.index(min(weights))
        packs[least].append(part)
        weights[least] += weight(part)
    return [tuple(pack) for pack in packs]


@dataclass
class FinishedListing(ObjectListing):
    """A list of objects that somebody else made, and their place if the settings name it: only the place knows what exists now.
    `kind` is its name in the settings; with `derived`, only the list knows realms or kinds."""

    kind: str
    place: ObjectListing | None
    # objects of the list read per second; 0 is unlimited
    rate: float
    derived: bool

    @abstractmethod
    def read(self, share: Any, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]: ...

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Ask the place; with `derived`, read the list again for realms and kinds and drop what it does not name. Raises
        Refused if the settings name no place."""
        if self.place is None:
            raise Refused(
                f"The place of the objects in the listing of kind {self.kind} is unknown, so none can be checked or "
                "deleted. Set `listing.path` to the folder or prefix that holds them."
            )
        batches = self.place.find(keys)
        return self._derive(batches) if self.derived else batches

    def _derive(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A key that the list has in two realms gives two rows.
        objects = pa.Table.from_batches(batches, OBJECTS).combine_chunks()
        if not len(objects):
            return
        [keys] = objects["key"].chunks
        self.begin()
        shares, pace = self.shares(1), Pace(self.rate)
        for share in shares:
            for batch in self.read(share, DERIVED):
                pace.take(len(batch))
                at = pc.index_in(batch["key"], value_set=keys)
                if at.null_count == len(at):
                    continue
                listed = batch.filter(pc.is_valid(at))
                for present in objects.take(at.drop_null()).combine_chunks().to_batches():
                    columns = {name: listed[name] if name in DERIVED else present[name] for name in OBJECTS.names}
                    yield pa.record_batch(columns, schema=OBJECTS)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        constant = constant_dataset(settings)
        return None if constant is None else [constant]


# rows
_BATCH = 1 << 17


@dataclass(frozen=True)
class FileRows:
    """Row groups of a file, or all of them if None. `weight` is in bytes."""

    file: LogFile
    weight: int
    groups: tuple[int, ...] | None = None


@dataclass
class ParquetObjects(FinishedListing):
    files: ParquetFiles
    roles: ColumnRoles

    def begin(self) -> datetime:
        """From the settings: the files do not tell when they were listed."""
        return self.files.as_of

    def shares(self, wanted: int) -> Sequence[tuple[FileRows, ...]]:
        with self._refusing(self.files.files):
            parts = [FileRows(file, file.size) for file in files_matching(self.files.files)]
        if not parts:
            raise Refused(f"No file is at {mask_secrets(self.files.files)}. Check `listing.parquet.files` in the settings.")
        if len(parts) < wanted:
            parts = [group for part in parts for group in self._groups(part)]
        parts.sort(key=lambda part: (-part.weight, part.file.path, part.groups or ()))
        return packed(parts, lambda part: part.weight, min(wanted, len(parts)))

    def read(self, share: tuple[FileRows, ...], columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        for part in share:
            where = part.file.shown
            with self._opened(part) as file:
                roles = self.roles.among(file.schema_arrow.names, where, columns)
                groups = list(range(file.num_row_groups)) if part.groups is None else list(part.groups)
                names = list(dict.fromkeys(roles.values()))
                rows, expected = 0, sum(file.metadata.row_group(group).num_rows for group in groups)
                for batch in file.iter_batches(_BATCH, groups, names):
                    rows += len(batch)
                    yield objects_of(batch, roles, self.roles.whole_seconds, where)
                if rows != expected:
                    raise Refused(f"{where} claims {expected} rows, but has {rows}. Write it again.")

    def _groups(self, part: FileRows) -> Iterator[FileRows]:
        with self._opened(part) as file:
            self.roles.among(file.schema_arrow.names, part.file.shown)
            for group in range(file.num_row_groups):
                yield FileRows(part.file, file.metadata.row_group(group).total_byte_size, (group,))

    @contextmanager
    def _opened(self, part: FileRows) -> Iterator[pq.ParquetFile]:
        fs, _ = open_file_system(self.files.files)
        with self._refusing(part.file.path):
            # Checked before and after reading, to notice a file that is overwritten meanwhile.
            self._check(part.file)
            source: Any = part.file.path if is_local(fs) else fs.open(part.file.path, "rb")
            with pq.ParquetFile(source, pre_buffer=not is_local(fs)) as file:
                yield file
            self._check(part.file)

    def _check(self, file: LogFile) -> None:
        present = next((match for match in files_matching(file.log) if match.path == file.path), None)
        if present is None:
            raise FileNotFoundError("it is gone")
        if present != file:
            raise Refused(f"{file.shown} changed since the listing began. Try again.")

    @contextmanager
    def _refusing(self, place: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as fault:
            [line, *_] = str(fault).splitlines() or [type(fault).__name__]
            raise Refused(f"{mask_secrets(place)} can't be read as Parquet: {line}. Write it again.") from fault


@dataclass(frozen=True)
class TableShare:
    """Every `of`-th data file of a snapshot, by name."""

    snapshot: int
    number: int
    of: int


@dataclass
class TableObjects(FinishedListing):
    store: str
    table: ListingTable
    roles: ColumnRoles
    # snapshot that begin() chose
    _snapshot: int | None = None

    def begin(self) -> datetime:
        with self._opened() as table:
            snapshot = table.current_snapshot()
            if snapshot is None:
                raise Refused(f"The table {self.table.name} has no snapshot, so it lists nothing. Write it first.")
            self._snapshot = snapshot.snapshot_id
            return from_micros(snapshot.timestamp_ms * 1000)

    def shares(self, wanted: int) -> Sequence[TableShare]:
        if self._snapshot is None:
            self.begin()
        assert self._snapshot is not None, "begin sets it"
        with self._opened() as table:
            files = sum(1 for _ in self._scan(table, self._snapshot)[0].plan_files())
        parts = max(1, min(wanted, files))
        return [TableShare(self._snapshot, number, parts) for number in range(parts)]

    def read(self, share: TableShare, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        from pyiceberg.io.pyarrow import ArrowScan

        with self._opened() as table:
            scan, roles = self._scan(table, share.snapshot, columns)
            files = sorted(scan.plan_files(), key=lambda task: task.file.file_path)[share.number :: share.of]
            rows = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
            for batch in rows.to_record_batches(files):
                yield objects_of(batch, roles, self.roles.whole_seconds, f"the table {self.table.name}")

    def _scan(self, table: "Table", snapshot: int, columns: Collection[str] | None = None) -> tuple["DataScan", dict[str, str]]:
        there = [field.name for field in table.scan(snapshot_id=snapshot).projection().fields]
        roles = self.roles.among(there, f"The table {self.table.name}", columns)
        return table.scan(selected_fields=tuple(dict.fromkeys(roles.values())), snapshot_id=snapshot), roles

    @contextmanager
    def _opened(self) -> Iterator["Table"]:
        # PyIceberg takes long to import, and few stores need it.
        from retention_assets.stores.iceberg.catalog import open_catalog

        try:
            catalog = open_catalog(self.store, {"init_catalog_tables": "false", **self.table.catalog})
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
