"""Aspects through the whole cycle with Dagster and Spark, the policy book's rules for DataHub's entries, and a busy database."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from retention_assets.dagster.headless import run_job
from retention_assets.outcomes import Outcome
from retention_assets.policy import AspectEntry
from retention_assets.stores.protocol import Target
from retention_assets_tests.dagster.launch import tick, typed
from retention_assets_tests.databases import new_schema
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import STORE, DataHub, Table, entry
from retention_assets_tests.sweep.lakes import DUE, MARKED

URN = "urn:li:dataset:(urn:li:dataPlatform:hive,it's ü,PROD)"
GRACE = DUE - MARKED
TICK = timedelta(microseconds=1)
STATUS = f"{STORE}/dataset.status"


@pytest.fixture
def postgresql(server: str) -> Iterator[Table]:
    table = Table(new_schema(server))
    yield table
    table.database.close()


@pytest.fixture
def datahub(table: Table, tmp_path: Path) -> DataHub:
    datahub = DataHub(tmp_path / "hub", {STORE: table})
    datahub.retains("retention", [entry("*", "*", "v1")])
    return datahub


@pytest.mark.spark
def test_datahubs_own_file_is_obeyed_from_the_mark_to_the_sweep(postgresql: Table, tmp_path: Path) -> None:
    table, datahub = postgresql, DataHub(tmp_path / "hub", {STORE: postgresql})
    datahub.retains("retention", [entry("*", "*", "v1")])
    table.chain(URN, "status", {0: 1, 1: 50, 2: 40})
    table.chain(URN, "ownership", {0: 1, 1: 50, 2: 40, 3: 30})
    table.chain("urn:li:chart:1", "status", {1: 50, 2: 40})
    marked = run_job(datahub.settings, "cycle", MARKED)
    assert marked.troubles == ()
    assert len(table.rows()) == 9
    assert set(datahub.statuses(STATUS)) == {f"{URN}@1"}
    swept = run_job(datahub.settings, "cycle", DUE)
    assert swept.troubles == ()
    assert table.versions(URN, "status") == {0, 2}
    assert table.versions(URN, "ownership") == {0, 3}
    assert table.versions("urn:li:chart:1", "status") == {1, 2}
    assert datahub.statuses(f"{STORE}/dataset.ownership") == {f"{URN}@1": "SWEPT", f"{URN}@2": "SWEPT"}
    assert datahub.report(DUE, STATUS)["deleted"] == 1
    assert datahub.verified() == ()


# What each database's store says of such rows is tested in test_store.py; here what becomes of it, on one of them each.


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_what_a_rollback_made_newer_is_spared_at_the_door(datahub: DataHub, table: Table) -> None:
    table.chain(URN, "status", {0: 1, 1: 50, 2: 40})
    datahub.marks(MARKED)
    table.roll_back(URN, "status")
    datahub.sweeps(DUE)
    assert table.versions(URN, "status") == {0, 1}
    assert datahub.statuses(STATUS) == {f"{URN}@1": "SPARED"}


# The policy book knows no database of a store: each case has one of them.
@pytest.mark.parametrize(
    ("store_url", "more", "settings", "left"),
    [
        pytest.param("sqlite", {}, {}, {0, 2, 3}, id="what a person wrote stays, and the files drift"),
        pytest.param("postgresql", {"forceOverwrite": True}, {}, {0, 3}, id="unless the entry insists"),
        pytest.param("sqlite", {}, {"overwrite_user_policies": True}, {0, 3}, id="or the settings do"),
    ],
    indirect=["store_url"],
)
def test_system_and_user_managed_entries(
    datahub: DataHub, table: Table, more: dict[str, Any], settings: dict[str, Any], left: set[int]
) -> None:
    table.chain(URN, "status", {0: 1, 1: 50, 2: 40, 3: 30})
    file = datahub.settings_file
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    with datahub.opened() as ledger:
        ledger.policy_book.write(AspectEntry.model_validate(entry("dataset", "status", "v2")), "ada")
    datahub.retains("retention", [entry("dataset", "status", "v1", **more)])
    datahub.marks(MARKED)
    datahub.sweeps(DUE)
    assert table.versions(URN, "status") == left


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_changed_entry_has_just_its_own_datasets_judged_anew(datahub: DataHub, table: Table) -> None:
    for entity, aspect in (("dataset", "status"), ("dataset", "ownership"), ("chart", "status"), ("datasetField", "status")):
        table.chain(f"urn:li:{entity}:1", aspect, {0: 1, 1: 50})
    with dg.instance_for_test() as instance:
        first = tick(datahub.settings, instance, "policy_files")
        assert len(first.run_requests or ()) == 1
        datahub.marks(MARKED)
        datahub.retains("more", [entry("dataset", "status", "v2")])
        second = tick(datahub.settings, instance, "policy_files", first.cursor)
        [request] = list(second.run_requests)
        assert typed(request)["datasets"] == [STATUS]


def _planned(table: Table, urns: int) -> list[Target]:
    rows = [(_urn(number), "status", version, AS_OF, "{}") for number in range(urns) for version in range(4)]
    table.add_all(rows)
    names = [f"{_urn(number)}@{version}" for number in range(urns) for version in (1, 2)]
    return [Target(one.transaction, one.note) for one in table.store().prepare(STATUS, names)]


def _urn(number: int) -> str:
    return f"urn:li:dataset:{number:04}"


@pytest.mark.parametrize("parallelism", [1, 4])
def test_writers_keep_writing_during_a_sweep(postgresql: Table, parallelism: int) -> None:
    targets = _planned(postgresql, 300)

    def write(numbers: range) -> int:
        with psycopg.connect(postgresql.url) as connection:
            for number in numbers:
                connection.execute(
                    "INSERT INTO metadata_aspect_v2 (urn, aspect, version, metadata, createdon, createdby)"
                    " VALUES (%s, 'status', 4, '{}', %s, 'me')",
                    (_urn(number), AS_OF.replace(tzinfo=None)),
                )
                connection.execute(
                    "UPDATE metadata_aspect_v2 SET metadata = 'new' WHERE urn = %s AND version = 0", (_urn(number),)
                )
                connection.commit()
        return len(numbers)

    with ThreadPoolExecutor(3) as threads:
        written = [threads.submit(write, range(first, 300, 2)) for first in (0, 1)]
        swept = [
            one
            for first in range(0, 600, 50)
            for one in postgresql.store().sweep(STATUS, targets[first : first + 50], parallelism)
        ]
        assert sum(one.result() for one in written) == 300
    assert {one.outcome for one in swept} == {Outcome.DELETED}
    rows = postgresql.rows()
    assert {version for _, _, version in rows} == {0, 3, 4}
    assert {row[3] for (_, _, version), row in rows.items() if version == 0} == {"new"}
