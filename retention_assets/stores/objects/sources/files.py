"""Files of references or edges, by a glob. The proof of wholeness: the same files are there at the end, each read to its end as
it is by then. A file that is written meanwhile is read again.

The last of JSON lines states their number. Arrow parses blocks of lines. Only if it finds a fault are lines parsed one by one,
to name the faulty one. A Parquet file is whole if it has the rows of its footer.
"""

import json
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from retention_assets.errors import BadInput, Refused, nearest, quote, suggest
from retention_assets.exchange.compression import unpacked
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.files.log_files import LogFile, files_matching, local_copy
from retention_assets.stores.objects.sources import ShareEnd, SourceNotWhole
from retention_assets.stores.places.file_systems import is_local, open_file_system


@dataclass(frozen=True)
class FileShare:
    """A file, or some of its groups of rows, of which it has `of`."""

    file: LogFile
    first: int = 0
    end: int | None = None
    of: int | None = None


@dataclass(frozen=True)
class FileSource:
    """Files of one format."""

    files: str
    schema: pa.Schema

    form: ClassVar[str]
    names_folders: ClassVar[bool] = False

    @property
    def label(self) -> str:
        return f"{self.form} {mask_secrets(self.files)}"

    def list_files(self) -> Sequence[LogFile]:
        """Files as they are now. Raises SourceNotWhole if there are none, or if they cannot be listed."""
        try:
            files = files_matching(self.files)
        except (BadInput, Refused) as fault:
            raise SourceNotWhole(f"{self.label} can't be read: {fault}") from fault
        # File systems raise their drivers' exceptions: any of them means that the files are unknown.
        except Exception as fault:
            raise SourceNotWhole(f"{self.label} can't be listed: {type(fault).__name__}: {mask_secrets(str(fault))}") from fault
        if not files:
            raise SourceNotWhole(
                f"No file matches {mask_secrets(self.files)}. Write a glob of files, such as refs/*, or check the place."
            )
        return files

    def shards_of(self, share: FileShare) -> Sequence[str]:
        return (share.file.path,)

    def read(self, share: FileShare) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows = 0
        try:
            for batch in self.batches(share):
                rows += batch.num_rows
                yield batch
        except SourceNotWhole:
            # The fault of a file that changed since may be due to a concurrent writer.
            if share.file in self.list_files():
                raise
            return ShareEnd(share, rows, proof=False)
        return ShareEnd(share, rows, proof=True)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[FileShare]:
        """Return new and changed files, and those of which something is unread. Raises SourceNotWhole if a file is gone."""
        files = self.list_files()
        gone = sorted({end.share.file.shown for end in ends} - {file.shown for file in files})
        if gone:
            raise SourceNotWhole(f"{self.label} is not whole: {gone[0]} is gone. Scan again when all files are there.")
        groups: dict[LogFile, set[int]] = {}
        whole = set()
        for share in (end.share for end in ends if end.proof):
            groups.setdefault(share.file, set()).update(range(share.first, share.end or 0))
            if share.of is None or len(groups[share.file]) == share.of:
                whole.add(share.file)
        return [FileShare(file) for file in files if file not in whole]

    @abstractmethod
    def batches(self, share: FileShare) -> Iterator[pa.RecordBatch]:
        """Rows of a share. Raises SourceNotWhole if it is not whole."""


_BLOCK = 8 << 20
_LAST = '{"complete": true, "count": n}'
_UTF8_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LineSource(FileSource):
    """Files of lines. Each file is a share."""

    form: ClassVar[str] = "lines"

    def shares(self, wanted: int) -> Sequence[FileShare]:  # noqa: ARG002 - a file is read from its beginning to its end
        return [FileShare(file) for file in self.list_files()]

    def batches(self, share: FileShare) -> Iterator[pa.RecordBatch]:
        try:
            with local_copy(share.file) as copy, unpacked(copy) as plain:
                yield from _LineReader(share.file.shown, self.schema).read(plain)
        except BadInput as fault:
            raise SourceNotWhole(f"{self.label} is not whole: {fault}") from fault
        except OSError as fault:
            raise SourceNotWhole(
                f"{self.label} is not whole: {share.file.shown} can't be read: {fault.strerror or fault}"
            ) from fault


