"""A finished list of objects in Parquet files, shared out by files and row groups."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.listing import LogFile, files_matching
from retention_assets.stores.objects.listings.columns import ColumnRoles, objects_of, some_roles
from retention_assets.stores.objects.listings.finished import packed
from retention_assets.stores.objects.source_settings import ParquetFiles
from retention_assets.stores.places.file_systems import is_local, open_file_system

_ROWS = 131_072


@dataclass(frozen=True)
class FileRows:
    """Row groups of a file, or all of them if None. `weight` is in bytes."""

    file: LogFile
    weight: int
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ParquetObjects:
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
        parts.sort(key=lambda one: (-one.weight, one.file.path, one.groups or ()))
        return packed(parts, lambda one: one.weight, min(wanted, len(parts)))

    def read(self, share: tuple[FileRows, ...], columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        for part in share:
            where = part.file.shown
            with self._opened(part) as file:
                roles = some_roles(self.roles.among(file.schema_arrow.names, where), columns)
                groups = list(range(file.num_row_groups)) if part.groups is None else list(part.groups)
                names = list(dict.fromkeys(roles.values()))
                rows, expected = 0, sum(file.metadata.row_group(group).num_rows for group in groups)
                for batch in file.iter_batches(_ROWS, groups, names):
                    rows += len(batch)
                    yield objects_of(batch, roles, self.roles.whole_seconds, where)
                if rows != expected:
                    raise Refused(f"{where} says that it has {expected} rows, and has {rows}. Write it anew.")

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
        there = {one.path: one for one in files_matching(file.log)}.get(file.path)
        if there is None:
            raise FileNotFoundError("it is gone")
        if there != file:
            raise Refused(f"{file.shown} is not the file any more that it was when the listing began. Try again.")

    @contextmanager
    def _refusing(self, place: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as fault:
            [line, *_] = str(fault).splitlines() or [type(fault).__name__]
            raise Refused(f"{mask_secrets(place)} can't be read as Parquet: {line}. Write it anew.") from fault
