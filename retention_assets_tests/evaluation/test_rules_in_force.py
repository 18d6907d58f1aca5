"""The rules of a run: which realms are purged, whose word counts in the book, and what of files is noticed when it changes.

Belongs here: the join of files, book, holds and realms, asked for its values. What judging makes of them is tested with the
frames, the decisions of the book in policy/test_book.py.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import BadInput, Refused
from retention_assets.evaluation.rules_in_force import Rulebook, foreseen_rulebook, load_rulebook, rules_for
from retention_assets.ledger import Ledger
from retention_assets.policy import AspectEntry, Duration, Policies, Policy, purge_named
from retention_assets.settings import Settings
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import OLD, Lake

Load = Callable[[Ledger, Settings], Rulebook]
LOADED: Load = lambda ledger, settings: load_rulebook(ledger, settings, "test")  # noqa: E731
FORESEEN: Load = lambda ledger, settings: foreseen_rulebook(ledger, settings, AS_OF)  # noqa: E731
both = pytest.mark.parametrize("load", [LOADED, FORESEEN], ids=["loaded", "foreseen"])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


# --- realms ---


@both
@pytest.mark.parametrize("statuses", [[], ["INACTIVE"], ["INACTIVE", "ACTIVE"], ["PURGING"], ["PURGING", "PURGED"]])
def test_only_a_realm_that_is_being_purged_goes_whole_and_with_its_own_grace(
    lake: Lake, load: Load, statuses: list[str]
) -> None:
    """A realm beside it is being purged all the while, with another grace."""
    with lake.opened() as ledger:
        ledger.realms.change("beside", "PURGING", "ann", "a test", Duration(days=5))
        for status in statuses:
            if status == "PURGED":
                ledger.realms.purged("acme", "ann")
            else:
                ledger.realms.change("acme", status, "ann", "a test", Duration(days=3))
        rules = load(ledger, lake.settings).rules(["lake/d"], AS_OF)
    expected = {purge_named("beside"): Duration(days=5), "old": Duration(days=7)}
    if statuses[-1:] == ["PURGING"]:
        expected[purge_named("acme")] = Duration(days=3)
    assert {policy.name: policy.grace for policy in rules.policies} == expected
    assert rules.versions == dict.fromkeys(expected, 1)


@both
@pytest.mark.parametrize(("undo", "expected"), [("0d", None), ("14d", Duration(days=14))])
def test_a_purge_can_be_undone_for_as_long_as_the_settings_say(
    lake: Lake, load: Load, undo: str, expected: Duration | None
) -> None:
    file = lake.folder / "retention.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "realms": {"undo": undo}}))
    with lake.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "a test")
        rules = load(ledger, lake.settings).rules(["lake/d"], AS_OF)
    assert {policy.name: policy.undo for policy in rules.policies} == {purge_named("acme"): expected, "old": None}


# --- whose word counts ---


@both
@pytest.mark.parametrize(("overwrites", "age"), [(False, "90d"), (True, "30d")])
def test_what_a_person_wrote_counts_unless_the_settings_say_otherwise(
    lake: Lake, load: Load, overwrites: bool, age: str
) -> None:
    file = lake.folder / "retention.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "overwrite_user_policies": overwrites}))
    written = {"name": "old", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "90d"}}
    with lake.opened() as ledger:
        ledger.policy_book.write(Policy.model_validate(written), "ann", "a test")
        book = load(ledger, lake.settings)
        (policy,) = book.rules(["lake/d"], AS_OF).policies
    assert f'"{age}"' in policy.model_dump_json()
    assert bool(book.drifted) != overwrites


@both
def test_what_only_a_person_wrote_has_the_credit_after_all_that_files_say(lake: Lake, load: Load) -> None:
    written = {"name": "by hand", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "90d"}}
    lake.says(f"{OLD.replace('old,', 'z,')}, {OLD.replace('old,', 'a,')}")
    with lake.opened() as ledger:
        ledger.policy_book.write(Policy.model_validate(written), "ann", "a test")
        rules = load(ledger, lake.settings).rules(["lake/d"], AS_OF)
    assert [policy.name for policy in rules.policies] == ["z", "a", "by hand"]


def test_a_version_that_this_release_does_not_understand_stops_the_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out, it could have been the one that keeps."""
    monkeypatch.setattr("retention_assets.evaluation.rules_in_force.item_of", lambda *_: None)
    with lake.opened() as ledger, pytest.raises(Refused, match=r"Version 1 of policy old .* by another release"):
        LOADED(ledger, lake.settings).rules(["lake/d"], AS_OF)


