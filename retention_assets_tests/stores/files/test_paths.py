"""Which names may become a folder, and which are refused."""

import re

import pytest

from retention_assets.frames.soundness import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import SweptTarget
from retention_assets_tests.stores.files.environments import Files
from retention_assets_tests.stores.files.sweeps import line, refusal, swept


@pytest.mark.parametrize(
    ("dataset", "transaction", "why"),
    [
        ("lake/a", "", "empty name"),
        ("lake/a", ".", r"holds \. or"),
        ("lake/a", "..", r"holds \. or"),
        ("lake/a", "/etc", "holds a /"),
        ("lake/a", "../b", "holds a /"),
        ("lake/a", "T1/deep er", "holds a /"),
        ("lake/a", "T1/", "holds a /"),
        ("lake/a", "..\\b", "backslash"),
        ("lake/a", "T1\0", "control"),
        ("lake/a", "T\n1", "control"),
        ("lake/a", "T\x7f", "control"),
        ("lake/a", "\ud800", "control"),
        ("lake/a", "*", "pattern"),
        ("lake/a", "T?", "pattern"),
        ("lake/a", "T[12]", "pattern"),
        ("lake/a", "T]", "pattern"),
        ("lake/", "a", "empty name"),
        ("lake", "T1", "empty name"),
        ("lake//a", "T1", "empty segment"),
        ("lake/a/", "T1", "empty segment"),
        ("lake/..", "data", r"holds \. or"),
        ("lake/.", "a", r"holds \. or"),
        ("lake/b/../a", "T1", r"holds \. or"),
        ("lake/*", "T1", "pattern"),
        ("lake/a\\b", "T1", "backslash"),
        ("lake/a\0", "T1", "control"),
        ("other/a", "T1", "not of the store lake"),
        ("lakes/a", "T1", "not of the store lake"),
        ("", "T1", "not of the store lake"),
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


def test_a_neighbour_with_a_longer_name_stays(environment: Files) -> None:
    before = environment.owned("lake/a", "T10")
    assert [one.outcome for one in swept(environment.store(), "lake/a", "T1")] == [Outcome.DELETED]
    assert environment.owned("lake/a", "T10") == before != set()


@pytest.mark.parametrize("name", ["d [v]", "d*", "..", "a//b", "a\\b"])
def test_a_dataset_that_can_have_no_folder_is_refused_when_it_is_read(environment: Files, name: str) -> None:
    """What can never be deleted would be marked and fail for ever. The others go on."""
    environment.put_log("b.jsonl", line(dataset=f"lake/{name}") + line(dataset="lake/b"))
    about = sound_log(environment.store().read([f"lake/{name}", "lake/b", "lake/not there"])).datasets.to_pylist()
    assert {row["dataset"]: row["fault"] is None for row in about} == {f"lake/{name}": False, "lake/b": True}
    assert all("Mend the log" in row["fault"] for row in about if row["fault"])
