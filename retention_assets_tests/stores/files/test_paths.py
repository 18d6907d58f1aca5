"""Which names may become a folder, and which are refused."""

import re
from pathlib import Path

import pytest

from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import SweptTarget
from retention_assets_tests.stores.files.environments import Files, LocalFiles
from retention_assets_tests.stores.files.sweeps import line, refusal, swept


@pytest.mark.parametrize(
    ("dataset", "transaction", "why"),
    [
        ("lake/a", "", "empty name"),
        ("lake/a", "..", r"holds \. or"),
        ("lake/a", "/etc", "holds a /"),
        ("lake/a", "../b", "holds a /"),
        ("lake/a", "..\\b", "backslash"),
        ("lake/a", "T1\0", "control"),
        ("lake/a", "T\x7f", "control"),
        ("lake/a", "\ud800", "control"),
        ("lake/a", "*", "pattern"),
        ("lake/a", "T[12]", "pattern"),
        ("lake/", "a", "empty name"),
        ("lake", "T1", "empty name"),
        ("lake//a", "T1", "empty segment"),
        ("lake/a/", "T1", "empty segment"),
        ("lake/..", "data", r"holds \. or"),
        ("lake/b/../a", "T1", r"holds \. or"),
        ("lake/*", "T1", "pattern"),
        ("lake/.retention-trash", "T1", "keeps for its own files"),
        ("lake/.Retention-Trash/1", "2", "keeps for its own files"),
        ("lake/.retention-store", "T1", "keeps for its own files"),
        ("other/a", "T1", "not of the store lake"),
        ("lakes/a", "T1", "not of the store lake"),
    ],
)
def test_a_name_that_is_not_plainly_one_folder_is_refused(environment: Files, dataset: str, transaction: str, why: str) -> None:
    before = environment.everything()
    assert re.search(why, refusal(environment.store(), dataset, transaction))
    assert environment.everything() == before


@pytest.mark.parametrize(
    "name", ["T{1}", "{dataset}", "~", "T1 ", " ", "-rf", "é'\"$(x)", "日本", "...", "T:1", "%2e%2e", "a#b", "T\u00a01"]
)
def test_any_other_name_is_a_folder_like_all(environment: Files, name: str) -> None:
    environment.put_log("b.jsonl", line(dataset="lake/b", transaction=name) + line(dataset="lake/b", transaction="T1"))
    environment.put("lake/b", "T1", "stays", b"1")
    before = environment.everything()
    environment.put("lake/b", name, "goes", b"12345")
    assert swept(environment.store(), "lake/b", name) == [SweptTarget(name, Outcome.DELETED, 5)]
    assert environment.everything() == before


@pytest.mark.parametrize("name", ["d [v]", "d*", "..", "a//b", "a\\b"])
def test_a_dataset_that_can_have_no_folder_is_refused_when_it_is_read(environment: Files, name: str) -> None:
    """What can never be deleted would be marked and fail for ever. The others go on."""
    environment.put_log("b.jsonl", line(dataset=f"lake/{name}") + line(dataset="lake/b"))
    about = sound_log(environment.store().read([f"lake/{name}", "lake/b", "lake/not there"])).datasets.to_pylist()
    assert {row["dataset"]: row["fault"] is None for row in about} == {f"lake/{name}": False, "lake/b": True}
    assert all("Mend the log" in row["fault"] for row in about if row["fault"])


def test_a_folder_that_the_log_does_not_know_stays(environment: Files) -> None:
    environment.put("lake/a", "stranger", "x", b"x")
    assert "does not know 'stranger'" in refusal(environment.store(), "lake/a", "stranger")
    assert environment.everything()["data/a/stranger/x"] == b"x"


