"""Parquet in both of its shapes: the columns of the exchange format, and a log as `frames` has it."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import BadInput
from retention_assets.exchange import read_log
from retention_assets.frames import INSTANT, LOG, Log
from retention_assets.policy import parse_instant
from retention_assets_tests.exchange.lines import line
from retention_assets_tests.histories import history, random_histories, to_lines


def parquet(tmp_path: Path, table: pa.Table, name: str = "log.parquet") -> Log:
    pq.write_table(table, tmp_path / name)
    return read_log(tmp_path / name)


def exchange_table(**changed: Any) -> pa.Table:
    """Two transactions, a branch, a tag and a line about the dataset, in the columns of the exchange format."""
    at, later = parse_instant("2026-01-01T00:00:00Z"), parse_instant("2026-01-01T00:05:00Z")
    columns: dict[str, Any] = {
        "dataset": ["lake/d"] * 5,
        "transaction": ["T1", "T2", None, None, None],
        "parent": pa.array([None, "T1", None, None, None], pa.string()),
        "type": ["SNAPSHOT", "APPEND", None, None, None],
        "status": ["COMMITTED", "COMMITTED", None, None, None],
        "opened_at": pa.array([at, at, None, None, None], INSTANT),
        "closed_at": pa.array([later, later, None, None, None], INSTANT),
        "bytes": pa.array([1, 2, None, None, None], pa.int64()),
        "files": pa.array([["a"], ["b", "c"], None, None, None], pa.list_(pa.string())),
        "attributes": pa.array([[("k", "v")], None, None, None, [("tier", "a")]], pa.map_(pa.string(), pa.string())),
        "branch": pa.array([None, None, "main", None, None], pa.string()),
        "tag": pa.array([None, None, None, "v1", None], pa.string()),
        "head": pa.array([None, None, "T2", "T1", None], pa.string()),
        "expires_at": pa.array([None, None, None, later, None], INSTANT),
        "realm": pa.array([None, None, None, None, "acme"], pa.string()),
    }
    return pa.table({key: value for key, value in {**columns, **changed}.items() if value is not ...})


def test_parquet_in_the_columns_of_the_exchange_format_is_read(tmp_path: Path) -> None:
    log = parquet(tmp_path, exchange_table())
    first, second = log.transactions.to_pylist()
    assert (first["heads"], first["tags"], first["tag_expiries"]) == ([], ["v1"], [parse_instant("2026-01-01T00:05:00Z")])
    assert (second["parent"], second["heads"], second["files"], second["file_names"]) == ("T1", ["main"], 2, ["b", "c"])
    assert dict(first["attributes"]) == {"k": "v"}
    assert dict(log.datasets.to_pylist()[0]["attributes"]) == {"tier": "a", "realm": "acme"}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_log_as_frames_have_it_is_read_back_as_it_was(index: int, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n".join(to_lines(random_histories(random.Random(index), 30))))
    before = read_log(tmp_path / "log.jsonl")
    # Attributes of datasets are not in this table; they have one of their own.
    after = parquet(tmp_path, before.transactions)
    assert after.transactions.to_pylist() == before.transactions.to_pylist()
    assert after.transactions.schema == LOG


def test_a_log_of_no_rows_is_read_back_as_it_was(tmp_path: Path) -> None:
    assert len(parquet(tmp_path, LOG.empty_table()).transactions) == 0


def test_tags_without_their_expiries_never_expire(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n".join(to_lines([history("main: T1:SNAPSHOT@5d - T2:APPEND@4d  |  #v1=T1@+3d")])))
    log = read_log(tmp_path / "log.jsonl").transactions
    for table in (log.drop_columns(["tag_expiries"]), log.set_column(15, LOG.field(15), pa.nulls(2, LOG.field(15).type))):
        found = parquet(tmp_path, table).transactions.to_pylist()
        assert (found[0]["tags"], found[0]["tag_expiries"]) == (["v1"], [None])


def test_rows_of_a_log_without_an_id_refuse_their_dataset(tmp_path: Path) -> None:
    table = exchange_table(branch=..., tag=..., head=..., expires_at=..., realm=...)
    [found] = parquet(tmp_path, table).datasets.to_pylist()
    assert found["fault"] == "missing id"


@pytest.mark.parametrize(
    ("changed", "key", "what"),
    [
        ({"dataset": ...}, "dataset", "is missing"),
        ({"dataset": ["lake/d"] * 4 + [""]}, "dataset", "is missing"),
        ({"byts": [1] * 5}, "byts", "is not a known column"),
        ({"closed_at": pa.array([0] * 5, pa.timestamp("us"))}, "closed_at", "has no zone"),
        ({"closed_at": ["2026-01-01"] * 5}, "closed_at", "has no zone"),
        ({"bytes": ["10"] * 5}, "bytes", "has the wrong type"),
        ({"files": ["a"] * 5}, "files", "has the wrong type"),
    ],
)
def test_a_wrong_column_refuses_the_file(changed: dict[str, Any], key: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        parquet(tmp_path, exchange_table(**changed))
    assert [(problem.key, problem.what) for problem in caught.value.problems] == [(key, what)]


def test_a_column_that_stands_twice_refuses_the_file(tmp_path: Path) -> None:
    table = exchange_table()
    with pytest.raises(BadInput, match="is not Parquet"):
        parquet(tmp_path, table.append_column("bytes", table["bytes"]))


def test_without_a_column_of_parents_each_follows_the_row_before(tmp_path: Path) -> None:
    found = parquet(tmp_path, exchange_table(parent=...)).transactions.to_pylist()
    assert [(one["transaction"], one["parent"]) for one in found] == [("T1", None), ("T2", "T1")]


def test_columns_that_are_not_there_are_null(tmp_path: Path) -> None:
    names = ["archived_at", "bytes", "files", "attributes", "expires_at", "realm", "tag"]
    table = exchange_table(**dict.fromkeys(names, ...)).slice(0, 3)
    rows = parquet(tmp_path, table).transactions.to_pylist()
    assert [(one["bytes"], one["files"], one["attributes"]) for one in rows] == [(None, None, None)] * 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_of_any_unit_and_zone_are_read(unit: str, tmp_path: Path) -> None:
    later = parse_instant("2026-01-01T00:05:00Z")
    column = pa.array([later, later, None, None, None], pa.timestamp(unit, tz="Europe/Paris"))
    assert parquet(tmp_path, exchange_table(closed_at=column)).transactions["closed_at"].to_pylist() == [later, later]


def test_a_folder_may_hold_both_formats(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(line(dataset="lake/e"))
    pq.write_table(exchange_table(), tmp_path / "a.parquet")
    assert read_log(tmp_path).transactions["dataset"].to_pylist() == ["lake/d", "lake/d", "lake/e"]
