"""The resources of a run: what their page says, and that it says nothing which nobody may know."""

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap

from retention_assets.definitions import build_defs
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.settings.model import Settings, settings_of
from retention_assets.settings.sections import SparkSettings
from retention_assets.settings.yaml import Document
from retention_assets_tests.dagster.launch import resource

# Dagster asks its own schedules for something that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition.environment_vars` is deprecated")
STORE = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}


def shown(settings: Settings) -> str:
    """All that Dagster tells its pages of some definitions."""
    return repr(RepositorySnap.from_def(build_defs(settings).get_repository_def()))


def descriptions(settings: Settings) -> dict[str, str]:
    """What stands on the page of each resource."""
    snap = RepositorySnap.from_def(build_defs(settings).get_repository_def())
    return {one.name: str(one.resource_snapshot.description) for one in snap.resources or ()}


def test_each_says_what_it_is_and_whatever_runs_is_shown_with_it() -> None:
    settings = settings_of(Document("retention.yaml", {"stores": [STORE], "spark": {"master": "local[2]"}}, {}))
    found = descriptions(settings)
    assert "* store lake (files)" in found["retention"].splitlines()
    assert "* master: local[2]" in found["pyspark"].splitlines()
    assert found["warehouse"].endswith("/.retention/warehouse")
    snap = RepositorySnap.from_def(build_defs(settings).get_repository_def())
    for one in snap.resources or ():
        assert {"candidate_marks", "swept_transactions"} <= {key.to_user_string() for key in one.asset_keys_using}
        assert "evaluation_loop" in one.sensors_using


def test_no_secret_of_the_settings_is_shown() -> None:
    """Everybody who sees Dagster sees that page."""
    spark = SparkSettings(master="sc://host:15002/;token=T0KEN", conf={"spark.hadoop.fs.s3a.secret.key": "K3Y"})
    settings = Settings(ledger="postgresql://me:PA55WORD@host/ledger", warehouse="s3://bucket/warehouse", spark=spark)
    found = descriptions(settings)
    assert "* ledger: postgresql://me:***@host/ledger" in found["retention"].splitlines()
    assert "* configured: spark.hadoop.fs.s3a.secret.key" in found["pyspark"].splitlines()
    for secret in ("T0KEN", "K3Y", "PA55WORD"):
        assert secret not in shown(settings)


def test_each_can_be_replaced_by_whatever_does_its_work() -> None:
    """By a value, a resource of one's own, or a definition of one."""
    elsewhere = Warehouse(root="s3://elsewhere")
    defs = build_defs(Settings(), warehouse=dg.ResourceDefinition.hardcoded_resource(elsewhere))
    assert resource(defs, "warehouse") is elsewhere
    with pytest.raises(TypeError, match="warehose"):
        build_defs(Settings(), warehose=elsewhere)