class _LineReader:
    def __init__(self, shown: str, schema: pa.Schema) -> None:
        self.shown, self.schema = shown, schema
        self.lines = self.rows = 0

    def read(self, plain: Path) -> Iterator[pa.RecordBatch]:
        with plain.open("rb") as stream:
            last = b""
            for block in iter(partial(stream.read, _BLOCK), b""):
                # Any block may end with the file's last line, so the last one that is not blank is held back.
                block = last + block
                cut = block.rfind(b"\n", 0, len(block.rstrip())) + 1
                last = block[cut:]
                if cut:
                    yield from self._rows(block[:cut])
        self._check_last(last)

    def _rows(self, block: bytes) -> Iterator[pa.RecordBatch]:
        lines = block.count(b"\n")
        try:
            table = self._parsed(block)
            is_valid = len(table) == lines and all(field.nullable or not table[field.name].null_count for field in self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            is_valid, table = False, None
        if not is_valid:
            self._check_each(block)
            if table is None:
                raise self._fault(self.lines + 1, "or a later line can't be read")
        self.lines += lines
        self.rows += len(table)
        # Arrow's reader ignores that fields are not nullable.
        yield from table.cast(self.schema).to_batches()

    def _parsed(self, block: bytes) -> pa.Table:
        nullable = pa.schema([field.with_nullable(True) for field in self.schema])
        table = pa_json.read_json(
            BytesIO(block),
            pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pa_json.ParseOptions(explicit_schema=nullable, unexpected_field_behavior="error"),
        )
        table.validate(full=True)
        return table

    def _check_each(self, block: bytes) -> None:
        # Blank lines are allowed.
        for number, line in enumerate(block.split(b"\n"), self.lines + 1):
            if line.strip():
                row = self._object(number, line)
                if row.keys() == {"complete", "count"}:
                    raise self._fault(number, f"is {_LAST}, but more lines follow")
                self._check_row(number, row)

    def _check_row(self, number: int, row: dict[str, Any]) -> None:
        for key in row:
            if key not in self.schema.names:
                remedy = suggest(key, self.schema.names) or f"The keys are {', '.join(self.schema.names)}."
                raise self._fault(number, f"has an unknown key: {quote(key)}. {remedy}")
        for field in self.schema:
            value = row.get(field.name)
            if not isinstance(value, str) and (value is not None or not field.nullable):
                fault = "is missing" if value is None else f"is no text: {quote(value)}"
                raise self._fault(number, f"is not whole, for `{field.name}` {fault}")

    def _check_last(self, last: bytes) -> None:
        number = self.lines + 1
        if not last.strip():
            raise self._fault(number, f"is not there: the file is empty, and whole files end with {_LAST}")
        row = self._object(number, last)
        if row.keys() != {"complete", "count"} or row["complete"] is not True:
            raise self._fault(number, f"is the last line, but not {_LAST}: the file may be cut short")
        if type(row["count"]) is not int or row["count"] != self.rows:
            raise self._fault(number, f"counts {quote(row['count'])} lines before it, but there are {self.rows}")

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        shown = quote(line.decode("utf-8", "replace").strip())
        try:
            row = json.loads(line.removeprefix(_UTF8_MARK if number == 1 else b"").decode("utf-8"), object_pairs_hook=_once)
        except _KeyTwice:
            raise self._fault(number, f"has a key twice: {shown}") from None
        except (ValueError, RecursionError) as fault:
            raise self._fault(number, f"is no JSON: {shown}") from fault
        if not isinstance(row, dict):
            raise self._fault(number, f"is no object: {shown}")
        return row

    def _fault(self, number: int, fault: str) -> SourceNotWhole:
        return SourceNotWhole(f"{self.shown} is not whole: line {number} {fault}. Write the file again, to its last line.")


class _KeyTwice(ValueError):
    """A JSON object has a key twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise _KeyTwice
    return row


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
                raise self._fault(share.file, f"it had {share.of} groups of rows and has {footer.num_row_groups}")
            groups = range(share.first, footer.num_row_groups if share.end is None else share.end)
            self._check_columns(share.file, source.schema_arrow)
            named = [name for name in dict.fromkeys(self.columns) if name is not None]
            rows = 0
            for batch in source.iter_batches(_BATCH, row_groups=list(groups), columns=named):
                rows += len(batch)
                yield self._rows(batch)
            expected = sum(footer.row_group(number).num_rows for number in groups)
            if rows != expected or sum(footer.row_group(n).num_rows for n in range(footer.num_row_groups)) != footer.num_rows:
                raise self._fault(share.file, f"its footer counts {expected} rows, but it has {rows}")

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
