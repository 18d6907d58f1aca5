"""The folder of a scan: what its tasks leave to each other, and to those who want to see it later.

Belongs here: names and formats. `objects/` has objects, one Parquet file per share: everything that was listed, or what of a
finished list has lines in the log. `classes/` has for each of these files one with the class of each row, and `every/` for each
share of a finished list one with the class of each object. `references/`, `asked/`, `retained/`, `edges/` and `matched/` hold
fingerprints on the way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from retention_assets.frames.arrays import Ints
from retention_assets.frames.log import INSTANT, NAME
from retention_assets.stores.objects.scan.fingerprints import Hashes

# Fingerprints are cut into so many ranges of one width, of which a task takes some that lie beside each other.
RANGES = 1 << 8
RANGE_SHIFT = 64 - 8
# So many rows are read and judged together.
ROWS = 1 << 17
_HEAD = (RANGES + 1) * 8
# So many keys at least are written together.
_KEY_ROWS = 1 << 12
OBJECTS, CLASSES, EVERY = "objects", "classes", "every"
FOLDERS = (OBJECTS, CLASSES, EVERY, "references", "asked", "retained", "edges", "matched")

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
# Of an object what is kept with its class.
KEPT = ("key", "realm", "kind", "dataset", "size", "created_at")
CLASS = pa.schema([pa.field("class", pa.dictionary(pa.int8(), pa.string()))])
KEYS = pa.schema([pa.field("key", pa.string()), pa.field("realm", pa.string()), pa.field("folder", pa.bool_())])
_WORDS = ("realm", "kind", "dataset")


def open_local(place: str) -> tuple[pafs.FileSystem, str]:
    """A path on this machine."""
    return pafs.LocalFileSystem(), place


@dataclass(frozen=True)
class ScanFolder:
    """A folder, and how a path or URI is opened where tasks run."""

    root: str
    open: Callable[[str], tuple[pafs.FileSystem, str]] = open_local

    def place(self, name: str) -> tuple[pafs.FileSystem, str]:
        """A file in it."""
        files, root = self.open(self.root)
        return files, f"{root}/{name}"

    def make(self, *names: str) -> None:
        """Make folders in it."""
        for name in names:
            files, path = self.place(name)
            files.create_dir(path, recursive=True)

    def writer(self, name: str, schema: pa.Schema) -> pq.ParquetWriter:
        """Begin a Parquet file. On a disk to pack it costs more than it saves."""
        files, path = self.place(name)
        words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        packed = "none" if isinstance(files, pafs.LocalFileSystem) else "lz4"
        return pq.ParquetWriter(
            path, schema, filesystem=files, compression=packed, use_dictionary=words, write_statistics=False
        )

    def reader(self, name: str) -> pq.ParquetFile:
        """Open a Parquet file."""
        files, path = self.place(name)
        words = list(_WORDS) if name.startswith(f"{OBJECTS}/") else None
        return pq.ParquetFile(path, filesystem=files, read_dictionary=words, pre_buffer=False)

    def parts(self, name: str) -> list[str]:
        """The names of the Parquet files of a folder in it."""
        files, path = self.place(name)
        found = files.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted(one.base_name for one in found if one.base_name.endswith(".parquet"))

    def write_bytes(self, name: str, *parts: Any) -> None:
        """A file of bytes."""
        files, path = self.place(name)
        with files.open_output_stream(path) as stream:
            for part in parts:
                stream.write(part)

    def read_bytes(self, name: str) -> pa.Buffer:
        """A file of bytes, whole."""
        files, path = self.place(name)
        with files.open_input_file(path) as source:
            return source.read_buffer()

    def write_values(self, name: str, values: Hashes, keys: pa.Table | None = None) -> None:
        """Fingerprints in order, with where each range begins; and beside them the keys that they are of, if given."""
        begins = np.searchsorted(values, np.arange(RANGES, dtype=np.uint64) << np.uint64(RANGE_SHIFT)).astype(np.int64)
        self._write(name, np.append(begins, np.int64(len(values))), np.ascontiguousarray(values), keys)

    def write_ranges(self, name: str, values: Hashes, keys: pa.Table | None = None) -> Ints:
        """Fingerprints range by range, in any order within each: putting them in order is left to who merges them.

        Returns which of those that were given stands at each place.
        """
        ranges = (values >> np.uint64(RANGE_SHIFT)).astype(np.uint8)
        begins = np.zeros(RANGES + 1, dtype=np.int64)
        np.cumsum(np.bincount(ranges, minlength=RANGES), out=begins[1:])
        order: Ints = np.argsort(ranges, kind="stable")
        self._write(name, begins, values[order], None if keys is None else keys.take(pa.array(order)).combine_chunks())
        return order

    def _write(self, name: str, begins: Ints, values: Hashes, keys: pa.Table | None) -> None:
        self.write_bytes(name, begins, values)
        if keys is None:
            return
        files, path = self.place(f"{name}.keys")
        with files.open_output_stream(path) as stream, pa.ipc.new_file(stream, KEYS) as writer:
            for begin, end in _key_batches(begins):
                writer.write_batch(keys.slice(begin, end - begin).to_batches()[0])

    def read_values(self, name: str, first: int = 0, end: int = RANGES, *, keyed: bool = False) -> "RangedValues":
        """The fingerprints of some ranges, and their keys if asked."""
        files, path = self.place(name)
        with files.open_input_file(path) as source:
            begins = np.frombuffer(source.read_at(_HEAD, 0), dtype=np.int64)
            begin, behind = int(begins[first]), int(begins[end])
            values = np.frombuffer(source.read_at((behind - begin) * 8, _HEAD + begin * 8), dtype=np.uint64)
        return RangedValues(self, name, begins, first, values, keyed)


@dataclass(frozen=True)
class RangedValues:
    """The fingerprints of some ranges of a file; their keys are read when they are asked for."""

    folder: ScanFolder
    name: str
    begins: Ints
    first: int
    values: Hashes
    keyed: bool

    def between(self, first: int, end: int) -> Hashes:
        """Those of some of the ranges."""
        origin = self.begins[self.first]
        return self.values[int(self.begins[first] - origin) : int(self.begins[end] - origin)]

    def keys(self, first: int, end: int) -> pa.Table:
        """Their keys; a table without any where none are kept."""
        if not self.keyed or self.begins[first] == self.begins[end]:
            return KEYS.empty_table()
        begin, behind = int(self.begins[first]), int(self.begins[end])
        files, path = self.folder.place(f"{self.name}.keys")
        with files.open_input_file(path) as source, pa.ipc.open_file(source) as reader:
            found = [
                reader.get_batch(number).slice(max(0, begin - low), min(high, behind) - max(low, begin))
                for number, (low, high) in enumerate(_key_batches(self.begins))
                if low < behind and begin < high
            ]
        return pa.Table.from_batches(found, KEYS)


def _key_batches(begins: Ints) -> list[tuple[int, int]]:
    """From where to where the keys of whole ranges are written together, so that some are read without all the others."""
    cuts = [0]
    for end in begins.tolist():
        if end - cuts[-1] >= _KEY_ROWS or end == begins[-1] > cuts[-1]:
            cuts.append(end)
    return list(pairwise(cuts))


def read_classes(folder: ScanFolder, columns: Sequence[str] = KEPT) -> Iterator[pa.Table]:
    """Every object that is kept with its class, batch by batch: some columns of `KEPT`, and `class`."""
    for part in folder.parts(CLASSES):
        with folder.reader(f"{OBJECTS}/{part}") as objects, folder.reader(f"{CLASSES}/{part}") as classes:
            for group in range(objects.num_row_groups):
                rows = objects.read_row_group(group, columns=list(columns), use_threads=False)
                yield rows.append_column("class", classes.read_row_group(group, use_threads=False)["class"])
