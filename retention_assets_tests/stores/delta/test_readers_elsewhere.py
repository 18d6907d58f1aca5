"""Other tables and streams that need files of a table: clones by absolute paths, and readers that lag behind."""

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets_tests.stores.delta.environments import Swept, keep, open_globs, open_tables
from retention_assets_tests.stores.delta.golden import GoldenTable, clone_of
from retention_assets_tests.stores.delta.tables import Table, file_uris

SCHEMES = ("file://", "file:", "")


def source(folder: Path) -> GoldenTable:
    table = GoldenTable(folder, partitioned=True)
    for number in range(4):
        table.replace(table.add_file(number, p="a b"))
    return table


@pytest.mark.parametrize("scheme", SCHEMES)
def test_23_a_file_of_the_source_stays_while_the_clone_is_known(scheme: str, tmp_path: Path) -> None:
    table = source(tmp_path / "tables" / "t")
    clone = clone_of(tmp_path / "clones" / "c", table, 1, scheme)
    swept = keep(table.folder, 3, also_read=[str(clone.folder)])
    assert swept.outcomes() == {0: Outcome.DELETED, 1: Outcome.SPARED, 2: Outcome.DELETED}
    assert f"the table {clone.folder} needs all of its files" in str(swept.answers[1].error)
    assert clone.files(0) == {file for file in clone.files(0) if file.exists()}
    shutil.rmtree(clone.folder)
    assert keep(table.folder, 3, also_read=[str(clone.folder)]).outcomes()[1] is Outcome.DELETED


@pytest.mark.parametrize("glob", ["*", "c", "_c", ".c", "[_]c"])
@pytest.mark.parametrize("name", ["c", "_c", ".c"])
def test_23_a_clone_is_known_whatever_its_name_and_behind_a_link(name: str, glob: str, tmp_path: Path) -> None:
    table = source(tmp_path / "tables" / "t")
    clone_of(tmp_path / "clones" / name, table, 1, "file://localhost")
    clone_of(tmp_path / "disk" / "far", table, 2)
    os.symlink(tmp_path / "disk" / "far", tmp_path / "clones" / "linked")
    also = [str(tmp_path / "clones" / one) for one in (glob, "linked")]
    outcomes = keep(table.folder, 3, also_read=also).outcomes()
    names_it = glob in ("*", name) or (glob, name) == ("[_]c", "_c")
    assert outcomes[1] is (Outcome.SPARED if names_it else Outcome.DELETED)
    assert outcomes[2] is Outcome.SPARED


@pytest.mark.parametrize(
    ("glob", "link"), [("*", "c"), ("c", "c"), ("*", "c/_delta_log"), ("c", "c/_delta_log"), ("*/c", "disk")]
)
def test_23_nothing_is_swept_while_a_link_to_a_clone_leads_nowhere(link: str, glob: str, tmp_path: Path) -> None:
    table = source(tmp_path / "tables" / "t")
    (tmp_path / "clones" / link).parent.mkdir(parents=True)
    os.symlink(tmp_path / "no disk", tmp_path / "clones" / link)
    also: dict[str, Any] = {"also_read": [str(tmp_path / "clones" / glob)]}
    with pytest.raises(Exception, match="behind a link that leads nowhere"):
        keep(table.folder, 3, **also)
    [warning] = open_tables(tmp_path / "tables", **also).warnings()
    assert "behind a link that leads nowhere" in warning


def test_23_a_file_of_a_log_that_is_gone_once_it_was_listed_hides_no_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = source(tmp_path / "tables" / "t")
    clone = clone_of(tmp_path / "clones" / "c", table, 1)
    scandir = os.scandir

    def late(path: str) -> Any:
        (clone.log / "0.tmp").touch()
        listed = [*scandir(path)]
        (clone.log / "0.tmp").unlink()
        return nullcontext(listed)

    monkeypatch.setattr("os.scandir", late)
    assert keep(table.folder, 3, also_read=[str(tmp_path / "clones" / "*")]).outcomes()[1] is Outcome.SPARED


@pytest.mark.parametrize("glob", ["*", "c"])
def test_what_names_no_clone_and_no_stream_is_said(glob: str, tmp_path: Path) -> None:
    source(tmp_path / "tables" / "t")
    (tmp_path / "mnt").mkdir()
    place = f"{tmp_path}/mnt/{glob}"
    settings: dict[str, Any] = {"also_read": [place], "streams": [f"{tmp_path}/mnt/*"]}
    assert open_tables(tmp_path / "tables", **settings).warnings() == [
        f"{tmp_path}/mnt/* matches no folder: no stream is known there.",
        f"{place} matches no table: no clone is known there.",
    ]


