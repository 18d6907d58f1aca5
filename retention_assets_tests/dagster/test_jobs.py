"""The small jobs: what their forms take, who acts, what the run of each question shows, and the sentence with which one refuses.

That a job does what its command does is people/test_operations.py's.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from retention_assets.cli import retention
from retention_assets.dagster.forms import StepConfig
from retention_assets.dagster.headless import plain_metadata
from retention_assets.dagster.step import actor_of
from retention_assets.definitions import build_defs
from retention_assets.people.operation import KIND_TAG
from retention_assets.policy import Datasets, Hold, text_of
from retention_assets.settings import Settings
from retention_assets_tests.dagster.launch import failure, run, shown, step_config
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

# S1 and S2 are marked; S3 is the latest view, and S2 is 20 days younger than S1.
SOME = "main: S1:SNAPSHOT@90d=1024 - S2:SNAPSHOT@70d=2048 - S3:SNAPSHOT@1d=10"
SCHEDULED = "This transaction has been scheduled for deletion."
DELETED = "Transaction data has been deleted."
WHY = {"reason": "a test", "actor": "ann"}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME.replace("1024", "4096"), "lake/b")
    return lake.configures(dagster={"jobs": "all"})


@pytest.fixture
def ask(lake: Lake, instance: dg.DagsterInstance) -> Ask:
    """What the run of a job shows; its answer stands first."""

    def asked(job: str, **config: Any) -> dict[str, Any]:
        metadata = shown(run(lake.settings, instance, job, config))
        assert next(iter(metadata)) == "answer"
        return metadata

    return asked


def deeds(lake: Lake) -> list[tuple[str, str, str | None]]:
    """What people did by the record: the deed, the actor, the reason."""
    with lake.opened() as ledger:
        lines = [json.loads(line) for line in ledger.audit_lines()]
    return [(line["deed"], line["actor"], line["reason"]) for line in lines if line["actor"] not in ("test", "::system")]


def hold(lake: Lake, name: str, *transactions: str, **datasets: Any) -> None:
    chosen = Datasets(**{"include": ("lake/a",), **datasets})
    with lake.opened() as ledger:
        ledger.holds.place(Hold(name=name, datasets=chosen, transactions=transactions or None, reason="r"), "bob")


# --- what forms take ---


@pytest.mark.parametrize(
    ("job", "config"),
    [
        ("act_change_realm", {"name": "r", "status": "INACTIVE", "actor": "ann", "reason": {"env": "SECRET_OF_THE_SERVER"}}),
        ("act_hold", {"name": "h", "datasets": [{"env": "SECRET_OF_THE_SERVER"}], **WHY}),
        ("delete_sweep", {"datasets": [{"env": "SECRET_OF_THE_SERVER"}]}),
    ],
)
def test_no_form_takes_a_variable_of_the_server(
    job: str, config: Mapping[str, Any], lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "hunter22")
    lake.marks()
    before = deeds(lake)
    with pytest.raises(dg.DagsterInvalidConfigError, match="Invalid scalar"):
        run(lake.settings, instance, job, config)
    assert deeds(lake) == before
    assert not any("hunter22" in str(event) for made in instance.get_runs() for event in instance.all_logs(made.run_id))
    with lake.opened() as ledger:
        assert not any("hunter22" in line for line in ledger.audit_lines())


def test_each_field_of_each_form_takes_only_what_is_typed() -> None:
    """Dagster's own texts, numbers and switches take the value of a variable."""
    taken, tried = [], 0
    for job in jobs_of(dagster={"jobs": "all"}):
        schema: Any = job.config_mapping.config_schema if job.config_mapping else job.nodes[0].definition.config_schema
        for name, field in (schema.config_type.fields if schema else {}).items():
            variable: Any = {"env": "HOME"}
            value = [variable] if "Array" in field.config_type.key else variable
            tried += 1
            with pytest.raises(dg.DagsterInvalidConfigError) as refused:
                dg.validate_run_config(job, {name: value} if job.config_mapping else step_config(**{name: value}))
            if f":{name}" not in str(refused.value):
                taken.append((job.name, name))
    assert (taken, tried > 50) == ([], True)


