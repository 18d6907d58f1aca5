"""Entries under `visibility` of policy files: how they are read, and how their mistakes are named."""

from pathlib import Path

import pytest

from retention_assets.errors import BadInput
from retention_assets.policy.book import as_loaded, item_of, scope_of, sentence_of
from retention_assets.policy.durations import Duration
from retention_assets.policy.language import Policies, load_policies

LAKE = "{datasets: {include: ['lake/*']}, retention: 30d}"


def read(folder: Path, *entries: str) -> Policies:
    (folder / "v.yaml").write_text(f"visibility: [{', '.join(entries)}]\n")
    return load_policies([folder], {"lake"})


def test_an_entry_says_for_how_long_datasets_stay_readable(tmp_path: Path) -> None:
    [rule] = read(tmp_path, LAKE).visibility
    assert (rule.datasets.include, rule.retention) == (("lake/*",), Duration(days=30))


def test_an_entry_is_the_same_after_the_book(tmp_path: Path) -> None:
    [rule] = read(tmp_path, "{datasets: {include: [lake/d], exclude: [lake/x], with: {tier: b}}, retention: P1M}").visibility
    loaded = as_loaded(rule)
    assert item_of(loaded.name, loaded.content) == rule
    assert scope_of(loaded.name, loaded.content) == rule.datasets
    assert rule.name == "visibility:lake/d without lake/x with tier=b"
    assert sentence_of(rule) == (
        "Keeps the last 1 month of the history of lake/d without lake/x with tier=b readable: each evaluation raises the"
        " visibility mark of these datasets to that age, and never past what is current."
    )


MISTAKES = {
    "no retention": ("{datasets: {include: ['lake/*']}}", "retention: is missing"),
    "a retention of zero": ("{datasets: {include: ['lake/*']}, retention: 0d}", "retention: an age of zero does not narrow"),
    "an unknown key": ("{datasets: {include: ['lake/*']}, retentoin: 30d}", "Did you mean retention?"),
    "an unknown store": ("{datasets: {include: ['laek/*']}, retention: 30d}", "store 'laek' is not in the settings"),
    "the same datasets twice": (
        f"{LAKE}, {LAKE.replace('30d', '60d')}", "datasets: is about the same datasets as another entry of visibility",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_file_line_and_key(entry: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, entry)
    assert words in str(caught.value)
    assert all(problem.line == 1 and str(problem.file).endswith("v.yaml") for problem in caught.value.problems)


def test_entries_of_two_files_about_the_same_datasets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"visibility: [{LAKE}]\n")
    with pytest.raises(BadInput, match=r"The other one is at .*a\.yaml:1"):
        read(tmp_path, LAKE.replace("30d", "60d"))


def test_no_policy_has_a_name_of_theirs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("policies: [{name: 'visibility:lake/*', datasets: {include: ['lake/*']}, select: all}]\n")
    with pytest.raises(BadInput, match="begins with visibility:, which names entries of visibility"):
        load_policies([tmp_path])
