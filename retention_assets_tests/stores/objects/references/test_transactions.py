"""A `files` store as a source: the folders of every transaction that its logs know, and its own files."""

import json
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import InvalidValue, Refused
from retention_assets.stores.aspects import AspectsSettings
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.objects.references import RowSource, SourceNotWhole, open_edges, open_references
from retention_assets.stores.places import IDENTITY, TRASH
from retention_assets.stores.records import RecordsSettings
from retention_assets_tests.stores.objects.references.sources import ends_of, objects_of, rows_of, settings, travelled


def log_of(folder: Path, name: str, *transactions: tuple[str, str]) -> Path:
    file = folder / "log" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"dataset": dataset, "transaction": one, "type": "APPEND", "status": "COMMITTED"} for dataset, one in transactions]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def of_lake(folder: Path, root: str = "data", data: str = "data/{dataset}/{transaction}", log: str = "log") -> RowSource:
    lake = FilesSettings(name="lake", log=str(folder / log), data=str(folder / data))
    [found] = open_references(settings(folder, {"store": "lake"}, path=str(folder / root)).with_others({"lake": lake}))
    return travelled(found)


def test_the_folder_of_every_known_transaction_is_reached(tmp_path: Path) -> None:
    log_of(tmp_path, "1.jsonl", ("lake/a", "T1"), ("lake/a", "T2"))
    log_of(tmp_path, "2.jsonl", ("lake/a", "T2"), ("lake/é/b c", "T%1"))
    given = of_lake(tmp_path)
    assert given.names_folders
    assert objects_of(given) == sorted(["a/T1/", "a/T2/", "é/b c/T%1/", IDENTITY, f"{TRASH}/"])
    assert {row["from"] for row in rows_of(given)} == {
        "store lake: a transaction of lake/a", "store lake: a transaction of lake/é/b c", "store lake: the store's own files",
    }  # fmt: skip


# template, root, what is reached of a's T1, beside its own files
TEMPLATES = [
    ("data/{dataset}/{transaction}", "data", {"a/T1/", IDENTITY, f"{TRASH}/"}),
    ("data/{dataset}/{transaction}", ".", {"data/a/T1/", f"data/{IDENTITY}", f"data/{TRASH}/", "log", "log/"}),
    ("data/x/{dataset}/run={transaction}/files", "data", {"x/a/run=T1/files/", f"x/{IDENTITY}", f"x/{TRASH}/"}),
    ("data/{dataset}/{transaction}", "data/a", {"T1/"}),
    ("data/{dataset}/{transaction}", "data/a/T1/inner", {"/"}),
    ("data/{dataset}/{transaction}", "elsewhere", set()),
]


@pytest.mark.parametrize(("data", "root", "reached"), TEMPLATES)
def test_folders_are_keys_below_the_root_of_the_listing(tmp_path: Path, data: str, root: str, reached: set[str]) -> None:
    log_of(tmp_path, "1.jsonl", ("lake/a", "T1"))
    assert set(objects_of(of_lake(tmp_path, root, data))) == reached


def test_a_log_that_is_one_file_in_the_data_is_reached(tmp_path: Path) -> None:
    log_of(tmp_path, "1.jsonl", ("lake/a", "T1"))
    assert "log/1.jsonl" in objects_of(of_lake(tmp_path, ".", log="log/1.jsonl"))


def test_what_is_written_to_the_log_meanwhile_is_read_again(tmp_path: Path) -> None:
    log_of(tmp_path, "1.jsonl", ("lake/a", "T1"))
    log_of(tmp_path, "2.jsonl", ("lake/b", "T1"))
    given = of_lake(tmp_path)
    ends = ends_of(given, given.shares(1))
    assert given.finish(ends) == []
    log_of(tmp_path, "2.jsonl", ("lake/b", "T1"), ("lake/b", "T2"))
    log_of(tmp_path, "3.jsonl", ("lake/c", "T1"))
    again = given.finish(ends)
    assert sorted(name for share in again for name in share) == ["lake/b", "lake/c"]
    assert given.finish([*ends, *ends_of(given, again)]) == []
    assert () in given.finish([])


def test_a_log_that_cannot_be_read_is_not_whole(tmp_path: Path) -> None:
    file = log_of(tmp_path, "1.jsonl", ("lake/a", "T1"))
    given = of_lake(tmp_path)
    file.write_text("{")
    with pytest.raises(SourceNotWhole, match=r"store lake is not whole: .*1\.jsonl"):
        rows_of(given)
    file.rename(tmp_path / "gone")
    with pytest.raises(SourceNotWhole, match="holds no log"):
        rows_of(given)


def other(kind: str) -> Any:
    made: Any = AspectsSettings if kind == "aspects" else RecordsSettings
    return made.model_construct(name="x", kind=kind)


@pytest.mark.parametrize("kind", ["aspects", "records", "objects"])
def test_a_store_that_names_no_files_is_refused(tmp_path: Path, kind: str) -> None:
    known = settings(tmp_path, {"store": "x"})
    named = settings(tmp_path).model_copy(update={"name": "x"}) if kind == "objects" else other(kind)
    with pytest.raises(Refused, match=f"store x is of kind {kind}.*needs a store of kind iceberg or files"):
        open_references(known.with_others({"x": named}))


@pytest.mark.parametrize("name", ["x", ""])
def test_a_store_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValue, match=f"does not exist: {name}"):
        settings(tmp_path, {"store": name}).with_others({})


def test_files_as_references_need_to_know_where_keys_begin(tmp_path: Path) -> None:
    lake = FilesSettings(name="lake", log=str(tmp_path / "log"), data=str(tmp_path / "data/{dataset}/{transaction}"))
    listing = {"parquet": {"files": "x.parquet", "as_of": "2026-11-20T00:00:00Z"}}
    known = type(settings(tmp_path)).model_validate(
        {"name": "blobs", "listing": listing, "references": [{"store": "lake"}]}, context={"folder": tmp_path}
    )
    with pytest.raises(Refused, match="Add `path` to `listing`"):
        open_references(known.with_others({"lake": lake}))


def test_sources_are_opened_in_the_order_of_the_settings(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    known = settings(
        tmp_path,
        {"lines": "a"},
        {"parquet": "b"},
        {"sql": url, "table": "t", "key": "k"},
        edges=[{"sql": url, "table": "e"}, {"lines": "d"}, {"parquet": "p"}],
    )
    assert [one.label.split()[0] for one in open_references(known)] == ["lines", "parquet", "sql"]
    assert [one.label.split()[0] for one in open_edges(known)] == ["sql", "lines", "parquet"]
    assert not any(one.names_folders for one in (*open_references(known), *open_edges(known)))
