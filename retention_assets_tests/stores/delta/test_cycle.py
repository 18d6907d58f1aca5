"""The whole cycle over Delta tables: policies, marks, holds, plan, sweeps, reports and restores, as people meet them."""

import json
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.outcomes import Outcome
from retention_assets.pipeline.sweep_stage import SweepTask, SweepWatch, sweep_in_tasks
from retention_assets.policy import text_of
from retention_assets_tests.people.conftest import Json, Run, found, lake, run
from retention_assets_tests.stores.delta import test_exact
from retention_assets_tests.stores.delta.readers import DuckDBReader, readings
from retention_assets_tests.stores.delta.tables import Table, rows, versions
from retention_assets_tests.stores.delta.test_cases import DELETED, commit, overwritten
from retention_assets_tests.stores.delta.test_exact import data
from retention_assets_tests.sweep.datasets import DUE, MARKED
from retention_assets_tests.sweep.lakes import DAY, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["found", "lake", "run"]

POLICY = "{name: old, datasets: {include: ['lh/*']}, select: {beyond: {transactions: 1}}, sweep: {every: 0s}}"
OTHER = POLICY.replace("name: old", "name: other").replace("lh/*", "lh/other*")
AT, WEEK, REASON = ("--as-of", text_of(DUE)), timedelta(days=7), ("--reason", "they asked")


@pytest.fixture
def house(lake: Lake) -> Lake:
    """A store over all tables below one folder."""
    lake.configures(stores=[{"name": "lh", "kind": "delta", "tables": [f"{lake.folder}/tables/*"]}]).says(POLICY)
    return lake


@pytest.fixture
def folder(house: Lake) -> Path:
    return house.folder / "tables" / "t"


def needed(folder: Path, *numbers: int) -> set[str]:
    return set[str]().union(*(test_exact.needed(folder, number) for number in numbers))


def test_what_goes_together_is_no_reason_to_keep_each_other(house: Lake, folder: Path, found: Json) -> None:
    """However small a batch is: the files that six versions share go with all of them."""
    house.says(POLICY.replace("every: 0s", "every: 0s, batch: 2"))
    table = Table(folder, 0)
    for number in range(1, 6):
        table.append(number)
    table.overwrite(6)
    assert house.marks(MARKED) == 6
    assert house.sweeps(DUE)["lh/t"].outcomes == {DELETED: 6}
    assert [found("report")[name] for name in ("deleted", "spared", "left")] == [6, 0, 0]
    assert data(folder) == needed(folder, 6)


def test_what_newer_versions_need_is_not_marked(house: Lake, folder: Path, run: Run, found: Json) -> None:
    """Case 2: five versions lose nothing, until a compaction; then all go, after a grace of their own."""
    table = Table(folder, 0)
    table.append(1)
    table.append(2)
    [own] = needed(folder, 0)
    assert house.marks(MARKED) == 0
    explained = found("explain", "lh/t", "0", *AT)
    assert explained["verdict"] == "spare"
    [reason] = [reason for reason in explained["reasons"] if reason["code"] == "NEEDED"]
    assert (reason["witness"], reason["text"]) == (
        "version 2 needs all of its files", "Nothing would go with it: version 2 needs all of its files.",
    )  # fmt: skip
    assert explained["needs"] == ["0 of its 1 files go with it, 0 bytes.", f"version 2 needs '{own}'."]
    assert "nothing to mark and nothing to delete" in run("plan", *AT)[1]
    newest = table.compact()
    assert (house.marks(DUE), house.sweeps(DUE)) == (3, {})
    assert house.sweeps(DUE + WEEK)["lh/t"].outcomes == {DELETED: 3}
    assert data(folder) == needed(folder, newest)
    assert house.verified() == ()


HOLD = "{datasets: 'lh/*', transactions: ['0'], reason: audit, name: audit}"
RETAIN = "{name: audit, reason: audit, datasets: 'lh/*', where: \"attributes['operation'] = 'WRITE' AND transaction = '0'\"}"
NARROWED = POLICY.replace("transactions: 1}", "transactions: 1}, where: \"transaction <> '0'\"")


