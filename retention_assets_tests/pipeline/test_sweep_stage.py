"""The sweep in tasks: who gets what, and that a task hears what its run hears. Tasks run here, one after the other, without
Spark.
"""

import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention_assets.errors import BadInput, Refused
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import TIMES
from retention_assets.ledger import DatasetPart, Lease, Ledger, Marks, NameRange
from retention_assets.ledger.schema import LEASES
from retention_assets.ledger.stores import Scans
from retention_assets.outcomes import Outcome
from retention_assets.pipeline import sweep_stage
from retention_assets.pipeline.confirmed import write_confirmed
from retention_assets.pipeline.sweep_stage import (
    DueInLedger,
    StopRequest,
    SweepTask,
    SweepWatch,
    is_for_tasks,
    names_of,
    one_of_each,
    share_out,
    sweep_in_tasks,
)
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.stores.aspects import AspectsSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.objects.listings import PathObjects as LocalListing
from retention_assets.stores.objects.references import ShareEnd, open_references
from retention_assets.stores.objects.scan_result import ScanResult, SourceCount
from retention_assets.sweep import PartBegunAnew, SweepResult, cut_datasets, permit
from retention_assets.sweep import engine as cutting
from retention_assets_tests.databases import new_schema
from retention_assets_tests.forked import forking
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import take_lease, write_past_ledger
from retention_assets_tests.local_spark import Session
from retention_assets_tests.stores.objects.cycle import DUE as OBJECTS_DUE
from retention_assets_tests.stores.objects.cycle import UNREFERENCED, ObjectsCycle
from retention_assets_tests.stores.objects.environments import LocalObjects, read_some
from retention_assets_tests.sweep.lakes import ALL, DUE, FIVE, OLD, Lake

RUN = "run 1"
SLOW = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}, sweep: {every: 20s, batch: 2}}"
HOLD = "{name: court, reason: They asked., owner: legal, datasets: {include: ['*']}, transactions: ['S5']}"

MARKS = [
    ({}, 4),
    ({"a/1": 1}, 4),
    ({f"a/{number:05d}": 1 for number in range(10_000)}, 6),
    ({"a/giant": 1_000_000, **{f"b/{number}": 100 for number in range(300)}}, 6),
    ({f"{store}/{number}": number for store in "abc" for number in range(1, 50)}, 3),
]


@pytest.mark.parametrize(("marks", "tasks"), MARKS, ids=["nothing", "one", "many", "a giant", "three stores"])
def test_each_dataset_is_for_one_task_in_shares_of_one_store(marks: dict[str, int], tasks: int) -> None:
    groups = share_out(marks, tasks, "run")
    shares = [names_of(share) for group in groups for share in group]
    assert sorted(one for share in shares for one in share) == sorted(marks)
    assert len(groups) <= tasks
    assert all(groups)
    assert all(len({one.partition("/")[0] for one in share}) == 1 for share in shares)
    assert all(len(share) <= 256 and (len(share) == 1 or sum(marks[one] for one in share) <= 5_000) for share in shares)


def test_a_giant_keeps_a_task_to_itself_and_the_others_share_the_rest() -> None:
    groups = share_out({"a/giant": 1_000_000, **{f"b/{number}": 100 for number in range(300)}}, 4, "run")
    assert [group for group in groups if ("a/giant",) in group] == [(("a/giant",),)]
    others = [sum(len(names_of(share)) for share in group) for group in groups if ("a/giant",) not in group]
    assert max(others) - min(others) <= 50


def test_two_runs_take_up_the_same_shares_in_another_order() -> None:
    marks = {f"a/{number:05d}": 1 for number in range(10_000)}
    one, other = share_out(marks, 2, "run 1"), share_out(marks, 2, "run 2")
    assert [set(group) for group in one] == [set(group) for group in other]
    assert one != other
    assert one == share_out(marks, 2, "run 1")