@pytest.mark.parametrize(
    ("job", "config", "missing"),
    [
        ("act_unmark", {"dataset": "lake/a"}, "reason"), ("act_keep", {}, r"\['dataset', 'reason'\]"),
        ("act_hold", {"reason": "r"}, r"\['datasets', 'name'\]"), ("act_release", {"reason": "r"}, "name"),
        ("look_explain", {}, "dataset"), ("act_change_realm", {"name": "r", "reason": "r"}, "status"),
    ],
)  # fmt: skip
def test_no_form_can_be_launched_without_what_it_needs(job: str, config: dict[str, str], missing: str, lake: Lake) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match=f"Missing required config entr.*{missing}"):
        dg.validate_run_config(build_defs(lake.settings).resolve_job_def(job), config)


def test_a_realm_takes_no_status_that_people_do_not_say(lake: Lake) -> None:
    job = build_defs(lake.settings).resolve_job_def("act_change_realm")
    with pytest.raises(dg.DagsterInvalidConfigError, match="PURGED"):
        dg.validate_run_config(job, {"name": "r", "status": "PURGED", **WHY})


def test_warnings_stand_in_the_log_of_the_run(lake: Lake, instance: dg.DagsterInstance) -> None:
    ran = run(lake.settings, instance, "act_hold", {"name": "h", "datasets": ["laek/a", "l*/b", "lake/b"], **WHY})
    assert ran.success
    logs = [entry for entry in instance.all_logs(ran.run_id) if not entry.is_dagster_event]
    assert [entry.user_message for entry in logs if entry.level == logging.WARNING] == [
        "store 'laek' of 'laek/a' is not in the settings. Did you mean lake?",
        "It is not known how much the hold matches, because nothing was judged yet.",
    ]


def jobs_of(**settings: Any) -> list[dg.JobDefinition]:
    repository = build_defs(Settings.model_validate(settings)).get_repository_def()
    return [job for job in repository.get_all_jobs() if not job.name.startswith("__ASSET")]


def test_the_usual_jobs_are_what_an_operator_needs_in_a_browser_and_what_automation_launches() -> None:
    usual = {
        "look_explain", "look_upcoming", "act_evaluate", "act_report", "act_keep", "act_unmark",
        "act_hold", "act_release", "act_restore", "delete_sweep", "delete_cycle",
    }  # fmt: skip
    assert {job.name for job in jobs_of()} == usual
    scheduled = {"act_housekeeping", "act_audit_verify"}
    assert {job.name for job in jobs_of(automation={"housekeeping": True, "verify": True})} == usual | scheduled


def test_every_job_says_what_kind_it_is_and_every_field_of_a_form_what_it_means() -> None:
    jobs = jobs_of(dagster={"jobs": "all"})
    kinds = {job.name: job.tags[KIND_TAG] for job in jobs}
    assert [name for name, kind in kinds.items() if not name.startswith(f"{kind}_")] == []
    deleting = {"delete_sweep", "delete_cycle", "delete_empty_trash", "delete_replay"}
    assert {name for name, kind in kinds.items() if kind == "delete"} == deleting
    assert {name for name, kind in kinds.items() if kind == "look"} == {
        "look_upcoming", "look_explain", "look_history", "look_preview",
    }  # fmt: skip
    begins = {
        "look": "Changes nothing.",
        "act": "Changes the record; deletes nothing.",
        "delete": "DELETES DATA.",
    }
    assert [job.name for job in jobs if not (job.description or "").startswith(f"{begins[kinds[job.name]]} ")] == []
    for job in jobs:
        if job.config_mapping is not None:
            form: Any = job.config_mapping.config_schema.config_type
            assert [name for name, one in form.fields.items() if not one.description] == [], job.name


# --- who acts ---


