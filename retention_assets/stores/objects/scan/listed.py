"""Listed objects: tasks write each share of a listing into the folder of the scan, with names and fingerprints, and read it
from there as often as they need it. So the listing itself is read once, before every reference."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import join_chunks
from retention_assets.policy.realms import is_reserved
from retention_assets.stores.objects.listings import ObjectListing
from retention_assets.stores.objects.naming import constant_dataset, with_names
from retention_assets.stores.objects.scan.classes import words_of
from retention_assets.stores.objects.scan.fingerprints import Fingerprints
from retention_assets.stores.objects.scan.folder import LISTED, OBJECTS, ROWS, ScanFolder
from retention_assets.stores.objects.settings import ObjectsSettings


@dataclass(frozen=True)
class ListedShare:
    """File of a share, its rows, and those not in a reserved realm."""

    part: str
    rows: int
    counted: int


@dataclass(frozen=True)
class ListObjects:
    """Task that writes a share."""

    settings: ObjectsSettings
    listing: ObjectListing
    salt: bytes
    folder: ScanFolder
    shares: Sequence[Any]

    def __call__(self, number: int) -> ListedShare:
        fingerprints = Fingerprints(self.salt)
        part = f"part-{number:05d}.parquet"
        rows = counted = 0
        named = (with_names(batch, self.settings) for batch in self.listing.read(self.shares[number]) if batch.num_rows)
        only = constant_dataset(self.settings)
        with self.folder.writer(f"{OBJECTS}/{part}", LISTED) as writer:
            for table in in_row_groups(named):
                keys, realms = join_chunks(table["key"]), join_chunks(table["realm"])
                columns = [_column(table, field, only) for field in LISTED if field.name != "fingerprint"]
                hashes = pa.array(fingerprints.of(keys, realms))
                writer.write_table(pa.table([*columns, hashes], schema=LISTED))
                rows += len(table)
                counted += len(table) - _reserved_rows(table["realm"])
        return ListedShare(part, rows, counted)


@dataclass(frozen=True)
class ListedObjects:
    """Parts of a listing in the folder of a scan; tasks are sent it as a value."""

    folder: ScanFolder
    parts: Sequence[str]

    def read(self, number: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of `LISTED` of a part, each time in the same batches of at most `ROWS` rows."""
        with self.folder.reader(f"{OBJECTS}/{self.parts[number]}") as source:
            for group in range(source.num_row_groups):
                yield source.read_row_group(group, columns=list(columns), use_threads=False)


def in_row_groups(batches: Iterable[pa.RecordBatch], most: int = ROWS) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        begin = 0
        while begin < batch.num_rows:
            part = batch.slice(begin, most - rows)
            held.append(part)
            rows += part.num_rows
            begin += part.num_rows
            if rows == most:
                yield _joined(held)
                held, rows = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table if len(batches) == 1 else table.unify_dictionaries().combine_chunks()


def _column(table: pa.Table, field: pa.Field, only_dataset: str | None) -> pa.Array:
    if field.name == "dataset" and only_dataset is not None:
        places = pa.array(np.zeros(len(table), dtype=np.int32))
        return pa.DictionaryArray.from_arrays(places, pa.array([only_dataset]))
    column = join_chunks(table[field.name])
    if not pa.types.is_dictionary(field.type):
        return column.cast(field.type)
    if column.null_count == len(column):
        return pa.nulls(len(column), field.type)
    return (column if pa.types.is_dictionary(column.type) else column.dictionary_encode()).cast(field.type)


def _reserved_rows(realms: pa.ChunkedArray) -> int:
    if realms.null_count == len(realms):
        return 0
    names, codes = words_of(realms)
    reserved = [number for number, name in enumerate(names) if is_reserved(name)]
    return sum(int((codes == number).sum()) for number in reserved)
