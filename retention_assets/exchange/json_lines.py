"""Logs as JSON lines: from a file to the lines of a log, and every fault that one line shows.

Belongs here: reading with DuckDB, which keeps "left out" and "null" apart, which `parent` needs, and which needs no loop over
lines in Python; saying which line of a file can't be read; and the keys of the format.
Does not belong here: what several lines mean together (frames/soundness.py).
"""

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

from retention_assets.errors import BadInput, Problem, nearest, quote
from retention_assets.exchange.compression import is_packed, unpacked
from retention_assets.frames.log import LINES

KEYS = (
    "dataset", "transaction", "parent", "type", "status", "opened_at", "closed_at", "archived_at", "bytes", "files",
    "attributes", "branch", "tag", "head", "expires_at", "realm",
)  # fmt: skip
# Those whose values are instants.
TIMES = ("opened_at", "closed_at", "archived_at", "expires_at")


_NAMES = ("dataset", "transaction", "parent", "type", "status", "branch", "tag", "head", "realm")
# A file up to this size is small.
SMALL = 65536
# DuckDB takes a name for a glob; no name of a file may choose other files.
_GLOB = re.compile(r"([*?\[])")


# Each key as JSON text first, so that a wrong type can be named instead of being cast or dropped.
_SHAPE = ",".join(f'"{key}":"{"VARCHAR" if key in _NAMES or key in TIMES else "JSON"}"' for key in KEYS)
_LINES_SQL = f"""
    SELECT json_keys(json) AS keys, json_type(json) AS kind, json_transform(json, '{{{_SHAPE}}}') AS line
    FROM lines
"""


def read_json(file: Path, datasets: Collection[str] | None = None) -> pa.Table:
    """The lines of a file, or of some datasets in it."""
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
    """The names of the datasets that a file speaks of, sorted."""
    if (few := few_ids(file)) is not None:
        return sorted(pc.unique(few["dataset"]).to_pylist())
    with unpacked(file) as plain, _ndjson(plain, file) as db:
        found = db.execute("SELECT DISTINCT json_extract_string(json, '$.dataset') FROM lines").fetchall()
    names = [name for (name,) in found if name]
    # A line of no dataset is what reading refuses the file for, by its number.
    return sorted(names) if len(names) == len(found) > 0 else sorted(set(read_json(file)["dataset"].to_pylist()))


def few_ids(file: Path) -> pa.Table | None:
    """The dataset and the transaction of each line of a small file in which nothing is unusual; none of another.

    A database takes thirty milliseconds to begin, and such files are many. What could mean anything else to it is left to it.
    """
    if is_packed(file.name) or not 0 < file.stat().st_size <= SMALL:
        return None
    try:
        lines = [_FEW.decode(line) for line in file.read_bytes().decode().split("\n") if line.strip()]
        if not all(line.keys() <= _KNOWN for line in lines):
            return None
        datasets = pa.array([line["dataset"] for line in lines], pa.string())
        transactions = pa.array([line.get("transaction") for line in lines], pa.string())
    # What is no text is left to the database as well: it may read it as one.
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, pa.ArrowException):
        return None
    if not lines or datasets.null_count or "" in datasets.to_pylist():
        return None
    return pa.table({"dataset": datasets, "transaction": transactions})


_KNOWN = frozenset(KEYS)


def _known_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("has a key twice")
    return found


# Objects of which each key stands once. Only the outermost ones are lines, but none may be doubtful.
_FEW = json.JSONDecoder(object_pairs_hook=_known_once)


@contextmanager
def _ndjson(plain: Path, file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that sees the objects of a plain file as `lines`; what DuckDB cannot read is refused by its line's number.

    What is said is said of `file`, which the plain one may have been unpacked from.
    """
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
    """The first line that is no JSON, looked for again: DuckDB counts lines in its own way, and speaks of bytes and buffers."""
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
    """The lines that are not blank, each with its number in the file. Only for messages: nothing sound is read this way."""
    with plain.open("rb") as stream:
        yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())


def _number_of(plain: Path, place: int) -> int | None:
    """The number in the file of the line at a place among those that are not blank."""
    return next((number for number, _ in itertools.islice(_numbered(plain), place, None)), None)


def _check_keys(db: duckdb.DuckDBPyConnection, plain: Path, file: Path) -> None:
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
    """Whether a text names its zone; a plain date is its midnight in UTC."""
    return (
        f"regexp_matches(line.{key}, '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$|:[0-9.]+(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)$')"
    )


_FILE_NAMES = """CASE WHEN line.files LIKE '[%' THEN from_json(line.files, '["VARCHAR"]') END"""
# DuckDB writes numbers and truths as attributes have them. What is null is absent; most lines have no such word.
_TEXTS = """from_json(line.attributes, '"MAP(VARCHAR,VARCHAR)"')"""
_ATTRIBUTES = f"""CASE WHEN line.attributes LIKE '{{%null%'
    THEN map_from_entries(list_filter(map_entries({_TEXTS}), lambda x: x.value IS NOT NULL))
    WHEN line.attributes LIKE '{{%' THEN {_TEXTS} END"""
# The values that are neither text nor truth nor a finite number; only where not every value is a text.
_NO_TEXTS = """CASE WHEN regexp_matches(line.attributes, ':[^"]')
    THEN list_filter(map_entries(from_json(line.attributes, '"MAP(VARCHAR,JSON)"')),
        lambda x: x.value::VARCHAR NOT LIKE '"%' AND x.value::VARCHAR NOT IN ('true', 'false')
        AND NOT coalesce(isfinite(try_cast(x.value::VARCHAR AS DOUBLE)), false)) END"""


def _faults() -> str:
    """A SQL expression with the first fault of a line, or null."""
    cases = []
    for key in TIMES:
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
