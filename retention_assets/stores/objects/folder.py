"""The folder of a scan: the files that its tasks leave, and the tasks that write listing, references and edges into it.

`objects/` has a Parquet file per share, with everything listed, and `classes/` the class of each of its rows. The
others hold intermediate fingerprints. The listing is read once, before every reference.
"""

from collections.abc import Callable, Generator, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from retention_assets.frames.arrays import Bools, Ints, join_chunks
from retention_assets.frames.log import INSTANT, NAME
from retention_assets.policy.realms import is_reserved
from retention_assets.stores.concurrency import OpenPlace, open_local
from retention_assets.stores.objects.fingerprints import Fingerprints, Hashes, ReferredNames, distinct, words_of
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.sources import ObjectListing, ShareEnd, ShareRows
from retention_assets.stores.objects.tables import constant_dataset, with_names

# Fingerprints are cut into ranges of equal width; a task takes consecutive ones.
RANGES = 1 << 8
RANGE_SHIFT = 64 - 8
ROWS = 1 << 17  # least rows that are written, read and judged together
_HEAD = (RANGES + 1) * 8  # bytes before the fingerprints of a file: offsets of the ranges
OBJECTS, CLASSES = "objects", "classes"
FOLDERS = (OBJECTS, CLASSES, "due", "edges", "references", "hits", "asked", "retained", "matched")

LISTED = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("realm", NAME),
        pa.field("kind", NAME),
        pa.field("dataset", NAME),
        pa.field("size", pa.int64()),
        pa.field("created_at", INSTANT),
        pa.field("condition", pa.string()),
        pa.field("fingerprint", pa.uint64()),
    ]
)
# columns from which log lines and reasons to keep an object are made
KEPT = ("key", "realm", "kind", "dataset", "size", "created_at")
CLASS = pa.schema([pa.field("class", pa.dictionary(pa.int8(), pa.string()))])
_WORDS = ("realm", "kind", "dataset")


@dataclass(frozen=True)
class Run:
    """A file of fingerprints, their number, and the number of their source."""

    name: str
    values: int
    source: int = 0


S = TypeVar("S", bound=Sized)
Written = TypeVar("Written")


class Pieces(Generic[S, Written]):
    """Collects parts and writes them together once they have `least` rows; the rest when it is closed."""

    def __init__(self, least: int, write: Callable[[Sequence[S], int], Written]) -> None:
        self._least, self._write = least, write
        self._parts: list[S] = []
        self._written: list[Written] = []

    def add(self, part: S) -> None:
        if len(part):
            self._parts.append(part)
        if sum(map(len, self._parts)) >= self._least:
            self.close()

    def close(self) -> list[Written]:
        if self._parts:
            self._written.append(self._write(self._parts, len(self._written)))
            self._parts = []
        return self._written


