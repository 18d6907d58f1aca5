"""Listed objects, in parts that a scan reads repeatedly: from its own files, or from a finished list itself. A finished list
from whose columns nothing must be derived is not copied: it was made before the scan, and each reading checks that its files
have not changed since."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.frames.arrays import join_chunks
from retention_assets.policy.realms import is_reserved
from retention_assets.stores.objects.listings import ObjectListing, open_listing
from retention_assets.stores.objects.listings.finished import FinishedListing
from retention_assets.stores.objects.naming import constant_dataset, dataset_parts, with_names
from retention_assets.stores.objects.scan.classes import words_of
from retention_assets.stores.objects.scan.folder import EVERY, LISTED, OBJECTS, ROWS, ScanFolder, read_classes
from retention_assets.stores.objects.settings import FromPattern, ObjectsSettings

_LIST = "list.json"
_NAMES = ("key", "realm", "kind")


class ListedObjects(Protocol):
    """Listed objects in parts; tasks are sent it as a value."""

    @property
    def parts(self) -> Sequence[str]:
        """Names of the parts."""

    @property
    def is_written(self) -> bool:
        """True if all objects are in the folder of the scan."""

    def read(self, number: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of `LISTED` of a part, each time in the same batches of at most `ROWS` rows."""


@dataclass(frozen=True)
class WrittenObjects:
    folder: ScanFolder
    parts: Sequence[str]
    is_written: bool = True

    def read(self, number: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        with self.folder.reader(f"{OBJECTS}/{self.parts[number]}") as source:
            for group in range(source.num_row_groups):
                yield source.read_row_group(group, columns=list(columns), use_threads=False)


@dataclass(frozen=True)
class FinishedObjects:
    settings: ObjectsSettings
    listing: FinishedListing
    shares: Sequence[Any]
    is_written: bool = False

    @property
    def parts(self) -> Sequence[str]:
        return [part_name(number) for number in range(len(self.shares))]

    def read(self, number: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read the list again, without fingerprints."""
        fields = [LISTED.field(name) for name in columns if name != "fingerprint"]
        wanted = [name for name in columns if name in ("size", "created_at")]
        only = constant_dataset(self.settings)
        for table in in_row_groups(self.listing.read_some(self.shares[number], (*_NAMES, *wanted))):
            if only is None or table["realm"].null_count < len(table):
                table = pa.Table.from_batches([with_names(batch, self.settings) for batch in table.to_batches()])
            yield pa.table([column_of(table, field, only) for field in fields], schema=pa.schema(fields))


def can_be_read_again(settings: ObjectsSettings, listing: ObjectListing) -> bool:
    """Tell whether a listing is an unchanging list that provides all that a scan needs, with no limit on its rate."""
    return (
        isinstance(listing, FinishedListing)
        and listing.is_fixed
        and not settings.rates.scan
        and not isinstance(settings.realm, str)
        and not isinstance(settings.kind_of, FromPattern)
        and dataset_parts(settings) <= {"realm", "kind"}
    )


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


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


def column_of(table: pa.Table, field: pa.Field, only_dataset: str | None) -> pa.Array:
    if field.name == "dataset" and only_dataset is not None:
        places = pa.array(np.zeros(len(table), dtype=np.int32))
        return pa.DictionaryArray.from_arrays(places, pa.array([only_dataset]))
    column = join_chunks(table[field.name])
    if not pa.types.is_dictionary(field.type):
        return column.cast(field.type)
    if column.null_count == len(column):
        return pa.nulls(len(column), field.type)
    return (column if pa.types.is_dictionary(column.type) else column.dictionary_encode()).cast(field.type)


def reserved_rows(realms: pa.ChunkedArray) -> int:
    if realms.null_count == len(realms):
        return 0
    names, codes = words_of(realms)
    reserved = [number for number, name in enumerate(names) if is_reserved(name)]
    return sum(int((codes == number).sum()) for number in reserved)


def note_list(folder: ScanFolder, shares: Sequence[Any], wanted: int, *, every: bool) -> None:
    """Record the list's identity, and whether the folder has every object of it."""
    folder.write_bytes(_LIST, json.dumps({"wanted": wanted, "shares": _digest(shares), "every": every}).encode())


def read_every_class(folder: ScanFolder, settings: ObjectsSettings, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield every listed object: some columns of `KEPT`, and `class`. Raises Refused if the list has changed since."""
    noted = json.loads(bytes(folder.read_bytes(_LIST))) if folder.parts(EVERY) else {"every": True}
    if noted.get("every"):
        yield from read_classes(folder, columns)
        return
    listing = open_listing(settings)
    changed = Refused(
        f"The list that the store {settings.name} was scanned by is not the same any more, and of what had no line in the log"
        " nothing else is kept. Export after the next scan."
    )
    if not isinstance(listing, FinishedListing):
        raise changed
    # only known after begin()
    listing.begin()
    shares = listing.shares(noted["wanted"])
    if not can_be_read_again(settings, listing) or _digest(shares) != noted["shares"]:
        raise changed
    listed = FinishedObjects(settings, listing, shares)
    for number, part in enumerate(listed.parts):
        with folder.reader(f"{EVERY}/{part}") as classes:
            group = 0
            for group, rows in enumerate(listed.read(number, columns), 1):
                found = classes.read_row_group(group - 1, use_threads=False)["class"] if group <= classes.num_row_groups else []
                if len(found) != len(rows):
                    raise changed
                yield rows.append_column("class", found)
            if group != classes.num_row_groups:
                raise changed


def _digest(shares: Sequence[Any]) -> str:
    return hashlib.sha256(repr(list(shares)).encode()).hexdigest()