@pytest.mark.parametrize("tasks", [1, 3, 12])
def test_each_part_is_for_one_task_beside_the_datasets_that_are_whole(tasks: int) -> None:
    parts = [DatasetPart(Lease("a/giant", RUN, 1, AS_OF), number, NameRange(), 60_000) for number in range(12)]
    marks = {f"a/{number}": 100 for number in range(30)}
    groups = share_out(marks, tasks, RUN, parts)
    shares = [share for group in groups for share in group]
    assert sorted(one.number for one in shares if isinstance(one, DatasetPart)) == [*range(12)]
    assert sorted(one for share in shares if not isinstance(share, DatasetPart) for one in share) == sorted(marks)
    amounts = [sum(isinstance(share, DatasetPart) for share in group) for group in groups]
    assert max(amounts) - min(amounts) <= 1


def test_results_of_parts_are_one_result_of_their_dataset() -> None:
    counts = Counter({Outcome.DELETED: 2, Outcome.FAILED: 1})
    one = SweepResult("a/b", 3, counts, 20, 9, 5, 1, errors=["no", "never"], warnings=["slow"])
    other = SweepResult("a/b", 4, counts, 30, 8, 6, 2, refused="lost", errors=["no"], store_failed=True)
    alone = SweepResult("a/c", 1)
    found = one_of_each([one, alone, other])
    assert found["a/c"] is alone
    assert found["a/b"] == SweepResult(
        "a/b", 7, counts + counts, 50, 17, 11, 3, "lost", None, store_failed=True, errors=["no", "never"], warnings=["slow"]
    )


@dataclass
class Stage:
    """A lake with two datasets of five due marks each, and a run that sweeps it in tasks."""

    lake: Lake
    ledger: Ledger
    stop: threading.Event = field(default_factory=threading.Event)
    told: list[SweepResult] = field(default_factory=list)
    confirmed: str | None = None

    def __post_init__(self) -> None:
        rulebook = load_rulebook(self.ledger, self.lake.settings, RUN)
        self.watch = SweepWatch(self.ledger, rulebook, RUN, self.stop, self.told.append)
        # Where tasks run there are no policy files.
        elsewhere = self.lake.settings.model_copy(update={"policies": (self.lake.folder / "elsewhere",)})
        self.task = SweepTask(elsewhere, rulebook.files, self.ledger.id, DUE, RUN, f"{self.lake.folder}/run", self.confirmed)

    def run(self) -> dict[str, SweepResult]:
        marks = {one.dataset: one.marks for one in self.ledger.marks.to_sweep(DUE)}
        spark: Any = Session()
        return {one.dataset: one for one in sweep_in_tasks(spark, self.task, marks, self.watch)}

    def task_sweep(self) -> Iterator[SweepResult]:
        marks = {one.dataset: one.marks for one in self.ledger.marks.to_sweep(DUE)} or {"lake/d": 0}
        return replace(self.task, shares=share_out(marks, 1, RUN)).results_of(0)

    def first_batch(self, monkeypatch: pytest.MonkeyPatch, *then: Callable[[], object]) -> None:
        """What happens while the first batch is deleted."""
        whole, waiting = FilesStore.sweep, list(then)

        def sweep(store: FilesStore, *arguments: Any) -> Any:
            done = whole(store, *arguments)
            while waiting:
                waiting.pop(0)()
            return done

        monkeypatch.setattr(FilesStore, "sweep", sweep)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@contextmanager
def staged(lake: Lake, datasets: tuple[str, ...] = ("lake/d", "lake/e")) -> Iterator[Stage]:
    lake.has(FIVE, *datasets).marks()
    with lake.opened() as ledger:
        yield Stage(lake, ledger)