@dataclass(frozen=True)
class ScanFolder:
    """A folder, how its path or URI is opened where tasks run, and the salt of the fingerprints in it."""

    root: str
    open: OpenPlace = open_local
    salt: bytes = field(default=b"", repr=False)

    @property
    def fingerprints(self) -> Fingerprints:
        return Fingerprints(self.salt)

    def place(self, name: str) -> tuple[pafs.FileSystem, str]:
        files, root = self.open(self.root)
        return files, f"{root}/{name}"

    def make(self, *names: str) -> None:
        for name in names:
            files, path = self.place(name)
            files.create_dir(path, recursive=True)

    def writer(self, name: str, schema: pa.Schema) -> pq.ParquetWriter:
        """Open a Parquet file for writing; uncompressed on local disks, where compression costs more than it saves."""
        files, path = self.place(name)
        words = [column.name for column in schema if pa.types.is_dictionary(column.type)]
        compression = "none" if isinstance(files, pafs.LocalFileSystem) else "lz4"
        return pq.ParquetWriter(
            path, schema, filesystem=files, compression=compression, use_dictionary=words, write_statistics=False
        )

    def reader(self, name: str) -> pq.ParquetFile:
        files, path = self.place(name)
        words = list(_WORDS) if name.startswith(f"{OBJECTS}/") else None
        return pq.ParquetFile(path, filesystem=files, read_dictionary=words, pre_buffer=False)

    def groups(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield a Parquet file by its row groups."""
        with self.reader(name) as source:
            for group in range(source.num_row_groups):
                yield source.read_row_group(group, columns=columns and list(columns), use_threads=False)

    def write_bytes(self, name: str, *parts: Any) -> None:
        files, path = self.place(name)
        with files.open_output_stream(path) as stream:
            for part in parts:
                stream.write(part)

    def read_bytes(self, name: str) -> pa.Buffer:
        files, path = self.place(name)
        with files.open_input_file(path) as source:
            return source.read_buffer()

    def write_values(self, name: str, values: Hashes, source: int = 0) -> "Run":
        """Write sorted fingerprints, after the offset of each range."""
        begins = np.searchsorted(values, np.arange(RANGES, dtype=np.uint64) << np.uint64(RANGE_SHIFT)).astype(np.int64)
        self.write_bytes(name, np.append(begins, np.int64(len(values))), np.ascontiguousarray(values))
        return Run(name, len(values), source)

    def write_ranges(self, name: str, values: Hashes) -> Ints:
        """Write fingerprints grouped by range, unsorted within each; merging sorts them. Returns the index of the fingerprint
        at each place."""
        ranges = (values >> np.uint64(RANGE_SHIFT)).astype(np.uint8)
        begins = np.zeros(RANGES + 1, dtype=np.int64)
        np.cumsum(np.bincount(ranges, minlength=RANGES), out=begins[1:])
        order: Ints = np.argsort(ranges, kind="stable")
        self.write_bytes(name, begins, values[order])
        return order

    def read_values(self, name: str, first: int = 0, end: int = RANGES) -> "RangedValues":
        files, path = self.place(name)
        with files.open_input_file(path) as source:
            begins = np.frombuffer(source.read_at(_HEAD, 0), dtype=np.int64)
            start, stop = int(begins[first]), int(begins[end])
            values = np.frombuffer(source.read_at((stop - start) * 8, _HEAD + start * 8), dtype=np.uint64)
        return RangedValues(begins, first, values)


@dataclass(frozen=True)
class RangedValues:
    """Fingerprints of consecutive ranges of a file."""

    begins: Ints
    first: int
    values: Hashes

    def between(self, first: int, end: int) -> Hashes:
        origin = self.begins[self.first]
        return self.values[int(self.begins[first] - origin) : int(self.begins[end] - origin)]


def read_classes(folder: ScanFolder, columns: Sequence[str] = KEPT) -> Iterator[pa.Table]:
    """Yield listed objects in batches: some columns of `KEPT`, and `class`."""
    files, path = folder.place(CLASSES)
    names = [info.base_name for info in files.get_file_info(pafs.FileSelector(path, allow_not_found=True))]
    for part in sorted(name for name in names if name.endswith(".parquet")):
        groups = zip(folder.groups(f"{OBJECTS}/{part}", columns), folder.groups(f"{CLASSES}/{part}"), strict=True)
        for objects, classes in groups:
            yield objects.append_column("class", classes["class"])


def mask_of(column: pa.Array | pa.ChunkedArray, test: Callable[[str], bool], missing: bool = False) -> Bools:
    """Mask of the texts that pass a test, which is asked once for each distinct text; null is `missing`."""
    names, codes = words_of(column)
    mask: Bools = np.array([*map(test, names), missing])[codes]
    return mask


@dataclass(frozen=True)
class ListingRows:
    """A listing as a source. It needs no further proof: a share that can't be listed completely raises."""

    listing: ObjectListing
    label: str = "the listing"
    names_folders: bool = False

    def shares(self, wanted: int) -> Sequence[Any]:
        return self.listing.shares(wanted)

    def read(self, share: Any) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows = 0
        for batch in self.listing.read(share):
            rows += batch.num_rows
            yield batch
        return ShareEnd(share, rows)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[Any]:  # noqa: ARG002 - see above
        return ()


def write_listing(settings: ObjectsSettings, folder: ScanFolder, rows: ShareRows) -> tuple[str, int]:
    """Write a share; return its file, and its rows that are in no reserved realm."""
    only_dataset, part = constant_dataset(settings), f"{rows.name}.parquet"

    def write(batches: Sequence[pa.RecordBatch], _: int) -> int:
        table = pa.Table.from_batches(batches).combine_chunks()
        hashes = folder.fingerprints.of(join_chunks(table["key"]), join_chunks(table["realm"]))
        columns = [_column(table, column, only_dataset) for column in LISTED if column.name != "fingerprint"]
        writer.write_table(pa.table([*columns, pa.array(hashes)], schema=LISTED))
        return int(np.count_nonzero(~mask_of(table["realm"], is_reserved)))

    with folder.writer(f"{OBJECTS}/{part}", LISTED) as writer:
        pieces = Pieces(ROWS, write)
        for batch in rows:
            pieces.add(with_names(batch, settings))
        return part, sum(pieces.close())


def _column(table: pa.Table, field: pa.Field, only_dataset: str | None) -> pa.Array:
    if field.name == "dataset" and only_dataset is not None:
        places = pa.array(np.zeros(len(table), dtype=np.int32))
        return pa.DictionaryArray.from_arrays(places, pa.array([only_dataset]))
    column = join_chunks(table[field.name])
    return pa.nulls(len(column), field.type) if column.null_count == len(column) else column.cast(field.type)


@dataclass(frozen=True)
class ListedObjects:
    """Parts of a listing in the folder of a scan; tasks are sent it as a value."""

    folder: ScanFolder
    parts: Sequence[str]

    def read(self, number: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of a part in batches of less than twice `ROWS` rows, the same ones each time."""
        return self.folder.groups(f"{OBJECTS}/{self.parts[number]}", columns)


@dataclass(frozen=True)
class ReferenceRuns:
    """Files of references, how these name objects, and files of hits among them."""

    runs: Sequence[Run]
    names: ReferredNames
    hits: Sequence[Run] = ()


def in_order(hashes: Sequence[Hashes]) -> Hashes:
    return distinct(np.concatenate(hashes)) if hashes else np.zeros(0, dtype=np.uint64)
