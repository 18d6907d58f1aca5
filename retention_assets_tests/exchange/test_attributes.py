"""Attributes: one value is one text, whether JSON lines, a map or a struct of Parquet has it; and what is the text of no value."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.exchange import read_log
from retention_assets.frames import Log
from retention_assets_tests.exchange.lines import SOUND, read

BERLIN = pa.timestamp("us", "Europe/Berlin")
TEN = datetime(2026, 1, 31, 10, tzinfo=UTC)


def parquet(folder: Path, values: pa.Array) -> Log:
    size = len(values)
    times = pa.repeat(pa.scalar(TEN, pa.timestamp("us", "UTC")), size)
    columns = {
        "dataset": pa.repeat("lake/d", size), "transaction": [f"T{number}" for number in range(size)],
        "parent": pa.nulls(size, pa.string()), "type": pa.repeat("APPEND", size), "status": pa.repeat("COMMITTED", size),
        "opened_at": times, "closed_at": times, "attributes": values,
    }  # fmt: skip
    pq.write_table(pa.table(columns), folder / "log.parquet")
    return read_log(folder / "log.parquet")


def in_both(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    return (
        pa.array([[("other", None), ("k", value)] for value in values], pa.map_(pa.string(), kind)),
        pa.array([{"k": value, "other": None} for value in values], pa.struct([("k", kind), ("other", pa.string())])),
    )


def texts(log: Log) -> list[str | None]:
    assert log.datasets["fault"].to_pylist() == [None]
    return [dict(row or ()).get("k") for row in log.transactions["attributes"].to_pylist()]


@pytest.mark.parametrize(
    ("values", "kind", "written", "expected"),
    [
        ([True, False], pa.bool_(), "true false", ["true", "false"]),
        ([1, -7, 0], pa.int32(), "1 -7 -0", ["1", "-7", "0"]),
        ([2**64 - 1], pa.uint64(), "18446744073709551615", ["18446744073709551615"]),
        ([1.0, 1e3, 0.1, 1e22, 1e-7, -0.0], pa.float64(), "1.0 1e3 1.0E-1 1e22 0.0000001 -0.0",
         ["1.0", "1000.0", "0.1", "1e+22", "1e-07", "-0.0"]),
        ([0.5], pa.float32(), "0.50", ["0.5"]),
        ([Decimal("1.50"), Decimal("0.00")], pa.decimal128(10, 2), '"1.50" "0.00"', ["1.50", "0.00"]),
        ([Decimal("0.0000000001")], pa.decimal128(20, 10), '"0.0000000001"', ["0.0000000001"]),
        ([TEN, TEN.replace(microsecond=5)], BERLIN, '"2026-01-31T10:00:00Z" "2026-01-31T10:00:00.000005Z"',
         ["2026-01-31T10:00:00Z", "2026-01-31T10:00:00.000005Z"]),
        ([TEN], pa.timestamp("ms", "UTC"), '"2026-01-31T10:00:00Z"', ["2026-01-31T10:00:00Z"]),
        ([date(2026, 1, 31)], pa.date32(), '"2026-01-31"', ["2026-01-31"]),
        (["x", None, "", "null"], pa.string(), '"x" null "" "null"', ["x", None, "", "null"]),
        (["a", "a", None], pa.dictionary(pa.int32(), pa.string()), '"a" "a" null', ["a", "a", None]),
        ([None], pa.null(), "null", [None]),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_is_one_text_in_every_format(
    tmp_path: Path, values: list[Any], kind: pa.DataType, written: str, expected: list[str | None]
) -> None:
    lines = [
        f'{json.dumps({**SOUND, "transaction": f"T{number}"})[:-1]}, "attributes": {{"k": {text}, "other": null}}}}'
        for number, text in enumerate(written.split())
    ]
    assert texts(read(tmp_path, "\n".join(lines))) == expected
    for column in in_both(values, kind):
        assert texts(parquet(tmp_path, column)) == expected


def test_a_number_of_any_length_is_as_written(tmp_path: Path) -> None:
    number = "123456789012345678901234567890"
    assert texts(read(tmp_path, json.dumps(SOUND)[:-1] + f', "attributes": {{"k": {number}}}}}')) == [number]


@pytest.mark.parametrize("text", ["[1]", '["true"]', '{"a": 1}', "1e400", "-1e400", "NaN", "Infinity"])
def test_what_has_no_text_in_json_refuses_its_dataset(tmp_path: Path, text: str) -> None:
    lines = [
        json.dumps(SOUND),
        json.dumps({**SOUND, "transaction": "T2"})[:-1] + f', "attributes": {{"a": "b:c", "k": {text}}}}}',
    ]
    log = read(tmp_path, "\n".join([*lines, json.dumps({**SOUND, "dataset": "lake/other"})]))
    fault = f"attributes[k] is no text, truth or finite number: {text.replace(' ', '')}"
    assert [(row["dataset"], row["fault"], row["fault_transaction"]) for row in log.datasets.to_pylist()] == [
        ("lake/d", fault, "T2"), ("lake/other", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kind", "fault"),
    [
        (float("nan"), pa.float64(), "is not a finite number"),
        (float("-inf"), pa.float32(), "is not a finite number"),
        (datetime(2026, 1, 31, 10), pa.timestamp("us"), "is a time without a zone"),  # noqa: DTZ001 - that is what is refused
        (time(10), pa.time64("us"), "is a time without a zone"),
        ([1], pa.list_(pa.int64()), "is of the type list<element: int64>"),
        ({"a": 1}, pa.struct([("a", pa.int64())]), "is of the type struct<a: int64>"),
    ],
    ids=str,
)
def test_what_has_no_text_in_parquet_refuses_its_dataset(tmp_path: Path, value: Any, kind: pa.DataType, fault: str) -> None:
    for column in in_both([None, value], kind):
        log = parquet(tmp_path, column)
        assert [(row["fault"], row["fault_transaction"]) for row in log.datasets.to_pylist()] == [
            (f"attributes[k] {fault}", "T1")
        ]
        assert len(log.transactions) == 0


def test_a_key_that_is_there_twice_in_parquet_refuses_its_dataset(tmp_path: Path) -> None:
    for pairs in ([("k", "1"), ("k", "2")], [("k", "1"), ("j", "0"), ("k", None)]):
        column = pa.array([[("k", "0")], pairs], pa.map_(pa.string(), pa.string()))
        assert parquet(tmp_path, column).datasets["fault"].to_pylist() == ["attributes has a key twice"]


def test_rows_without_attributes_have_none_in_parquet(tmp_path: Path) -> None:
    for column in (pa.array([None, [("k", 1.5)]], pa.map_(pa.string(), pa.float64())), pa.array([None, {"k": 1.5}])):
        assert parquet(tmp_path, column).transactions["attributes"].to_pylist() == [None, [("k", "1.5")]]
