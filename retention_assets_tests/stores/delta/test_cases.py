"""The cases of the store's design by their numbers; the others are in test_exact, test_refusals, test_clones and test_windows."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import sound_log
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.delta import tables
from retention_assets_tests.stores.delta.environments import keep, open_tables
from retention_assets_tests.stores.delta.golden import GoldenTable, checkpointed, inline_vector, vectors, with_change_data
from retention_assets_tests.stores.delta.tables import Table, files, rows

DELETED, SPARED, GONE = Outcome.DELETED, Outcome.SPARED, Outcome.ALREADY_GONE


def overwritten(folder: Path, times: int) -> Table:
    table = Table(folder, 0)
    for number in range(1, times):
        table.overwrite(number)
    return table


def test_1_overwrites_keep_two_versions_and_lose_four_files(tmp_path: Path) -> None:
    folder = overwritten(tmp_path / "t", 6).folder
    before = {number: rows(folder, number) for number in (2, 5)}
    swept = keep(folder, 2, 5)
    assert swept.outcomes() == dict.fromkeys((0, 1, 3, 4), DELETED)
    assert len(swept.gone) == 4
    assert {number: rows(folder, number) for number in (2, 5)} == before
    assert [commit(folder, number)["operation"] for number in (6, 7)] == ["VACUUM START", "VACUUM END"]
    assert commit(folder, 6)["operationMetrics"]["numFilesToDelete"] == "4"


def test_2_appends_lose_nothing_and_say_so(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 0)
    for number in range(1, 6):
        table.append(number)
    swept = keep(table.folder, 5)
    assert swept.outcomes() == dict.fromkeys(range(5), SPARED)
    assert swept.gone == set()
    assert swept.answers[3].error == "Nothing would go with it: version 5 needs all of its files."
    # nothing goes, so nothing is announced
    assert table.version == 5


def test_3_small_files_go_once_they_were_compacted(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 0)
    table.append(1)
    table.append(2)
    newest = table.compact()
    before = rows(table.folder, newest)
    assert len(keep(table.folder, newest).gone) == 3
    assert rows(table.folder, newest) == before


def test_4_a_restored_file_stays(tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t", 3)
    [file] = tables.file_uris(table.folder, 0)
    newest = table.restore(0)
    swept = keep(table.folder, newest)
    assert swept.outcomes() == {0: SPARED, 1: DELETED, 2: DELETED}
    assert Path(file).exists()
    assert rows(table.folder, newest) == rows(table.folder, 0)


def test_5_a_file_restored_between_plan_and_sweep_is_spared_with_its_witness(tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t", 3)
    [file] = tables.file_uris(table.folder, 0)
    swept = keep(table.folder, 2, meanwhile=lambda: table.restore(0))
    assert swept.outcomes() == {0: SPARED, 1: DELETED}
    assert f"version 3 needs '{Path(file).name}'" in str(swept.answers[0].error)
    assert rows(table.folder, 3) == rows(table.folder, 0)


def test_6_copies_on_write_keep_the_first_and_the_newest(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", *range(20))
    for number in range(4):
        table.delete(f"id = {number}")
    before = {number: rows(table.folder, number) for number in (0, 4)}
    assert len(keep(table.folder, 0, 4).gone) == 3
    assert {number: rows(table.folder, number) for number in (0, 4)} == before


def test_7_a_shared_vector_file_stays_while_one_of_its_vectors_is_needed(tmp_path: Path) -> None:
    table = vectors(tmp_path / "t")
    [shared] = {file for file in table.files(1) if file.suffix == ".bin"}
    assert shared in table.files(2)
    assert shared.name not in keep(table.folder, 2).gone
    assert shared.name in keep(table.folder).gone


def test_8_no_file_is_looked_for_where_a_vector_is_inline(tmp_path: Path) -> None:
    swept = keep(inline_vector(tmp_path / "t").folder)
    assert DELETED in swept.outcomes().values()
    assert all(name.endswith(".parquet") for name in swept.gone)


@pytest.mark.parametrize(("case", "prefix", "absolute"), [(9, "", True), (10, "aB", False)])
def test_9_and_10_vectors_by_absolute_paths_and_with_prefixes_stay_or_go_with_their_versions(
    case: int, prefix: str, absolute: bool, tmp_path: Path
) -> None:
    table = vectors(tmp_path / "t", prefix, absolute)
    needed = {str(file.relative_to(table.folder)) for number in (3, table.version) for file in table.files(number)}
    swept = keep(table.folder, 3)
    assert len([name for name in swept.gone if name.endswith(".bin")]) == 1, case
    assert needed <= files(table.folder).keys()


def test_11_change_data_of_swept_versions_goes(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", *range(6))
    table.track_changes()
    table.update("id = 1")
    newest = table.delete("id = 2")
    before = tables.change_data(table.folder, newest)
    swept = keep(table.folder, newest)
    assert len([name for name in swept.gone if name.startswith("_change_data/")]) == 1
    assert tables.change_data(table.folder, newest) == before
    golden = with_change_data(tmp_path / "golden")
    assert len([name for name in keep(golden.folder).gone if name.startswith("_change_data/")]) == 3


def test_a_version_whose_data_lives_on_loses_its_change_data_alone(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t", writer_features=["changeDataFeed"], properties={"delta.enableChangeDataFeed": "true"})
    for actions in ([table.add_file(1)], [table.change_file("insert", 2), table.add_file(2)], [table.add_file(3)]):
        table.commit(*actions)
    assert open_tables(tmp_path).check_needs("lh/t", ["1"], ["2"]) == {}
    swept = keep(table.folder, 2)
    assert (swept.outcomes()[1], [name.partition("/")[0] for name in swept.gone]) == (DELETED, ["_change_data"])


def test_12_files_of_any_partition_value_are_really_gone(tmp_path: Path) -> None:
    count = len(tables.VALUES)
    table = Table(tmp_path / "t", *range(count), partitioned=True)
    newest = table.overwrite(*range(count, 2 * count))
    swept = keep(table.folder, newest)
    assert len(swept.gone) == count
    assert {str(Path(file).relative_to(table.folder)) for file in tables.file_uris(table.folder, newest)} <= files(
        table.folder
    ).keys()
    assert len(rows(table.folder, newest)) == count


def test_15_a_stray_is_left_and_counted(tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t", 3)
    stray = table.folder / "part-stray.parquet"
    stray.write_bytes(b"of a writer that has not committed yet")
    os.utime(stray, (0, 0))
    assert attributes(table.folder)["strays"] == "1"
    keep(table.folder, 2)
    assert stray.exists()


def test_16_files_of_versions_before_the_log_are_left(tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t", 4)
    before = files(table.folder)
    table.clean_log()
    assert [row["transaction"] for row in log_of(table.folder)] == ["4"]
    table.overwrite(9)
    swept = keep(table.folder)
    assert len(swept.gone) == 1
    assert len(files(table.folder).keys() & before.keys()) == 3


def test_20_checkpoints_of_the_second_form_are_read_and_left(tmp_path: Path) -> None:
    for form in ("json", "parquet"):
        table = checkpointed(tmp_path / form, form)
        assert [row["transaction"] for row in log_of(table.folder)] == ["3", "4", "5"]
        assert keep(table.folder, 3, 5).outcomes() == {4: DELETED}


def test_21_a_checkpoint_without_one_of_its_parts_is_ignored(tmp_path: Path) -> None:
    table = checkpointed(tmp_path / "t", "parts", kept_from=0)
    next(table.log.glob("*.0000000002.0000000003.parquet")).unlink()
    assert len(log_of(table.folder)) == 6
    for number in range(3):
        (table.log / f"{number:020}.json").unlink()
    assert "no whole checkpoint" in fault_of(table.folder)
    table = GoldenTable(tmp_path / "u")
    first, second = table.add_file(1), table.add_file(2)
    for actions in ([first, second], [], [table.remove(second)]):
        table.commit(*actions)
    table.checkpoint("parts")
    shutil.copy(next(table.log.glob(f"*.{1:010}.{3:010}.parquet")), table.log / f"{1:020}.checkpoint.{1:010}.{3:010}.parquet")
    for number in range(2):
        (table.log / f"{number:020}.json").unlink()
    table.replace(table.add_file(3))
    assert open_tables(tmp_path).check_needs("lh/u", ["2"], ["3"]) == {}
    assert keep(table.folder, 3).outcomes() == {2: DELETED}


def test_22_a_file_that_gets_a_vector_is_removed_and_added_in_one_commit(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t", "deletionVectors")
    added = table.add_file(1, 2, 3)
    table.commit(added)
    table.commit(*table.mask(added, table.inline_vector(0, 1)))
    assert len(log_of(table.folder)) == 2
    table.commit(added, table.remove(added))
    assert "commit 2 can't be relied on: it adds and removes" in fault_of(table.folder)


def test_26_what_a_killed_sweep_left_goes_with_the_next(tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t", 6)
    for number in (0, 1, 2):
        Path(tables.file_uris(table.folder, number)[0]).unlink()
    store = open_tables(tmp_path)
    targets = [Target(one.transaction, one.note, begun_earlier=True) for one in store.prepare("lh/t", ["0", "1", "2", "3"])]
    assert [answer.outcome for answer in store.sweep("lh/t", targets, 2)] == [GONE, GONE, GONE, DELETED]
    # a start without an end is ended by whoever comes next
    table = Table.open(table.folder)
    commit_again(table.folder, "VACUUM START")
    targets = [Target(one.transaction, one.note, begun_earlier=True) for one in store.prepare("lh/t", ["0"])]
    assert [answer.outcome for answer in store.sweep("lh/t", targets, 2)] == [GONE]
    operations = [commit(table.folder, number)["operation"] for number in range(6, 10)]
    assert operations == ["VACUUM START", "VACUUM END", "VACUUM START", "VACUUM END"]


def test_a_sweep_takes_files_of_its_targets_and_nothing_else(tmp_path: Path) -> None:
    """What an earlier sweep left, since a clone or another version needed it then, is of no target."""
    table = Table(tmp_path / "t", 0)
    table.overwrite(1)
    table.overwrite(2)
    [left] = tables.file_uris(table.folder, 0)
    store = open_tables(tmp_path)
    store.know_swept("lh/t", ["0"], [], [])
    assert outcomes(store, ["1"]) == {"1": DELETED}
    assert Path(left).exists()


@pytest.mark.parametrize("lost", [False, True])
def test_a_swept_version_needs_its_files_again_once_it_is_whole(lost: bool, tmp_path: Path) -> None:
    """Version 0 was swept, and a backup has brought back its own file, or has not; version 1 has the other one, too."""
    table = Table(tmp_path / "t", 0)
    table.append(1)
    table.delete("id = 0")
    table.overwrite(9)
    shared = next(file for file in tables.file_uris(table.folder, 1) if file in tables.file_uris(table.folder, 2))
    [own] = {*tables.file_uris(table.folder, 1)} - {shared}
    content = Path(own).read_bytes()
    store = open_tables(tmp_path)
    assert outcomes(store, ["0", "1"]) == {"0": DELETED, "1": DELETED}
    if not lost:
        Path(own).write_bytes(content)
    store.know_swept("lh/t", ["0", "1"], [], [])
    assert outcomes(store, ["2"]) == {"2": DELETED if lost else SPARED}
    assert Path(shared).exists() is not lost


def test_a_hold_on_a_swept_version_keeps_what_is_left_of_it(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 0)
    table.append(1)
    table.overwrite(2)
    [own] = {*tables.file_uris(table.folder, 0)}
    store = open_tables(tmp_path)
    store.know_swept("lh/t", ["0"], [], ["0"])
    assert outcomes(store, ["1"]) == {"1": DELETED}
    assert Path(own).exists()


def test_a_version_that_is_not_known_as_swept_keeps_its_files(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 0)
    table.append(1)
    table.overwrite(2)
    assert outcomes(open_tables(tmp_path), ["1"]) == {"1": DELETED}
    assert len(rows(table.folder, 0)) == 1


def test_what_is_set_aside_keeps_the_files_that_it_shares(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 0)
    table.append(1)
    table.overwrite(2)
    store = open_tables(tmp_path)
    aside = targets(store, ["1"])
    [answer] = store.carry_out(Order.SET_ASIDE, "lh/t", aside, 2)
    assert (answer.outcome, len(rows(table.folder, 0))) == (Outcome.SET_ASIDE, 1)
    store.know_swept("lh/t", [], ["1"], [])
    # version 0 would lose the one file that version 1 left in its place
    [spared] = store.sweep("lh/t", targets(store, ["0"]), 2)
    assert (spared.outcome, "version 1, which is set aside, needs all of its files" in str(spared.error)) == (SPARED, True)
    [restored] = store.carry_out(Order.RESTORE, "lh/t", aside, 2)
    assert (restored.outcome, restored.error) == (Outcome.RESTORED, None)
    assert len(rows(table.folder, 1)) == 2


def test_a_file_that_two_set_aside_versions_of_a_dropped_table_share_goes_with_the_last(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t")
    shared, other = table.add_file(0), table.add_file(1)
    table.commit(shared, other)
    table.commit(table.remove(other))
    table.replace(table.add_file(2))
    store = open_tables(tmp_path)
    prepared = store.prepare("lh/t", ["0", "1"])
    aside = [Target(one.transaction, one.note, aside=f"7/{number}") for number, one in enumerate(prepared)]
    assert {answer.outcome for answer in store.carry_out(Order.SET_ASIDE, "lh/t", aside, 2)} == {Outcome.SET_ASIDE}
    shutil.rmtree(table.log)
    left = []
    for target in aside:
        [answer] = open_tables(tmp_path).carry_out(Order.DELETE_ASIDE, "lh/t", [target], 2)
        left.append((answer.outcome, {file.name for file in (table.folder / ".retention-trash").rglob("*.parquet")}))
    assert left == [(DELETED, {Path(shared["add"]["path"]).name}), (DELETED, set())]


def test_what_was_taken_out_of_the_trash_of_a_dropped_table_is_known_again_once_it_is_back(tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t", 2)
    aside = targets(open_tables(tmp_path), ["0"])
    open_tables(tmp_path).carry_out(Order.SET_ASIDE, "lh/t", aside, 2)
    shutil.rmtree(table.folder / "_delta_log")
    [file] = (table.folder / ".retention-trash").rglob("*.parquet")
    away = file.rename(tmp_path / file.name)
    outcomes_in_turn = []
    for put_back in (False, True):
        if put_back:
            file.parent.mkdir(parents=True, exist_ok=True)
            away.rename(file)
        [answer] = open_tables(tmp_path).carry_out(Order.DELETE_ASIDE, "lh/t", aside, 2)
        outcomes_in_turn.append(answer.outcome)
    assert (outcomes_in_turn, file.exists()) == ([Outcome.FAILED, DELETED], False)


def test_of_several_with_a_missed_file_the_one_with_the_fewest_others_is_wanted_again(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t")
    shared, *others = (table.add_file(number) for number in range(4))
    table.commit(shared, *others)
    table.commit(*map(table.remove, others), table.add_file(4))
    table.replace(table.add_file(5))
    store = open_tables(tmp_path)
    aside = targets(store, ["0", "1"])
    assert {answer.outcome for answer in store.carry_out(Order.SET_ASIDE, "lh/t", aside, 2)} == {Outcome.SET_ASIDE}
    store.know_swept("lh/t", [], ["0", "1"], [])
    assert store.wanted_again("lh/t", ["0", "1"]) == {}
    table.commit(shared)
    wanted = store.wanted_again("lh/t", ["0", "1"])
    assert ([*wanted], "a file of it" in wanted["1"]) == (["1"], True)


def test_the_final_deletion_takes_what_was_left_in_place(tmp_path: Path) -> None:
    """Version 0 shares a file with version 1, which is set aside first; then version 0 goes with its other file."""
    table = Table(tmp_path / "t", 0, 1, partitioned=True)
    table.overwrite(1 + len(tables.VALUES), where=tables.has_value(tables.VALUES[1]))
    newest = table.overwrite(9)
    store = open_tables(tmp_path)
    aside = targets(store, ["1"])
    assert [answer.outcome for answer in store.carry_out(Order.SET_ASIDE, "lh/t", aside, 2)] == [Outcome.SET_ASIDE]
    store.know_swept("lh/t", [], ["1"], [])
    [first] = store.sweep("lh/t", targets(store, ["0"]), 2)
    assert (first.outcome, first.left) == (DELETED, 1)
    store.know_swept("lh/t", ["0"], ["1"], [])
    [answer] = store.carry_out(Order.DELETE_ASIDE, "lh/t", aside, 2)
    assert (answer.outcome, answer.left) == (DELETED, 0)
    left = {name for name in files(table.folder) if not name.startswith("_delta_log")}
    assert left == {str(Path(file).relative_to(table.folder)) for file in tables.file_uris(table.folder, newest)}


def targets(store: Any, names: list[str]) -> list[Target]:
    return [Target(one.transaction, one.note, aside="7/7") for one in store.prepare("lh/t", names)]


def outcomes(store: Any, names: list[str]) -> dict[str, Outcome]:
    answers = store.sweep("lh/t", targets(store, names), 2)
    return {answer.transaction: answer.outcome for answer in answers}


def log_of(folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = sound_log(open_tables(folder.parent).read([f"lh/{folder.name}"])).transactions.to_pylist()
    return rows


def attributes(folder: Path) -> dict[str, str]:
    log = sound_log(open_tables(folder.parent).read([f"lh/{folder.name}"]))
    assert log.datasets["fault"].to_pylist() == [None]
    return log.attributes


def fault_of(folder: Path, **settings: object) -> str:
    [line] = open_tables(folder.parent, **settings).read([f"lh/{folder.name}"]).to_pylist()
    return str(line["fault"])


def commit(folder: Path, number: int) -> dict[str, Any]:
    lines = (folder / "_delta_log" / f"{number:020}.json").read_text("utf-8").splitlines()
    found: dict[str, Any] = next(action["commitInfo"] for action in map(json.loads, lines) if "commitInfo" in action)
    return found


def commit_again(folder: Path, operation: str) -> None:
    log = folder / "_delta_log"
    newest = max(int(file.stem) for file in log.glob("*.json"))
    source = next(number for number in range(newest + 1) if commit(folder, number)["operation"] == operation)
    (log / f"{newest + 1:020}.json").write_text((log / f"{source:020}.json").read_text("utf-8"), "utf-8")
