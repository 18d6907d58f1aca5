"""What a settings file means, and what holds where there is none."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import retention_assets
from retention_assets.policy import Duration
from retention_assets.settings import Settings, load_settings
from retention_assets.settings.sections import AutomationSettings
from retention_assets.stores.aspects import AspectsSettings
from retention_assets.stores.delta import DeltaSettings
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.records import RecordsSettings
from retention_assets_tests.settings.settings_files import WHOLE, read

ROOT = Path(retention_assets.__file__).parents[1]


def test_no_file_means_embedded_defaults_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(environ={})
    assert settings.ledger == f"sqlite:///{tmp_path}/.retention/ledger.db"
    assert settings.warehouse == f"{tmp_path}/.retention/warehouse"
    assert settings.policies == (tmp_path / "policies",)
    assert settings.spark.master == "local[*]"
    assert (settings.clock.max_ahead, settings.clock.max_skew) == (Duration(days=14), Duration(seconds=300))
    assert (settings.overwrite_user_policies, settings.partition_by, settings.stores) == (False, "dataset", ())
    assert settings.automation == AutomationSettings(discover=False, policies=False, sweep=None, report=False)


def test_a_given_path_wins_over_the_variable_and_that_over_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("given", "variable", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "retention.yaml").write_text(f"warehouse: {name}\n")
    monkeypatch.chdir(tmp_path / "here")
    environ = {"RETENTION_CONFIG": str(tmp_path / "variable" / "retention.yaml")}
    assert load_settings(tmp_path / "given" / "retention.yaml", environ).warehouse == f"{tmp_path}/given/given"
    assert load_settings(environ=environ).warehouse == f"{tmp_path}/variable/variable"
    assert load_settings(environ={"RETENTION_CONFIG": ""}).warehouse == f"{tmp_path}/here/here"  # empty is unset


def test_the_whole_file_of_the_design_is_read_and_its_places_are_meant_from_its_folder(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    assert settings.ledger == f"sqlite:///{tmp_path}/.retention/ledger.db"
    assert settings.warehouse == "s3://bucket/warehouse"
    assert settings.policies == (tmp_path / "policies", tmp_path / "more/extra.yaml")
    assert settings.spark.conf == {
        "spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false", "spark.app.name": "x",
    }  # fmt: skip
    assert (settings.clock.max_ahead, settings.clock.max_skew) == (Duration(days=14), Duration(seconds=600))
    assert (settings.overwrite_user_policies, settings.partition_by) == (True, "store")
    every = Duration(seconds=900)
    assert settings.automation == AutomationSettings(discover=True, policies=True, sweep=every, report=True)
    lake, bucket, ice, rest, lakehouse, meta, ods = settings.stores
    assert isinstance(lake, FilesSettings)
    assert (lake.log, lake.data) == (f"{tmp_path}/data/lake/log", f"{tmp_path}/data/lake/{{dataset}}/{{transaction}}")
    assert isinstance(bucket, FilesSettings)
    assert (bucket.log, bucket.data) == ("s3://b/log", "s3://b/data/{dataset}/{transaction}.parquet")
    assert isinstance(ice, IcebergSettings)
    assert ice.catalog == {"type": "sql", "uri": f"sqlite:///{tmp_path}/data/ice.db", "warehouse": f"{tmp_path}/data/ice"}
    assert (ice.namespaces, ice.model) == (("a", "b.*"), "deltas")
    assert isinstance(rest, IcebergSettings)
    # Here `warehouse` is a name, not a path.
    assert rest.catalog == {"type": "rest", "uri": "https://catalog", "warehouse": "prod", "s3.ssl": "true"}
    assert (rest.namespaces, rest.model) == (("*",), "states")
    assert isinstance(lakehouse, DeltaSettings)
    assert (lakehouse.tables, lakehouse.also_read) == (("s3://b/t/*", f"{tmp_path}/data/sales"), ("/data/clones/*",))
    assert isinstance(meta, AspectsSettings)
    assert (meta.url, meta.table, meta.current_counts) == ("postgresql://datahub:pw@host/db", "public.aspects", True)
    assert isinstance(ods, RecordsSettings)
    assert (ods.url, ods.root.table, ods.root.type) == ("sqlite:////var/ods.db", "unit_of_work", "journey_type")
    assert [(child.table, child.key) for child in ods.children] == [
        ("summary", "unit_of_work_id"),
        ("process_object", "unit_of_work_id"),
    ]


def test_the_keys_of_a_store_that_are_left_out_have_datahubs_own_values(tmp_path: Path) -> None:
    (meta,) = read(tmp_path, "stores: [{name: m, kind: aspects, url: 'sqlite:///m.db'}]").stores
    assert isinstance(meta, AspectsSettings)
    assert (meta.url, meta.table, meta.current_counts) == (f"sqlite:///{tmp_path}/m.db", "metadata_aspect_v2", False)


def test_the_shipped_file_says_what_no_file_says_and_adds_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the shipped file that shows a default would lie if the two could differ."""
    text = (ROOT / "retention.yaml").read_text()
    shipped = read(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "retention.yaml").unlink()
    assert shipped.model_copy(update={"stores": ()}) == load_settings(environ={})
    assert [(store.name, store.kind) for store in shipped.stores] == [("lake", "files")]
    assert [key for key in Settings.model_fields if f"\n{key}:" not in text] == []  # every key is shown


def test_the_commented_examples_of_the_shipped_file_are_valid(tmp_path: Path) -> None:
    lines = (ROOT / "retention.yaml").read_text().splitlines()
    examples = [line.replace("# ", "", 1) for line in lines if line.startswith(("  # - ", "  #   "))]
    environ = {"CATALOG_TOKEN": "t", "DATAHUB_PASSWORD": "d", "ODS_PASSWORD": "o"}
    settings = read(tmp_path, "\n".join(["stores:", *examples]), **environ)
    kinds = {store.name: store.kind for store in settings.stores}
    assert kinds == {"ice": "iceberg", "lakehouse": "delta", "meta": "aspects", "ods": "records", "orphans": "objects"}


def test_settings_survive_a_pickle_with_their_passwords(tmp_path: Path) -> None:
    """Dagster starts other programs; a masked password that travelled would lock them out."""
    settings = read(tmp_path, "ledger: postgresql://u:secret@h/d")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(settings, protocol))
        assert copy == settings
        assert copy.ledger == "postgresql://u:secret@h/d"
        assert "secret" not in str(copy.ledger)


@pytest.mark.program
def test_settings_import_no_framework_and_no_driver() -> None:
    """Each of these costs more than the whole command that only wants to know where the policies are."""
    heavy = "{'dagster', 'pyspark', 'sqlalchemy', 'pandas', 'numpy', 'pyarrow', 'pyiceberg', 'lark'}"
    code = f"import sys, retention_assets.settings.model; print(sorted({heavy} & set(sys.modules)))"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.strip() == "[]"
