"""The exchange format: JSON lines or Parquet, from a file or a folder, to the lines of a log.

Belongs here: reading, and the faults that can be seen on one line (a time without a zone, bytes that are text). Such a fault
belongs to a dataset and refuses that dataset. Only what cannot be given to any dataset (a line that is no JSON, one without
a dataset, a key that nobody knows) refuses the file. DuckDB does the reading: it keeps "left out" and "null" apart, which
`parent` needs, and it needs no loop over lines in Python.
"""

import codecs
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.frames.added_deletes import with_moved_heads
from retention_assets.frames.log import ATTRIBUTES, INSTANT, LINES, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.problems import BadInput, Problem, nearest, shown

KEYS = (
    "dataset", "transaction", "parent", "type", "status", "opened_at", "closed_at", "archived_at", "bytes", "files",
    "attributes", "branch", "tag", "head", "expires_at", "realm",
)  # fmt: skip
_TIMES = ("opened_at", "closed_at", "archived_at", "expires_at")
_NAMES = ("dataset", "transaction", "parent", "type", "status", "branch", "tag", "head", "realm")
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".parquet")
_SMALL = 65536
# What sweeps add to a folder of logs begins so.
ADDED = "retention-"
# DuckDB takes a name for a glob; no name of a file may choose other files.
_GLOB = re.compile(r"([*?\[])")

# Each key as JSON text first, so that a wrong type can be named instead of being cast or dropped.
_SHAPE = ",".join(f'"{key}":"{"VARCHAR" if key in _NAMES or key in _TIMES else "JSON"}"' for key in KEYS)
_LINES_SQL = f"""
    SELECT json_keys(json) AS keys, json_type(json) AS kind, json_transform(json, '{{{_SHAPE}}}') AS line
    FROM lines
"""


def read_log(path: Path) -> Log:
    """Read a log and decide, dataset by dataset, whether it is sound."""
    return sound_log(read_lines(path))


def read_lines(path: Path) -> pa.Table:
    """Read a file, or all files of a folder in reading order."""
    return joined_lines([read_file(file) for file in _files(path)])


def joined_lines(tables: Collection[pa.Table]) -> pa.Table:
    """The lines of the files of one log as those of one file."""
    return with_moved_heads(pa.concat_tables([LINES.empty_table(), *tables]).combine_chunks())


def read_file(file: Path, datasets: Collection[str] | None = None) -> pa.Table:
    """The lines of one file, or of some datasets in it. A fault of the file refuses it whichever datasets are asked for."""
    if file.suffix != ".parquet":
        return _read_json(file, datasets)
    table = _read_parquet(file)
    return table if datasets is None else table.filter(pc.is_in(table["dataset"], pa.array(datasets, pa.string())))


def datasets_in(file: Path) -> list[str]:
    """The names of the datasets that a file speaks of, sorted."""
    if file.suffix == ".parquet":
        return sorted(pc.unique(_read_parquet(file)["dataset"]).to_pylist())
    if (few := _few_datasets(file)) is not None:
        return few
    with _ndjson(file) as db:
        found = db.execute("SELECT DISTINCT json_extract_string(json, '$.dataset') FROM lines").fetchall()
    names = [name for (name,) in found if name]
    # A line of no dataset is what reading refuses the file for, by its number.
    return sorted(names) if len(names) == len(found) > 0 else sorted(set(_read_json(file, None)["dataset"].to_pylist()))


def _few_datasets(file: Path) -> list[str] | None:
    """The names in a small file without a fault. A database takes thirty milliseconds to begin, and such files are many."""
    if file.suffix == ".gz" or not 0 < file.stat().st_size <= _SMALL:
        return None
    try:
        names = {json.loads(line)["dataset"] for line in file.read_text(encoding="utf-8").split("\n") if line.strip()}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return sorted(names) if names and all(isinstance(name, str) and name for name in names) else None


def is_log(name: str) -> bool:
    """Whether a file of a folder of logs is one, by its name."""
    return name.endswith(_SUFFIXES)


