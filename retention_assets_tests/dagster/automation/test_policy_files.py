"""The tick that watches policy files: what a change launches, and what is said of broken files and of stores that are away."""

from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest

from retention_assets.definitions import build_defs
from retention_assets.evaluation.rules_in_force import load_rulebook, rules_digests
from retention_assets.ledger.evaluations import EVALUATION_ROWS
from retention_assets.ledger.marking import CANDIDATES
from retention_assets_tests.dagster.automation.conftest import AWAY, changed
from retention_assets_tests.dagster.launch import tick
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

SUCCESS = dg.DagsterRunStatus.SUCCESS
AB = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: %s}}"


def policy_tick(lake: Lake, instance: dg.DagsterInstance, cursor: str | None = None) -> Any:
    return tick(lake.settings, instance, "policy_files", cursor)


def loaded(lake: Lake) -> None:
    """The files, taken into the book as a run does."""
    lake.marks()


def ends(instance: dg.DagsterInstance, found: Any, status: dg.DagsterRunStatus | None) -> None:
    """The run that a tick asked for is there and in a state; or somebody removed it."""
    (request,) = found.run_requests
    if status is not None:
        instance.add_run(dg.DagsterRun(job_name="evaluate", run_id=str(uuid4()), tags=request.tags, status=status))


def test_a_changed_policy_has_exactly_the_datasets_judged_that_it_can_reach(lake: Lake, instance: dg.DagsterInstance) -> None:
    other = "{name: other, datasets: {include: ['lake/*'], exclude: ['lake/a']}, select: {older_than: %s}}"
    lake.says(f"{OLD}, {other % '30d'}")
    loaded(lake)
    first = policy_tick(lake, instance)
    assert first.run_requests == []
    assert first.skip_message == "The policy files changed. They say what the book says."
    lake.says(f"{OLD}, {other % '40d'}")
    (request,) = policy_tick(lake, instance, first.cursor).run_requests
    assert request.run_config == {"datasets": ["lake/b"]}
    dg.validate_run_config(build_defs(lake.settings).resolve_job_def("evaluate"), request.run_config)


