"""What a condition says about rows: tables of cases, nulls, and any shape of table.

Does not belong here: single casts and operators (test_where_casts.py), and DuckDB's answers (test_where_duckdb.py).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention_assets.frames import LOG, evaluate
from retention_assets.frames.verdicts import where_condition as evaluation
from retention_assets.policy import parse_condition
from retention_assets.policy.where.tree import CASTS as KIND_CASTS
from retention_assets.policy.where.tree import Apply
from retention_assets_tests.policy.where.conditions import MEANINGS, ROWS, held, log, terms_of


@pytest.mark.parametrize(("text", "expected"), MEANINGS)
def test_a_condition_holds_for(text: str, expected: str) -> None:
    assert held(text, ROWS) == expected.split()


# In every one `bytes`, `closed_at` and the attributes are null: neither it nor its opposite is true.
UNKNOWN = [
    "bytes = 1", "bytes <> 1", "bytes < 1", "bytes <= 1", "bytes > 1", "bytes >= 1", "1 = bytes", "bytes = bytes",
    "bytes IN (1, 2)", "bytes NOT IN (1, 2)", "bytes BETWEEN 1 AND 2", "bytes NOT BETWEEN 1 AND 2", "5 BETWEEN bytes AND 9",
    "bytes + 1 = 2", "1 - bytes = 2", "bytes * 0 = 0", "0 / bytes = 0", "bytes % 2 = 0", "0 % bytes = 0", "-bytes = 0",
    "bytes * 0.0 = 0.0", "abs(bytes) = 0", "coalesce(bytes, files) = 0", "CAST(bytes AS STRING) = ''",
    "CAST(bytes AS DOUBLE) = 0", "closed_at > DATE '2026-01-01'", "closed_at IN ('2026-01-01')",
    "CAST(closed_at AS BIGINT) = 0", "attributes['k'] = ''", "attributes['k'] <> ''", "attributes['k'] LIKE '%'",
    "attributes['k'] NOT LIKE '%'", "attributes['k'] IN ('')", "startswith(attributes['k'], '')",
    "length(attributes['k']) = 0", "lower(attributes['k']) = ''", "upper(attributes['k']) = ''",
    "trim(attributes['k']) = ''", "CAST(attributes['k'] AS BIGINT) = 0", "CAST(attributes['k'] AS DOUBLE) = 0",
    "CAST(attributes['k'] AS TIMESTAMP) > DATE '1970-01-01'", "CAST(attributes['k'] AS BOOLEAN)",
    "CAST(attributes['k'] AS BOOLEAN) = TRUE", "(bytes = 1) = (bytes = 1)", "(bytes = 1) IN (TRUE, FALSE)",
    "ordinal / 0 = 0", "ordinal / 0 <> 0", "ordinal % 0 = 0", "ordinal / 0.0 > 0", "1e308 * 10 * ordinal > 0",
]  # fmt: skip


@pytest.mark.parametrize("text", UNKNOWN)
@pytest.mark.parametrize("attributes", [None, [], [("k", None)]], ids=["no map", "no key", "no value"])
def test_null_makes_a_condition_neither_true_nor_false(text: str, attributes: Any) -> None:
    rows = log({"attributes": attributes, "ordinal": 1})
    assert held(text, rows) == []
    assert held(f"NOT ({text})", rows) == []
    assert held(f"({text}) IS NULL", rows) == ["T1"]


@pytest.mark.parametrize("p", [True, False, None])
@pytest.mark.parametrize("q", [True, False, None])
def test_and_or_not_follow_three_valued_logic(p: bool | None, q: bool | None) -> None:
    rows = log({"attributes": [("p", p if p is None else str(p)), ("q", q if q is None else str(q))]})
    left, right = (f"CAST(attributes['{key}'] AS BOOLEAN)" for key in "pq")
    both = False if False in (p, q) else None if None in (p, q) else True
    either = True if True in (p, q) else None if None in (p, q) else False
    for text, answer in ((f"{left} AND {right}", both), (f"{left} OR {right}", either)):
        assert bool(held(text, rows)) is (answer is True)
        assert bool(held(f"NOT ({text})", rows)) is (answer is False)


def test_an_integer_beyond_the_exact_decimals_can_be_compared_with_a_decimal() -> None:
    # Arrow's own comparison refuses such a row, and with it the whole column.
    assert held("bytes > 1.5", log({"bytes": 2**53 + 1}, {"bytes": 1})) == ["T1"]


def test_there_is_one_zero() -> None:
    rows = log({"bytes": 0, "attributes": [("z", "-0.0")]})
    assert held("bytes * -1.0 IN (0.0) AND bytes * 1.0 IN (-0.0) AND -(bytes * 1.0) IN (0)", rows) == ["T1"]
    assert held("CAST(attributes['z'] AS DOUBLE) IN (0.0)", rows) == ["T1"]


# --- Any shape of table ----------------------------------------------------------------------------------------------


# Reads columns of every type; true of the first row and of the last.
SHAPED = (
    "type = 'SNAPSHOT' AND dataset LIKE 'lake/%' AND ordinal = 0 AND bytes < 11"
    " AND (closed_at = '2026-01-01T00:05:00Z' OR attributes['tier'] LIKE '%it%')"
)


def _encoded(table: pa.Table) -> pa.Table:
    """Every text in a dictionary, the keys of the attributes too."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(index, field.name, table[field.name].dictionary_encode())
    attributes = table["attributes"].combine_chunks()
    keys = attributes.keys.dictionary_encode()
    coded = pa.MapArray.from_arrays(attributes.offsets, keys, attributes.items, mask=attributes.is_null())
    return table.set_column(table.schema.get_field_index("attributes"), "attributes", coded)