@pytest.mark.parametrize(
    "keeper", ["hold", "hold of a file", "retain rule", "narrowed policy", "removed policy", "pin", "keep"]
)
@pytest.mark.parametrize("late", [False, True], ids=["before it is marked", "once it is marked"])
def test_whatever_keeps_a_version_that_lost_nothing_keeps_its_files(
    keeper: str, late: bool, house: Lake, folder: Path, run: Run
) -> None:
    """Version 0 was needed by version 2 for long; then version 3 replaces all, and somebody keeps version 0."""
    table = Table(folder, 0)
    table.append(1)
    table.append(2)
    assert (house.marks(MARKED), house.sweeps(DUE)) == (0, {})
    before = rows(folder, 0)
    newest = table.overwrite(3)
    marked = house.marks(DUE) if late else 0
    acts: dict[str, Callable[[], object]] = {
        "hold": lambda: run("hold", "--name", "audit", "-d", "lh/t", "-x", "0", *REASON, "--anyway"),
        "hold of a file": lambda: house.says(POLICY, holds=HOLD),
        "retain rule": lambda: house.says(POLICY, retain=RETAIN),
        "narrowed policy": lambda: house.says(NARROWED),
        "removed policy": lambda: house.says(OTHER),
        "pin": lambda: table.set_properties({"retention.keep_versions": "0"}),
        "keep": lambda: run("keep", "lh/t", "0", *REASON),
    }
    acts[keeper]()
    house.marks(DUE)
    house.sweeps(DUE + WEEK)
    kept = [0, 1, 2] if keeper == "removed policy" else [0]
    assert (marked, rows(folder, 0)) == (3 if late else 0, before)
    assert data(folder) == needed(folder, *kept, newest)
    assert house.verified() == ()


@pytest.mark.parametrize("undo", ["", "undo: 14d, "], ids=["deleted", "set aside"])
@pytest.mark.parametrize("batch", [1, 500])
def test_marks_that_share_their_only_file_wait_for_the_last_and_go_together(
    undo: str, batch: int, house: Lake, folder: Path, run: Run
) -> None:
    """Case 2b: version 0 has a grace of 7 days, version 1 of 30; they have one file between them. Two `sweep` settings."""
    table = Table(folder, 0)
    empty = table.set_properties({"delta.appendOnly": "false"})
    table.append(1)
    newest = table.overwrite(2)
    assert empty == 1
    first = f"{{name: first, datasets: {{include: ['lh/*']}}, select: {{where: \"transaction = '0'\"}}, sweep: {{every: 0s, batch: {batch}}}}}"
    second = f"{{name: second, datasets: {{include: ['lh/*']}}, select: {{where: \"transaction = '2'\"}}, grace: 30d, {undo}sweep: {{every: 0s}}}}"
    house.says(f"{first}, {second}")
    assert house.marks(MARKED) == 2
    result = house.sweeps(DUE)["lh/t"]
    assert (result.outcomes, result.errors) == ({}, [])
    [warning] = result.warnings
    assert warning.startswith("0 stays for now. It waits for version 2 (due 2029-04-29 12:00 UTC)")
    assert len(data(folder)) == 3
    done = Outcome.SET_ASIDE if undo else DELETED
    result = house.sweeps(MARKED + 30 * DAY)["lh/t"]
    assert (result.outcomes, result.refused, result.warnings) == ({done: 2}, None, [])
    assert data(folder) & needed(folder, newest) == needed(folder, newest)
    assert house.verified() == ()
    if undo:
        assert house.sweeps(MARKED + 44 * DAY)["lh/t"].outcomes == {DELETED: 2}
    assert data(folder) == needed(folder, newest)


def test_our_own_announcements_are_never_marked_and_not_counted(house: Lake, folder: Path) -> None:
    house.says(POLICY.replace("transactions: 1", "transactions: 3"))
    written = [Table(folder, 0).version]
    for day in range(1, 7):
        written.append(Table.open(folder).overwrite(day))
        house.marks(MARKED + day * DAY)
        house.sweeps(MARKED + day * DAY + WEEK)
        assert data(folder) == needed(folder, *written[-3:])
    assert [rows(folder, number)[0][0] for number in written[-3:]] == [4, 5, 6]
    operations = [commit(folder, number)["operation"] for number in versions(folder)]
    assert operations.count("VACUUM START") == operations.count("VACUUM END") == 4
    assert house.statuses("lh/t") == dict.fromkeys(map(str, written[:-3]), "SWEPT")


UNDO = POLICY.replace("sweep:", "undo: 14d, sweep:")


