"""Runs over partitions: when a sensor asks for them instead of a list, and that they do the same work and are waited for.

Belongs here: the choice, and such runs from the request of a tick to what the next tick finds. What sensors find to do is tested
beside each of them.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from retention_assets.dagster.automation import stretches_of
from retention_assets.definitions import build_defs
from retention_assets.settings import Settings
from retention_assets_tests.dagster.automation.conftest import SOME, Clock
from retention_assets_tests.dagster.launch import create_run, step_config, tick
from retention_assets_tests.sweep.lakes import DUE, Lake

PARTITIONS = "abcdef"


def step_of(datasets: Sequence[str]) -> dict[str, Any]:
    """The configuration of a run over a list."""
    return {"ops": {"retention": {"config": {"datasets": datasets}}}}


EVERYTHING = step_of(["*"])
ASSETS = ("transaction_log", "branch_views", "candidate_marks")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("b", ["bb"]),
        ("bc", ["bc"]),
        ("ace", ["aa", "cc", "ee"]),
        ("fba", ["ab", "ff"]),
        ("abcdef", ["af"]),
        ("", []),
        ("az", []),  # what is no partition yet can't be run over as one
    ],
)
def test_partitions_stand_together_in_the_order_in_which_they_were_added(keys: str, expected: list[str]) -> None:
    assert stretches_of(list(keys), PARTITIONS) == [tuple(stretch) for stretch in expected]
    assert stretches_of([], []) == []


@pytest.fixture
def lake(lake: Lake, clock: Clock) -> Lake:
    """Six datasets; nobody has looked at them."""
    return lake.has(SOME, *(f"lake/{name}" for name in "cdef"))


@pytest.fixture
def known(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """An instance in which each dataset has its partition."""
    instance.add_dynamic_partitions("datasets", [f"lake/{name}" for name in PARTITIONS])
    return instance


def asked(lake: Lake, instance: dg.DagsterInstance, sensor: str = "evaluation_loop", **automation: Any) -> list[Any]:
    settings = lake.configures(automation=automation).settings if automation else lake.settings
    requests: Sequence[dg.RunRequest] = tick(settings, instance, sensor).run_requests
    return [(one.job_name, _stretch(one), dict(one.run_config)) for one in requests]


def _stretch(request: dg.RunRequest) -> list[str]:
    names = ("dagster/partition", "dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
    return [request.tags[name] for name in names if name in request.tags]


def test_few_datasets_are_run_over_as_partitions(lake: Lake, known: dg.DagsterInstance) -> None:
    assert asked(lake, known) == [("act_evaluate", ["lake/a", "lake/f"], {})]


@pytest.mark.parametrize("most", [0, 5])
def test_more_than_the_settings_say_are_a_list(lake: Lake, known: dg.DagsterInstance, most: int) -> None:
    assert asked(lake, known, assets_up_to=most) == [("act_evaluate", [], EVERYTHING)]


def test_what_has_no_partition_yet_is_a_list(lake: Lake, instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("datasets", ["lake/a"])
    assert asked(lake, instance) == [("act_evaluate", [], EVERYTHING)]


@pytest.mark.parametrize(
    ("due", "expected"),
    [
        ("abc", [("delete_sweep", ["lake/a", "lake/c"], {})]),
        (
            "acde",
            [("delete_sweep", ["lake/a"], {}), ("delete_sweep", ["lake/c", "lake/e"], {})],
        ),
        ("f", [("delete_sweep", ["lake/f"], {})]),
    ],
)
def test_each_stretch_is_a_run(lake: Lake, known: dg.DagsterInstance, clock: Clock, due: str, expected: list[Any]) -> None:
    """What is due in between is not touched."""
    policy = "{name: old, datasets: {include: ['lake/[%s]']}, select: {older_than: 30d}}"
    lake.says(policy % due)
    assert lake.marks() > 0
    clock.time = DUE
    assert asked(lake, known, "sweep_tick") == expected


def test_many_stretches_are_a_list(lake: Lake, instance: dg.DagsterInstance, clock: Clock) -> None:
    """Each would start a Spark session of its own."""
    order = [f"lake/{name}" for name in "axbycz"] + ["lake/d"]
    instance.add_dynamic_partitions("datasets", order)
    lake.says("{name: old, datasets: {include: ['lake/[abcd]']}, select: {older_than: 30d}}")
    assert lake.marks() > 0
    clock.time = DUE
    assert asked(lake, instance, "sweep_tick") == [
        ("delete_sweep", [], step_of(["lake/a", "lake/b", "lake/c", "lake/d"])),
    ]  # fmt: skip


def test_a_store_is_one_partition_in_which_only_some_datasets_are_meant(
    lake: Lake, instance: dg.DagsterInstance, clock: Clock
) -> None:
    settings = lake.configures(partition_by="store").settings
    instance.add_dynamic_partitions("datasets", ["lake"])
    lake.says("{name: old, datasets: {include: ['lake/[bc]']}, select: {older_than: 30d}}")
    assert lake.marks() > 0
    clock.time = DUE
    (request,) = tick(settings, instance, "sweep_tick").run_requests
    assert (request.job_name, _stretch(request)) == ("delete_sweep", ["lake"])
    assert request.run_config == step_of(["lake/b", "lake/c"])
    dg.validate_run_config(build_defs(settings).resolve_job_def("delete_sweep"), request.run_config)
    (request,) = tick(settings, instance, "evaluation_loop").run_requests
    dg.validate_run_config(build_defs(settings).resolve_job_def("act_evaluate"), request.run_config)


@pytest.mark.parametrize(
    ("sensor", "job"), [("evaluation_loop", "act_evaluate"), ("policy_files", "act_evaluate"), ("sweep_tick", "delete_sweep")]
)
def test_ticks_wait_for_a_run_over_partitions_as_for_any_other(
    lake: Lake, known: dg.DagsterInstance, clock: Clock, sensor: str, job: str
) -> None:
    if job == "delete_sweep":
        lake.marks()
    clock.time = DUE
    run = create_run(known, build_defs(lake.settings).resolve_job_def(job), dg.DagsterRunStatus.STARTED)
    found = tick(lake.settings, known, sensor)
    assert (found.run_requests, run.run_id in found.skip_message) == ([], True)
    known.report_run_canceled(run)
    assert tick(lake.settings, known, sensor).run_requests


def test_an_asset_knows_the_sensors_that_have_it_made() -> None:
    """Its page lists them as its automations."""
    repository = build_defs(Settings()).get_repository_def()
    by_job = {one.name: {target.job_name for target in one.targets} for one in repository.sensor_defs if one.targets}
    for sensor, job in (("evaluation_loop", "act_evaluate"), ("policy_files", "act_evaluate"), ("sweep_tick", "delete_sweep")):
        assert by_job[sensor] == {job}
    layer = repository.get_job("act_evaluate").asset_layer
    assert {key.to_user_string() for key in layer.executable_asset_keys} == {"retention_policies", *ASSETS}


def test_changed_policies_have_a_run_for_each_stretch(lake: Lake, known: dg.DagsterInstance) -> None:
    lake.says("{name: old, datasets: {include: ['lake/[abef]']}, select: {older_than: 30d}}")
    assert [stretch for _, stretch, _ in asked(lake, known, "policy_files")] == [["lake/a", "lake/b"], ["lake/e", "lake/f"]]


@pytest.mark.usefixtures("local_spark")
def test_a_run_over_partitions_judges_and_sweeps_as_a_list_does(lake: Lake, known: dg.DagsterInstance, clock: Clock) -> None:
    """What the ticks ask for is run; afterwards they find nothing to do, and each dataset's partition tells of it."""
    defs = build_defs(lake.settings)

    def runs(sensor: str) -> None:
        for request in tick(lake.settings, known, sensor).run_requests:
            job, timed = defs.resolve_job_def(str(request.job_name)), step_config(as_of=clock.time.isoformat())
            ran = job.execute_in_process(
                instance=known, tags=dict(request.tags), run_config=timed, asset_selection=request.asset_selection
            )
            assert ran.success

    runs("evaluation_loop")
    assert asked(lake, known) == []
    assert known.get_materialized_partitions(dg.AssetKey("candidate_marks")) == {f"lake/{name}" for name in PARTITIONS}
    clock.goes_on(timedelta(days=30))
    runs("sweep_tick")
    assert {name: lake.there(f"lake/{name}") for name in PARTITIONS} == {name: {"S3"} for name in PARTITIONS}
    assert tick(lake.settings, known, "sweep_tick").skip_message == "No mark is due."
