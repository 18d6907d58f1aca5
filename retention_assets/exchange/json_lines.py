"""Logs as JSON lines, read by DuckDB, which tells a missing key from null as `parent` needs, and each line's faults."""

import codecs
import itertools
import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import BadInput, Problem, quote, suggest
from retention_assets.exchange.compression import is_packed, unpacked
from retention_assets.frames.log import LINES

KEYS = (
    "dataset", "transaction", "parent", "type", "status", "opened_at", "closed_at", "archived_at", "bytes", "files",
    "attributes", "branch", "tag", "head", "expires_at", "realm",
)  # fmt: skip
TIMES = ("opened_at", "closed_at", "archived_at", "expires_at")

_NAMES = ("dataset", "transaction", "parent", "type", "status", "branch", "tag", "head", "realm")
# bytes; larger files are not small
SMALL = 65536
# DuckDB expands globs; a file name must not match other files.
_GLOB = re.compile(r"([*?\[])")


# Each key as JSON first, so that a wrong type is reported instead of cast or dropped.
_SHAPE = ",".join(f'"{key}":"{"VARCHAR" if key in _NAMES or key in TIMES else "JSON"}"' for key in KEYS)
_LINES_SQL = f"""
    SELECT json_keys(json) AS keys, json_type(json) AS kind, json_transform(json, '{{{_SHAPE}}}') AS line
    FROM lines
"""


def read_json(file: Path, datasets: Collection[str] | None = None) -> pa.Table:
    with unpacked(file) as plain, _ndjson(plain, file) as db:
        db.execute(f"CREATE TEMP TABLE raw AS {_LINES_SQL}")
        _check_keys(db, plain, file)
        chosen = ""
        if datasets is not None:
            db.register("wanted", pa.table({"dataset": pa.array(datasets, pa.string())}))
            chosen = "WHERE line.dataset IN (SELECT dataset FROM wanted)"
        db.execute(f"CREATE TEMP VIEW chosen AS SELECT *, rowid AS place FROM raw {chosen}")
        return db.sql(_CAST_SQL).to_arrow_table().cast(LINES)


def datasets_of_json(file: Path) -> list[str]:
    if (few := few_ids(file)) is not None:
        return sorted(pc.unique(few["dataset"]).to_pylist())
    with unpacked(file) as plain, _ndjson(plain, file) as db:
        rows = db.execute("SELECT DISTINCT json_extract_string(json, '$.dataset') FROM lines").fetchall()
    names = [name for (name,) in rows if name]
    # A line without a dataset refuses the file with its number.
    return sorted(names) if len(names) == len(rows) > 0 else sorted(set(read_json(file)["dataset"].to_pylist()))


def few_ids(file: Path) -> pa.Table | None:
    """Dataset and transaction of each line of a small, ordinary file; None for any other.

    DuckDB takes 30 ms to start, and small files are many. Anything that it might read differently is left to it.
    """
    if is_packed(file.name) or not 0 < file.stat().st_size <= SMALL:
        return None
    try:
        lines = [_LINE.decode(line) for line in file.read_bytes().decode().split("\n") if line.strip()]
        if not all(line.keys() <= _KNOWN for line in lines):
            return None
        datasets = pa.array([line["dataset"] for line in lines], pa.string())
        transactions = pa.array([line.get("transaction") for line in lines], pa.string())
    # Values that are no text: DuckDB may read them as one.
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, pa.ArrowException):
        return None
    if not lines or datasets.null_count or "" in datasets.to_pylist():
        return None
    return pa.table({"dataset": datasets, "transaction": transactions})


_KNOWN = frozenset(KEYS)


def _with_unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        raise ValueError("has a key twice")
    return keys


# Objects with unique keys. Only the outermost are lines, but none may be ambiguous.
_LINE = json.JSONDecoder(object_pairs_hook=_with_unique_keys)


@contextmanager
def _ndjson(plain: Path, file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    # A database with the plain file's objects as `lines`. Raises BadInput with the line of an unreadable one in `file`.
    if plain.stat().st_size == 0:
        raise BadInput(Problem("is empty", file=str(file), expected="one JSON object on each line"))
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute("SET preserve_insertion_order = true")
        name = _GLOB.sub(r"[\1]", str(plain)).replace("'", "''")
        options = "maximum_object_size = 67108864, compression = 'none'"
        try:
            db.execute(f"CREATE TEMP VIEW lines AS SELECT json FROM read_ndjson_objects(['{name}'], {options})")
            yield db
        except duckdb.Error as fault:
            raise BadInput(_no_json(plain, file, str(fault))) from None


def _no_json(plain: Path, file: Path, text: str) -> Problem:
    # Find the first invalid line again: DuckDB counts differently and speaks of buffers.
    expected = "one JSON object on each line"
    try:
        for number, line in _numbered(plain):
            try:
                json.dumps(json.loads(line.decode("utf-8")), ensure_ascii=False).encode()
            except UnicodeDecodeError:
                return Problem("is not text", file=str(file), line=number, expected=f"{expected}, in UTF-8")
            except (ValueError, RecursionError):
                what = "begins with a byte order mark" if line.startswith(codecs.BOM_UTF8) else "is no JSON"
                return Problem(what, file=str(file), line=number, value=quote(line.decode("utf-8").strip()), expected=expected)
    except OSError as fault:
        return Problem(f"cannot be read: {fault}", file=str(file))
    return Problem("is no JSON", file=str(file), value=quote(text), expected=expected)


def _numbered(plain: Path) -> Iterator[tuple[int, bytes]]:
    with plain.open("rb") as stream:
        yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())


