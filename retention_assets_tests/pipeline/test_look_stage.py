"""The look of a sweep in tasks: once for a run, however many datasets and tasks there are, in a folder that does not stay."""

import json
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.ledger.batches import Sweeps
from retention_assets.ledger.scans import Scans
from retention_assets.outcomes import Outcome
from retention_assets.pipeline import sweep_stage
from retention_assets.pipeline.sweep_stage import DueInLedger, StopFile, SweepTask, SweepWatch, looks_in_tasks, sweep_in_tasks
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.stores.objects.listings import PathObjects as LocalListing
from retention_assets.stores.objects.references import ShareEnd, open_references
from retention_assets.stores.objects.scan_result import ScanResult, SourceCount
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets_tests.forked import forking
from retention_assets_tests.local_spark import Session
from retention_assets_tests.stores.objects.cycle import DUE, UNREFERENCED, ObjectsCycle
from retention_assets_tests.stores.objects.environments import LocalObjects, read_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = cast("SparkSession", Session())
EVERYTHING = {**UNREFERENCED, "datasets": {"include": ["*"]}}
RUN = "run 1"
KEYS = [f"{part}/{name}" for part in "abc" for name in ("one", "two")]


class Counted:
    """A source that notes each time that it is read. It refers to what a file names."""

    # What happens while it is read.
    meanwhile: ClassVar[Callable[[], object]] = staticmethod(lambda: None)

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def shares(self, wanted: int) -> list[str]:  # noqa: ARG002 - the protocol's
        return ["all"]

    def finish(self, ends: Sequence[ShareEnd]) -> list[str]:  # noqa: ARG002 - the protocol's
        return []

    def read(self, share: str) -> Generator[tuple[str, None, str], None, ShareEnd]:
        """Each line is a key."""
        with (self.folder / "asked").open("a") as file:
            file.write("once\n")
        type(self).meanwhile()
        keys = (self.folder / "named").read_text().split()
        for key in keys:
            yield key, None, "mail 7"
        return ShareEnd(share, len(keys) + (self.folder / "broken").exists())


@pytest.fixture
def cycle(tmp_path: Path) -> ObjectsCycle:
    """Three datasets of two objects each, all of them due, and one that is referred to since."""
    folder = LocalObjects(tmp_path)
    for key in KEYS:
        folder.put(key, key.encode())
    (tmp_path / "named").write_text("")
    use = {"use": f"{__name__}:Counted", "options": {"folder": str(tmp_path)}}
    cycle = ObjectsCycle(folder, EVERYTHING, references=[use], brakes={"empty_source": "allow"})
    cycle.marks()
    (tmp_path / "asked").unlink()
    (tmp_path / "named").write_text("b/two")
    return cycle


def run(cycle: ObjectsCycle, spark: "SparkSession" = HERE, stop: threading.Event | None = None) -> dict[str, SweepResult]:
    """Sweep in tasks; the result of each dataset."""
    with cycle.ledger() as ledger:
        rulebook = load_rulebook(ledger, cycle.settings, RUN)
        watch = SweepWatch(ledger, rulebook, RUN, stop or threading.Event())
        task = SweepTask(cycle.settings, rulebook.files, ledger.id, DUE, RUN, folder=folder_of(cycle))
        return {one.dataset: one for one in sweep_in_tasks(spark, task, due(ledger), watch)}


def due(ledger: Ledger) -> dict[str, int]:
    return {one.dataset: one.marks for one in ledger.marks.to_sweep(DUE)}


def folder_of(cycle: ObjectsCycle) -> str:
    return Warehouse(str(cycle.folder / "warehouse")).folder("swept_transactions", RUN)


def left(cycle: ObjectsCycle) -> list[Path]:
    """Files in the folder of the run."""
    return [file for file in Path(folder_of(cycle)).rglob("*") if file.is_file()]


def deleted(results: dict[str, SweepResult]) -> int:
    return sum(one.outcomes[Outcome.DELETED] for one in results.values())


@pytest.mark.parametrize("marks", [1 << 20, 1])
def test_a_source_is_read_once_for_all_datasets_and_tasks(
    cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch, marks: int
) -> None:
    """Each task asks only the place, and none lists it. What is due is read in one task, or in one for each dataset."""
    monkeypatch.setattr(sweep_stage, "_MARKS", marks)
    monkeypatch.setattr(LocalListing, "read", lambda *_: pytest.fail("everything was listed"))
    results = run(cycle)
    assert len(results) == 3
    assert (cycle.folder / "asked").read_text() == "once\n"
    assert cycle.objects.data().keys() == {"b/two"}
    assert "Counted: mail 7" in cycle.why("b/two", "blobs/b")
    assert left(cycle) == []
    assert not (Path(folder_of(cycle)) / "looks").exists()
    with cycle.ledger() as ledger:
        assert ledger.verify().faults == ()


