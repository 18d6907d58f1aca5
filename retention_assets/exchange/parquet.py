"""Logs as Parquet with the columns of the exchange format, or with those that the log itself is kept in.

Belongs here: reading, and columns that are of the wrong kind. Does not belong here: what rows mean together.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.errors import BadInput, Problem, nearest
from retention_assets.exchange.json_lines import KEYS, TIMES
from retention_assets.frames.log import ATTRIBUTES, INSTANT, LINES


def read_parquet(file: Path) -> pa.Table:
    """Parquet with the same columns; a null parent is no parent. `heads` and `tags` columns become branch and tag lines."""
    try:
        table = pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as fault:
        raise BadInput(Problem(f"is not Parquet: {fault}", file=str(file))) from None
    extra = set(table.column_names) - set(KEYS) - {"heads", "tags", "tag_expiries", "file_names", "ordinal", "parent_ordinal"}
    problems = [
        Problem("is not a known column", file=str(file), key=name, expected=f"one of {', '.join(KEYS)}, heads, tags",
                remedy=f"Did you mean {guess}?" if (guess := nearest(name, KEYS)) else None)
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
    refs = [
        _hung(table, column, kind) for column, kind in (("heads", "branch"), ("tags", "tag")) if column in table.column_names
    ]
    return pa.concat_tables([rows, *refs])


def _as_lines(table: pa.Table, file: Path) -> pa.Table:
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for field in LINES:
        if field.name == "parent_given":
            # Only transactions have parents, and a column that is not there is what `left out` is on a line.
            given = "parent" in table.column_names and "transaction" in table.column_names
            columns[field.name] = table["transaction"].is_valid() if given else pa.repeat(False, len(table))
        elif field.name == "files" and "files" in table.column_names and pa.types.is_list(table["files"].type):
            columns["files"] = pc.list_value_length(table["files"])
            columns["file_names"] = table["files"]
        elif field.name in table.column_names and field.name not in columns:
            columns[field.name] = _map_of(table[field.name]) if field.type == ATTRIBUTES else table[field.name]
        elif field.name not in columns:
            columns[field.name] = pa.nulls(len(table), field.type)
        try:
            if pa.types.is_integer(field.type) and pa.types.is_string(columns[field.name].type):
                raise pa.ArrowInvalid("a number is not written as text")
            columns[field.name] = columns[field.name].cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            found = str(columns[field.name].type)
            raise BadInput(
                Problem("has the wrong type", file=str(file), key=field.name, value=found, expected=str(field.type))
            ) from None
    if "head" not in table.column_names and "transaction" in table.column_names:
        # In rows of a log every row is a transaction; one without an id must not pass for a line about the dataset.
        columns["type"] = pc.coalesce(columns["type"], "")
    return pa.table(columns).select(LINES.names).cast(LINES)


def _map_of(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Attributes as a map, whether they were written as a map or as a struct."""
    if not pa.types.is_struct(column.type):
        return column
    rows = (
        [(key, str(value)) for key, value in row.items() if value is not None] if row else None for row in column.to_pylist()
    )
    return pa.array(list(rows), ATTRIBUTES)


def _hung(table: pa.Table, column: str, kind: str) -> pa.Table:
    """Branch or tag lines from a column of names that point at their row."""
    lists = table[column].combine_chunks()
    rows = pc.list_parent_indices(lists)
    expires = pa.nulls(len(rows), INSTANT)
    if kind == "tag" and "tag_expiries" in table.column_names:
        written = pc.list_flatten(table["tag_expiries"].combine_chunks())
        # A tag whose expiry is not known never expires: that can only protect.
        expires = written if len(written) == len(rows) else expires
    given = {
        "dataset": table["dataset"].take(rows), "head": table["transaction"].take(rows),
        kind: pc.list_flatten(lists), "expires_at": expires, "parent_given": pa.repeat(False, len(rows)),
    }  # fmt: skip
    return pa.table({field.name: given.get(field.name, pa.nulls(len(rows), field.type)) for field in LINES}).cast(LINES)