def _number_of(plain: Path, place: int) -> int | None:
    return next((number for number, _ in itertools.islice(_numbered(plain), place, None)), None)


def _check_keys(db: duckdb.DuckDBPyConnection, plain: Path, file: Path) -> None:
    # Cheap: there are few combinations of keys.
    problems: list[Problem] = []
    rows = db.execute(
        "SELECT keys, kind, count(*), min(rowid), bool_or(line.dataset IS NULL OR line.dataset = '') "
        "FROM raw GROUP BY keys, kind ORDER BY 4"
    ).fetchall()
    if not rows:
        problems.append(Problem("is empty", file=str(file), expected="one JSON object on each line"))
    for keys, kind, count, first, nameless in rows:
        where = f"({count} lines, this is the first)" if count > 1 else "(1 line)"
        new: list[Problem] = []
        for key in sorted(set(keys) - set(KEYS)):
            remedy = suggest(key, KEYS) or "Facts of your own go into attributes."
            new.append(
                Problem(
                    f"is not a known key {where}", key=quote(key)[1:-1], expected=f"one of {', '.join(KEYS)}", remedy=remedy
                )
            )
        if kind != "OBJECT":
            new.append(Problem(f"is not an object {where}", expected="one JSON object on each line"))
        elif nameless:
            new.append(Problem(f"is missing {where}", key="dataset", expected="store/name on each line"))
        if len(set(keys)) != len(keys):
            new.append(Problem(f"has a key twice {where}", expected="each key once"))
        line = _number_of(plain, first) if new else None
        problems += [replace(problem, file=str(file), line=line) for problem in new]
    if problems:
        raise BadInput(problems)


def _zone(key: str) -> str:
    # SQL condition: a time names its zone; a plain date is midnight in UTC.
    return (
        f"regexp_matches(line.{key}, '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$|:[0-9.]+(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)$')"
    )


_FILE_NAMES = """CASE WHEN line.files LIKE '[%' THEN from_json(line.files, '["VARCHAR"]') END"""
# DuckDB writes numbers and booleans as attributes have them. Nulls are absent; most lines lack that word.
_TEXTS = """from_json(line.attributes, '"MAP(VARCHAR,VARCHAR)"')"""
_ATTRIBUTES = f"""CASE WHEN line.attributes LIKE '{{%null%'
    THEN map_from_entries(list_filter(map_entries({_TEXTS}), lambda x: x.value IS NOT NULL))
    WHEN line.attributes LIKE '{{%' THEN {_TEXTS} END"""
# Values that are no text, boolean or finite number; only if some value is no text.
_NO_TEXTS = """CASE WHEN regexp_matches(line.attributes, ':[^"]')
    THEN list_filter(map_entries(from_json(line.attributes, '"MAP(VARCHAR,JSON)"')),
        lambda x: x.value::VARCHAR NOT LIKE '"%' AND x.value::VARCHAR NOT IN ('true', 'false')
        AND NOT coalesce(isfinite(try_cast(x.value::VARCHAR AS DOUBLE)), false)) END"""


def _faults() -> str:
    cases = []
    for key in TIMES:
        time = f"try_cast(line.{key} AS TIMESTAMPTZ)"
        # Python has no instants beyond these years, and infinity is a time only in DuckDB.
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
    # A file without a name could never be seen to be replaced.
    cases.append(f"WHEN list_count({_FILE_NAMES}) < len({_FILE_NAMES}) THEN 'files holds a null name: ' || line.files")
    cases.append(
        "WHEN line.attributes IS NOT NULL AND line.attributes NOT LIKE '{%' "
        "THEN 'attributes is not a mapping: ' || line.attributes"
    )
    # DuckDB reads a duplicate key as null, and nothing may be judged by missing attributes.
    cases.append(
        f"WHEN line.attributes IS NOT NULL AND {_ATTRIBUTES} IS NULL THEN 'attributes has a key twice: ' || line.attributes"
    )
    wrong = f"{_NO_TEXTS}[1]"
    cases.append(
        f"WHEN len({_NO_TEXTS}) > 0 THEN 'attributes[' || {wrong}.key || '] is no text, truth or finite number: '"
        f" || {wrong}.value::VARCHAR"
    )
    return "CASE " + " ".join(cases) + " END"


_CAST_SQL = f"""
    SELECT
        line.dataset AS dataset, line.transaction AS transaction, line.parent AS parent,
        list_contains(keys, 'parent') AS parent_given,
        line.type AS type, line.status AS status,
        {", ".join(f"try_cast(line.{key} AS TIMESTAMPTZ) AS {key}" for key in TIMES[:3])},
        try_cast(line.bytes AS BIGINT) AS bytes,
        CASE WHEN line.files LIKE '[%' THEN json_array_length(line.files) ELSE try_cast(line.files AS BIGINT) END AS files,
        {_FILE_NAMES} AS file_names,
        {_ATTRIBUTES} AS attributes,
        line.branch AS branch, line.tag AS tag, line.head AS head,
        try_cast(line.expires_at AS TIMESTAMPTZ) AS expires_at, line.realm AS realm,
        {_faults()} AS fault
    FROM chosen ORDER BY place
"""
