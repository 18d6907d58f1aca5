"""Catalogs behind servers as sources of references: REST over real HTTP, and Glue as moto has it.

What a table reaches is tested with a SQL catalog (test_iceberg.py). Here it is whether all tables are found, and what a server
says instead of an answer.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.objects.references import RowSource, SourceNotWhole
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.iceberg.rest import RestServer
from retention_assets_tests.stores.iceberg.tables import (
    SCHEMA,
    Warehouse,
    append,
    content,
    files_of,
    head,
    place,
    replace,
    rows,
)
from retention_assets_tests.stores.objects.blobs import DUE, MARKED, Blobs
from retention_assets_tests.stores.objects.references.sources import objects_of, rows_of, source

NAMES = ("db.t", "db.u", "other.v", "other.deep.w")


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    """Four tables in three namespaces, one of which is in another one."""
    with Warehouse(tmp_path) as made:
        for name in NAMES:
            namespace, _, table = name.rpartition(".")
            append(made.table(table, namespace), 1)
        yield made


@pytest.fixture
def server(warehouse: Warehouse) -> Iterator[RestServer]:
    with RestServer(warehouse.catalog) as made:
        yield made


def of_server(warehouse: Warehouse, server: RestServer) -> RowSource:
    return source(warehouse.folder, {"iceberg": {"catalog": {**server.properties, "name": "rest"}}}, path=str(warehouse.data))


def test_every_table_of_every_page_and_namespace_is_read(warehouse: Warehouse, server: RestServer) -> None:
    found = {row["from"].partition(":")[0] for row in rows_of(of_server(warehouse, server)) if row["from"]}
    assert found == {f"table {name}" for name in NAMES}
    listed = {file.removeprefix(f"{warehouse.data}/") for file in warehouse.files()}
    assert set(objects_of(of_server(warehouse, server))) == listed


@pytest.mark.parametrize("status", [404, 503])
@pytest.mark.parametrize(
    "path",
    ["/v1/namespaces", "/v1/namespaces/db/tables", "/v1/namespaces/other/tables/v"],
)
def test_a_server_that_does_not_answer_leaves_no_source_whole(
    warehouse: Warehouse, server: RestServer, path: str, status: int
) -> None:
    """What is listed and is not found was dropped, unless it is still listed in the end."""
    given = of_server(warehouse, server)
    server.faults.append(lambda method, asked: status if (method, asked) == ("GET", path) else None)
    with pytest.raises(SourceNotWhole):
        rows_of(given)


def test_a_namespace_that_is_dropped_meanwhile_is_no_reference(warehouse: Warehouse, server: RestServer) -> None:
    def drops(method: str, path: str) -> None:
        if path == "/v1/namespaces/other/tables":
            server.faults.clear()
            for name in ("other.v", "other.deep.w"):
                warehouse.catalog.drop_table(name)
            for name in ("other.deep", "other"):
                warehouse.catalog.drop_namespace(name)

    server.faults.append(drops)
    found = {row["from"].partition(":")[0] for row in rows_of(of_server(warehouse, server)) if row["from"]}
    assert found == {"table db.t", "table db.u"}


def test_what_a_store_commits_is_applied_by_the_server(warehouse: Warehouse, server: RestServer) -> None:
    table = warehouse.load("t")
    old = head(table)
    replace(table, 2)
    store = IcebergStore(IcebergSettings.model_validate({"name": "ice", "catalog": server.properties}))
    [one] = store.prepare("ice/db.t", [str(old)])
    [swept] = store.sweep("ice/db.t", [Target(one.transaction, one.note)], 2)
    store.close()
    assert (swept.outcome, server.commits) == (Outcome.DELETED, 1)
    assert content(warehouse.load("t")).keys() == {head(warehouse.load("t"))}


@pytest.mark.usefixtures("shared_jobs")
def test_exactly_what_no_table_of_a_server_reaches_goes(
    warehouse: Warehouse, server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scanned, marked and swept; what a table reaches only since it was marked stays."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    catalog = {**server.properties, "name": "rest"}
    listing = {"listing": {"path": str(warehouse.data)}, "references": [{"iceberg": {"catalog": catalog}}]}
    blobs = Blobs(warehouse.folder, listing)
    table = warehouse.load("t")
    [live] = files_of(table)
    folder = Path(place(live.file_path)).parent
    for name in ("orphan.parquet", "late.parquet"):
        (folder / name).write_bytes(Path(place(live.file_path)).read_bytes())
    before = warehouse.files().keys()
    for file in before:
        os.utime(file, (MARKED.timestamp() - 60 * 86_400,) * 2)
    assert blobs.runs(MARKED).troubles == ()
    marks = {key.rpartition("/")[2]: status for key, status in blobs.statuses().items() if status == "MARKED"}
    assert marks == {"orphan.parquet": "MARKED", "late.parquet": "MARKED"}
    table.add_files([f"file://{folder}/late.parquet"])
    assert blobs.runs(DUE).troubles == ()
    assert before - warehouse.files().keys() == {str(folder / "orphan.parquet")}
    assert ": table db.t: data file" in blobs.why(f"{folder.relative_to(warehouse.data)}/late.parquet")
    assert blobs.verified() == ()
    assert content(warehouse.load("t")).keys() == {one.snapshot_id for one in warehouse.load("t").snapshots()}


def test_a_warehouse_of_glue_is_read_whole(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = s3.environment["AWS_ENDPOINT_URL"]
    catalog: dict[str, Any] = {
        "type": "glue", "glue.endpoint": endpoint, "glue.region": "us-east-1", "glue.access-key-id": "test",
        "glue.secret-access-key": "test", "s3.endpoint": endpoint, "s3.region": "us-east-1", "s3.access-key-id": "test",
        "s3.secret-access-key": "test", "warehouse": f"s3://{s3.bucket}/wh",
    }  # fmt: skip
    glue = load_catalog("glue", **catalog)
    for name in ("t", "u"):
        glue.create_namespace_if_not_exists("db")
        glue.create_table(f"db.{name}", SCHEMA).append(rows(1))
    reached = source(tmp_path, {"iceberg": {"catalog": {**catalog, "name": "glue"}}}, path=f"s3://{s3.bucket}/wh/")
    keys = {key.removeprefix("wh/") for key in s3.objects() if not key.endswith("/")}
    assert len(keys) >= 10
    assert set(objects_of(reached)) == keys
    glue.drop_table("db.u")
    assert set(objects_of(reached)) == {key for key in keys if "/t/" in key}
