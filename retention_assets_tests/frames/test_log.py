"""Rows of datasets, taken apart."""

import pyarrow as pa
import pytest

from retention_assets.frames.log import NAME, by_dataset


@pytest.mark.parametrize("kind", [pa.string(), NAME], ids=str)
@pytest.mark.parametrize("chunks", [[["b", "b", "a"]], [["b"], ["a", "b"]], [["b", "a", None], [], ["b"]], [[]]], ids=str)
def test_each_dataset_has_its_rows_in_order_wherever_they_lie(kind: pa.DataType, chunks: list[list[str | None]]) -> None:
    names = [name for chunk in chunks for name in chunk]
    column = pa.chunked_array([pa.array(chunk, pa.string()).cast(kind) for chunk in chunks], kind)
    found = by_dataset(pa.table({"dataset": column, "row": pa.array(range(len(names)), pa.int64())}))
    expected = {one: [at for at, name in enumerate(names) if name == one] for one in dict.fromkeys(names) if one}
    assert {name: rows["row"].to_pylist() for name, rows in found.items()} == expected
    assert [*found] == [*expected]