def test_23_a_clone_of_the_same_store_is_known_without_being_named(tmp_path: Path) -> None:
    table = source(tmp_path / "t")
    clone_of(tmp_path / "c", table, 1)
    assert keep(table.folder, 3).outcomes()[1] is Outcome.SPARED


def test_23_a_clone_that_was_made_since_the_plan_is_known(tmp_path: Path) -> None:
    table = source(tmp_path / "tables" / "t")
    clones = tmp_path / "clones"
    clone_of(clones / "another", table, 3)
    swept = keep(table.folder, 3, meanwhile=lambda: clone_of(clones / "c", table, 1), also_read=[str(clones / "*")])
    assert swept.outcomes() == {0: Outcome.DELETED, 1: Outcome.SPARED, 2: Outcome.DELETED}


def test_23_nothing_is_swept_while_a_clone_can_not_be_read(tmp_path: Path) -> None:
    table = source(tmp_path / "tables" / "t")
    clone = clone_of(tmp_path / "clones" / "c", table, 1)
    (clone.log / f"{1:020}.json").unlink()
    for place in (clone.folder, tmp_path / "clones" / "*"):
        with pytest.raises(Exception, match="commit 1 is missing"):
            keep(table.folder, 3, also_read=[str(place)])
    shutil.rmtree(tmp_path / "clones")
    with pytest.raises(Exception, match="does not exist"):
        keep(table.folder, 3, also_read=[str(tmp_path / "clones" / "*")])


def test_a_clone_in_the_store_that_can_not_be_read_stops_the_sweep_of_its_source_alone(tmp_path: Path) -> None:
    table, other = source(tmp_path / "t"), source(tmp_path / "u")
    clone = clone_of(tmp_path / "c", table, 1)
    (clone.log / f"{1:020}.json").unlink()
    with pytest.raises(Exception, match="names this table and can't be read"):
        keep(table.folder, 3)
    assert len(keep(other.folder, 3).gone) == 3


def test_an_unreadable_clone_that_is_cut_short_in_a_path_may_name_any_table(tmp_path: Path) -> None:
    table = source(tmp_path / "t")
    [file, *others] = sorted(clone_of(tmp_path / "c", table, 1).log.glob("*.json"))
    for other in others:
        other.unlink()
    content = file.read_bytes()
    file.write_bytes(content[: content.index(b'"path"') + 20])
    with pytest.raises(Exception, match="may name this table"):
        keep(table.folder, 3)


@pytest.mark.parametrize("form", ["", "classic", "parts", "json", "parquet", "broken"])
@pytest.mark.parametrize("place", ["a b", "sälës", "link", ".."])
def test_whatever_an_unreadable_clone_names_stays(place: str, form: str, tmp_path: Path) -> None:
    table = source(tmp_path / ("t" if place in ("link", "..") else place))
    clone = clone_of(tmp_path / "c", table, 1)
    written = {"link": f"{tmp_path}/link", "..": ".."}.get(place, "")
    os.symlink(tmp_path, tmp_path / "link")
    for states in clone.states.values():
        for path in [*states] if written else ():
            states[path]["add"]["path"] = path.replace(f"file://{tmp_path}", "file://" * (written != "..") + written)
    if form:
        clone.checkpoint("classic" if form == "broken" else form)
        for number in range(clone.version):
            (clone.log / f"{number:020}.json").unlink()
    elif written:
        for file in clone.log.glob("*.json"):
            file.write_text(file.read_text().replace(f"file://{tmp_path}", "file://" * (written != "..") + written))
    for file in clone.log.glob("*.parquet") if form == "broken" else ():
        file.write_bytes(b"PAR1")
    (clone.log / f"{clone.version + 1:020}.json").write_text('{"unheard": {}}')
    with pytest.raises(Exception, match="may name this table" if form == "broken" else "names this table and can't be read"):
        keep(table.folder, 3)


def test_a_sweep_of_a_clone_deletes_its_own_files_alone(tmp_path: Path) -> None:
    table = source(tmp_path / "t")
    clone = clone_of(tmp_path / "c", table, 1)
    clone.replace(clone.add_file(200))
    clone.replace(clone.add_file(300))
    swept = keep(clone.folder, clone.version)
    assert len(swept.gone) == 2
    assert all(file.exists() for file in table.files(1))


