"""Delta table of the demonstration: weeks of overwrites and appends, and a compaction.

Commits are JSON and data files Parquet, so nothing but pyarrow writes it. Any reader of Delta Lake reads it.
"""

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.demo.lake import AS_OF

_TABLE = "tables/sales"
# Each version adds a file of its number. Days ago, operation, and the files that it removes; OPTIMIZE keeps their rows.
_VERSIONS: tuple[tuple[int, str, tuple[int, ...]], ...] = (
    (40, "WRITE", ()), (30, "WRITE", (0,)), (25, "WRITE", (1,)), (20, "WRITE", ()), (15, "WRITE", ()),
    (10, "OPTIMIZE", (2, 3, 4)), (9, "WRITE", ()), (4, "WRITE", ()),
)  # fmt: skip
# pinned by the table itself, and the newest
RETAINED = (1, len(_VERSIONS) - 1)
_ROWS = 1_000
_FIELD = {"name": "sale", "type": "long", "nullable": True, "metadata": {}}
_METADATA = {
    "id": "a5e0b9a4-93c3-4c1f-8e64-5a2f0b7d1c11", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
    "schemaString": json.dumps({"type": "struct", "fields": [_FIELD]}),
    "configuration": {"retention.keep_versions": str(RETAINED[0])},
}  # fmt: skip
_BEGIN = ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": _METADATA})


def write_delta(folder: Path) -> None:
    table = folder / _TABLE
    (table / "_delta_log").mkdir(parents=True)
    for number, (days_ago, operation, removed) in enumerate(_VERSIONS):
        at = int((AS_OF - timedelta(days=days_ago)).timestamp())
        milliseconds, is_write = at * 1000, operation == "WRITE"
        batches = (number,) if is_write else removed
        sales = [sale for batch in batches for sale in range(batch * _ROWS, (batch + 1) * _ROWS)]
        file = _file(table, number)
        pq.write_table(pa.table({"sale": pa.array(sales, pa.int64())}), file)
        about = {"dataChange": is_write, "partitionValues": {}}
        added = {"path": file.name, "size": file.stat().st_size, "modificationTime": milliseconds, **about}
        gone = [{"path": _file(table, old).name, "deletionTimestamp": milliseconds, **about} for old in removed]
        info = {"commitInfo": {"timestamp": milliseconds, "operation": operation}}
        actions = [info, *(() if number else _BEGIN), *({"remove": action} for action in gone), {"add": added}]
        commit = table / "_delta_log" / f"{number:020}.json"
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        # a version closes when its file is written, if that is later than its timestamp
        os.utime(commit, (at, at))


def whole_versions(folder: Path) -> Iterator[int]:
    """Yield the versions of which every file is there."""
    live = set[int]()
    for number, (_, _, removed) in enumerate(_VERSIONS):
        live = live - {*removed} | {number}
        if all(_file(folder / _TABLE, batch).is_file() for batch in live):
            yield number


def _file(table: Path, number: int) -> Path:
    return table / f"part-{number}.parquet"
