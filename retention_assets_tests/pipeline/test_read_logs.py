"""Reading shares: what can't be read is refused by name, and keeps no other dataset of its share from being judged.

Belongs here: what becomes of a store that raises. How a store reads is the contract's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.datasets import DatasetFilter
from retention_assets.frames.log import LINES
from retention_assets.pipeline.read_logs import read_stores
from retention_assets.pipeline.read_tokens import read_tokens, write_tokens
from retention_assets.pipeline.stage import Source, read_datasets, read_output, write_log
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.logs import _logs, choose_datasets
from retention_assets.stores.protocol import Only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE = {"transaction": "T1", "type": "APPEND", "status": "OPEN", "opened_at": None}


@dataclass(frozen=True)
class Sick(FilesStore):
    """A store of many datasets in one share, that can't read any batch in which some of them are."""

    names: tuple[str, ...] = ()
    sick: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    settings: FilesSettings = field(
        default_factory=lambda: FilesSettings(name="lake", kind="files", log="log", data="data/{dataset}/{transaction}")
    )

    def datasets(self) -> list[str]:
        return list(self.names)

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(datasets)]

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - the protocol's
        if self.sick.intersection(datasets):
            raise OSError("the disk has gone")
        return pa.Table.from_pylist([{**LINE, "dataset": name} for name in datasets if name not in self.bare], LINES)

    def tokens(self, datasets: Sequence[str]) -> dict[str, str]:
        if self.sick:
            raise OSError("the disk has gone")
        return dict.fromkeys(datasets, "1")


NAMES = tuple(f"lake/{number:03}" for number in range(100))


@pytest.mark.spark
@pytest.mark.parametrize("sick", [set(), {"lake/005"}, {"lake/000", "lake/050", "lake/099"}, set(NAMES)])
def test_what_cannot_be_read_is_refused_and_the_rest_of_its_share_is_not(
    sick: set[str], spark: "SparkSession", tmp_path: Path
) -> None:
    chosen = choose_datasets([Sick(names=NAMES, sick=frozenset(sick))], DatasetFilter())
    read_stores(spark, chosen, str(tmp_path))
    found = {row["dataset"]: row["fault"] for row in read_datasets([Source(str(tmp_path))]).to_pylist()}
    assert found == {name: "cannot be read: OSError: the disk has gone" if name in sick else None for name in NAMES}
    rows = read_output(str(tmp_path), "transactions")
    assert sorted(rows["dataset"].to_pylist()) == [name for name in NAMES if name not in sick]


@pytest.mark.spark
@pytest.mark.parametrize("bare", [{"lake/000"}, {"lake/005", "lake/050", "lake/099"}, set(NAMES)])
@pytest.mark.parametrize("sick", [set(), {"lake/007"}])
def test_a_dataset_without_a_line_is_there_without_transactions_and_in_its_place(
    bare: set[str], sick: set[str], spark: "SparkSession", tmp_path: Path
) -> None:
    """Left out, it would be published by nobody and looked at by nobody, so the loop would ask for it at every tick."""
    read_stores(
        spark, choose_datasets([Sick(names=NAMES, sick=frozenset(sick), bare=frozenset(bare))], DatasetFilter()), str(tmp_path)
    )
    table = read_datasets([Source(str(tmp_path))])
    assert table["dataset"].to_pylist() == list(NAMES)
    assert table["transactions"].to_pylist() == [0 if name in bare | sick else 1 for name in NAMES]
    assert {row["dataset"] for row in table.to_pylist() if row["fault"]} == sick
    rows = read_output(str(tmp_path), "transactions")["dataset"].to_pylist()
    assert rows == [name for name in NAMES if name not in bare | sick]


def test_parts_hold_whole_datasets_also_where_some_are_empty(tmp_path: Path) -> None:
    log = _logs(Sick(names=NAMES, bare=frozenset(NAMES[::3])), NAMES, {})[0]
    write_log(log, str(tmp_path), rows_per_part=10)
    for file in sorted((tmp_path / "transactions").iterdir()):
        datasets = pq.read_table(tmp_path / "datasets" / file.name).to_pylist()
        assert pq.read_table(file)["dataset"].to_pylist() == [row["dataset"] for row in datasets if row["transactions"]]


def test_tokens_are_kept_beside_the_log_for_whom_they_are_asked_of(tmp_path: Path) -> None:
    write_tokens(choose_datasets([Sick(names=NAMES)], DatasetFilter()), str(tmp_path))
    assert read_tokens([Source(str(tmp_path))]) == dict.fromkeys(NAMES, "1")
    assert read_tokens([Source(str(tmp_path), frozenset(NAMES[:2]))]) == dict.fromkeys(NAMES[:2], "1")


def test_a_store_that_tells_no_tokens_leaves_none_and_no_fault(tmp_path: Path) -> None:
    write_tokens(choose_datasets([Sick(names=NAMES, sick=frozenset(NAMES[:1]))], DatasetFilter()), str(tmp_path))
    assert read_tokens([Source(str(tmp_path)), Source(str(tmp_path / "of an earlier release"))]) == {}
