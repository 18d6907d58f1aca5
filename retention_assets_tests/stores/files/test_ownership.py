"""A folder that is not plainly that of one transaction alone is refused."""

from pathlib import Path

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import SweptTarget
from retention_assets_tests.stores.files.environments import Files, LocalFiles
from retention_assets_tests.stores.files.sweeps import line, refusal, swept


def test_a_folder_that_the_log_does_not_know_stays(environment: Files) -> None:
    environment.put("lake/a", "stranger", "x", b"x")
    assert "does not know 'stranger'" in refusal(environment.store(), "lake/a", "stranger")
    assert environment.everything()["data/a/stranger/x"] == b"x"


@pytest.mark.parametrize(
    ("data", "one", "other", "why"),
    [
        ("data/{dataset}/{transaction}", ("a", "b"), ("a/b", "T"), "the dataset lake/a/b"),
        ("data/{dataset}/{transaction}", ("a", "b"), ("a/b/c", "T"), "the dataset lake/a/b/c"),
        ("data/{dataset}/{transaction}", ("a/b", "T"), ("a", "b"), "the transaction 'b' of lake/a"),
        ("data/{dataset}/{transaction}", ("a/b", "T"), ("a", "c"), None),
        ("data/{dataset}/{transaction}", ("a", "c"), ("a/b", "T"), None),
        ("data/{transaction}/{dataset}", ("a", "T"), ("a/b", "T"), "the transaction 'T' of lake/a/b"),
        ("data/{transaction}/{dataset}", ("a/b", "T"), ("a", "T"), "the transaction 'T' of lake/a"),
        ("data/{transaction}/{dataset}", ("a", "T"), ("a/b", "U"), None),
        ("data/{dataset}/x/t-{transaction}", ("a", "1"), ("a/x/t-1", "2"), "the dataset lake/a/x/t-1"),
        ("data/{dataset}/x/t-{transaction}", ("a", "1"), ("a/x", "2"), None),
        ("data/{dataset}/{transaction}/x", ("a", "b"), ("a/b/x", "T"), "the dataset lake/a/b/x"),
        ("data/{dataset}/{transaction}/x", ("a", "b"), ("a/b", "T"), None),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a/B", "T"), "the dataset lake/a/B"),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a", "B"), "the transaction 'B' of lake/a"),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a", "c"), None),
        ("data/{dataset}/{transaction}", ("a", "STRASSE"), ("a", "straße"), "the transaction 'straße' of lake/a"),
        ("data/{dataset}/{transaction}", ("a", "caf\u00e9"), ("a", "cafe\u0301"), "the transaction 'cafe\u0301' of lake/a"),
        ("data/{transaction}/{dataset}", ("é", "t"), ("E\u0301", "T"), "the transaction 'T' of lake/E\u0301"),
        ("data/{transaction}/{dataset}", ("a", "t"), ("b", "T"), None),
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