def test_a_look_that_fails_is_told_of_each_dataset_and_other_stores_go_on(cycle: ObjectsCycle) -> None:
    (cycle.folder / "other").mkdir()
    other = LocalObjects(cycle.folder / "other")
    other.put("a/one", b"x")
    settings = json.loads(cycle.file.read_text())
    settings["stores"].append({**other.settings(), "name": "others"})
    cycle.file.write_text(json.dumps(settings))
    cycle.marks()
    (cycle.folder / "broken").touch()
    results = run(cycle)
    words = {one.refused for name, one in results.items() if name.startswith("blobs/")}
    assert [name for name, one in results.items() if one.store_failed] == [*cycle.objects.datasets]
    assert all("returned ShareEnd(share, 2) and yielded 1 rows" in str(one) for one in words)
    assert (deleted(results), other.data(), len(cycle.objects.data())) == (1, {}, len(KEYS))
    assert left(cycle) == []


def test_a_source_that_shrank_since_the_scan_is_not_believed(cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    """By more than the brake of scans: it has most likely lost what it had."""
    for before, swept in ((3, 0), (1, len(KEYS) - 1)):
        scan = scan_of_last(cycle, before)
        monkeypatch.setattr(Scans, "last_whole_result", lambda _, store, scan=scan: scan if store == "blobs" else None)
        results = run(cycle)
        assert deleted(results) == swept
        said = {one.refused for one in results.values()}
        assert said == {None} or all("had 3 references last time and has 1, 66.67 % fewer" in str(one) for one in said)


def scan_of_last(cycle: ObjectsCycle, references: int) -> str:
    """What the ledger would keep of a scan that found so many references."""
    (label,) = (source.label for source in open_references(cycle.objects.store(**cycle.changes).settings))
    counts = [SourceCount(label, references, references)]
    return ScanResult("blobs", DUE, DUE, DUE, DUE, salt="", filter="fingerprints", effective_fpp=0.0, sources=counts).as_json()


def test_a_task_that_finds_another_ledger_looks_for_nothing(cycle: ObjectsCycle) -> None:
    due_there = DueInLedger(cycle.settings, "another", DUE, (("blobs/a",),))
    with pytest.raises(Refused, match="A task finds another ledger"):
        list(due_there.read(0))


def test_what_became_due_after_the_look_waits_for_the_next_run(cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Sweeps.concerned_names

    def earlier(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in known(*arguments):
            yield batch.filter(pc.not_equal(batch["transaction"], "a/two"))

    with monkeypatch.context() as patch:
        patch.setattr(Sweeps, "concerned_names", earlier)
        results = run(cycle)
    assert deleted(results) == len(KEYS) - 2
    assert cycle.statuses()["a/two"] == "MARKED"
    assert deleted(run(cycle)) == 1


def test_who_is_asked_to_end_while_it_looks_sweeps_nothing(cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_stage, "_SECONDS", 0.0)
    monkeypatch.setattr(sweep_stage, "_SECONDS", 0.05)
    stop = threading.Event()
    monkeypatch.setattr(Counted, "meanwhile", stop.set)
    assert run(cycle, stop=stop) == {}
    assert len(cycle.objects.data()) == len(KEYS)
    assert left(cycle) == []
    assert set(cycle.statuses().values()) == {"MARKED"}


def test_the_word_to_stop_reaches_tasks_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = StopFile(str(tmp_path / "look"))
    assert not asked()
    StopFile(asked.folder).say()
    # Asked again at once it does not look.
    assert not asked()
    monkeypatch.setattr(sweep_stage, "_SECONDS", 0.0)
    assert asked()


def dies(cycle: ObjectsCycle) -> None:
    """In a program of its own, in the middle of a source."""
    Counted.meanwhile = lambda: os.kill(os.getpid(), signal.SIGKILL)
    run(cycle)


def test_what_a_killed_look_has_left_is_removed_by_the_next_run(cycle: ObjectsCycle) -> None:
    killed = forking().Process(target=dies, args=(cycle,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert left(cycle)
    with cycle.ledger() as ledger:
        assert Warehouse(str(cycle.folder / "warehouse")).clean(ledger, ["swept_transactions"], lambda *_: True) == 1
    assert left(cycle) == []
    assert deleted(run(cycle)) == len(KEYS) - 1


@pytest.mark.spark
def test_tasks_of_spark_find_what_is_found_here(cycle: ObjectsCycle, spark: "SparkSession") -> None:
    wanted = {name: [key for key in KEYS if key.startswith(name[-1])] for name in cycle.objects.datasets}
    store = cycle.objects.store(**cycle.changes)
    here = read_some(store, wanted)
    with cycle.ledger() as ledger:
        arguments = (cycle.settings, ledger, DUE, due(ledger), folder_of(cycle), threading.Event())
        with looks_in_tasks(spark, *arguments) as looks:
            store.answer_by(looks["blobs"])
            assert store.was_looked_at(pa.array(KEYS), ()).to_pylist() == [True] * len(KEYS)
            assert read_some(store, wanted).equals(here)
    assert left(cycle) == []
