"""Tables that are refused, each with the name of the thing; the others of the store go on."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.delta.environments import keep, open_globs, open_tables
from retention_assets_tests.stores.delta.golden import GoldenTable
from retention_assets_tests.stores.delta.tables import Table, file_uris, files


def overwritten(folder: Path, times: int = 4) -> Table:
    table = Table(folder, 0)
    for number in range(1, times):
        table.overwrite(number)
    return table


def log_file(table: Table, number: int) -> Path:
    return table.folder / "_delta_log" / f"{number:020}.json"


def append_line(table: Table, line: str) -> None:
    file = log_file(table, 3)
    file.write_text(f"{file.read_text('utf-8').rstrip()}\n{line}\n", "utf-8")


def cut(table: Table) -> None:
    file = log_file(table, 3)
    file.write_bytes(file.read_bytes()[:-20])


def commit(table: Table, *actions: object) -> None:
    log_file(table, 4).write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")


def features(*names: str) -> dict[str, object]:
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [*names], "writerFeatures": [*names]}}


def properties(table: Table, **values: str) -> None:
    for line in log_file(table, 0).read_text("utf-8").splitlines():
        if "metaData" in (action := json.loads(line)):
            action["metaData"]["configuration"] = values
            commit(table, {"commitInfo": {"operation": "SET TBLPROPERTIES"}}, action)


def stage(table: Table) -> None:
    folder = log_file(table, 0).parent / "_staged_commits"
    folder.mkdir()
    (folder / "x.json").touch()


def add_of(table: Table, number: int) -> dict[str, object]:
    actions = map(json.loads, log_file(table, number).read_text("utf-8").splitlines())
    return next(action for action in actions if "add" in action)


SPOILED: dict[str, tuple[Callable[[Table], object], str]] = {
    "17 a gap": (lambda table: log_file(table, 2).unlink(), "commit 2 is missing"),
    "18 a commit that is cut short": (cut, "commit 3 can't be relied on: it has a line that is no JSON object"),
    "18 an empty commit": (lambda table: log_file(table, 3).write_bytes(b""), "it holds no action"),
    "two objects in a line": (lambda table: append_line(table, '{"txn":{}}{"txn":{}}'), "more or less than one action"),
    "no object": (lambda table: append_line(table, "[1]"), "more or less than one action"),
    "19 an unknown feature": (lambda table: commit(table, features("teleportation")), "unknown feature teleportation"),
    "19 a catalog": (lambda table: commit(table, features("catalogManaged")), "managed by a catalog (feature catalogManaged)"),
    "an unknown protocol": (
        lambda table: commit(table, {"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}), "protocol versions 4 and 8"
    ),
    "an unknown action": (lambda table: commit(table, {"teleport": {"path": "x"}}), "unknown action 'teleport'"),
    "staged commits": (
        stage, "staged commits"
    ),
    "UniForm": (lambda table: properties(table, **{"delta.universalFormat.enabledFormats": "iceberg"}), "UniForm"),
    "coordinated commits": (
        lambda table: properties(table, **{"delta.coordinatedCommits.commitCoordinator-preview": "x"}), "coordinated by a catalog"
    ),
    "a window that is none": (
        lambda table: properties(table, **{"delta.deletedFileRetentionDuration": "a week"}), "delta.deletedFileRetentionDuration is 'a week'"
    ),
    "pins that are none": (lambda table: properties(table, **{"retention.keep_versions": "3,x"}), "is '3,x', and not versions"),
    "a file of the log": (
        lambda table: commit(table, {"remove": {"path": "_delta_log/00000000000000000000.json"}}), "'_delta_log/00000000000000000000.json' as a file"
    ),
    "a path that leads out": (lambda table: commit(table, {"remove": {"path": "../v/x"}}), "'../v/x' as a file of the table"),
    "no path": (lambda table: commit(table, {"cdc": {"path": ""}}), "'' as a file of the table"),
    "an action without a path": (lambda table: commit(table, {"add": {}}), "commit 4 can't be read: KeyError: 'path'"),
    "a file of 1e300 bytes": (lambda table: commit(table, {"add": {"path": "x", "size": 1e300}}), "it has a file of 1e+300 bytes"),
    "a window beyond all time": (
        lambda table: properties(table, **{"delta.logRetentionDuration": "interval 999999999 weeks"}), "which is no interval"
    ),
    "a time before all time": (lambda table: commit(table, {"commitInfo": {"timestamp": -(10**14)}}), "commit 4 can't be read: Overflow"),
    "two actions in a line": (lambda table: append_line(table, '{"txn":{},"commitInfo":{}}'), "more or less than one action"),
    "one path twice": (lambda table: commit(table, add_of(table, 0), add_of(table, 0)), "adds part-00000"),
    "a vector of another kind": (
        lambda table: commit(
            table, {"add": {"path": "x", "deletionVector": {"storageType": "z", "pathOrInlineDv": "y", "offset": 1}}}
        ),
        "unknown storage type 'z'",
    ),
    "another checksum": (
        lambda table: (log_file(table, 3).with_suffix(".crc")).write_text('{"numFiles": 2, "tableSizeBytes": 1}', "utf-8"),
        "numFiles 1 by its log, and 2 by 00000000000000000003.crc",
    ),
    "another checksum of bytes": (
        lambda table: (log_file(table, 3).with_suffix(".crc")).write_text('{"numFiles": 1, "tableSizeBytes": 1}', "utf-8"),
        "tableSizeBytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_a_table_that_can_not_be_relied_on_is_refused_alone(name: str, tmp_path: Path) -> None:
    table, other = overwritten(tmp_path / "t"), overwritten(tmp_path / "u")
    targets = [Target(one.transaction, one.note) for one in open_tables(tmp_path).prepare("lh/t", ["0", "1"])]
    spoil, fault = SPOILED[name]
    spoil(table)
    before = files(table.folder)
    log = sound_log(open_tables(tmp_path).read(["lh/t", "lh/u"]))
    assert fault in str(log.datasets["fault"].to_pylist()[0])
    assert log.datasets["fault"].to_pylist()[1] is None
    answers = open_tables(tmp_path).sweep("lh/t", targets, 2)
    assert {(answer.outcome, fault in str(answer.error)) for answer in answers} == {(Outcome.FAILED, True)}
    assert files(table.folder) == before
    assert len(keep(other.folder, 3).gone) == 3


def test_words_that_are_no_text_refuse_their_table_alone(tmp_path: Path) -> None:
    commit(overwritten(tmp_path / "t"), {"commitInfo": {"operation": "\ud800"}})
    overwritten(tmp_path / "u")
    first, second = sound_log(open_tables(tmp_path).read(["lh/t", "lh/u"])).datasets["fault"].to_pylist()
    assert ("can't encode" in first, second) == (True, None)


@pytest.mark.parametrize("action", ["txn", "domainMetadata"])
def test_a_commit_may_have_one_action_of_any_kind(action: str, tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t")
    commit(table, {action: {}})
    assert len(keep(table.folder, 4).gone) == 3


def test_a_file_that_is_no_text_goes(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t")
    added = table.add_file(0)
    os.rename(table.place(added["add"]["path"]), os.fsencode(table.folder) + b"/a\xff.parquet")
    table.content["a%FF.parquet"], added["add"]["path"] = table.content.pop(added["add"]["path"]), "a%FF.parquet"
    table.commit(added)
    table.replace(table.add_file(1))
    swept = keep(table.folder, 1)
    assert (swept.outcomes(), swept.gone) == ({0: Outcome.DELETED}, {"a\udcff.parquet"})


def test_a_newest_version_that_is_not_whole_keeps_everything(tmp_path: Path) -> None:
    table = overwritten(tmp_path / "t")
    Path(file_uris(table.folder, 3)[0]).unlink()
    swept = keep(table.folder, 3)
    assert {answer.outcome for answer in swept.answers.values()} == {Outcome.FAILED}
    assert "version 3, the newest, lacks 1 of its files" in str(swept.answers[0].error)
    assert swept.gone == set()


def test_a_name_that_is_there_as_written_and_decoded_is_refused(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t", partitioned=True)
    table.commit(table.add_file(1, p="a b"))
    [path] = table.states[0]
    twin = table.folder / path
    assert twin != table.place(path)
    twin.parent.mkdir()
    twin.touch()
    assert "is there as the log writes it, and decoded" in fault(open_tables(tmp_path))


def test_a_name_that_is_written_in_two_ways_is_one_and_refused_where_both_are_there(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t")
    added = table.add_file(0)["add"]
    table.place(added["path"]).rename(table.folder / "a b.parquet")
    table.commit({"add": added | {"path": "a b.parquet"}})
    table.commit({"remove": {"path": "a%20b.parquet", "dataChange": True}}, table.add_file(1))
    assert fault(open_tables(tmp_path)) == "None"
    (table.folder / "a%20b.parquet").touch()
    assert "is there as the log writes it, and decoded" in fault(open_tables(tmp_path))


def test_tables_of_one_name_and_links_to_one_table_are_refused(tmp_path: Path) -> None:
    for folder in ("a/t", "b/t", "b/u"):
        overwritten(tmp_path / folder)
    both = open_globs(str(tmp_path / "a" / "*"), str(tmp_path / "b" / "*"))
    assert "2 tables have the name lh/t" in fault(both)
    os.symlink(tmp_path / "b" / "u", tmp_path / "link")
    linked = open_globs(str(tmp_path / "link"), str(tmp_path / "b" / "u"))
    assert [line["fault"] for line in linked.read(linked.datasets()).to_pylist()] == [linked_fault(linked)] * 2
    for again in ("b/u", "b/*", "*/u", "b/./u", "b/[u]"):
        assert "are one table" in fault(open_globs(str(tmp_path / "b" / "u"), f"{tmp_path}/{again}"), "lh/u")
    # a folder that is no table has no name
    (tmp_path / "b" / "t" / "_delta_log").rename(tmp_path / "b" / "t" / "log")
    assert fault(both) == "None"


def test_a_linked_folder_is_a_table_and_one_behind_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    overwritten(tmp_path / "disk" / "t")
    (tmp_path / "tables").mkdir()
    os.symlink(tmp_path / "disk" / "t", tmp_path / "tables" / "t")
    store = open_tables(tmp_path / "tables")
    assert (store.datasets(), fault(store)) == (["lh/t"], "None")
    os.symlink(tmp_path / "no disk", tmp_path / "tables" / "u")
    os.symlink("loop", tmp_path / "tables" / "loop")
    assert open_tables(tmp_path / "tables").datasets() == ["lh/t"]
    store = open_globs(str(tmp_path / "tables" / "t"), str(tmp_path / "tables" / "u"))
    log = sound_log(store.read(store.datasets()))
    assert [str(one)[-67:] for one in log.datasets["fault"].to_pylist()] == [
        "None",
        "is behind a link that leads nowhere. Check that its disk is mounted",
    ]
    assert [*store.tokens(store.datasets())] == ["lh/t"]


def fault(store: Any, dataset: str = "lh/t") -> str:
    return str(store.read([dataset]).to_pylist()[0]["fault"])


def linked_fault(store: Any) -> str:
    fault = str(store.read(store.datasets()).to_pylist()[0]["fault"])
    assert "are one table" in fault
    return fault