def test_a_policy_that_moves_has_both_its_old_and_its_new_datasets_judged(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.says("{name: p, datasets: {include: ['lake/a']}, select: {older_than: 30d}}")
    loaded(lake)
    first = policy_tick(lake, instance)
    lake.says("{name: p, datasets: {include: ['lake/b']}, select: {older_than: 30d}}")
    (request,) = policy_tick(lake, instance, first.cursor).run_requests
    assert request.run_config == {"datasets": ["lake/a", "lake/b"]}


def test_a_hold_in_a_file_has_the_datasets_judged_that_it_can_reach(lake: Lake, instance: dg.DagsterInstance) -> None:
    """The policy book knows nothing of holds in files: what they were is in the looks."""
    lake.says(OLD)
    loaded(lake)
    names = ["lake/a", "lake/b"]
    with lake.opened() as ledger:
        digests = rules_digests(load_rulebook(ledger, lake.settings, "test").rules(names, MARKED), names, MARKED)
        looks = {"dataset": names, "token": ["", ""], "rules": digests, "looked_at": [MARKED] * 2, "next_look": [None] * 2}
        ledger.marks.mark(CANDIDATES.empty_table(), MARKED, "test", evaluations=pa.table(looks, schema=EVALUATION_ROWS))
    first = policy_tick(lake, instance)
    assert first.run_requests == []
    lake.says(OLD, "{name: legal, datasets: ['lake/a'], reason: case 7}")
    held = policy_tick(lake, instance, first.cursor)
    assert [request.run_config for request in held.run_requests] == [{"datasets": ["lake/a"]}]


def test_unchanged_files_launch_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    first = policy_tick(lake, instance)
    ends(instance, first, SUCCESS)
    for _ in range(2):
        again = policy_tick(lake, instance, first.cursor)
        assert (again.run_requests, again.skip_message) == ([], "The policy files are as they were.")
        first = again


def test_a_run_that_dies_is_launched_again_by_dagster_where_run_retries_are_on(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    first = policy_tick(lake, instance)
    (request,) = first.run_requests
    assert request.tags["dagster/max_retries"] == "2"
    ends(instance, first, dg.DagsterRunStatus.FAILURE)
    assert policy_tick(lake, instance, first.cursor).skip_message == "The policy files are as they were."


def test_while_a_run_judges_a_change_waits(lake: Lake, instance: dg.DagsterInstance) -> None:
    first = policy_tick(lake, instance)
    ends(instance, first, dg.DagsterRunStatus.STARTED)
    lake.says(AB % "40d")
    again = policy_tick(lake, instance, first.cursor)
    assert (again.run_requests, again.cursor) == ([], first.cursor)
    assert "is at work" in again.skip_message


def test_a_comment_or_a_policy_about_nothing_launches_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    loaded(lake)
    first = policy_tick(lake, instance)
    file = lake.folder / "policies" / "p.yaml"
    file.write_text(f"# a remark\n{file.read_text()}")
    second = policy_tick(lake, instance, first.cursor)
    assert (second.run_requests, second.cursor != first.cursor) == ([], True)
    lake.says(f"{OLD}, {{name: none, datasets: {{include: ['lake/z*']}}, select: all}}")
    third = policy_tick(lake, instance, second.cursor)
    assert third.run_requests == []
    assert "none: no dataset is touched" in third.skip_message


def test_broken_files_fail_every_tick_until_they_are_mended(lake: Lake, instance: dg.DagsterInstance) -> None:
    loaded(lake)
    first = policy_tick(lake, instance)
    lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")
    for _ in range(2):
        with pytest.raises(Exception, match=r"oldr_than.*Did you mean older_than"):
            policy_tick(lake, instance, first.cursor)
    with lake.opened() as ledger:
        assert [entry.name for entry in ledger.policy_book.in_force()] == ["old"]
    lake.says(OLD)
    assert policy_tick(lake, instance, first.cursor).skip_message == "The policy files are as they were."


def test_files_that_went_away_fail_the_tick(lake: Lake, instance: dg.DagsterInstance) -> None:
    first = policy_tick(lake, instance)
    (lake.folder / "policies" / "p.yaml").rename(lake.folder / "p.yaml")
    with pytest.raises(Exception, match="holds no policy file"):
        policy_tick(lake, instance, first.cursor)


def test_files_that_go_back_are_a_change_again(lake: Lake, instance: dg.DagsterInstance) -> None:
    cursor, asked = None, list[Any]()
    for age in ("30d", "40d", "30d", "40d"):
        lake.says(AB % age)
        found = policy_tick(lake, instance, cursor)
        asked += [(request.run_key, request.run_config) for request in found.run_requests]
        cursor = found.cursor
        loaded(lake)
    assert asked == [(None, {"datasets": ["lake/a", "lake/b"]})] * 4


def test_what_a_person_wrote_stays_and_launches_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    loaded(lake)
    with lake.opened() as ledger:
        ledger.policy_book.revoke("old", "ann", "too early")
    lake.says(AB % "40d")
    found = policy_tick(lake, instance)
    assert (found.run_requests, found.skip_message) == ([], "The policy files changed. They say what the book says.")


@pytest.mark.parametrize(
    ("glob", "asked"),
    [
        ("*/a", ["lake/a", "gone/*", "lost/*"]),
        ("*", ["lake/a", "lake/b", "gone/*", "lost/*"]),
        ("gon*", ["gone/*", "lost/*"]),  # a star matches slashes, so this could be about any store
        ("g[o]ne/a", ["gone/*", "lost/*"]),
        ("gone/a", ["gone/*"]),
        ("lake/*", ["lake/a", "lake/b"]),
        ("lost/a", ["lost/*"]),
    ],
)
def test_a_store_that_cannot_be_listed_is_handed_to_the_run_whole(
    lake: Lake, instance: dg.DagsterInstance, glob: str, asked: list[str]
) -> None:
    """The run may find it back; left out, its datasets would go on with verdicts of the old policy."""
    changed(lake, store=AWAY)
    settings = changed(lake, store={**AWAY, "name": "lost", "data": "lost/{dataset}/{transaction}"})
    lake.says(f"{{name: p, datasets: {{include: ['{glob}']}}, select: {{older_than: 30d}}}}")
    found = tick(settings, instance, "policy_files")
    assert [name for one in found.run_requests for name in one.run_config["datasets"]] == asked
