"""Evaluations and sweeps raise visibility marks: by the policy files, once an entry is a week old; and before anything goes."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets import clock
from retention_assets.dagster.headless import plain_metadata
from retention_assets.definitions import build_defs
from retention_assets.policy import text_of
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import Permit, SweptTarget, Target, always
from retention_assets_tests.clocks import set_clock
from retention_assets_tests.dagster.launch import step_config
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import DUE, Lake

DAY = timedelta(days=1)
HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@40d=10 - S4:SNAPSHOT@1d=10"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One dataset that the policy files keep readable for 30 days, and one that they do not name."""
    lake = Lake(tmp_path / "lake").has(HISTORY).has(HISTORY, "lake/e")
    (lake.folder / "policies" / "v.yaml").write_text("visibility: [{datasets: {include: [lake/d]}, retention: 30d}]\n")
    return lake


def run(lake: Lake, instance: dg.DagsterInstance, job: str, day: float | None = None) -> Any:
    """How many marks a run has raised, at a day or at the present."""
    config = step_config(as_of="" if day is None else text_of(AS_OF + day * DAY))
    done = build_defs(lake.settings).resolve_job_def(job).execute_in_process(run_config=config, instance=instance)
    made = {
        event.asset_key.to_user_string(): event.materialization.metadata
        for event in done.get_asset_materialization_events()
        if event.asset_key
    }
    return plain_metadata(made["candidate_marks"])["visibility_raised"]


def marks_of(lake: Lake) -> dict[str, float]:
    """How many days before AS_OF each mark is."""
    with lake.opened() as ledger:
        return {name: (AS_OF - at) / DAY for name, at in ledger.visibility.of_all().items()}


@pytest.mark.usefixtures("local_spark")
def test_evaluations_raise_marks_by_the_policy_files_and_sweeps_before_they_delete(lake: Lake) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(lake, instance, "act_evaluate", 0) == 0
        assert run(lake, instance, "act_evaluate", 6) == 0
        assert marks_of(lake) == {}
        assert run(lake, instance, "act_evaluate", 7) == 1
        assert marks_of(lake) == {"lake/d": 23}
        # Two months ahead, in an environment that says that its days are made up.
        assert run(lake, instance, "act_evaluate", 67) == 1
        # Never past the newest transaction.
        assert marks_of(lake) == {"lake/d": 1}
    assert lake.verified() == ()


@pytest.mark.usefixtures("local_spark")
def test_by_a_clock_that_jumped_two_months_ahead_nothing_rises_until_somebody_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", clock={}).has(HISTORY)
    (lake.folder / "policies" / "v.yaml").write_text("visibility: [{datasets: {include: [lake/d]}, retention: 30d}]\n")
    began = clock.now()
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(lake, instance, "act_evaluate") == 0
        set_clock(monkeypatch, began + 61 * DAY)
        assert run(lake, instance, "act_evaluate") == 0
        assert marks_of(lake) == {}
        with lake.opened() as ledger:
            ledger.clock.accept(clock.now(), "ann", "it is right")
        assert run(lake, instance, "act_evaluate") == 1
    assert marks_of(lake) == {"lake/d": 1}


class Watched(RecordingStore):
    """A store that really deletes, and notes how far the marks have risen when it is told to."""

    seen: list[dict[str, float]]
    lake: Lake

    def sweep(self, dataset: str, targets: Any, parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        self.seen.append({**marks_of(self.lake), "deleted": len(self.lake.there(dataset))})
        return self.store.sweep(dataset, list[Target](targets), parallelism, permit)


def test_a_sweep_raises_the_mark_before_it_deletes_and_once(lake: Lake) -> None:
    lake.marks()
    store = Watched(lake.stores["lake"])
    store.seen, store.lake = [], lake
    results = lake.sweeps(DUE, stores={"lake": store}, wait=lambda *_: None)
    assert all(one.refused is None for one in results.values())
    # S1 to S3 of each go; what was current from the day of S4 on is whole. Three batches, the second of both datasets, and one
    # act for each dataset.
    both = {"lake/d": 1, "lake/e": 1}
    assert store.seen == [{"lake/d": 1, "deleted": 4}, *({**both, "deleted": there} for there in (2, 4, 3))]
    with lake.opened() as ledger:
        acts = [row["dataset"] for row in map(json.loads, ledger.audit_lines()) if row["deed"] == "ADVANCE"]
    assert acts == ["lake/d", "lake/e"]
    assert lake.verified() == ()


def test_what_is_in_no_view_hides_nothing(tmp_path: Path) -> None:
    """ABORTED transactions and those on no branch were never what a reader saw."""
    lake = Lake(
        tmp_path / "lake", policies="{name: all, datasets: {include: ['*']}, branches: {reach: any}, select: {older_than: 9d}}"
    )
    lake.has("main: S1:SNAPSHOT@90d=10 - X:APPEND!@80d=10 - S2:APPEND@70d=10 | -: S1 - U:APPEND@60d=10")
    lake.marks()
    assert set(lake.statuses()) == {"X", "U"}
    lake.sweeps(DUE, wait=lambda *_: None)
    assert marks_of(lake) == {}
