"""References and edges in columns of Parquet files; a file is whole if it has the rows of its footer."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.errors import nearest
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.file_systems import is_local, open_file_system
from retention_assets.stores.files.listing import LogFile
from retention_assets.stores.objects.references.globs import has_changed, unread_files, whole_files
from retention_assets.stores.objects.references.source import ShareEnd, SourceNotWhole

_BATCH = 1 << 17


@dataclass(frozen=True)
class RowGroups:
    """Row groups of a file, `of` is their total number. Without `end`, all of them."""

    file: LogFile
    first: int = 0
    end: int | None = None
    of: int | None = None


@dataclass(frozen=True)
class ParquetSource:
    """Files of references or edges, by a glob. `columns` belong to the files, in the order of the schema's fields."""

    files: str
    schema: pa.Schema
    columns: tuple[str | None, ...]
    names_folders: bool = False

    @property
    def label(self) -> str:
        return f"parquet {mask_secrets(self.files)}"

    def shares(self, wanted: int) -> Sequence[RowGroups]:
        """Files, split into row groups if there are fewer files than wanted. Raises SourceNotWhole if there are none."""
        files = whole_files(self.label, self.files)
        each = -(-wanted // len(files))
        return [share for file in files for share in (self._parts(file, each) if each > 1 else [RowGroups(file)])]

    def shards_of(self, share: RowGroups) -> Sequence[str]:
        return (share.file.path,)

    def read(self, share: RowGroups) -> Generator[pa.RecordBatch, None, ShareEnd]:
        """Rows with a key. A file that is written meanwhile is read again."""
        rows = 0
        try:
            for batch in self._read(share):
                rows += len(batch)
                yield batch
        except SourceNotWhole:
            if not has_changed(self.label, self.files, share.file):
                raise
            return ShareEnd(share, rows, proof=False)
        return ShareEnd(share, rows, proof=True)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[RowGroups]:
        """Return new and changed files, and files with unread row groups."""
        groups: dict[LogFile, set[int]] = {}
        whole = set()
        for share in (end.share for end in ends if end.proof):
            groups.setdefault(share.file, set()).update(range(share.first, share.end or 0))
            if share.of is None or len(groups[share.file]) == share.of:
                whole.add(share.file)
        unread = unread_files(self.label, self.files, [end.share.file for end in ends], whole)
        return [RowGroups(file) for file in unread]

    def _read(self, share: RowGroups) -> Iterator[pa.RecordBatch]:
        with self._open(share.file) as source:
            known = source.metadata
            if share.of not in (None, known.num_row_groups):
                raise self._fault(share.file, f"it had {share.of} groups of rows, and has {known.num_row_groups}")
            groups = range(share.first, known.num_row_groups if share.end is None else share.end)
            self._check_columns(share.file, source.schema_arrow)
            named = [name for name in dict.fromkeys(self.columns) if name is not None]
            found = 0
            for batch in source.iter_batches(_BATCH, row_groups=list(groups), columns=named):
                found += len(batch)
                yield self._rows(batch)
            expected = sum(known.row_group(number).num_rows for number in groups)
            if found != expected or sum(known.row_group(n).num_rows for n in range(known.num_row_groups)) != known.num_rows:
                raise self._fault(share.file, f"it says that it has {expected} rows, and has {found}")

    def _parts(self, file: LogFile, parts: int) -> list[RowGroups]:
        with self._open(file) as source:
            count = source.metadata.num_row_groups
        size = -(-count // parts) or 1
        return [RowGroups(file, at, min(at + size, count), count) for at in range(0, count, size)] or [RowGroups(file)]

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
        """Raises SourceNotWhole unless every column exists once and can hold keys."""
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
        made = [
            pa.nulls(len(batch), field.type) if name is None else batch[name].cast(field.type)
            for field, name in zip(self.schema, self.columns, strict=True)
        ]
        required = [column for column, field in zip(made, self.schema, strict=True) if not field.nullable]
        rows = pa.record_batch(made, names=self.schema.names)
        if any(column.null_count for column in required):
            rows = rows.filter(_all_valid(required))
        rows.validate(full=True)
        return rows.cast(self.schema)

    def _fault(self, file: LogFile, why: str) -> SourceNotWhole:
        return SourceNotWhole(f"{self.label} is not whole: {file.shown} can't be read: {why}.")


def _all_valid(columns: Sequence[pa.Array]) -> pa.Array:
    valid = pc.is_valid(columns[0])
    for column in columns[1:]:
        valid = pc.and_(valid, pc.is_valid(column))
    return valid