def _plain(table: pa.Table) -> pa.Table:
    """No dictionary at all, large texts, instants in another unit."""
    types = {"dataset": pa.large_string(), "type": pa.string(), "closed_at": pa.timestamp("ns", tz="Asia/Tokyo")}
    for name, to in types.items():
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(to))
    return table


def _chunked(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 2), table.slice(3)])


def _other_dictionaries(table: pa.Table) -> pa.Table:
    """Chunks that number their types differently."""
    place, field = table.schema.get_field_index("type"), LOG.field("type")

    def numbered_anew(part: pa.Table) -> pa.Table:
        return part.set_column(place, field, part["type"].cast(pa.string()).cast(field.type))

    return pa.concat_tables([numbered_anew(table.slice(row, 1)) for row in range(table.num_rows)])


@pytest.mark.parametrize("shape", [_encoded, _plain, _chunked, _other_dictionaries], ids=lambda shape: shape.__name__)
def test_the_shape_of_the_table_does_not_matter(shape: Callable[[pa.Table], pa.Table]) -> None:
    assert held(SHAPED, ROWS) == held(SHAPED, shape(ROWS)) == ["T1", "T4"]


@pytest.mark.parametrize(("start", "expected"), [(0, "T1 T4"), (1, "T4"), (3, "T4"), (4, "")])
def test_a_slice_of_a_table_answers_for_its_own_rows(start: int, expected: str) -> None:
    assert held(SHAPED, ROWS.slice(start)) == expected.split()


@pytest.mark.parametrize("empty", [ROWS.slice(0, 0), LOG.empty_table(), pa.concat_tables([ROWS.slice(0, 0)] * 2)])
def test_a_table_without_rows_holds_none(empty: pa.Table) -> None:
    assert held(SHAPED, empty) == []


def test_only_the_columns_that_are_read_need_to_be_there() -> None:
    assert evaluate(parse_condition("bytes > 5"), pa.table({"bytes": [1, 9, None]})).tolist() == [False, True, False]


def test_rows_are_looked_at_in_parts_and_answered_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_TOGETHER", 3)
    table = pa.table({"bytes": list(range(10))})
    assert evaluate(parse_condition("bytes % 2 = 1"), table).tolist() == [False, True] * 5


def test_a_million_rows_are_judged_as_arrays() -> None:
    count = 1_000_000
    offsets = pa.array(np.arange(0, 3 * count + 1, 3, dtype=np.int32))
    keys, values = pa.array(["a", "tier", "n"] * count), pa.array(["x", "bronze", "17"] * count)
    rows = pa.table({"bytes": np.arange(count), "attributes": pa.MapArray.from_arrays(offsets, keys, values)})
    condition = parse_condition("attributes['tier'] = 'bronze' AND CAST(attributes['n'] AS BIGINT) > 5 AND bytes * 2 < 1000")
    assert evaluate(condition, rows).sum() == 500


# --- Nothing left out ------------------------------------------------------------------------------------------------


def test_whatever_can_be_read_can_be_answered() -> None:
    read = {term.op for text, _ in MEANINGS for term in terms_of(parse_condition(text).tree) if isinstance(term, Apply)}
    assert read == {*evaluation._OPERATORS, "cast"}
    assert {(given, wanted) for given, all_wanted in KIND_CASTS.items() for wanted in all_wanted} == set(evaluation._CASTS)
