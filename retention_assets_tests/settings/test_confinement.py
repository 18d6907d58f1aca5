"""Confinement: a simulated environment, in which a week of grace is over in a moment, reaches nothing but its own folder."""

import os
from pathlib import Path

import pytest
from fsspec.config import conf  # type: ignore[import-untyped]

from retention_assets.errors import BadInput
from retention_assets.settings import Settings
from retention_assets.settings.reach import is_confined
from retention_assets.stores.files import FilesSettings
from retention_assets_tests.settings.settings_files import read

HERE, THERE = "http://127.0.0.1:9000", "https://minio.example.org"
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "here"
    made.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (made / "way-out").symlink_to(tmp_path / "elsewhere")
    return made


@pytest.mark.parametrize(
    ("place", "environ"),
    [
        ("{here}/data", {}),
        ("file://{here}/data", {}),
        ("file://localhost{here}/data", {}),
        ("memory://data", {}),
        ("sqlite:///{here}/a.db", {}),
        ("sqlite+pysqlite:///{here}/a.db?timeout=3", {}),
        ("postgresql://me:pass@127.0.0.1:5432/db", {}),
        ("postgresql+psycopg://me@localhost/db", {"PGHOST": "prod.example.org"}),
        ("postgresql://me@[::1]/db", {}),
        ("postgresql:///db", {"PGHOST": "/run/postgresql"}),
        ("postgresql://me:@/db?host=/tmp/pg-1/data", {}),
        ("mysql://root@localhost/db?unix_socket=/tmp/sock", {}),
        ("http://localhost:8181", {}),
    ],
)
def test_what_lies_in_the_folder_or_on_this_machine_is_confined(place: str, environ: dict[str, str], folder: Path) -> None:
    assert is_confined(place.format(here=folder), folder, environ)


@pytest.mark.parametrize(
    ("place", "environ"),
    [
        ("{here}/../elsewhere", {}),
        ("{here}-too", {}),
        ("{here}/way-out/data", {}),
        ("data", {}),
        ("file://{here}/%2E%2E/elsewhere", {}),
        ("file://server{here}/data", {}),
        ("sqlite:///{here}/way-out/a.db", {}),
        ("s3://bucket/data", {}),
        ("simplecache::memory://data", {}),
        ("postgresql://me@prod.example.org/db", {}),
        ("postgresql://me@127.0.0.1,prod.example.org/db", {}),
        ("postgresql://me@127.0.0.1@prod.example.org/db", {}),
        ("postgresql://me@127.0.0.1/db?host=prod.example.org", {}),
        ("postgresql://me@127.0.0.1/db?hostaddr=10.0.0.7", {}),
        ("postgresql:///db?host=/tmp/sock,prod.example.org", {}),
        ("postgresql:///db?service=prod", {}),
        ("postgresql:///db", {"PGHOST": "prod.example.org"}),
        ("postgresql:///db", {"PGSERVICE": "prod"}),
        ("mysql://root@127.0.0.1.example.org/db", {}),
        ("https://catalog.example.org", {}),
    ],
)
def test_everything_else_lies_outside(place: str, environ: dict[str, str], folder: Path) -> None:
    assert not is_confined(place.format(here=folder), folder, environ)


def test_all_of_a_machine_is_no_folder_of_ones_own() -> None:
    assert not is_confined("/srv/data", Path("/"))


FILES = "{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}"
BUCKETS = FILES.replace("log: log", "log: 's3://bucket/log'").replace("'data/", "'s3a://bucket/data/")
OUTSIDE = {
    "the log of files": FILES.replace("log: log", "log: ../log"),
    "the data of files": FILES.replace("'data/", "'/srv/data/"),
    "an object store": FILES.replace("'data/", "'s3://bucket/data/"),
    "aspects": "{name: a, kind: aspects, url: 'postgresql://prod.example.org/hub'}",
    "records": "{name: r, kind: records, url: 'sqlite:////srv/a.db', root: {table: t, key: k, opened_at: o, closed_at: c}}",
    "a catalog in a file": "{name: i, kind: iceberg, catalog: {type: sql, uri: 'sqlite:////srv/c.db', warehouse: w}}",
    "a warehouse": "{name: i, kind: iceberg, catalog: {type: sql, uri: 'sqlite:///c.db', warehouse: 's3://lake'}}",
    "an Iceberg server": "{name: i, kind: iceberg, catalog: {type: rest, uri: 'https://catalog.example.org'}}",
    "an endpoint": "{name: i, kind: iceberg, catalog: {type: rest, uri: 'http://localhost', s3.endpoint: 'https://minio.example.org'}}",
    "a catalog that names no server": "{name: i, kind: iceberg, catalog: {type: glue}}",
}