def test_a_clone_that_the_settings_do_not_name_is_named(tmp_path: Path) -> None:
    table = source(tmp_path / "other" / "t")
    clone = clone_of(tmp_path / "tables" / "c", table, 1)
    info = clone.log / f"{0:020}.json"
    lines = [json.loads(line) for line in info.read_text("utf-8").splitlines()]
    lines[0]["commitInfo"]["operationParameters"] = {"source": f"delta.`{table.folder}`", "sourceVersion": "1"}
    info.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    [warning] = open_tables(tmp_path / "tables").warnings()
    assert f"Version 0 of lh/c is a clone of delta.`{table.folder}`" in warning
    assert open_globs(str(tmp_path / "tables" / "*"), str(table.folder)).warnings() == []


def stream(folder: Path, table: str, *versions: int) -> None:
    (folder / "offsets").mkdir(parents=True)
    for number, version in enumerate(versions):
        offset = {
            "sourceVersion": 1,
            "reservoirId": table,
            "reservoirVersion": version,
            "index": -1,
            "isStartingVersion": False,
        }
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(offset), json.dumps({"logOffset": 7}), "-"]
        (folder / "offsets" / str(number)).write_text("\n".join(lines), "utf-8")


def overwritten(folder: Path) -> tuple[Table, str]:
    table = Table(folder, 0)
    for number in range(1, 5):
        table.overwrite(number)
    return table, str(table.opened.metadata().id)


def sweep(table: Table, **settings: Any) -> Swept:
    return keep(table.folder, 4, **settings)


def test_versions_that_a_stream_still_reads_are_pinned(tmp_path: Path) -> None:
    table, own = overwritten(tmp_path / "tables" / "t")
    stream(tmp_path / "checkpoints" / "late", own, 2, 3)
    stream(tmp_path / "checkpoints" / "of another table", "another", 0)
    swept = sweep(table, streams=[str(tmp_path / "checkpoints" / "*")])
    expected = {0: Outcome.DELETED, 1: Outcome.DELETED, 2: Outcome.SPARED, 3: Outcome.SPARED}
    assert swept.outcomes() == expected
    store = open_tables(tmp_path / "tables", streams=[str(tmp_path / "checkpoints" / "*")])
    tags = [row["tags"] for row in sound_log(store.read(["lh/t"])).transactions.to_pylist()][2:5]
    assert tags == [["stream late: 2"], ["stream late: 3"], ["stream late: 4"]]


def test_a_stream_is_found_whatever_its_name_and_behind_a_link(tmp_path: Path) -> None:
    table, own = overwritten(tmp_path / "tables" / "t")
    stream(tmp_path / "checkpoints" / "_hidden", own, 3)
    stream(tmp_path / "disk" / "far", own, 2)
    os.symlink(tmp_path / "disk" / "far", tmp_path / "checkpoints" / "linked")
    # not a stream
    (tmp_path / "checkpoints" / ".snapshot").mkdir()
    assert sweep(table, streams=[str(tmp_path / "checkpoints" / "_*")]).outcomes()[3] is Outcome.SPARED
    outcomes = keep(table.folder, 3, 4, streams=[str(tmp_path / "checkpoints" / "*")]).outcomes()
    assert [outcomes[number] for number in (0, 1, 2)] == [Outcome.ALREADY_GONE, Outcome.ALREADY_GONE, Outcome.SPARED]


@pytest.mark.parametrize("content", ["v1\n{}\n{not json", "v1\n{}\n {not json", "", "garbage", None])
def test_a_stream_that_can_not_be_read_pins_every_version(content: str | None, tmp_path: Path) -> None:
    table, own = overwritten(tmp_path / "tables" / "t")
    stream(tmp_path / "checkpoints" / "late", own, 4)
    offsets = tmp_path / "checkpoints" / "late" / "offsets"
    if content is None:
        shutil.rmtree(offsets)
    else:
        (offsets / "1").write_text(content, "utf-8")
    settings: dict[str, Any] = {"streams": [str(tmp_path / "checkpoints" / "late")]}
    assert set(sweep(table, **settings).outcomes().values()) == {Outcome.SPARED}
    assert "every version of every table stays" in open_tables(tmp_path / "tables", **settings).warnings()[0]


def test_pins_of_the_table_hold_until_somebody_sets_them_anew(tmp_path: Path) -> None:
    table, _ = overwritten(tmp_path / "t")
    table.set_properties({"retention.keep_versions": "1, 3"})
    # brings the properties of version 2 back
    restored = table.restore(2)
    assert keep(table.folder, restored).outcomes() == {
        0: Outcome.DELETED, 1: Outcome.SPARED, 2: Outcome.SPARED, 3: Outcome.SPARED, 4: Outcome.DELETED
    }  # fmt: skip
    table = Table.open(table.folder)
    table.set_properties({"retention.keep_versions": "3"})
    assert keep(table.folder, restored, 3).outcomes()[1] is Outcome.DELETED
    assert file_uris(table.folder, 3)
