"""What a run shows of its steps, held against the ledger and the verdicts that it wrote: every table is there, and adds up.

Belongs here: the metadata of the six steps together, through Dagster and Spark.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.dagster.headless import run_job
from retention_assets.people.operation import JobResult
from retention_assets.policy import Hold
from retention_assets_tests.dagster.launch import materialize, tick
from retention_assets_tests.dagster.launch import run as run_config
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@1d=30"
FORKED = "main: S1:SNAPSHOT@90d=10 - A2:APPEND@80d=20 - S3:SNAPSHOT@70d=30  |  dev: A2 - A4:APPEND@60d=5\n#v1=S1"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two datasets, one of them with two branches and a tag, and a third whose log is not sound."""
    lake = Lake(tmp_path / "lake").has(SOME, "lake/a").has(FORKED, "lake/b")
    lake._log("lake/c", ['{"dataset": "lake/c", "branch": "main", "head": "nowhere"}'])
    return lake


def run(lake: Lake, as_of: object) -> JobResult:
    ran = run_job(lake.settings, "cycle", as_of, log_level="critical")  # type: ignore[arg-type]
    assert set(ran.said) == {
        "retention_policies", "transaction_log", "branch_views", "candidate_marks", "swept_transactions", "purge_report",
    }, ran.troubles  # fmt: skip
    return ran


@pytest.mark.usefixtures("local_spark")
def test_a_run_shows_what_it_read_judged_swept_and_reported(lake: Lake) -> None:
    said = run(lake, MARKED).said
    log, views, marks = said["transaction_log"], said["branch_views"], said["candidate_marks"]
    # What was read.
    assert {name: log[name] for name in ("dagster/row_count", "datasets", "refused", "bytes", "branches", "tags")} == {
        "dagster/row_count": 7, "datasets": 3, "refused": 1, "bytes": 125, "branches": 3, "tags": 1,
    }  # fmt: skip
    assert [row["dataset"] for row in log["largest_datasets"]] == ["lake/b", "lake/a"]
    # What branches say.
    assert [(row["branch"], row["views"], row["transactions"]) for row in views["branches"]] == [
        ("dev", 1, 3), ("main", 3, 1), ("main", 2, 1),
    ]  # fmt: skip
    assert (views["in_latest_views"], views["protected"]) == (5, 5)
    # What was judged, and why.
    verdicts = {verdict: marks[verdict] for verdict in ("mark", "spare", "keep", "open")}
    assert verdicts == {"mark": 2, "spare": 4, "keep": 1, "open": 0}
    by_reason = {row["reason"]: row["transactions"] for row in marks["reasons"]}
    assert by_reason == {"SELECTED": 2, "LATEST_VIEW": 4, "TAG": 1, "TOO_YOUNG": 1}
    assert {row["transaction"] for row in marks["why"] if row["reason"] == "TAG"} == {"S1"}
    assert (marks["newly_marked"], marks["marked"], marks["waiting"], marks["due"]) == (2, 2, 2, 0)
    assert [(row["due"], row["marks"], row["bytes"]) for row in marks["due_by_day"]] == [(DUE.date().isoformat(), 2, 30)]
    assert [row["outcome"] for row in said["retention_policies"]["policies"]] == ["written"]
    assert said["purge_report"]["freed"].startswith("![Nothing freed in 7 days]")
    # Then somebody needs one of the two, and the other is swept.
    lake.branches("late", "S1", "lake/a")
    said = run(lake, DUE).said
    swept, report = said["swept_transactions"], said["purge_report"]
    assert (swept["deleted"], swept["spared"], swept["marked"]) == (1, 1, 0)
    (spared,) = swept["spared_at_the_door"]
    assert (spared["dataset"], spared["marks"], spared["for_example"]) == ("lake/a", 1, "S1")
    assert "late" in spared["why"]
    assert swept["ordered_by"].startswith("run ")
    assert report["ordered_by"] == [swept["ordered_by"]]
    assert report["last_7_days"][0]["deleted"] == 1
    assert report["last_7_days"][0]["ordered_by"] == swept["ordered_by"][: len("run 01234567")]
    assert swept["due_by_day"] == []
    assert swept["bytes_freed"] == report["bytes_freed"] > 0
    page = (lake.folder / "warehouse" / report["page"]).read_text()
    assert f"{report['bytes_freed']} B freed in 7 days, all by old" in page


