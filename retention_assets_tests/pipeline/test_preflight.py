"""What a cluster can't do is said in one sentence, before anything is done. Tasks run here, without Spark."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector

from retention_assets.errors import Refused
from retention_assets.pipeline import preflight
from retention_assets.pipeline.preflight import PreflightTask, check_cluster
from retention_assets.stores.files.store import FilesStore
from retention_assets_tests.local_spark import Session, Tasks
from retention_assets_tests.sweep.lakes import Lake

SPARK: Any = Session()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has("main: S1:SNAPSHOT@90d")


@pytest.fixture
def task(lake: Lake) -> PreflightTask:
    with lake.opened() as ledger:
        return PreflightTask(lake.settings, ledger.id, f"{lake.folder}/warehouse/preflight/run")


def elsewhere(task: PreflightTask, **changed: Any) -> PreflightTask:
    """What a task finds on a machine where the settings lead elsewhere."""
    return replace(task, settings=task.settings.model_copy(update=changed))


def test_a_cluster_that_can_do_everything_is_not_refused(task: PreflightTask, lake: Lake) -> None:
    check_cluster(SPARK, task)
    assert sorted(one.name for one in Path(task.folder).iterdir()) == ["0", "1"]
    assert lake.there() == {"S1"}


def test_another_release_is_named(task: PreflightTask) -> None:
    with pytest.raises(Refused, match=r"has retention_assets \S+, but this run has 0\.0\.1: give both the same release"):
        check_cluster(SPARK, replace(task, version="0.0.1"))


def test_a_warehouse_that_can_not_be_written_is_named(task: PreflightTask) -> None:
    Path(task.folder).parent.parent.mkdir()
    Path(task.folder).parent.write_text("in the way")
    with pytest.raises(Refused, match="can't write to the warehouse"):
        check_cluster(SPARK, task)


def test_another_ledger_is_named_and_none_is_made(task: PreflightTask, tmp_path: Path) -> None:
    for name in ("none", "other"):
        if name == "other":
            Lake(tmp_path / "second", ledger_url=f"sqlite:///{tmp_path}/other.db").opened().close()
        with pytest.raises(Refused, match="finds another ledger"):
            check_cluster(SPARK, elsewhere(task, ledger=f"sqlite:///{tmp_path}/{name}.db"))
    assert not (tmp_path / "none.db").exists()


def test_a_store_that_executors_alone_can_not_read_is_named(task: PreflightTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the program asks after the tasks: what they found broken is whole again."""
    whole, left = FilesStore.datasets, [1, 1]

    def away(store: FilesStore) -> list[str]:
        if left:
            left.pop()
            raise OSError("no route")
        return whole(store)

    monkeypatch.setattr(FilesStore, "datasets", away)
    with pytest.raises(
        Refused, match="can't read a store that this program can read: the store lake failed: OSError: no route"
    ):
        check_cluster(SPARK, task)


def test_a_store_that_is_away_for_everybody_keeps_no_other_from_being_read(task: PreflightTask, lake: Lake) -> None:
    shutil.rmtree(lake.folder / "log")
    check_cluster(SPARK, task)


def test_a_folder_that_is_not_the_same_everywhere_is_found(task: PreflightTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "FileSelector", lambda root, **_: FileSelector(f"{root}/elsewhere", allow_not_found=True))
    with pytest.raises(Refused, match="Executors left 2 signs in the warehouse, but only 0 are there"):
        check_cluster(SPARK, task)


SAID = [
    (
        "…\nModuleNotFoundError: No module named 'retention_assets'\n",
        "the Python of the executors has no retention_assets: give",
    ),
    ("No module named retention_assets.pipeline", "the Python of the executors has no retention_assets.pipeline"),
    ('java.io.IOException: Cannot run program "python3": error=2\n\tat java.base/x', "the executors have no program python3"),
    (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
        "is 3.9, not that of",
    ),
    ("Job aborted: the disk is full\n\tat org.apache.spark\n", "Job aborted: the disk is full"),
    ("", "no reason given"),
]


@pytest.mark.parametrize(("said", "words"), SAID)
def test_what_spark_says_of_its_python_becomes_one_sentence(
    said: str, words: str, task: PreflightTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(_: Tasks) -> list[Any]:
        raise RuntimeError(said)

    monkeypatch.setattr(Tasks, "collect", collect)
    with pytest.raises(Refused) as caught:
        check_cluster(SPARK, task)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