@pytest.mark.parametrize(
    ("data", "one", "other", "why"),
    [
        ("data/{dataset}/{transaction}", ("a", "b"), ("a/b", "T"), "the dataset lake/a/b"),
        ("data/{dataset}/{transaction}", ("a/b", "T"), ("a", "b"), "the transaction 'b' of lake/a"),
        ("data/{dataset}/{transaction}", ("a/b", "T"), ("a", "c"), None),
        ("data/{transaction}/{dataset}", ("a", "T"), ("a/b", "T"), "the transaction 'T' of lake/a/b"),
        ("data/{transaction}/{dataset}", ("a/b", "T"), ("a", "T"), "the transaction 'T' of lake/a"),
        ("data/{transaction}/{dataset}", ("a", "T"), ("a/b", "U"), None),
        ("data/{dataset}/x/t-{transaction}", ("a", "1"), ("a/x/t-1", "2"), "the dataset lake/a/x/t-1"),
        ("data/{dataset}/{transaction}/x", ("a", "b"), ("a/b/x", "T"), "the dataset lake/a/b/x"),
        ("data/{dataset}/{transaction}/x", ("a", "b"), ("a/b", "T"), None),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a/B", "T"), "the dataset lake/a/B"),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a", "B"), "the transaction 'B' of lake/a"),
        ("data/{dataset}/{transaction}", ("a", "STRASSE"), ("a", "straße"), "the transaction 'straße' of lake/a"),
        ("data/{dataset}/{transaction}", ("a", "caf\u00e9"), ("a", "cafe\u0301"), "the transaction 'cafe\u0301' of lake/a"),
        ("data/{transaction}/{dataset}", ("é", "t"), ("E\u0301", "T"), "the transaction 'T' of lake/E\u0301"),
    ],
)  # fmt: skip
def test_a_folder_around_or_in_that_of_another_is_refused(
    tmp_path: Path, data: str, one: tuple[str, str], other: tuple[str, str], why: str | None
) -> None:
    lake = LocalFiles(tmp_path, data=data)
    for dataset, transaction in (one, other):
        lake.put_log(f"{dataset.replace('/', '-')}.jsonl", line(dataset=f"lake/{dataset}", transaction=transaction))
        lake.put_place(data.format(dataset=dataset, transaction=transaction) + "/part", b"x")
    before = lake.data()
    [found] = swept(lake.store(), f"lake/{one[0]}", one[1])
    if why:
        assert found.outcome is Outcome.FAILED
        assert f"that of {why}." in str(found.error)
        assert lake.data() == before
    else:
        assert found == SweptTarget(one[1], Outcome.DELETED, 1)
        assert len(lake.data()) == 1


@pytest.mark.parametrize(
    ("log", "link", "to"),
    [
        pytest.param("data/a/T1/log", None, None, id="below it"),
        pytest.param("data/a/T1", None, None, id="the folder itself"),
        pytest.param("data/a/T1/deep/log.jsonl", None, None, id="a single file"),
        pytest.param("disk/a/T1/log", "data", "disk", id="below the root by its other name"),
        pytest.param("data/a/T1/log", "data", "disk", id="both by a symlink"),
        pytest.param("journal", "journal", "data/a/T1/log", id="a symlink into it"),
    ],
)
def test_a_folder_that_holds_the_log_is_refused(tmp_path: Path, log: str, link: str | None, to: str | None) -> None:
    lake = LocalFiles(tmp_path, log=log)
    if link and to:
        (tmp_path / to).mkdir(parents=True)
        if link == "data":
            (tmp_path / link).rmdir()
        (tmp_path / link).symlink_to(tmp_path / to)
    lake.put_place(log if log.endswith(".jsonl") else f"{log}/a.jsonl", line().encode())
    # Something beside the folder, or nothing would be taken for gone.
    lake.put_place("data/a/T0/part", b"x")
    lake.put_place("data/a/T1/part", b"x")
    before = lake.everything()
    assert "holds the log" in refusal(lake.store(), "lake/a", "T1")
    assert lake.everything() == before


@pytest.mark.parametrize("log", ["data/a/T10", "data/a/T1.log", "data/a/log", "data/T1"])
def test_a_log_beside_a_folder_is_none_in_it(tmp_path: Path, log: str) -> None:
    lake = LocalFiles(tmp_path, log=log)
    lake.put_place(f"{log}/a.jsonl", line().encode())
    lake.put_place("data/a/T1/part", b"x")
    assert swept(lake.store(), "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, 1)]
    assert list(lake.everything()) == [f"{log}/a.jsonl"]
