"""A warehouse on S3: whole evaluations whose tables, notes and leftovers are objects of a server, reached as the URL says.

Belongs here: what differs from a disk: a query behind the names, and folders that have no time. What runs do is in
test_runs.py.
"""

from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.s3.models import s3_backends

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.ledger import Publication
from retention_assets.pipeline.confirmed import write_confirmed
from retention_assets.pipeline.file_systems import inside, place_of
from retention_assets.pipeline.stage import read_output
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy import text_of
from retention_assets_tests.dagster.launch import run
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.sweep.lakes import MARKED, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"


@pytest.fixture
def root(s3_server: S3) -> str:
    """A warehouse with everything in its URL: workers of Spark may be older than this test's environment."""
    s3_server.empty()
    address = s3_server.environment["AWS_ENDPOINT_URL"].removeprefix("http://")
    return f"s3://test:test@{S3.bucket}/ware/house?endpoint_override={address}&scheme=http&region=us-east-1"


@pytest.fixture
def lake(tmp_path: Path, root: str, url: str) -> Lake:
    return Lake(tmp_path / "lake", url).has(SOME, "lake/a").has(SOME, "lake/b").configures(warehouse=root)


def age(key: str, written: datetime) -> None:
    """Make an object look as if it was written at another time."""
    found = s3_backends["123456789012"]["aws"].get_object(S3.bucket, key)
    assert found
    found.last_modified = written


def runs_in(server: S3, asset: str) -> set[str]:
    """The folders of an asset that hold anything."""
    begin = f"ware/house/{asset}/"
    return {key.removeprefix(begin).partition("/")[0] for key in server.objects() if key.startswith(begin)} - {""}


@pytest.mark.parametrize(
    ("folder", "place"),
    [
        ("s3://b/p?region=r&endpoint_override=h:1", "s3://b/p/log/r1?region=r&endpoint_override=h:1"),
        ("s3://b/p/", "s3://b/p/log/r1"),
        ("/a/what?/b", "/a/what?/b/log/r1"),
    ],
)
def test_a_query_stays_behind_all_names(folder: str, place: str) -> None:
    assert inside(folder, "log", "r1") == place
    assert Warehouse(folder).folder("log", "r1") == place
    assert Warehouse(folder).below(place) == "log/r1"


@pytest.mark.spark
# The ledger's part in it is tested on both databases where folders are published.
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_warehouse_on_s3_is_written_read_and_cleaned(lake: Lake, s3_server: S3, root: str, spark: object) -> None:
    """A run, a second one that reads what the first one wrote and removes what nobody needs, and what others left."""
    foreign = {f"ware/house/transaction_log/{name}/transactions/part.parquet": name for name in ("young", "old")}
    for key in (*foreign, "ware/house/purge_report/last-month/p.html", "ware/house/purge_report/last-week/p.html"):
        s3_server.put(key, b"x")
    s3_server.put("ware/house/transaction_log/young/earlier.parquet", b"x")
    for key in ("old/transactions/part.parquet", "young/earlier.parquet"):
        age(f"ware/house/transaction_log/{key}", now() - timedelta(days=1.1))
    age("ware/house/purge_report/last-month/p.html", now() - timedelta(days=31))
    age("ware/house/purge_report/last-week/p.html", now() - timedelta(days=7))
    config = {"as_of": text_of(MARKED)}
    with dg.DagsterInstance.ephemeral() as instance:
        first = run(lake.settings, instance, "delete_cycle", config)
        assert first.success
        assert runs_in(s3_server, "transaction_log") == {"young", first.run_id}
        assert runs_in(s3_server, "purge_report") == {"last-week", first.run_id}
        with lake.opened() as ledger:
            assert ledger.marks.table().num_rows == 4
            assert ledger.verify().faults == ()
            folders = ledger.publications.folders()
        assert folders == {
            Warehouse(root).folder(asset, first.run_id) for asset in ("transaction_log", "branch_views", "candidate_marks")
        }
        (verdicts,) = (folder for folder in folders if "candidate_marks" in folder)
        assert len(read_output(verdicts, "candidate_marks")) == 6
        assert Environment(lake.settings).head_file.heads()
        assert "ware/house/HEAD.json" in s3_server.objects()
        second = run(lake.settings, instance, "delete_cycle", config)
        assert second.success
        for asset in ("transaction_log", "branch_views", "candidate_marks"):
            assert runs_in(s3_server, asset) - {"young"} == {second.run_id}


@pytest.mark.usefixtures("s3_server")
def test_what_a_person_confirmed_is_shared_by_a_warehouse_on_s3(root: str) -> None:
    shown = pa.table({"dataset": ["lake/a"], "transaction": ["T1"], "opened_at": [AS_OF], "closed_at": [AS_OF]})
    files, place = place_of(write_confirmed(shown, Warehouse(root).folder("swept_transactions", "r1")))
    assert pq.read_table(place, filesystem=files).equals(shown)


def test_a_store_that_is_reached_in_another_way_keeps_what_was_published(lake: Lake, s3_server: S3, root: str) -> None:
    """Folders are told apart by their places: a query that changed makes none of them one to which nobody points."""
    s3_server.put("ware/house/log/r1/part.parquet", b"x")
    s3_server.put("ware/house/log/r2/part.parquet", b"x")
    with lake.opened() as ledger:
        before = root.replace("&region=us-east-1", "").replace("ware/house", "ware//house")
        ledger.publications.publish([Publication("log", "lake/a", inside(before, "log", "r1"), "r1")], "test")
        assert Warehouse(root).clean(ledger, ["log"], lambda _, written: written is not None) == 1
    assert runs_in(s3_server, "log") == {"r1"}


def test_places_below_a_bucket_share_one_client(root: str) -> None:
    (files, place), (others, _) = place_of(inside(root, "a b%20c")), place_of(inside(root, "d"))
    assert place == "lake/ware/house/a b c"
    assert files is others
