"""Parquet files that list objects, references or edges, shared out by files and row groups; a file is whole if it has the rows
of its footer."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.errors import Refused, nearest
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.files.log_files import LogFile, files_matching
from retention_assets.stores.objects.source_settings import ParquetFiles
from retention_assets.stores.objects.sources import SourceNotWhole
from retention_assets.stores.objects.sources.files import FileShare, FileSource
from retention_assets.stores.objects.sources.finished import ColumnRoles, objects_of, packed, some_roles
from retention_assets.stores.places.file_systems import is_local, open_file_system

_BATCH = 1 << 17


@dataclass(frozen=True)
class ParquetSource(FileSource):
    """Files of Parquet. `columns` belong to the files, in the order of the schema's fields."""

    columns: tuple[str | None, ...]

    form: ClassVar[str] = "parquet"

    def shares(self, wanted: int) -> Sequence[FileShare]:
        """Files, split into row groups if there are fewer files than wanted."""
        files = self.list_files()
        each = -(-wanted // len(files))
        return [share for file in files for share in (self._parts(file, each) if each > 1 else [FileShare(file)])]

    def batches(self, share: FileShare) -> Iterator[pa.RecordBatch]:
        with self._open(share.file) as source:
            footer = source.metadata
            if share.of not in (None, footer.num_row_groups):
                raise self._fault(share.file, f"it had {share.of} groups of rows, and has {footer.num_row_groups}")
            groups = range(share.first, footer.num_row_groups if share.end is None else share.end)
            self._check_columns(share.file, source.schema_arrow)
            named = [name for name in dict.fromkeys(self.columns) if name is not None]
            rows = 0
            for batch in source.iter_batches(_BATCH, row_groups=list(groups), columns=named):
                rows += len(batch)
                yield self._rows(batch)
            expected = sum(footer.row_group(number).num_rows for number in groups)
            if rows != expected or sum(footer.row_group(n).num_rows for n in range(footer.num_row_groups)) != footer.num_rows:
                raise self._fault(share.file, f"it says that it has {expected} rows, and has {rows}")

    def _parts(self, file: LogFile, parts: int) -> list[FileShare]:
        with self._open(file) as source:
            count = source.metadata.num_row_groups
        size = -(-count // parts) or 1
        return [FileShare(file, at, min(at + size, count), count) for at in range(0, count, size)] or [FileShare(file)]

    @contextmanager
    def _open(self, file: LogFile) -> Iterator[Any]:
        fs, _ = open_file_system(file.log)
        opened = partial(open, file.path, "rb") if is_local(fs) else partial(fs.open, file.path, "rb")
        try:
            with opened() as stream, pq.ParquetFile(stream, page_checksum_verification=True) as source:
                yield source
        except SourceNotWhole:
            raise
        # File systems raise their drivers' exceptions: any of them means that the file was not read.
        except Exception as fault:
            raise self._fault(file, f"{type(fault).__name__}: {mask_secrets(str(fault))}") from fault

    def _check_columns(self, file: LogFile, schema: pa.Schema) -> None:
        """Raise SourceNotWhole unless every column exists once and can hold keys."""
        for name in filter(None, self.columns):
            if schema.names.count(name) != 1:
                guess = nearest(name, schema.names)
                remedy = f"did you mean {guess}?" if guess else f"it has {', '.join(schema.names)}"
                raise self._fault(file, f"it has no column {name}; {remedy}")
            kind = schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
                raise self._fault(file, f"its column {name} is of the type {kind}; expected text or whole numbers")

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            pa.nulls(len(batch), field.type) if name is None else batch[name].cast(field.type)
            for field, name in zip(self.schema, self.columns, strict=True)
        ]
        required = [column for column, field in zip(columns, self.schema, strict=True) if not field.nullable]
        rows = pa.record_batch(columns, names=self.schema.names)
        if any(column.null_count for column in required):
            rows = rows.filter(reduce(pc.and_, map(pc.is_valid, required)))
        rows.validate(full=True)
        return rows.cast(self.schema)

    def _fault(self, file: LogFile, why: str) -> SourceNotWhole:
        return SourceNotWhole(f"{self.label} is not whole: {file.shown} can't be read: {why}.")


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
        parts.sort(key=lambda part: (-part.weight, part.file.path, part.groups or ()))
        return packed(parts, lambda part: part.weight, min(wanted, len(parts)))

    def read(self, share: tuple[FileRows, ...], columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        for part in share:
            where = part.file.shown
            with self._opened(part) as file:
                roles = some_roles(self.roles.among(file.schema_arrow.names, where), columns)
                groups = list(range(file.num_row_groups)) if part.groups is None else list(part.groups)
                names = list(dict.fromkeys(roles.values()))
                rows, expected = 0, sum(file.metadata.row_group(group).num_rows for group in groups)
                for batch in file.iter_batches(_BATCH, groups, names):
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
        present = next((match for match in files_matching(file.log) if match.path == file.path), None)
        if present is None:
            raise FileNotFoundError("it is gone")
        if present != file:
            raise Refused(f"{file.shown} is not the file any more that it was when the listing began. Try again.")

    @contextmanager
    def _refusing(self, place: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as fault:
            [line, *_] = str(fault).splitlines() or [type(fault).__name__]
            raise Refused(f"{mask_secrets(place)} can't be read as Parquet: {line}. Write it anew.") from fault