@pytest.mark.parametrize("store", OUTSIDE.values(), ids=OUTSIDE)
def test_a_store_outside_is_refused_to_simulations_alone(store: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_endpoint(monkeypatch)
    with pytest.raises(BadInput, match=r"with clock\.simulated no store may lie outside of the settings' folder"):
        read(folder, f"clock: {{simulated: true}}\nstores: [{store}]")
    assert len(read(folder, f"stores: [{store}]").stores) == 1


def without_endpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(conf, "s3", {})
    for name in ENDPOINTS:
        patch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("configured", "environ", "confined"),
    [
        ({}, {}, False),
        ({}, {"AWS_ENDPOINT_URL": HERE}, True),
        ({}, {"AWS_ENDPOINT_URL": THERE}, False),
        ({}, {"AWS_ENDPOINT_URL": HERE, "AWS_ENDPOINT_URL_S3": THERE}, False),
        ({"endpoint_url": HERE}, {"AWS_ENDPOINT_URL": THERE}, True),
        ({"endpoint_url": THERE}, {"AWS_ENDPOINT_URL": HERE}, False),
        ({"client_kwargs": {"endpoint_url": THERE}}, {"AWS_ENDPOINT_URL": HERE}, False),
        ({"client_kwargs": {"endpoint_url": HERE}}, {}, True),
    ],
)
def test_a_bucket_is_where_the_server_is_that_its_driver_asks(
    configured: dict[str, object], environ: dict[str, str], confined: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_endpoint(monkeypatch)
    monkeypatch.setitem(conf, "s3", configured)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    text = f"clock: {{simulated: true}}\nstores: [{BUCKETS}]"
    if confined:
        assert len(read(folder, text).stores) == 1
    else:
        with pytest.raises(BadInput, match="no store may lie outside"):
            read(folder, text)


INSIDE = (
    FILES,
    "{name: a, kind: aspects, url: 'postgresql://me:secret@localhost/hub'}",
    "{name: i, kind: iceberg, catalog: {type: sql, uri: 'sqlite:///c.db', warehouse: w}}",
    "{name: j, kind: iceberg, catalog: {type: rest, uri: 'http://localhost:8181', warehouse: prod}}",
    f"{{name: k, kind: iceberg, catalog: {{type: sql, uri: 'sqlite:///k.db', warehouse: 's3://k', s3.endpoint: '{HERE}'}}}}",
)


def test_simulated_settings_with_all_stores_inside_are_as_any_others(folder: Path) -> None:
    found = read(folder, f"clock: {{simulated: true}}\nstores: [{', '.join(INSIDE)}]")
    assert len(found.stores) == 5
    assert found.clock.simulated


def test_an_address_is_shown_without_its_password(folder: Path) -> None:
    store = "{name: a, kind: aspects, url: 'postgresql://me:secret@prod.example.org/hub'}"
    with pytest.raises(BadInput) as refused:
        read(folder, f"clock: {{simulated: true}}\nstores: [{store}]")
    assert "prod.example.org" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_settings_that_no_file_holds_mean_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    store = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
    inside = FilesSettings.model_validate(store, context={"folder": str(folder)})
    assert Settings(clock={"simulated": True}, stores=(inside,)).clock.simulated  # type: ignore[arg-type]
    outside = FilesSettings.model_validate(store, context={"folder": os.path.dirname(folder)})
    with pytest.raises(ValueError, match="no store may lie outside"):
        Settings(clock={"simulated": True}, stores=(outside,))  # type: ignore[arg-type]