def test_tasks_sweep_what_a_program_would_have_swept(lake: Lake) -> None:
    with staged(lake) as stage:
        results = stage.run()
    assert {name: (one.planned, one.outcomes[Outcome.DELETED], one.refused) for name, one in results.items()} == {
        "lake/d": (5, 5, None),
        "lake/e": (5, 5, None),
    }
    assert (lake.there("lake/d"), lake.there("lake/e")) == ({"S6"}, {"S6"})
    assert [lake.report(dataset=name)["deleted"] for name in results] == [5, 5]
    assert lake.verified() == ()
    # What the run shows comes from the ledger, where the tasks have told it.
    assert (stage.told[-1].planned, stage.told[-1].outcomes[Outcome.DELETED]) == (10, 10)
    assert stage.told[-1].bytes_freed == sum(one.bytes_freed for one in results.values())


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset is large if it has three marks for each of two parts."""
    monkeypatch.setattr(cutting, "PART", 3)
    # Of six marks, as many as there are: one for each of what is fair otherwise.
    monkeypatch.setattr(sweep_stage, "TASKS_PER_SLOT", 1)


SEVEN = f"{FIVE.replace('S6:SNAPSHOT@1d', 'S6:SNAPSHOT@40d')} - S7:SNAPSHOT@1d"


@pytest.mark.usefixtures("cut")
def test_a_large_dataset_is_swept_in_parts_and_has_one_result(lake: Lake) -> None:
    lake.has(SEVEN, "lake/large")
    with staged(lake, ("lake/d",)) as stage:
        results = stage.run()
        said = [json.loads(line) for line in stage.ledger.audit_lines()]
        assert stage.ledger.leases.held() == []
    planned = [one["detail"].get("part") for one in said if one["deed"] == "PLAN"]
    assert sorted(planned, key=str) == [0, 1, None]
    assert {name: (one.planned, one.outcomes[Outcome.DELETED], one.refused) for name, one in results.items()} == {
        "lake/d": (5, 5, None),
        "lake/large": (6, 6, None),
    }
    assert (lake.there("lake/d"), lake.there("lake/large")) == ({"S6"}, {"S7"})
    report = lake.report(dataset="lake/large")
    assert (report["to_delete"], report["deleted"], report["finished_at"] is not None) == (6, 6, True)
    # What the run shows is what all parts have done.
    assert (stage.told[-1].planned, stage.told[-1].outcomes[Outcome.DELETED]) == (11, 11)
    assert lake.verified() == ()


@pytest.mark.usefixtures("cut")
def test_a_large_dataset_that_another_sweeps_is_skipped(lake: Lake) -> None:
    lake.has(SEVEN, "lake/large")
    with staged(lake, ("lake/d",)) as stage:
        take_lease(stage.ledger, "lake/large", "bob")
        results = stage.run()
    assert "lake/large is being swept by bob" in str(results["lake/large"].skipped)
    assert (lake.there("lake/d"), len(lake.there("lake/large"))) == ({"S6"}, 7)


@pytest.mark.usefixtures("cut")
def test_a_task_with_a_part_that_is_run_twice_at_once_deletes_everything_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permit, "_LOOK", 0.01)
    second: list[SweepResult] = []
    lake.has(SEVEN, "lake/large")
    with staged(lake, ()) as stage, cut_datasets(stage.ledger, lake.stores, {"lake/large": 6}, 2, DUE, RUN) as found:
        task = replace(stage.task, shares=share_out({}, 2, RUN, found.parts))
        thread = threading.Thread(target=lambda: second.extend(task.results_of(0)))

        def again() -> None:
            thread.start()
            while not any('"TAKE_OVER"' in line for line in stage.ledger.audit_lines()):
                threading.Event().wait(0.01)

        stage.first_batch(monkeypatch, again)
        stage.ledger.sweep_runs.beat(RUN)
        # Spark takes the first answer that it gets, so that this one must not give any.
        with pytest.raises(PartBegunAnew):
            list(task(0))
        thread.join()
        others = list(task.results_of(1))
    (result,) = one_of_each([*second, *others]).values()
    assert (result.refused, result.outcomes[Outcome.DELETED], result.outcomes[Outcome.ALREADY_GONE]) == (None, 4, 2)
    report = lake.report(dataset="lake/large")
    assert (report["deleted"], report["already_gone"], report["finished_at"] is not None) == (4, 2, True)
    assert (lake.there("lake/large"), lake.verified()) == ({"S7"}, ())


LATEST = "{name: young, datasets: {include: ['lake/*']}, select: all, latest_view: allow, branches: {reach: any}}"


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(
    ("marks", "tasks", "policies", "parts"),
    [
        pytest.param(6, 2, OLD, 2, id="large"),
        pytest.param(5, 2, OLD, 0, id="less than two parts"),
        pytest.param(6, 1, OLD, 0, id="no more than its share"),
        pytest.param(7, 2, f"{LATEST}, {OLD}", 0, id="some of it in a latest view"),
    ],
)
def test_what_is_cut_has_more_marks_than_a_task_by_rights_and_none_in_a_latest_view(
    lake: Lake, marks: int, tasks: int, policies: str, parts: int
) -> None:
    lake.says(policies)
    lake.has(SEVEN, "lake/large").marks()
    with lake.opened() as ledger, cut_datasets(ledger, lake.stores, {"lake/large": marks}, tasks, DUE, RUN) as found:
        assert len(found.parts) == parts
        assert found.left_of({"lake/large": marks}) == ({} if parts else {"lake/large": marks})
        assert [one.dataset for one in ledger.leases.held()] == ["lake/large"] * bool(parts)


@pytest.mark.usefixtures("cut")
def test_a_table_of_iceberg_is_never_cut(lake: Lake, tmp_path: Path) -> None:
    """Each of its sweeps is one commit."""
    settings = IcebergSettings.model_validate({"name": "ice", "kind": "iceberg", "catalog": {"type": "in-memory"}})
    marks = {"ice/db.t": 1_000_000}
    with lake.opened() as ledger, cut_datasets(ledger, {"ice": IcebergStore(settings)}, marks, 4, DUE, RUN) as found:
        assert (found.parts, found.left_of(marks)) == ((), marks)


def test_a_hold_that_is_added_to_a_file_is_heard_by_tasks_that_have_no_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(lake, ("lake/d",)) as stage:
        before = stage.ledger.leases.protections()

        def court() -> None:
            lake.says(lake.policies, HOLD)
            stage.watch.look()
            # The next beat of every task refuses the permit to go on with what was checked before.
            assert stage.ledger.leases.protections() != before

        stage.first_batch(monkeypatch, court)
        (result,) = stage.run().values()
    assert lake.there() == {"S5", "S6"}
    assert (result.outcomes[Outcome.DELETED], result.outcomes[Outcome.SPARED]) == (4, 1)
    assert "court" in lake.why("S5")


def test_a_hold_that_stood_in_a_file_when_the_run_began_is_kept_though_another_run_has_no_such_file(lake: Lake) -> None:
    with staged(lake, ("lake/d",)) as stage:
        lake.says(lake.policies, HOLD)
        stage.__post_init__()
        # As whoever has other files would write it down.
        stage.ledger.holds.note_files((), "another run")
        stage.ledger.sweep_runs.beat(RUN)
        list(stage.task_sweep())
    assert "S5" in lake.there()


def test_a_policy_file_that_breaks_ends_the_tasks_and_the_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_stage, "_SECONDS", 0.05)
    lake.says(SLOW)
    with staged(lake, ("lake/d",)) as stage:
        stage.first_batch(monkeypatch, lambda: lake.says("nonsense"), stage.watch.look)
        with pytest.raises(BadInput, match=r"p\.yaml"):
            stage.run()
    assert lake.there() == ALL - {"S1", "S2"}
    assert lake.verified() == ()


@pytest.mark.parametrize("is_told", [False, True], ids=["the run stops", "somebody else says so"])
def test_who_is_asked_to_end_ends_the_tasks_after_their_batch(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """Between its batches the policy waits for long: the word to stop is heard in it."""
    monkeypatch.setattr(sweep_stage, "_SECONDS", 0.05)
    lake.says(SLOW)
    with staged(lake, ("lake/d",)) as stage:
        told = (lambda: stage.ledger.sweep_runs.stop(RUN, "Somebody said so."),)
        stage.first_batch(monkeypatch, *told if is_told else (stage.stop.set, stage.watch.look))
        (result,) = stage.run().values()
        assert stage.stop.is_set()
    assert (result.outcomes[Outcome.DELETED], result.refused) == (2, None)
    assert lake.there() == ALL - {"S1", "S2"}
    # A task that has not begun yet begins nothing.
    assert list(stage.task_sweep()) == []


def test_a_task_whose_run_is_gone_begins_nothing(lake: Lake) -> None:
    """Nobody would write down the holds of files for it."""
    with staged(lake) as stage:
        assert list(stage.task_sweep()) == []
    assert lake.there() == ALL


def test_a_task_that_is_run_twice_at_once_does_no_harm(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    second: list[SweepResult] = []
    with staged(lake, ("lake/d",)) as stage:
        stage.first_batch(monkeypatch, lambda: second.extend(stage.task_sweep()))
        (first,) = stage.run().values()
        # And once more, as if its answer had been lost.
        again = list(stage.task_sweep())
    assert first.outcomes[Outcome.DELETED] == 5
    assert [sum(one.outcomes.values()) for one in (*second, *again)] == [0] * len([*second, *again])
    assert (lake.there(), lake.report()["deleted"], lake.verified()) == ({"S6"}, 5, ())


def test_the_second_task_in_one_python_looks_at_a_dataset_when_it_sweeps_it(lake: Lake) -> None:
    with staged(lake) as stage:
        stage.ledger.sweep_runs.beat(RUN)
        task = replace(stage.task, shares=((("lake/d",),), (("lake/e",),)))
        (first,) = task.results_of(0)
        lake.branches("audit", "S3", "lake/e")
        (second,) = task.results_of(1)
    assert (first.outcomes[Outcome.DELETED], second.outcomes) == (5, {Outcome.DELETED: 4, Outcome.SPARED: 1})
    assert (lake.there("lake/d"), lake.there("lake/e")) == ({"S6"}, {"S3", "S6"})


def test_what_a_lost_task_has_left_is_swept_once_more_when_its_lease_is_over(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(lake) as stage:
        # Its turn is the first one, and by the time of the other's it is over.
        take_lease(stage.ledger, "lake/d", RUN)
        over = LEASES.update().where(LEASES.c.dataset == "lake/d").values(expires_at=AS_OF - timedelta(days=5_000))
        stage.first_batch(monkeypatch, lambda: write_past_ledger(stage.ledger, over))
        results = stage.run()
    assert results["lake/d"].outcomes[Outcome.DELETED] == 5
    assert lake.there("lake/d") == {"S6"}


def test_a_task_that_finds_another_ledger_sweeps_nothing(lake: Lake) -> None:
    with staged(lake) as stage:
        shutil.move(lake.folder / "ledger.db", lake.folder / "away.db")
        elsewhere = lake.settings.model_copy(update={"ledger": f"sqlite:///{lake.folder}/other.db"})
        stage.task = SweepTask(elsewhere, stage.task.policies, stage.task.ledger, DUE, RUN, stage.task.folder)
        shutil.move(lake.folder / "away.db", lake.folder / "ledger.db")
        with pytest.raises(Refused, match="another ledger"):
            stage.run()
    assert lake.there() == ALL


def test_tasks_delete_nothing_that_was_not_confirmed(lake: Lake) -> None:
    with staged(lake) as stage:
        marked = stage.ledger.marks.table(["lake/d"]).select(["dataset", "transaction", *TIMES])
        shown = marked.filter(pa.array([name in ("S1", "S3") for name in marked["transaction"].to_pylist()]))
        stage.confirmed = write_confirmed(shown, f"{lake.folder}/run")
        stage.__post_init__()
        stage.run()
    assert (lake.there("lake/d"), lake.there("lake/e")) == (ALL - {"S1", "S3"}, ALL)


def test_tasks_are_for_a_ledger_that_many_may_write_and_for_what_is_worth_them(lake: Lake, server: str) -> None:
    many, few = {f"lake/{number}": 1 for number in range(2_000)}, {"lake/d": 5}
    assert not is_for_tasks(lake.settings, many)
    team = lake.settings.model_copy(update={"ledger": new_schema(server)})
    assert (is_for_tasks(team, many), is_for_tasks(team, few)) == (True, False)
    tables = IcebergSettings(name="ice", catalog={"uri": "sqlite:///ice.db"})
    rows = AspectsSettings(name="meta", url="sqlite:///meta.db")
    mixed = team.model_copy(update={"stores": (*team.stores, tables, rows)})
    turns = {"lake/d": 11_000, "ice/n.t": 3_100, "meta/d/a": 55_000}
    assert [is_for_tasks(mixed, {name: amount}) for name, amount in turns.items()] == [True] * 3
    assert [is_for_tasks(mixed, {name: amount * 9 // 10}) for name, amount in turns.items()] == [False] * 3
    assert is_for_tasks(mixed, {name: amount // 2 for name, amount in turns.items()})
    assert not is_for_tasks(mixed, {"gone/d": 1_000_000})
    spark = team.spark.model_copy(update={"master": "spark://host:7077"})
    assert is_for_tasks(team.model_copy(update={"spark": spark}), few)


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = cast("SparkSession", Session())
ALL_OBJECTS = {**UNREFERENCED, "datasets": {"include": ["*"]}}
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
    cycle = ObjectsCycle(folder, ALL_OBJECTS, references=[use], brakes={"empty_source": "allow"})
    cycle.marks()
    (tmp_path / "asked").unlink()
    (tmp_path / "named").write_text("b/two")
    return cycle


def run(cycle: ObjectsCycle, spark: "SparkSession" = HERE, stop: threading.Event | None = None) -> dict[str, SweepResult]:
    with cycle.opened() as ledger:
        rulebook = load_rulebook(ledger, cycle.settings, RUN)
        watch = SweepWatch(ledger, rulebook, RUN, stop or threading.Event())
        task = SweepTask(cycle.settings, rulebook.files, ledger.id, OBJECTS_DUE, RUN, folder_of(cycle))
        return {one.dataset: one for one in sweep_in_tasks(spark, task, due(ledger), watch)}


def due(ledger: Ledger) -> dict[str, int]:
    return {one.dataset: one.marks for one in ledger.marks.to_sweep(OBJECTS_DUE)}


def folder_of(cycle: ObjectsCycle) -> str:
    return Warehouse(str(cycle.folder / "warehouse")).folder("swept_transactions", RUN)


def left(cycle: ObjectsCycle) -> list[Path]:
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
    with cycle.opened() as ledger:
        assert ledger.verify().faults == ()


def test_a_look_that_fails_is_told_of_each_dataset_and_other_stores_go_on(cycle: ObjectsCycle) -> None:
    (cycle.folder / "other").mkdir()
    other = LocalObjects(cycle.folder / "other")
    other.put("a/one", b"x")
    settings = json.loads(cycle.settings_file.read_text())
    settings["stores"].append({**other.settings(), "name": "others"})
    cycle.settings_file.write_text(json.dumps(settings))
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
    return ScanResult(
        "blobs",
        OBJECTS_DUE,
        OBJECTS_DUE,
        OBJECTS_DUE,
        OBJECTS_DUE,
        salt="",
        filter="fingerprints",
        effective_fpp=0.0,
        sources=counts,
    ).as_json()


def test_a_task_that_finds_another_ledger_looks_for_nothing(cycle: ObjectsCycle) -> None:
    due_there = DueInLedger(cycle.settings, "another", OBJECTS_DUE, (("blobs/a",),))
    with pytest.raises(Refused, match="A task finds another ledger"):
        list(due_there.read(0))


def test_what_became_due_after_the_look_waits_for_the_next_run(cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Marks.read

    def earlier(*arguments: Any, **asked: Any) -> Iterator[pa.RecordBatch]:
        for batch in known(*arguments, **asked):
            yield batch.filter(pc.not_equal(batch["transaction"], "a/two"))

    with monkeypatch.context() as patch:
        patch.setattr(Marks, "read", earlier)
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


def test_the_word_to_stop_reaches_tasks_by_the_ledger(cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = StopRequest(cycle.settings, RUN)
    with cycle.opened() as ledger:
        ledger.sweep_runs.beat(RUN)
        assert not asked()
        ledger.sweep_runs.stop(RUN, "Somebody said so.")
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
    with cycle.opened() as ledger:
        assert Warehouse(str(cycle.folder / "warehouse")).clean(ledger, ["swept_transactions"], lambda *_: True) == 1
    assert left(cycle) == []
    assert deleted(run(cycle)) == len(KEYS) - 1


@pytest.mark.spark
def test_tasks_of_spark_find_what_is_found_here(
    cycle: ObjectsCycle, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {name: [key for key in KEYS if key.startswith(name[-1])] for name in cycle.objects.datasets}
    store = cycle.objects.store(**cycle.changes)
    here = read_some(store, wanted)

    def compare(*arguments: Any) -> list[SweepResult]:
        store.answer_by(arguments[1].looks["blobs"])
        assert store.was_looked_at(pa.array(KEYS), ()).to_pylist() == [True] * len(KEYS)
        assert read_some(store, wanted).equals(here)
        return []

    monkeypatch.setattr(sweep_stage, "_run", compare)
    assert run(cycle, spark) == {}
    assert left(cycle) == []
