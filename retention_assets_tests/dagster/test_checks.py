"""Asset checks: each passes on a sound run and fails on one that was broken by hand, and what fails stops the sweep.

Belongs here: checks as Dagster and the command line see them. The invariants of the ledger are tested there, the naive latest
views in frames/views/test_latest_views.py.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention_assets.dagster import assets
from retention_assets.dagster.check_queries import CHECKS
from retention_assets.dagster.headless import plain_metadata, run_job
from retention_assets.definitions import build_defs
from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.pipeline.part_frames import Verdicts
from retention_assets.pipeline.stage import run_stage
from retention_assets.policy import text_of
from retention_assets_tests.dagster.launch import evaluations
from retention_assets_tests.dagster.launch import run as launch
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
NEXT = DUE.replace(day=DUE.day + 1)
WHOLE = {"S1", "S2", "S3"}


def test_no_check_has_partitions() -> None:
    """A partitioned check costs a run over N datasets N times N."""
    graph = build_defs().get_repository_def().asset_graph
    assert [key for key in graph.asset_check_keys if graph.get(key).partitions_def is not None] == []


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two datasets of which everything but the last SNAPSHOT may go."""
    return Lake(tmp_path / "lake").has(HISTORY).has(HISTORY, "lake/e")


def failed(result: dg.ExecuteInProcessResult) -> set[str]:
    """The checks that failed."""
    return {name for name, one in evaluations(result).items() if not one.passed}