# --- DataHub entries ---

ENTRY = {"entity": "*", "aspect": "*", "config": {"retention": {"version": {"maxVersions": 2}}}}


@pytest.mark.parametrize("current_counts", [False, True])
def test_entries_apply_where_aspects_are_and_each_store_counts_in_its_own_way(lake: Lake, current_counts: bool) -> None:
    file = lake.folder / "retention.yaml"
    data = json.loads(file.read_text())
    meta = {"name": "meta", "kind": "aspects", "url": "sqlite:///meta.db", "current_counts": current_counts}
    file.write_text(json.dumps({**data, "stores": [meta, *data["stores"]]}))
    names = ["meta/dataset.status", "lake/dataset.status", "other/dataset.status"]
    rules = rules_for(Policies((), (), (AspectEntry.model_validate(ENTRY),)), names, lake.settings)
    assert [policy.datasets.include for policy in rules.policies] == [("meta/dataset.status",), ("other/dataset.status",)]
    assert rules.guessed == ("other/dataset.status",)
    mine, guessed = (policy.select.model_dump_json() for policy in rules.policies)
    assert (mine == guessed) != current_counts


# --- holds of files ---


def rewritten(file: Path, text: str, at: int) -> None:
    """What is in a file now, and since when."""
    file.write_text(text)
    os.utime(file, ns=(at, at))


HELD = "policies: []\nholds: [{name: %s, datasets: ['lake/d'], reason: case 7}]\n"


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        pytest.param(lambda _: None, {"one"}, id="nothing"),
        pytest.param(lambda folder: rewritten(folder / "h.yaml", HELD % "two", 2_000), {"two"}, id="of the same length"),
        pytest.param(lambda folder: rewritten(folder / "h.yaml", HELD % "three", 1_000), {"three"}, id="at the same time"),
        pytest.param(lambda folder: (folder / "more.yaml").write_text(HELD % "more"), {"one", "more"}, id="in another file"),
        pytest.param(lambda folder: (folder / "h.yaml").unlink(), set(), id="taken away"),
    ],
)
def test_holds_of_files_are_those_of_the_files_as_they_are_now(
    lake: Lake, change: Callable[[Path], Any], holds: set[str]
) -> None:
    folder = lake.folder / "policies"
    rewritten(folder / "h.yaml", HELD % "one", 1_000)
    with lake.opened() as ledger:
        present = LOADED(ledger, lake.settings).keepers.in_files
        assert {hold.name for hold in present()} == {"one"}
        change(folder)
        assert {hold.name for hold in present()} == holds
        assert {hold.name for hold in present()} == holds


def test_a_folder_of_policies_that_is_away_by_then_raises_and_lets_nothing_go(lake: Lake) -> None:
    (lake.folder / "policies" / "h.yaml").write_text(HELD % "one")
    with lake.opened() as ledger:
        keepers = LOADED(ledger, lake.settings).keepers
        (lake.folder / "policies").rename(lake.folder / "elsewhere")
        for question in (keepers.in_files, lambda: keepers.in_force(AS_OF)):
            with pytest.raises(BadInput):
                question()
        (lake.folder / "elsewhere").rename(lake.folder / "policies")
        assert [keeper.name for keeper in keepers.in_force(AS_OF)] == ["one"]


def test_a_file_that_is_broken_by_then_raises_until_it_is_mended(lake: Lake) -> None:
    with lake.opened() as ledger:
        present = LOADED(ledger, lake.settings).keepers.in_files
        lake.says(OLD, "{datasets: ['lake/d']")
        for _ in range(2):
            with pytest.raises(BadInput):
                present()
        lake.says(OLD, "{name: legal, datasets: ['lake/d'], reason: case 7}")
        assert [hold.name for hold in present()] == ["legal"]
