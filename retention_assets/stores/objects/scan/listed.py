"""Listed objects: tasks write each share of a listing into the folder of the scan, with names and fingerprints, and read it
from there as often as they need it. So the listing itself is read once, before every reference."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import join_chunks
from retention_assets.policy.realms import is_reserved
from retention_assets.stores.objects.listings import ObjectListing
from retention_assets.stores.objects.naming import constant_dataset, with_names
from retention_assets.stores.objects.references.rounds import ShareRows
from retention_assets.stores.objects.references.source import ShareEnd
from retention_assets.stores.objects.scan.classes import words_of
from retention_assets.stores.objects.scan.fingerprints import Fingerprints
from retention_assets.stores.objects.scan.folder import LISTED, OBJECTS, ROWS, ScanFolder, gathered
from retention_assets.stores.objects.settings import ObjectsSettings


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


@dataclass(frozen=True)
class ListedShare:
    """File of a share, and its rows not in a reserved realm."""

    part: str
    counted: int


@dataclass(frozen=True)
class WriteListing:
    settings: ObjectsSettings
    salt: bytes
    folder: ScanFolder

    def __call__(self, rows: ShareRows) -> ListedShare:
        fingerprints, only = Fingerprints(self.salt), constant_dataset(self.settings)
        part, counted = f"{rows.name}.parquet", 0
        with self.folder.writer(f"{OBJECTS}/{part}", LISTED) as writer:
            for batches in gathered((with_names(batch, self.settings) for batch in rows), ROWS):
                table = pa.Table.from_batches(batches)
                table = table if len(batches) == 1 else table.unify_dictionaries().combine_chunks()
                hashes = fingerprints.of(join_chunks(table["key"]), join_chunks(table["realm"]))
                columns = [_column(table, field, only) for field in LISTED if field.name != "fingerprint"]
                writer.write_table(pa.table([*columns, pa.array(hashes)], schema=LISTED))
                counted += len(table) - _reserved_rows(table["realm"])
        return ListedShare(part, counted)


@dataclass(frozen=True)
class ListedObjects:
    """Parts of a listing in the folder of a scan; tasks are sent it as a value."""

    folder: ScanFolder
    parts: Sequence[str]

    def read(self, number: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of `LISTED` of a part, each time in the same batches of less than twice `ROWS` rows."""
        with self.folder.reader(f"{OBJECTS}/{self.parts[number]}") as source:
            for group in range(source.num_row_groups):
                yield source.read_row_group(group, columns=list(columns), use_threads=False)


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