def test_the_actor_is_the_run_or_a_typed_name_beside_the_run_and_the_user_of_dagster(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    lake.marks()
    job = build_defs(lake.settings).resolve_job_def("act_unmark")
    first = job.execute_in_process(run_config={"dataset": "lake/b", "reason": "a test"}, instance=instance)
    config = {"dataset": "lake/a", "reason": "a test", "actor": "the boss"}
    second = job.execute_in_process(run_config=config, instance=instance, tags={"user": "bob@desk"})
    who = f"the boss (bob@desk, run {second.run_id})"
    assert deeds(lake) == [("UNMARK", f"run {first.run_id}", "a test"), ("UNMARK", who, "a test")]
    settings = {"RETENTION_CONFIG": str(lake.settings_file)}
    told = CliRunner(env=settings).invoke(retention, ["history", "lake/a", "S1"], standalone_mode=False)
    assert f"by the boss (bob@desk, run {second.run_id[:8]})" in " ".join(told.stdout.split())


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


# --- the instant of a run ---

MADE = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "instant"),
    [
        ("", None),
        (" 7d ", MADE - timedelta(days=7)),
        ("in 2h", MADE + timedelta(hours=2)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_instant_is_counted_from_when_the_run_was_made(typed: str, instant: datetime | None) -> None:
    assert StepConfig(as_of=typed).given(lambda: MADE) == instant


def test_steps_that_begin_late_count_from_when_the_run_was_made(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_assets.dagster.step.now", lambda: datetime(2099, 1, 1, tzinfo=UTC))
    ran = run(lake.settings, instance, "act_report", {"as_of": "400d"})
    assert ran.success
    record = instance.get_run_record_by_id(ran.run_id)
    assert record is not None
    (report,) = ran.asset_materializations_for_node("retention")
    day = (record.create_timestamp.astimezone(UTC) - timedelta(days=400)).date()
    assert plain_metadata(report.metadata)["execution_date"] == day.isoformat()
    for wrong in ("soon", "in 7", "1001y"):
        assert re.match(r"as_of: .*in 7d$", failure(run(lake.settings, instance, "act_report", {"as_of": wrong})))


# --- questions ---


def test_the_days_to_come_are_told_by_name_and_size_and_nothing_is_changed(lake: Lake, ask: Ask) -> None:
    assert ask("look_upcoming", as_of=text_of(MARKED))["answer"]
    assert not (lake.folder / "ledger.db").exists()
    lake.marks()
    with lake.opened() as ledger:
        before = list(ledger.audit_lines())
    told = ask("look_upcoming", as_of=text_of(MARKED), days=8)
    with lake.opened() as ledger:
        assert list(ledger.audit_lines()) == before
    assert told["answer"].startswith("**In 8 days: 0 marked, 4 deleted (")
    assert (told["deleted"], told["spared"]) == (4, 0)
    goes = [tuple(row.data[name] for name in ("day", "dataset", "transaction", "how")) for row in told["goes"].records]
    assert goes == [("2026-04-07", f"lake/{name}", f"S{number}", "deleted") for name in "ab" for number in (1, 2)]
    assert [(row.data["day"], row.data["due"], row.data["waiting"]) for row in told["days"].records] == [("2026-04-07", 4, 0)]
    assert json.loads(Path(told["file"]).read_text())["totals"]["deleted"]["transactions"] == 4


@pytest.mark.parametrize(
    ("config", "amount"),
    [({"days": 7}, 0), ({"days": 8, "datasets": ["lake/[b-z]"]}, 2), ({"days": 1, "as_of": text_of(DUE)}, 4)],
)
def test_the_days_to_come_are_narrowed_by_days_and_names(config: dict[str, Any], amount: int, lake: Lake, ask: Ask) -> None:
    lake.marks()
    assert ask("look_upcoming", **{"as_of": text_of(MARKED), **config})["deleted"] == amount


def test_what_a_hold_keeps_does_not_go(lake: Lake, instance: dg.DagsterInstance, ask: Ask) -> None:
    lake.marks()
    hold(lake, "audit", "S1")
    told = ask("look_upcoming", as_of=text_of(DUE))
    assert (told["deleted"], told["spared"]) == (3, 1)
    lake.says(lake.policies, "{name: filed, datasets: 'lake/*', reason: law}")
    assert ask("look_upcoming", as_of=text_of(DUE))["deleted"] == 0
    bounds = failure(run(lake.settings, instance, "look_upcoming", {"days": 0}))
    assert bounds == "days: is out of bounds (found 0); expected at least 1"


def nothing(_: Lake) -> None:
    """Leave the marks as they are."""


def rewritten(lake: Lake) -> None:
    lake.sweeps()
    log = lake.folder / "log" / "lake-a.jsonl"
    log.write_text(log.read_text().replace("S1", "S0"))


def vanished(lake: Lake) -> None:
    lake.sweeps()
    (lake.folder / "log" / "lake-a.jsonl").unlink()


def partly_swept(lake: Lake) -> None:
    with lake.opened() as ledger:
        ledger.unmark.transactions("lake/a", ["S2"], "bob", "still | needed")
    lake.sweeps()
    hold(lake, "audit")


def came_again(lake: Lake) -> None:
    lake.sweeps()
    lake.comes_again("S1", "lake/a", closed_at="2026-01-01T00:00:00Z")


def unsound(lake: Lake) -> None:
    log = lake.folder / "log" / "lake-a.jsonl"
    log.write_text(log.read_text().replace('"S1"', '"S0"', 1))


# What happened after four marks were made, the transaction that is asked about, how the answer begins, and what else it says.
EXPLAINED: dict[str, tuple[Callable[[Lake], object], str, str, tuple[str, ...]]] = {
    "marked": (
        nothing, "S1",
        f"**S1 of lake/a: {SCHEDULED}**\n\nIt is due at 2026-04-07 12:00 UTC, by policy old@1. To keep it: the job `act_keep`, or"
        " `retention keep lake/a S1 --reason …`.",
        (
            "Judged at 2026-03-31 12:00 UTC: **mark** by policy `old`. Policy 'old' selects it and nothing protects it: it is marked",
            "* Branch `main`: 2 views behind the latest one",
        ),
    ),
    "swept": (Lake.sweeps, "S1", f"**S1 of lake/a: {DELETED}**\n\nIt was deleted at 20", ()),
    "in its log no more": (rewritten, "S1", f"**S1 of lake/a: {DELETED}**", ()),
    "in no log": (vanished, "S1", f"**S1 of lake/a: {DELETED}**", ()),
    "held since": (
        lambda lake: hold(lake, "audit", "S1"), "S1", "**S1 of lake/a: This transaction is marked, and the hold audit keeps it.**",
        (
            "held by audit, so it is not swept",
            "**spare** by policy `old`. Policy 'old' selects it, but something protects it: it is spared. It is marked. The sweep checks",
        ),
    ),
    "kept": (
        nothing, "S3", "**S3 of lake/a: No policy selects it, so it stays.**", ("* It is younger than policy 'old' requires.",),
    ),
    "a dataset": (
        nothing, "", "**lake/a has 3 transactions (3.0 KiB)",
        (
            f"{SCHEDULED} These fall due next:",
            "| `S1` | 1.0\u00a0KiB | 2026-04-07 12:00 UTC (in 7 days) | `old` |",
        ),
    ),
    "a dataset of which some is swept": (
        partly_swept, "",
        "**lake/a has 3 transactions (3.0 KiB): 1 spared (2.0 KiB), 1 kept (10 B), 1 deleted (1.0 KiB).**",
        (f"| `S1` | SNAPSHOT | 2025-12-31 12:00 UTC | 1.0\u00a0KiB | deleted | {DELETED} |", "* Held by `audit`."),
    ),
    "a dataset that is gone": (vanished, "", "**lake/a is in no store any more: 2 deleted (3.0 KiB).**", ()),
    "a dataset with a new transaction under an old id": (came_again, "", "**lake/a has 3 transactions", ("1 deleted",)),
    "a dataset that is refused": (
        unsound, "", "**lake/a is refused: ", ("Until then, no run judges, marks or sweeps it.",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXPLAINED)
def test_an_explanation_says_what_became_of_it_and_why(case: str, lake: Lake, ask: Ask) -> None:
    happens, transaction, begins, words = EXPLAINED[case]
    lake.marks()
    happens(lake)
    # a name as it is pasted
    said = ask("look_explain", dataset=" lake/a ", **({"transaction": transaction} if transaction else {}))["answer"]
    assert said.startswith(begins), said
    for sentence in words:
        assert sentence in said, said


def test_what_happened_last_stands_first(lake: Lake, ask: Ask) -> None:
    lake.marks()
    partly_swept(lake)
    told = ask("look_history", dataset="lake/a")
    assert told["answer"].startswith("**lake/a: 1 deleted, 1 taken back, 1 never marked.**\n\nThe last change comes first.")
    assert told["answer"].index("| `S1` |") < told["answer"].index("| `S3` |")
    assert {row.data["transaction"]: (row.data["mark"], row.data["message"]) for row in told["history"].records} == {
        "S1": ("SWEPT", DELETED), "S2": ("UNMARKED", ""), "S3": ("", ""),
    }  # fmt: skip
    alone = ask("look_history", dataset="lake/a", transactions=["S2"])["answer"]
    assert alone.startswith("**lake/a: 1 taken back.**")
    assert "by bob: still \\| needed" in alone


def test_what_is_older_than_the_visibility_mark_is_counted(ask: Ask) -> None:
    ask("act_advance_visibility", dataset="lake/a", retention="1d", as_of=text_of(MARKED))
    told = ask("look_history", dataset="lake/a")
    assert (told["transactions"], told["hidden"]) == (1, 2)
    assert "2 more are older than the visibility mark" in told["answer"]
