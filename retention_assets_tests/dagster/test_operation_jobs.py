"""The small jobs: what each does to the ledger, what the run shows of it, and the sentence with which it refuses."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from retention_assets.cli import retention
from retention_assets.dagster.step import actor_of
from retention_assets.definitions import build_defs
from retention_assets.ledger.evaluations import Publication
from retention_assets_tests.dagster.launch import run
from retention_assets_tests.sweep.lakes import Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
WHY = {"reason": "a test", "actor": "ann"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """In memory: one on disk takes longer to make than an act."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def done(lake: Lake, instance: dg.DagsterInstance, job: str, **config: Any) -> dict[str, Any]:
    """What the run of an act shows besides its answer."""
    shown = {name: value.value for name, value in output(lake, instance, job, config).items()}
    assert next(iter(shown)) == "answer"
    del shown["answer"]
    return shown


def answer(lake: Lake, instance: dg.DagsterInstance, job: str, **config: Any) -> str:
    """The answer of a run, which stands first, as Markdown."""
    name, value = next(iter(output(lake, instance, job, config).items()))
    assert (name, type(value)) == ("answer", dg.MarkdownMetadataValue)
    return str(value.value)


def output(lake: Lake, instance: dg.DagsterInstance, job: str, config: Mapping[str, Any]) -> Mapping[str, dg.MetadataValue]:
    """What the run of a job shows."""
    ran = run(lake.settings, instance, job, config)
    assert ran.success
    (event,) = [event for event in ran.all_events if event.is_successful_output]
    shown: Mapping[str, dg.MetadataValue] = event.step_output_data.metadata
    return shown


def refusal(lake: Lake, instance: dg.DagsterInstance, job: str, **config: Any) -> str:
    """The sentence with which an act fails."""
    ran = run(lake.settings, instance, job, config)
    assert not ran.success
    (event,) = ran.get_step_failure_events()
    failed = event.step_failure_data.user_failure_data
    assert failed is not None
    return str(failed.description)


def deeds(lake: Lake) -> list[tuple[str, str, str | None]]:
    """What people did by the record: the deed, the name they typed, the reason."""
    with lake.opened() as ledger:
        lines = [json.loads(line) for line in ledger.audit_lines()]
    acts = [(line["deed"], line["actor"], line["reason"]) for line in lines if line["actor"] not in ("test", "::system")]
    return [(deed, actor.partition(" (run ")[0], reason) for deed, actor, reason in acts]


# --- what forms take ---


@pytest.mark.parametrize(
    ("job", "config"),
    [
        ("change_realm", {"name": "r", "status": "INACTIVE", "actor": "ann", "reason": {"env": "SECRET_OF_THE_SERVER"}}),
        ("hold", {"name": "h", "datasets": [{"env": "SECRET_OF_THE_SERVER"}], **WHY}),
        ("sweep", {"datasets": [{"env": "SECRET_OF_THE_SERVER"}]}),
    ],
)
def test_no_form_takes_a_variable_of_the_server(
    job: str, config: Mapping[str, Any], lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "hunter22")
    lake.marks()
    before = deeds(lake)
    said = refusal(lake, instance, job, **config)
    assert "in the form is {env: SECRET_OF_THE_SERVER}" in said
    assert deeds(lake) == before
    assert not any("hunter22" in str(event) for run in instance.get_runs() for event in instance.all_logs(run.run_id))
    with lake.opened() as ledger:
        assert not any("hunter22" in line for line in ledger.audit_lines())


# --- who acts, and why ---


