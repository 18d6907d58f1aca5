"""Realms that are being purged and of which a hold keeps one: the same for every kind of store, and said wherever a day is reported.

Belongs here: a whole run over one store of each kind, and the report through the command, its page and the asset.
"""

import json
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from retention_assets.cli import retention
from retention_assets.policy import text_of
from retention_assets_tests.clocks import open_simulated
from retention_assets_tests.dagster.launch import evaluations, run
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.stores.objects.blobs import Blobs
from retention_assets_tests.stores.records.environments import Units

REALMS = ("files", "path", "records", "sql")
HOLD = "{name: court, datasets: {include: ['*']}, transactions: [T1, r1, 'path/1', '1'], reason: case 7}"
HELD = "Realm {} is PURGING; held by court: 1 transaction."


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    """Four transactions of a realm in each of four stores. Objects are young, and two of each store are referred to."""
    folder = tmp_path / "lake"
    (folder / "log").mkdir(parents=True)
    drawn = history("-: T1:RECORD@9d | -: T2:RECORD@8d | -: T3:RECORD@7d | -: T4:RECORD@6d", dataset="lake/d")
    (folder / "log" / "d.jsonl").write_text("".join(f"{line}\n" for line in to_lines([drawn])))
    for number in range(1, 5):
        (folder / "data" / "d" / f"T{number}").mkdir(parents=True)
        (folder / "data" / "d" / f"T{number}" / "x").write_text("x")
    units = Units(f"sqlite:///{folder / 'ods.db'}").has("r1", "r2", "r3", "r4", kind="records")
    minute = (AS_OF - timedelta(minutes=1)).replace(tzinfo=None)
    with sqlite3.connect(folder / "objs.db") as connection:
        connection.execute("CREATE TABLE objs (id TEXT PRIMARY KEY, tenant TEXT, made TEXT, size INTEGER)")
        rows = [(str(number), "sql", minute.isoformat(sep=" "), 10) for number in range(1, 5)]
        connection.executemany("INSERT INTO objs VALUES (?, ?, ?, ?)", rows)
    connection.close()
    listing = {
        "url": "sqlite:///objs.db", "table": "objs", "key": "id", "realm": "tenant", "created_at": "made", "size": "size",
    }  # fmt: skip
    others: tuple[dict[str, Any], ...] = (
        {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}", "realm": "files"},
        {**units.settings, "realm": {"column": "kind"}},
        {"name": "rows", "kind": "objects", "listing": {"sql": listing}, "references": [{"lines": "refs/sql.jsonl"}]},
    )
    made = Blobs(folder, {"realm": "{0}", "references": [{"lines": "refs/path.jsonl"}]}, others=others)
    made.has(*(f"path/{number}" for number in range(1, 5)), days=1 / 1440)
    made.refers("path/1", "path/2", file="path").refers("1", "2", file="sql")
    made.says("{name: none, datasets: {include: ['lake/none']}, select: all}", holds=HOLD)
    with open_simulated(made.settings.ledger) as ledger:
        for realm in REALMS:
            ledger.realms.change(realm, "PURGING", "ann", "the contract has ended")
    return made


def reported(blobs: Blobs, *more: str) -> str:
    settings = {"RETENTION_CONFIG": str(blobs.folder / "retention.yaml"), "COLUMNS": "200"}
    ran = CliRunner(env=settings).invoke(retention, ["report", *more], standalone_mode=False)
    assert ran.exception is None, ran.exception
    return ran.stdout


def test_the_report_names_the_hold_that_keeps_a_realm_of_any_kind_of_store(blobs: Blobs) -> None:
    first = blobs.runs().said
    assert {name: first["transaction_log"][f"scans/{name}/realm_purge"] for name in ("blobs", "rows")} == {
        "blobs": 4,
        "rows": 4,
    }
    assert (first["swept_transactions"]["deleted"], blobs.left()) == (12, {"path/1"})
    second = blobs.runs()
    assert (second.said["swept_transactions"]["deleted"], second.troubles) == (0, ())
    with open_simulated(blobs.settings.ledger) as ledger:
        assert {name: realm.status for name, realm in ledger.realms.all().items()} == dict.fromkeys(REALMS, "PURGING")
    said = [{"realm": realm, "status": "PURGING", "left": "held by court: 1 transaction"} for realm in REALMS]
    page = blobs.folder / "page.html"
    told = json.loads(reported(blobs, "--format", "json", "--html", str(page)))
    assert told["realms"] == said
    for realm in REALMS:
        assert HELD.format(realm) in second.said["purge_report"]["realms"]
        assert f"<bdi>{realm}</bdi></th><td>PURGING</td><td>held by court: 1 transaction</td>" in page.read_text()
    rows = [line.split() for line in reported(blobs).splitlines() if "held by court: 1 transaction" in line]
    assert [row[0] for row in rows] == list(REALMS)
    # They are known of the present, and of all datasets together.
    assert json.loads(reported(blobs, "--format", "json", "--dataset", "lake/*"))["realms"] == []


def violations(blobs: Blobs) -> dict[str, str]:
    """What an evaluation of everything finds in realms that are PURGED, by dataset; the run goes on."""
    with dg.DagsterInstance.ephemeral() as instance:
        ran = run(blobs.settings, instance, "act_evaluate", {"as_of": text_of(AS_OF)})
    assert ran.success
    found = evaluations(ran)["nothing_appears_in_purged_realms"]
    table = found.metadata["offending_datasets"]
    assert isinstance(table, dg.TableMetadataValue)
    assert found.passed is not bool(table.records)
    return {str(row.data["dataset"]): str(row.data["what"]) for row in table.records}


@pytest.mark.usefixtures("local_spark")
def test_what_appears_in_a_purged_realm_of_any_kind_of_store_fails_a_check_until_it_begins_anew(blobs: Blobs) -> None:
    with open_simulated(blobs.settings.ledger) as ledger:
        for realm in REALMS:
            ledger.realms.purged(realm, "run 1")
    assert violations(blobs) == {
        "blobs/path": "4 transactions of realm path, which is PURGED",
        "lake/d": "4 transactions of realm files, which is PURGED",
        "ods/unit_of_work/records": "4 transactions of realm records, which is PURGED",
        "rows/sql": "4 transactions of realm sql, which is PURGED",
    }
    with open_simulated(blobs.settings.ledger) as ledger:
        for realm in ("files", "path"):
            ledger.realms.change(realm, "ACTIVE", "ann", "they are back")
    assert violations(blobs).keys() == {"ods/unit_of_work/records", "rows/sql"}