def checks_alone(lake: Lake, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """All checks without any asset, as from the UI: no partition, no run that made anything."""
    job = build_defs(lake.settings).get_repository_def().get_implicit_global_asset_job_def()
    config = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    names = {dg.AssetCheckKey(dg.AssetKey(asset), check.name) for asset, checks in CHECKS.items() for check in checks}
    return job.get_subset(asset_selection=set(), asset_check_selection=names).execute_in_process(
        run_config=config, instance=instance, raise_on_error=False
    )


def run(lake: Lake, job: str, instance: dg.DagsterInstance, as_of: Any = MARKED) -> dg.ExecuteInProcessResult:
    """A job over the whole lake."""
    return launch(lake.settings, instance, job, {"as_of": text_of(as_of)})


@pytest.mark.usefixtures("local_spark")
def test_steps_and_their_checks_share_one_opened_ledger(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening it asks a database more than most checks do."""
    opened = list[object]()

    def note(*place: Any, **how: Any) -> Ledger:
        opened.append(place)
        return open_ledger(*place, **how)

    monkeypatch.setattr("retention_assets.ledger.open_ledger", note)
    done = run(lake, "delete_cycle", instance)
    steps = [event for event in done.all_events if event.is_step_success]
    assert (done.success, len(steps), len(opened)) == (True, 1, 10)


@pytest.mark.usefixtures("local_spark")
def test_every_check_passes_on_sound_runs_and_looks_at_what_is_published_when_launched_alone(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    assert run(lake, "act_evaluate", instance).success
    done = run(lake, "delete_cycle", instance, DUE)
    assert done.success
    everything = {check.name for checks in CHECKS.values() for check in checks}
    assert evaluations(done).keys() == everything
    assert failed(done) == set()
    assert lake.there("lake/d") == lake.there("lake/e") == {"S3"}
    # A log that was read anew, and not judged yet, has transactions without verdicts: no fault of what was judged before.
    line = {"dataset": "lake/e", "transaction": "A4", "type": "APPEND", "status": "OPEN", "opened_at": text_of(DUE)}
    lake._log("lake/e", [json.dumps(line)])
    assert read_anew(lake, instance, "lake/e").success
    alone = checks_alone(lake, instance)
    assert alone.success
    assert set(evaluations(alone)) == everything
    assert not failed(alone)
    # Broken behind the back of all that: published verdicts, a log that says less, marks and steps.
    lake.has("main: X1:SNAPSHOT@1d", "lake/new")
    break_warehouse(lake)
    with lake.opened() as ledger:
        write_past_ledger(ledger, "UPDATE plans SET as_of = as_of - 1 WHERE dataset = 'lake/d'")
        write_past_ledger(ledger, "DELETE FROM batches")
        write_past_ledger(ledger, "UPDATE reports SET to_delete = to_delete + 1 WHERE dataset = 'lake/e'")
        write_past_ledger(ledger, "UPDATE clock SET newest_mark_at = newest_mark_at + 1")
        # By 90 days: S1 and S2 of both datasets, which are swept, would be readable again.
        assert write_past_ledger(ledger, "UPDATE visibility SET visible_from = visible_from - 7776000000000") == 2
    broken = checks_alone(lake, instance)
    assert failed(broken) == {
        "verdicts_sum_to_the_log", "mark_times_are_monotonic", "nothing_is_swept_before_it_is_due",
        "nothing_is_swept_without_a_mark", "nothing_readable_is_swept", "visibility_marks_only_rise", "the_record_is_intact",
        "report_adds_up",
    }  # fmt: skip
    assert evaluations(broken)["nothing_readable_is_swept"].metadata["violations"].value == 4
    said = evaluations(broken)["verdicts_sum_to_the_log"]
    assert said.metadata["violations"].value == 1
    table = said.metadata["offending_datasets"]
    assert isinstance(table, dg.TableMetadataValue)
    (row,) = [dict(record.data) for record in table.records]
    assert row.pop("since")
    assert row == {"dataset": "lake/d", "violations": 1, "what": "2 verdicts for 3 transactions"}


def read_anew(lake: Lake, instance: dg.DagsterInstance, dataset: str) -> dg.ExecuteInProcessResult:
    """The log of one dataset, and nothing else."""
    instance.add_dynamic_partitions("datasets", [dataset])
    return build_defs(lake.settings).resolve_implicit_global_asset_job_def().execute_in_process(
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        instance=instance,
        asset_selection=[dg.AssetKey("transaction_log")],
        partition_key=dataset,
    )  # fmt: skip


def break_warehouse(lake: Lake) -> None:
    """The newest verdicts of lake/d, without the last one."""
    import pyarrow.parquet as pq

    with lake.opened() as ledger:
        (folder,) = {one.folder for one in ledger.publications.of("candidate_marks", ["lake/d"])}
    for file in (Path(folder) / "candidate_marks").glob("*.parquet"):
        rows = pq.read_table(file)
        is_last = pc.and_(pc.equal(rows["dataset"].cast(pa.string()), "lake/d"), pc.equal(rows["transaction"], "S3"))
        pq.write_table(rows.filter(pc.invert(is_last)), file)


Frame = Callable[[Verdicts, pa.Table, pa.Table], dict[str, pa.Table]]


def broken_frame(lake: Lake, monkeypatch: pytest.MonkeyPatch, brk: Callable[[pa.Table], pa.Table]) -> None:
    """A kernel whose marks are wrong, run where the tasks run."""
    stage = run_stage

    def broken(spark: Any, sources: Any, target: str, outputs: Any, frame: Any, *others: Any) -> Any:
        def judge(transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
            tables = frame(transactions, datasets)
            return {**tables, "marks": brk(tables["marks"])} if "marks" in tables else tables

        return stage(spark, sources, target, outputs, judge, *others)

    monkeypatch.setattr(assets, "run_stage", broken)


def heads_too(marks: pa.Table) -> pa.Table:
    """Also what readers of lake/d and lake/e need. The latter says that its policy may mark there, which is not so."""
    more = [
        {**row, "transaction": "S3", "reason": reason}
        for dataset, reason in (("lake/d", "SELECTED"), ("lake/e", "LATEST_VIEW_ALLOWED"))
        for row in marks.filter(pc.equal(marks["dataset"], dataset)).slice(0, 1).to_pylist()
    ]
    return pa.concat_tables([marks, pa.Table.from_pylist(more, schema=marks.schema)])


@pytest.mark.usefixtures("local_spark")
def test_a_mark_in_a_latest_view_stops_the_cycle_and_any_sweep_after_it(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks of an earlier evaluation are due: they stay as well, in the same run and in a sweep that is launched alone."""
    lake.has(HISTORY, "lake/g").marks()
    # A policy that may mark in latest views, and does, is no fault.
    lake.has("main: F1:SNAPSHOT@90d=10", "lake/f")
    lake.says(f"{OLD}, {{name: may, datasets: {{include: ['lake/f']}}, select: {{older_than: 30d}}, latest_view: allow}}")
    before = lake.left()
    with monkeypatch.context() as patch:
        broken_frame(lake, patch, heads_too)
        ran = run_job(lake.settings, "cycle", DUE)
    assert [trouble.partition(":")[0] for trouble in ran.troubles] == [
        "check latest_view_is_never_marked of candidate_marks failed"
    ]
    for dataset in ("lake/d", "lake/e"):
        assert f"{dataset}: S3 is in the latest view of branch main, and policy old marked it" in ran.troubles[0]
    assert "2 violations in 2 datasets" in ran.troubles[0]
    assert "swept_transactions" not in ran.said
    assert lake.statuses("lake/f") == {"F1": "MARKED"}
    assert lake.left() == before
    # Another instance, which knows of no check; and a dataset that the check did not name.
    with dg.DagsterInstance.ephemeral() as other:
        alone = run(lake, "delete_sweep", other, DUE)
    swept = {event.asset_key: event.materialization.metadata for event in alone.get_asset_materialization_events()}
    rows = plain_metadata(swept[dg.AssetKey("swept_transactions")])["by_dataset"]
    refused = {row["dataset"]: row["refused"] for row in rows}
    for dataset in ("lake/d", "lake/e"):
        assert f"nothing of {dataset} is swept: latest_view_is_never_marked failed in run" in refused[dataset]
        assert "S3 is in the latest view of branch main" in refused[dataset]
    assert (refused["lake/g"], lake.there("lake/g")) == ("", {"S3"})
    assert {name: text for name, text in before.items() if not name.startswith("g/")}.items() <= lake.left().items()
    # What the next evaluation finds sound may be swept; the mark that should not be is spared by the re-check.
    assert run(lake, "delete_cycle", instance, DUE).success
    assert lake.there("lake/d") == lake.there("lake/e") == {"S3"}


@pytest.mark.usefixtures("local_spark")
def test_marks_over_a_limit_fail_and_a_refused_log_stops_nobody(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that forgot limits; and a dataset whose log is not sound stops nobody."""
    lake.says(OLD.replace("sweep:", "limits: {transactions: 1}, sweep:"))
    lake.branches("main", "S1", "lake/e")

    in_force = Rulebook.rules

    def without_limits(self: Rulebook, *about: Any) -> Any:
        rules = in_force(self, *about)
        return replace(rules, policies=tuple(one.model_copy(update={"limits": None}) for one in rules.policies))

    monkeypatch.setattr(Rulebook, "rules", without_limits)
    result = run(lake, "act_evaluate", instance)
    assert not result.success
    assert failed(result) == {"log_is_sound", "limits_are_respected"}
    said = evaluations(result)
    assert said["log_is_sound"].severity is dg.AssetCheckSeverity.ERROR
    assert "lake/e: two branches of one name" in str(said["log_is_sound"].description)
    assert "lake/d: policy old newly marked 2 of 3 transactions, 20 bytes" in str(said["limits_are_respected"].description)