def test_the_actor_is_the_run_where_nobody_is_named(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    ran = run(lake.settings, instance, "unmark", {"dataset": "lake/a", "reason": "a test"})
    assert deeds(lake) == [("UNMARK", f"run {ran.run_id}", "a test")]


def test_a_typed_name_stands_beside_the_run_and_the_user_of_dagster(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    job = build_defs(lake.settings).resolve_job_def("unmark")
    config = {"dataset": "lake/a", "reason": "a test", "actor": "the boss"}
    ran = job.execute_in_process(run_config=config, instance=instance, tags={"user": "bob@desk"})
    who = f"the boss (bob@desk, run {ran.run_id})"
    assert deeds(lake) == [("UNMARK", who, "a test")]
    settings = {"RETENTION_CONFIG": str(lake.folder / "retention.yaml")}
    shown = CliRunner(env=settings).invoke(retention, ["history", "lake/a", "S1"], standalone_mode=False)
    assert f"by {who}" in " ".join(shown.stdout.split())


@pytest.mark.parametrize("job", ["unmark", "hold", "release", "change_realm", "policy_overwrite", "policy_revoke"])
@pytest.mark.parametrize(
    ("said", "words"), [({"reason": " "}, "reason: is empty"), ({"actor": "::system"}, "actor: begins with ::")]
)
def test_nothing_is_done_without_a_reason_or_under_a_name_of_the_system(
    lake: Lake, instance: dg.DagsterInstance, job: str, said: dict[str, str], words: str
) -> None:
    lake.marks()
    forms: dict[str, dict[str, Any]] = {
        "unmark": {"dataset": "lake/a"},
        "hold": {"name": "h", "datasets": ["lake/a"]},
        "change_realm": {"name": "r", "status": "INACTIVE"},
    }
    own = forms.get(job, {"name": "old"})
    assert words in refusal(lake, instance, job, **{**own, **WHY, **said})
    assert deeds(lake) == []


@pytest.mark.parametrize("job", ["unmark", "keep"])
def test_a_launch_without_a_reason_is_refused(lake: Lake, instance: dg.DagsterInstance, job: str) -> None:
    """The form begins with an empty one, so that everybody sees that there is one."""
    lake.marks()
    assert refusal(lake, instance, job, dataset="lake/a").startswith("reason: is empty (found ''); expected some words.")
    assert deeds(lake) == []


def test_a_hold_on_a_store_that_nobody_knows_is_placed_with_a_warning(lake: Lake, instance: dg.DagsterInstance) -> None:
    ran = run(lake.settings, instance, "hold", {"name": "h", "datasets": ["laek/a", "l*/b", "lake/b"], **WHY})
    assert ran.success
    logs = [entry for entry in instance.all_logs(ran.run_id) if not entry.is_dagster_event]
    said = [entry.user_message for entry in logs if entry.level == logging.WARNING]
    assert said == [
        "store 'laek' of 'laek/a' is not in the settings. Did you mean lake?",
        "Nothing was judged yet, so nobody can say how much this hold is about. It is placed.",
    ]
    with lake.opened() as ledger:
        ledger.publications.publish([Publication("candidate_marks", "lake/b", str(lake.folder / "gone"), "run")], "test")
    shown = done(lake, instance, "hold", name="i", datasets=["lake/z"], owner="ann", **WHY)
    assert shown == {
        "name": "i", "source": "ledger", "scope": {"datasets": {"include": ["lake/z"]}, "transactions": None}, "reason": "a test",
        "owner": "ann", "datasets": 0, "transactions": 0, "sweeping": [],
    }  # fmt: skip


def test_a_realm_takes_no_status_that_people_do_not_say(lake: Lake) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="PURGED"):
        dg.validate_run_config(
            build_defs(lake.settings).resolve_job_def("change_realm"), {"name": "r", "status": "PURGED", **WHY}
        )


@pytest.mark.parametrize(
    ("tags", "who"),
    [
        ({}, "run r1"),
        ({"retention/actor": "alice@desk"}, "alice@desk (run r1)"),
        ({"retention/actor": "alice@desk", "dagster/schedule_name": "daily"}, "alice@desk (schedule daily, run r1)"),
        ({"dagster/user": "bob@example.org"}, "bob@example.org (run r1)"),
        ({"dagster/schedule_name": "daily"}, "schedule daily (run r1)"),
        ({"dagster/sensor_name": "changes"}, "sensor changes (run r1)"),
    ],
)
def test_the_record_names_who_launched_a_run_as_far_as_its_tags_say(tags: dict[str, str], who: str) -> None:
    assert actor_of("r1", tags) == who
