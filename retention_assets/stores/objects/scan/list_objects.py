"""Lists a share into a Parquet file of objects with names and fingerprints. Finished lists are not copied (listed.py)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from retention_assets.frames.arrays import join_chunks
from retention_assets.stores.objects.listings import ObjectListing
from retention_assets.stores.objects.scan.fingerprints import Fingerprints
from retention_assets.stores.objects.scan.folder import LISTED, OBJECTS, ScanFolder
from retention_assets.stores.objects.scan.listed import column_of, in_row_groups, part_name, reserved_rows
from retention_assets.stores.objects.settings import ObjectsSettings


@dataclass(frozen=True)
class ListedShare:
    """File of a share, its rows, and those not in a reserved realm."""

    part: str
    rows: int
    counted: int


@dataclass(frozen=True)
class ListObjects:
    settings: ObjectsSettings
    listing: ObjectListing
    salt: bytes
    folder: ScanFolder
    shares: Sequence[Any]

    def __call__(self, number: int) -> ListedShare:
        from retention_assets.stores.objects.naming import constant_dataset, with_names

        fingerprints = Fingerprints(self.salt)
        part = part_name(number)
        rows = counted = 0
        named = (with_names(batch, self.settings) for batch in self.listing.read(self.shares[number]) if batch.num_rows)
        only = constant_dataset(self.settings)
        with self.folder.writer(f"{OBJECTS}/{part}", LISTED) as writer:
            for table in in_row_groups(named):
                keys, realms = join_chunks(table["key"]), join_chunks(table["realm"])
                columns = [column_of(table, field, only) for field in LISTED if field.name != "fingerprint"]
                found = pa.array(fingerprints.of(keys, realms))
                writer.write_table(pa.table([*columns, found], schema=LISTED))
                rows += len(table)
                counted += len(table) - reserved_rows(table["realm"])
        return ListedShare(part, rows, counted)
