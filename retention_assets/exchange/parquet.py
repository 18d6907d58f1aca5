"""Logs as Parquet with the columns of the exchange format, or with those in which the log itself is kept."""

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.errors import BadInput, Problem, suggest
from retention_assets.exchange.attributes import typed_attributes
from retention_assets.exchange.json_lines import KEYS, TIMES
from retention_assets.frames.log import INSTANT, LINES
from retention_assets.policy.durations import parse_instant

_UNITS = ("s", "ms", "us", "ns")
# Outside of these, neither Python nor JSON lines have instants.
_FIRST, _LAST = (pa.scalar(parse_instant(text), INSTANT) for text in ("0001-01-02T00:00:00Z", "9999-12-30T00:00:00Z"))
_WRITTEN = b"ARROW:schema"


def read_parquet(file: Path) -> pa.Table:
    """Read Parquet; a null parent is no parent. `heads` and `tags` columns become branch and tag lines."""
    try:
        return _lines_of(_read_whole(file), file)
    except (pa.ArrowException, OSError, ValueError) as fault:
        raise BadInput(Problem(f"is not Parquet, or is damaged: {fault}", file=str(file))) from None


def _read_whole(file: Path) -> pa.Table:
    # The footer has no checksum, and one flipped bit turns microseconds into nanoseconds or empties a row group: so all that it
    # says twice is compared.
    with pq.ParquetFile(file, page_checksum_verification=True) as source:
        metadata = source.metadata
        written = (metadata.metadata or {}).get(_WRITTEN)
        if written and not _is_same_schema(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written))), source.schema_arrow):
            raise ValueError("it gives a column two types")
        table = source.read()
    if len(table) != metadata.num_rows:
        raise ValueError(f"it says that it has {metadata.num_rows} rows, and has {len(table)}")
    if len(set(table.column_names)) < table.num_columns:
        raise ValueError("it has a column twice")
    table.validate(full=True)
    return table


def _is_same_schema(written: pa.Schema, read: pa.Schema) -> bool:
    return len(written) == len(read) and all(
        first.name == second.name and _is_same_type(first.type, second.type)
        for first, second in zip(written, read, strict=True)
    )


def _is_same_type(written: pa.DataType, read: pa.DataType) -> bool:
    if written.equals(read) or not (pa.types.is_timestamp(written) and pa.types.is_timestamp(read)):
        return bool(written.equals(read))
    return written.tz == read.tz and _UNITS.index(read.unit) <= max(_UNITS.index(written.unit), 1)


def _lines_of(table: pa.Table, file: Path) -> pa.Table:
    extra = set(table.column_names) - set(KEYS) - {"heads", "tags", "tag_expiries", "file_names", "ordinal", "parent_ordinal"}
    problems = [
        Problem("is not a known column", file=str(file), key=name, expected=f"one of {', '.join(KEYS)}, heads, tags",
                remedy=suggest(name, KEYS))
        for name in sorted(extra)
    ]  # fmt: skip
    names = table.column_names
    if (
        "dataset" not in names
        or table["dataset"].null_count
        or pc.any(pc.equal(table["dataset"].cast(pa.string()), "")).as_py()
    ):
        problems.append(Problem("is missing", file=str(file), key="dataset", expected="store/name in each row"))
    for name in TIMES:
        zoned = name not in names or (pa.types.is_timestamp(table[name].type) and table[name].type.tz)
        if not zoned and table[name].null_count < len(table):
            problems.append(Problem("has no zone", file=str(file), key=name, expected="timestamps with a zone"))
    if problems:
        raise BadInput(problems)
    rows = _as_lines(table, file)
    for name in TIMES:
        out = pc.or_(pc.less(rows[name], _FIRST), pc.greater(rows[name], _LAST))
        if pc.any(out).as_py():
            raise BadInput(Problem("is out of range", file=str(file), key=name, expected="instants of the years 1 to 9999"))
    refs = [_ref_lines(table, column, kind) for column, kind in (("heads", "branch"), ("tags", "tag")) if column in names]
    return pa.concat_tables([rows, *refs])


def _as_lines(table: pa.Table, file: Path) -> pa.Table:
    columns, names = dict[str, pa.Array | pa.ChunkedArray](), table.column_names
    kinds = dict(zip(names, table.schema.types, strict=True))
    for field in LINES:
        if field.name == "parent_given":
            # Only transactions have parents; a missing column is a missing key on each line.
            given = "parent" in names and "transaction" in names
            columns[field.name] = table["transaction"].is_valid() if given else pa.repeat(False, len(table))
        elif field.name == "files" and "files" in names and pa.types.is_list(table["files"].type):
            columns["files"] = pc.list_value_length(table["files"])
            columns["file_names"] = table["files"]
        elif field.name == "attributes" and isinstance(kinds.get("attributes"), pa.StructType | pa.MapType):
            columns["attributes"], columns["fault"] = typed_attributes(table["attributes"])
        elif field.name in names and field.name not in columns:
            columns[field.name] = table[field.name]
        elif field.name not in columns:
            columns[field.name] = pa.nulls(len(table), field.type)
        try:
            if pa.types.is_integer(field.type) and pa.types.is_string(columns[field.name].type):
                raise pa.ArrowInvalid("a number is not written as text")
            columns[field.name] = columns[field.name].cast(field.type)
        except (pa.ArrowException, ValueError):
            kind = str(columns[field.name].type)
            raise BadInput(
                Problem("has the wrong type", file=str(file), key=field.name, value=kind, expected=str(field.type))
            ) from None
    if "head" not in names and "transaction" in names:
        # Every row of a log is a transaction: one without an id must not pass for a line about the dataset.
        columns["type"] = pc.coalesce(columns["type"], "")
    return pa.table(columns).select(LINES.names).cast(LINES)


def _ref_lines(table: pa.Table, column: str, kind: str) -> pa.Table:
    lists = table[column].combine_chunks()
    rows = pc.list_parent_indices(lists)
    expires = pa.nulls(len(rows), INSTANT)
    if kind == "tag" and "tag_expiries" in table.column_names:
        written = pc.list_flatten(table["tag_expiries"].combine_chunks())
        # A tag of unknown expiry never expires: that can only protect.
        expires = written if len(written) == len(rows) else expires
    given = {
        "dataset": table["dataset"].take(rows), "head": table["transaction"].take(rows),
        kind: pc.list_flatten(lists), "expires_at": expires, "parent_given": pa.repeat(False, len(rows)),
    }  # fmt: skip
    return pa.table({field.name: given.get(field.name, pa.nulls(len(rows), field.type)) for field in LINES}).cast(LINES)