def reading_order(name: str) -> tuple[bool, str]:
    """By name, but what sweeps added comes last: a line without a parent must not follow one that nobody wrote before it."""
    return name.startswith(ADDED), name


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = [file for file in path.iterdir() if is_log(file.name) and file.is_file()]
        if files:
            return sorted(files, key=lambda file: reading_order(file.name))
        raise BadInput(Problem("holds no log", file=str(path), expected="files that end in .jsonl or .parquet"))
    if not path.is_file():
        raise BadInput(
            Problem("is not there", file=str(path), expected="a log: a file of JSON lines or Parquet, or a folder of them")
        )
    return [path]


@contextmanager
def _ndjson(file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that sees the objects of a file as `lines`; what DuckDB cannot read is refused by the number of its line."""
    if file.stat().st_size == 0:
        raise BadInput(Problem("is empty", file=str(file), expected="one JSON object on each line"))
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute("SET preserve_insertion_order = true")
        name = _GLOB.sub(r"[\1]", str(file)).replace("'", "''")
        try:
            db.execute(
                f"CREATE TEMP VIEW lines AS SELECT json FROM read_ndjson_objects(['{name}'], maximum_object_size = 67108864)"
            )
            yield db
        except duckdb.Error as fault:
            raise BadInput(_no_json(file, str(fault))) from None


def _read_json(file: Path, datasets: Collection[str] | None) -> pa.Table:
    with _ndjson(file) as db:
        db.execute(f"CREATE TEMP TABLE raw AS {_LINES_SQL}")
        _check_keys(db, file)
        chosen = ""
        if datasets is not None:
            db.register("wanted", pa.table({"dataset": pa.array(datasets, pa.string())}))
            chosen = "WHERE line.dataset IN (SELECT dataset FROM wanted)"
        db.execute(f"CREATE TEMP VIEW chosen AS SELECT *, rowid AS place FROM raw {chosen}")
        return db.sql(_CAST_SQL).to_arrow_table().cast(LINES)


def _no_json(file: Path, text: str) -> Problem:
    """The first line that is no JSON, looked for again: DuckDB counts lines in its own way, and speaks of bytes and buffers."""
    expected = "one JSON object on each line"
    try:
        for number, line in _numbered(file):
            try:
                json.dumps(json.loads(line.decode("utf-8")), ensure_ascii=False).encode()
            except UnicodeDecodeError:
                return Problem("is not text", file=str(file), line=number, expected=f"{expected}, in UTF-8")
            except (ValueError, RecursionError):
                what = "begins with a byte order mark" if line.startswith(codecs.BOM_UTF8) else "is no JSON"
                return Problem(what, file=str(file), line=number, value=shown(line.decode("utf-8").strip()), expected=expected)
    except (OSError, EOFError, zlib.error) as fault:
        return Problem(f"cannot be read: {fault}", file=str(file))
    return Problem("is no JSON", file=str(file), value=shown(text), expected=expected)


def _numbered(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number in the file. Only for messages: nothing sound is read this way."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())


def _number_of(file: Path, place: int) -> int | None:
    """The number in the file of the line at a place among those that are not blank."""
    return next((number for number, _ in itertools.islice(_numbered(file), place, None)), None)


def _check_keys(db: duckdb.DuckDBPyConnection, file: Path) -> None:
    """The combinations of keys are few, however many lines there are."""
    problems: list[Problem] = []
    found = db.execute(
        "SELECT keys, kind, count(*), min(rowid), bool_or(line.dataset IS NULL OR line.dataset = '') "
        "FROM raw GROUP BY keys, kind ORDER BY 4"
    ).fetchall()
    if not found:
        problems.append(Problem("is empty", file=str(file), expected="one JSON object on each line"))
    for keys, kind, count, first, nameless in found:
        where = f"({count} lines, this is the first)" if count > 1 else "(1 line)"
        new: list[Problem] = []
        for key in sorted(set(keys) - set(KEYS)):
            guess = nearest(key, KEYS)
            remedy = f"Did you mean {guess}?" if guess else "Facts of your own go into attributes."
            new.append(
                Problem(
                    f"is not a known key {where}", key=shown(key)[1:-1], expected=f"one of {', '.join(KEYS)}", remedy=remedy
                )
            )
        if kind != "OBJECT":
            new.append(Problem(f"is not an object {where}", expected="one JSON object on each line"))
        elif nameless:
            new.append(Problem(f"is missing {where}", key="dataset", expected="store/name on each line"))
        if len(set(keys)) != len(keys):
            new.append(Problem(f"has a key twice {where}", expected="each key once"))
        line = _number_of(file, first) if new else None
        problems += [replace(problem, file=str(file), line=line) for problem in new]
    if problems:
        raise BadInput(problems)


def _zone(key: str) -> str:
    """Whether a text names its zone; a plain date is its midnight in UTC."""
    return (
        f"regexp_matches(line.{key}, '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$|:[0-9.]+(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)$')"
    )


_FILE_NAMES = """CASE WHEN line.files LIKE '[%' THEN from_json(line.files, '["VARCHAR"]') END"""
_ATTRIBUTES = """CASE WHEN line.attributes LIKE '{%' THEN from_json(line.attributes, '"MAP(VARCHAR,VARCHAR)"') END"""


def _faults() -> str:
    """A SQL expression with the first fault of a line, or null."""
    cases = []
    for key in _TIMES:
        time = f"try_cast(line.{key} AS TIMESTAMPTZ)"
        # Beyond these years Python has no instants, and infinity is a time only to a database.
        cases.append(f"WHEN line.{key} IS NOT NULL AND {time} IS NULL THEN '{key} is not a time: ' || line.{key}")
        cases.append(f"WHEN NOT {_zone(key)} THEN '{key} has no zone: ' || line.{key}")
        cases.append(
            f"WHEN {time} NOT BETWEEN '0001-01-02T00:00:00Z' AND '9999-12-30T00:00:00Z' "
            f"THEN '{key} is out of range: ' || line.{key}"
        )
    cases.append("WHEN NOT regexp_full_match(line.bytes, '-?[0-9]{1,18}') THEN 'bytes is not a whole number: ' || line.bytes")
    cases.append(
        "WHEN NOT (regexp_full_match(line.files, '-?[0-9]{1,18}') OR line.files LIKE '[%') "
        "THEN 'files is neither a count nor a list of names: ' || line.files"
    )
    # A file without a name can never be seen to be replaced.
    cases.append(f"WHEN list_count({_FILE_NAMES}) < len({_FILE_NAMES}) THEN 'files holds a name that is null: ' || line.files")
    cases.append(
        "WHEN line.attributes IS NOT NULL AND line.attributes NOT LIKE '{%' "
        "THEN 'attributes is not a mapping: ' || line.attributes"
    )
    # DuckDB reads a mapping with a key twice as null, and nothing may be judged by attributes that are not there.
    cases.append(
        f"WHEN line.attributes IS NOT NULL AND {_ATTRIBUTES} IS NULL THEN 'attributes has a key twice: ' || line.attributes"
    )
    return "CASE " + " ".join(cases) + " END"


_CAST_SQL = f"""
    SELECT
        line.dataset AS dataset, line.transaction AS transaction, line.parent AS parent,
        list_contains(keys, 'parent') AS parent_given,
        line.type AS type, line.status AS status,
        {", ".join(f"try_cast(line.{key} AS TIMESTAMPTZ) AS {key}" for key in _TIMES[:3])},
        try_cast(line.bytes AS BIGINT) AS bytes,
        CASE WHEN line.files LIKE '[%' THEN json_array_length(line.files) ELSE try_cast(line.files AS BIGINT) END AS files,
        {_FILE_NAMES} AS file_names,
        {_ATTRIBUTES} AS attributes,
        line.branch AS branch, line.tag AS tag, line.head AS head,
        try_cast(line.expires_at AS TIMESTAMPTZ) AS expires_at, line.realm AS realm,
        {_faults()} AS fault
    FROM chosen ORDER BY place
"""


def _read_parquet(file: Path) -> pa.Table:
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
    for name in _TIMES:
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