@pytest.mark.parametrize("needs", ["pin", "stream", "clone", "newest version"])
@pytest.mark.parametrize("days", [1, 14], ids=["in the window", "at its end"])
def test_what_needs_a_set_aside_version_brings_it_back_in_the_next_run(
    needs: str, days: int, house: Lake, folder: Path, run: Run
) -> None:
    """Version 1 of three that are set aside; each has one file of its own."""
    also = {"also_read": [f"{house.folder}/clones/*"], "streams": [f"{house.folder}/streams/*"]}
    for name in ("clones", "streams"):
        (house.folder / name).mkdir()
    house.configures(stores=[{"name": "lh", "kind": "delta", "tables": [f"{house.folder}/tables/*"], **also}]).says(UNDO)
    table = overwritten(folder, 4)
    before = rows(folder, 1), table.opened.metadata()
    house.marks(MARKED)
    assert house.sweeps(DUE)["lh/t"].outcomes == {Outcome.SET_ASIDE: 3}
    table, wanted = Table.open(folder), [1]
    if needs == "pin":
        table.set_properties({"retention.keep_versions": "1"})
    elif needs == "stream":
        offsets = house.folder / "streams" / "s" / "offsets"
        offsets.mkdir(parents=True)
        source = {"reservoirId": str(before[1].id), "reservoirVersion": 1, "index": -1, "isStartingVersion": False}
        (offsets / "0").write_text("v1\n{}\n" + json.dumps(source))
        wanted = [1, 2]
    elif needs == "clone":
        log = house.folder / "clones" / "c" / "_delta_log"
        log.mkdir(parents=True)
        [own] = needed(folder, 1)
        lines = (folder / "_delta_log" / f"{0:020}.json").read_text("utf-8").splitlines()
        kept = [line for line in lines if '"protocol"' in line or '"metaData"' in line]
        add = {"path": str(folder / own), "size": 1, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
        (log / f"{0:020}.json").write_text("\n".join([*kept, json.dumps({"add": add})]))
    else:
        table.opened.restore(1, ignore_missing_files=True)
    at = DUE + days * DAY
    result = house.sweeps(at)["lh/t"]
    over = {} if days == 1 else {DELETED: 3 - len(wanted)}
    assert (result.outcomes, result.errors, result.refused) == ({Outcome.RESTORED: len(wanted), **over}, [], None)
    assert rows(folder, 1) == before[0]
    assert {name: house.statuses("lh/t")[name] for name in map(str, wanted)} == dict.fromkeys(map(str, wanted), "RESTORED")
    # it stays, and nothing fails from now on
    house.marks(at)
    later = house.sweeps(at + DAY)
    assert all(not result.errors and result.refused is None for result in later.values())
    assert (rows(folder, 1), house.verified()) == (before[0], ())


def test_who_asks_of_a_refused_table_is_told_why(house: Lake, folder: Path, run: Run) -> None:
    overwritten(folder, 3)
    (folder / "_delta_log" / f"{1:020}.json").unlink()
    code, _, error = run("explain", "lh/t", "0", *AT)
    assert (code, "lh/t is refused: commit 1 is missing between 0 and 2. Mend its log first." in error) == (1, True), error


@pytest.mark.spark
def test_tasks_of_spark_sweep_twenty_tables(house: Lake, folder: Path, spark: "SparkSession") -> None:
    folders = [overwritten(folder.with_name(f"t{number}"), 4).folder for number in range(20)]
    assert house.marks(MARKED) == 60
    with house.opened() as ledger:
        rulebook = load_rulebook(ledger, house.settings, "run")
        task = SweepTask(house.settings, rulebook.files, ledger.id, DUE, "run", f"{house.folder}/run")
        marks = {work.dataset: work.marks for work in ledger.marks.to_sweep(DUE)}
        results = sweep_in_tasks(spark, task, marks, SweepWatch(ledger, rulebook, "run", threading.Event()))
    assert [(result.outcomes, result.refused) for result in results] == [({DELETED: 3}, None)] * 20
    assert [data(folder) for folder in folders] == [needed(folder, 3) for folder in folders]
    assert house.verified() == ()


@pytest.mark.program
def test_ten_versions_that_are_copied_back_go_again_and_two_readers_read_what_they_read(
    house: Lake, folder: Path, run: Run, duckdb_reader: DuckDBReader
) -> None:
    table = Table(folder, *range(4))
    for number in range(1, 11):
        steps = (
            lambda number=number: table.restore(number - 3),
            lambda number=number: table.append(4 * number),
            lambda number=number: table.overwrite(4 * number, 4 * number + 1),
            lambda number=number: table.delete(f"id = {4 * number - 4}"),
        )
        steps[number % 4]()
    shutil.copytree(folder, house.folder / "backup")
    house.marks(MARKED)
    swept = house.sweeps(DUE)["lh/t"].outcomes[DELETED]
    left, read = data(folder), [rows(folder, 10), *readings(duckdb_reader, folder, [10]).values()]
    assert (swept, left) == (10, needed(folder, 10))
    shutil.rmtree(folder)
    shutil.copytree(house.folder / "backup", folder)
    assert data(folder) > left
    # a version of now needs some of it
    table.restore(9)
    needs = needed(folder, 11)
    assert run("replay", "--yes", *AT)[0] == 0
    assert data(folder) == left | needs
    assert [rows(folder, 10), *readings(duckdb_reader, folder, [10]).values()] == read
    assert house.verified() == ()
