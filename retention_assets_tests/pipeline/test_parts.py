"""Parts of logs in folders: what a stage reads of its sources, and stores that can't list or share their datasets. No Spark."""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.datasets import DatasetFilter
from retention_assets.frames.log import DATASETS, LINES
from retention_assets.frames.soundness import sound_log
from retention_assets.pipeline.read_logs import read_stores
from retention_assets.pipeline.stage import Source, read_datasets, run_stage, write_log
from retention_assets.stores.logs import choose_datasets
from retention_assets.stores.protocol import Store
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.local_spark import Session

NAMES = ("lake/a", "lake/b", "lake/c")


def written(folder: Path, *names: str, parts: int = 1) -> str:
    """A log of some datasets, of one transaction each."""
    rows = [{"dataset": name, "transaction": "T1", "type": "APPEND", "status": "OPEN", "opened_at": AS_OF} for name in names]
    write_log(sound_log(pa.Table.from_pylist(rows, LINES)), str(folder), rows_per_part=len(names) // parts)
    return str(folder)


def test_a_stage_reads_of_each_source_what_is_meant_and_says_how_much_it_wrote(tmp_path: Path) -> None:
    sources = [
        Source(written(tmp_path / "one", *NAMES, parts=3), frozenset({"lake/b", "lake/c"})),
        Source(written(tmp_path / "two", "ods/x", "ods/y", "ods/z"), frozenset({"ods/y"})),
        Source(written(tmp_path / "three", "all/x", "all/y")),
        Source(written(tmp_path / "four", "no/x"), frozenset({"lake/a"})),
    ]
    seen: list[tuple[list[str], list[str]]] = []

    def frame(transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        seen.append((transactions["dataset"].to_pylist(), datasets["dataset"].to_pylist()))
        return {"found": transactions, "twice": pa.concat_tables([datasets, datasets])}

    spark = cast("Any", Session())
    ran = run_stage(spark, sources, str(tmp_path / "out"), ["found", "twice"], frame, ["dataset", "transaction"])
    parts = [["all/x", "all/y"], ["lake/b"], ["lake/c"], ["ods/y"]]
    assert sorted(seen) == [(part, part) for part in parts]
    assert ran.rows == {"found": 5, "twice": 10}
    files = [pq.read_table(file)["dataset"].to_pylist() for file in (tmp_path / "out" / "found").iterdir()]
    assert sorted(files) == parts
    assert sorted(read_datasets(sources)["dataset"].to_pylist()) == sorted(name for part in parts for name in part)


class Books:
    """A store that may be unable to list its datasets or to share them out."""

    def __init__(self, name: str, lists: bool = True, shares: bool = True) -> None:
        self.name, self.lists, self.shared = name, lists, shares

    def datasets(self) -> list[str]:
        if not self.lists:
            raise OSError("away")
        return [f"{self.name}/a", f"{self.name}/b"]

    def shares(self, datasets: Any) -> list[tuple[str, ...]]:
        if not self.shared:
            raise OSError("away")
        return [(name,) for name in datasets]

    def read(self, datasets: Any) -> pa.Table:
        rows = [
            {"dataset": name, "transaction": "T1", "type": "APPEND", "status": "OPEN", "opened_at": AS_OF} for name in datasets
        ]
        return pa.Table.from_pylist(rows, LINES)


def test_a_store_that_cannot_list_or_share_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    stores = [cast("Store", one) for one in (Books("x"), Books("y", lists=False), Books("z", shares=False))]
    chosen = choose_datasets(stores, DatasetFilter(("x/a", "y/*", "z/*")))
    assert [(one.datasets, one.fault) for one in chosen] == [
        (("x/a",), None),
        ((), "OSError: away"),
        (("z/a", "z/b"), None),
    ]
    assert read_stores(cast("Any", Session()), chosen, str(tmp_path)) == 2
    assert sorted(read_datasets([Source(str(tmp_path))])["dataset"].to_pylist()) == ["x/a", "z/a", "z/b"]


def test_nothing_to_read_is_a_log_without_datasets(tmp_path: Path) -> None:
    read_stores(cast("Any", Session()), choose_datasets([cast("Store", Books("x"))], DatasetFilter(("none",))), str(tmp_path))
    assert read_datasets([Source(str(tmp_path))]).equals(DATASETS.empty_table())
