"""The folder of a scan: names and formats of the files that its tasks leave.

`objects/` has a Parquet file per share, with everything listed, and `classes/` the class of each of its rows. `references/`,
`asked/`, `retained/`, `edges/` and `matched/` hold intermediate fingerprints.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from retention_assets.frames.arrays import Ints
from retention_assets.frames.log import INSTANT, NAME
from retention_assets.stores.objects.scan.fingerprints import Hashes

# Fingerprints are cut into ranges of equal width; a task takes consecutive ones.
RANGES = 1 << 8
RANGE_SHIFT = 64 - 8
# least rows that are written, read and judged together
ROWS = 1 << 17
_HEAD = (RANGES + 1) * 8
OBJECTS, CLASSES = "objects", "classes"
FOLDERS = (OBJECTS, CLASSES, "references", "asked", "retained", "edges", "matched")

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
KEPT = ("key", "realm", "kind", "dataset", "size", "created_at")
CLASS = pa.schema([pa.field("class", pa.dictionary(pa.int8(), pa.string()))])
_WORDS = ("realm", "kind", "dataset")


def open_local(place: str) -> tuple[pafs.FileSystem, str]:
    return pafs.LocalFileSystem(), place


@dataclass(frozen=True)
class Run:
    """A file of fingerprints, and the number of the source that they are from."""

    name: str
    values: int
    source: int = 0


class Sized(Protocol):
    def __len__(self) -> int:
        """Number of rows."""


S = TypeVar("S", bound=Sized)


def gathered(parts: Iterable[S], least: int) -> Iterator[list[S]]:
    """Group consecutive parts, so that each group but the last has at least this many rows. Empty parts are left out."""
    held, rows = list[S](), 0
    for part in parts:
        if len(part):
            held.append(part)
            rows += len(part)
        if rows >= least:
            yield held
            held, rows = [], 0
    if held:
        yield held


@dataclass(frozen=True)
class ScanFolder:
    """A folder, and how its path or URI is opened where tasks run."""

    root: str
    open: Callable[[str], tuple[pafs.FileSystem, str]] = open_local

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
        words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        packed = "none" if isinstance(files, pafs.LocalFileSystem) else "lz4"
        return pq.ParquetWriter(
            path, schema, filesystem=files, compression=packed, use_dictionary=words, write_statistics=False
        )

    def reader(self, name: str) -> pq.ParquetFile:
        files, path = self.place(name)
        words = list(_WORDS) if name.startswith(f"{OBJECTS}/") else None
        return pq.ParquetFile(path, filesystem=files, read_dictionary=words, pre_buffer=False)

    def parts(self, name: str) -> list[str]:
        files, path = self.place(name)
        found = files.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted(one.base_name for one in found if one.base_name.endswith(".parquet"))

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
            begin, behind = int(begins[first]), int(begins[end])
            values = np.frombuffer(source.read_at((behind - begin) * 8, _HEAD + begin * 8), dtype=np.uint64)
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
    for part in folder.parts(CLASSES):
        with folder.reader(f"{OBJECTS}/{part}") as objects, folder.reader(f"{CLASSES}/{part}") as classes:
            for group in range(objects.num_row_groups):
                rows = objects.read_row_group(group, columns=list(columns), use_threads=False)
                yield rows.append_column("class", classes.read_row_group(group, use_threads=False)["class"])
