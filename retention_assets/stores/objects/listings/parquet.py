"""A list of objects in Parquet files that somebody else made.

Belongs here: finding the files, shares of them by files and groups of rows, and reading these.
Does not belong here: what columns mean (columns.py), and where the objects are (finished.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.file_systems import FileSystem, is_local, open_file_system
from retention_assets.stores.objects.listing_settings import ParquetFiles
from retention_assets.stores.objects.listings.columns import ColumnRoles, objects_of
from retention_assets.stores.objects.listings.pacing import Pace

_ROWS = 131_072


@dataclass(frozen=True)
class FileRows:
    """Some groups of rows of a file that has so many bytes: all of them where none are named. `weight` is what they cost."""

    path: str
    size: int
    weight: int
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ParquetShare:
    """What one task reads."""

    files: tuple[FileRows, ...]
    of: int


@dataclass(frozen=True)
class ParquetObjects:
    """Files, and what their columns say."""

    files: ParquetFiles
    roles: ColumnRoles
    rate: int = 0

    def begin(self) -> datetime:
        """As the settings say: a file does not tell when it was listed."""
        return self.files.as_of

    def shares(self, wanted: int) -> Sequence[ParquetShare]:
        """Files of about equal bytes; groups of rows where there are fewer files than parts."""
        fs, pattern = open_file_system(self.files.files)
        fs.invalidate_cache()
        with self._refusing(self.files.files):
            found = fs.glob(pattern, detail=True)
        parts = [
            FileRows(path, int(info["size"]), int(info["size"]))
            for path, info in sorted(found.items())
            if info["type"] == "file"
        ]
        if not parts:
            raise Refused(f"No file is at {mask_secrets(self.files.files)}. Check `listing.parquet.files` in the settings.")
        if len(parts) < wanted:
            parts = [group for part in parts for group in self._groups(fs, part)]
        shares: list[list[FileRows]] = [[] for _ in range(min(max(1, wanted), len(parts)))]
        sizes = [0] * len(shares)
        for part in sorted(parts, key=lambda one: (-one.weight, one.path)):
            least = sizes.index(min(sizes))
            shares[least].append(part)
            sizes[least] += part.weight
        return [ParquetShare(tuple(share), len(shares)) for share in shares]

    def read(self, share: ParquetShare) -> Iterator[pa.RecordBatch]:
        """The objects of some files, in the columns that they have."""
        pace = Pace.of_share(self.rate, share.of)
        fs, _ = open_file_system(self.files.files)
        for part in share.files:
            where = mask_secrets(part.path)
            with self._opened(fs, part) as file:
                roles = self.roles.among(file.schema_arrow.names, where)
                groups = list(range(file.num_row_groups)) if part.groups is None else list(part.groups)
                names = list(dict.fromkeys(roles.values()))
                rows, expected = 0, sum(file.metadata.row_group(group).num_rows for group in groups)
                for batch in file.iter_batches(_ROWS, groups, names):
                    rows += len(batch)
                    pace.take(len(batch))
                    yield objects_of(batch, roles, self.roles.whole_seconds, where)
                if rows != expected:
                    raise Refused(f"{where} says that it has {expected} rows, and has {rows}. Write it anew.")

    def _groups(self, fs: FileSystem, part: FileRows) -> Iterator[FileRows]:
        with self._opened(fs, part) as file:
            self.roles.among(file.schema_arrow.names, mask_secrets(part.path))
            for group in range(file.num_row_groups):
                yield FileRows(part.path, part.size, file.metadata.row_group(group).total_byte_size, (group,))

    @contextmanager
    def _opened(self, fs: FileSystem, part: FileRows) -> Iterator[pq.ParquetFile]:
        with self._refusing(part.path):
            if fs.size(part.path) != part.size:
                raise Refused(
                    f"{mask_secrets(part.path)} is not the file any more that it was when the listing began. Try again."
                )
            source: Any = part.path if is_local(fs) else fs.open(part.path, "rb")
            with pq.ParquetFile(source, pre_buffer=not is_local(fs)) as file:
                yield file

    @contextmanager
    def _refusing(self, place: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as fault:
            [line, *_] = str(fault).splitlines() or [type(fault).__name__]
            raise Refused(f"{mask_secrets(place)} can't be read as Parquet: {line}. Write it anew.") from fault