@pytest.mark.usefixtures("local_spark")
def test_numbers_of_the_ledger_are_the_same_whatever_a_run_looked_at(lake: Lake) -> None:
    """A run over one dataset must not look like a day on which all other marks had gone."""
    run(lake, MARKED)
    later = MARKED + timedelta(days=1)
    said = run_job(lake.settings, "evaluate", later, ["lake/b"], "critical").said["candidate_marks"]
    assert (said["dagster/row_count"], said["mark"], said["marked"], said["waiting"]) == (4, 0, 2, 2)


@pytest.mark.usefixtures("local_spark")
def test_the_page_of_the_state_follows_every_change_and_no_other_page_has_one(
    lake: Lake, instance_on_disk: dg.DagsterInstance
) -> None:
    def page_of(asset: str) -> dict[str, Any]:
        event = instance_on_disk.get_latest_materialization_event(dg.AssetKey(asset))
        assert event
        assert event.asset_materialization
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}

    def pages() -> int:
        return len(instance_on_disk.fetch_materializations(dg.AssetKey("purge_report"), limit=100).records)

    def looks() -> None:
        for event in tick(lake.settings, instance_on_disk, "store_health").asset_events:
            instance_on_disk.report_runless_asset_event(event)

    run(lake, MARKED)
    assert page_of("purge_report")["summary"].startswith("**2 transactions are marked**")
    file = page_of("purge_report")["page"]
    # A job by which a person decides.
    request = {"dataset": "lake/a", "transactions": ["S1"], "reason": "still needed"}
    assert run_config(lake.settings, instance_on_disk, "act_unmark", request).success
    assert page_of("purge_report")["summary"].startswith("**1 transaction is marked**")
    assert page_of("purge_report")["page"] == file, "the page of the day's report is still the newest"
    # The command line, of which Dagster knows nothing until the stores are looked at.
    with lake.opened() as ledger:
        ledger.unmark.transactions("lake/a", ["S2"], "ann", "still needed")
    before = pages()
    looks()
    assert page_of("purge_report")["summary"].startswith("**Nothing is marked.**")
    looks()
    assert pages() == before + 1, "what has not changed is not told again"
    # An evaluation, which makes no report.
    run_job(lake.settings, "evaluate", MARKED + timedelta(minutes=1), log_level="critical")
    assert page_of("purge_report")["summary"].startswith("**2 transactions are marked**")
    assert [row["transaction"] for row in page_of("purge_report")["data"]["next_to_go"]] == ["S1", "S2"]
    for asset in ("retention_policies", "transaction_log", "branch_views", "candidate_marks", "swept_transactions"):
        assert "are marked" not in page_of(asset)["summary"]
    # In a backfill it would count as the report that the backfill is still to make.
    with lake.opened() as ledger:
        hold = {"name": "h", "datasets": ["lake/a"], "transactions": ["S1"], "reason": "the audit", "owner": "ann"}
        ledger.holds.place(Hold.model_validate(hold), "ann")
    instance_on_disk.add_dynamic_partitions("datasets", ["lake/a"])
    before, judging = pages(), ("retention_policies", "transaction_log", "branch_views", "candidate_marks")
    for tags, more in (({"dagster/backfill": "b"}, 0), ({}, 1)):
        made = materialize(lake.settings, instance_on_disk, judging, MARKED, partition_key="lake/a", tags=tags)
        assert (made.success, pages()) == (True, before + more)
