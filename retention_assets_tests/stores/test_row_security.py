"""Policies on rows of PostgreSQL: rows that they hide are a fault, unless a store says that they are its boundary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from sqlalchemy import Engine, make_url, text

from retention_assets.errors import Refused
from retention_assets.outcomes import Outcome
from retention_assets.settings.places import Url
from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.objects.references import SourceNotWhole
from retention_assets.stores.protocol import Store, Target
from retention_assets.stores.records import RecordsSettings
from retention_assets.stores.records.store import RecordsStore
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.aspects.environments import Table
from retention_assets_tests.stores.objects.environments import SqlObjects
from retention_assets_tests.stores.objects.references.sources import edge_source, rows_of, source
from retention_assets_tests.stores.objects.references.test_database import Attachments
from retention_assets_tests.stores.objects.sweeps import planned
from retention_assets_tests.stores.records.environments import Units

pytestmark = pytest.mark.dialect

SECURED = """
CREATE ROLE {role} LOGIN;
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY part ON {table} TO {role} USING ({using})
"""
REMEDY = "row level security would hide rows of the table {} from the user of the database. Let the user see all of them"


@pytest.fixture
def schema(server: str) -> str:
    return new_schema(server)


def secured(engine: Engine, url: str, table: str, using: str) -> str:
    parsed = make_url(url)
    schema = str(parsed.query["options"]).partition("=")[2]
    with engine.begin() as connection:
        for statement in SECURED.format(role=f"role_{schema}", schema=schema, table=table, using=using).split(";"):
            connection.execute(text(statement))
    return parsed.set(username=f"role_{schema}").render_as_string(hide_password=False)


def records(units: Units, url: str, **changes: Any) -> RecordsStore:
    return RecordsStore(RecordsSettings.model_validate({**units.settings, **changes, "url": Url(url)}))


@pytest.mark.parametrize("table", ["unit_of_work", "summary"])
def test_rows_that_a_policy_hides_make_no_orphans(schema: str, table: str) -> None:
    units = Units(schema).has("u1", "u2")
    everything = units.store()
    targets = [Target(one.transaction, one.note) for one in everything.prepare(units.dataset, ["u1", "u2"])]
    role = secured(units.engine, schema, table, f"{'id' if table == 'unit_of_work' else 'unit'} <> 'u2'")
    store = records(units, role)
    found = store.sweep(units.dataset, targets, 2)
    assert {one.outcome for one in found} == {Outcome.FAILED}
    assert REMEDY.format(table) in (found[0].error or "")
    assert "`row_security: mine`" in (found[0].error or "")
    assert units.whole("u1", "u2")
    everything.close()
    store.close()


READS: dict[str, Callable[[Store, str], object]] = {
    "read": lambda store, dataset: store.read([dataset]),
    "tokens": lambda store, dataset: store.tokens([dataset]),
    "prepare": lambda store, dataset: store.prepare(dataset, ["u1"]),
}


@pytest.mark.parametrize("ask", READS.values(), ids=READS)
def test_units_that_a_policy_hides_are_no_log(schema: str, ask: Callable[[Store, str], object]) -> None:
    units = Units(schema).has("u1", "u2")
    store = records(units, secured(units.engine, schema, "unit_of_work", "id <> 'u2'"))
    with pytest.raises(Refused, match=f"store ods can't be read fully: {REMEDY.format('unit_of_work')}"):
        ask(store, units.dataset)
    store.close()


def test_versions_that_a_policy_hides_are_no_log(schema: str) -> None:
    table = Table(schema)
    table.chain("urn:li:dataset:1", "status", {0: 1, 1: 5})
    store = table.store(url=secured(table.database.engine, schema, table.name, "version = 0"))
    with pytest.raises(Refused, match=REMEDY.format(table.name)):
        store.datasets()
    with pytest.raises(Refused, match=REMEDY.format(table.name)):
        store.read(["meta/dataset.status"])
    store.close()
    table.database.close()


def test_policies_may_be_the_boundary_of_a_store(schema: str) -> None:
    units = Units(schema).has("u1", "u2")
    store = records(units, secured(units.engine, schema, "unit_of_work", "id <> 'u2'"), row_security="mine")
    assert pc.unique(store.read([units.dataset])["transaction"]).drop_null().to_pylist() == ["u1"]
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, ["u1"])]
    assert [one.outcome for one in store.sweep(units.dataset, targets, 2)] == [Outcome.DELETED]
    assert units.whole("u2")
    store.close()


def test_a_row_that_may_be_seen_and_not_deleted_is_kept_with_its_children(schema: str) -> None:
    units = Units(schema).has("u1", "u2")
    role = secured(units.engine, schema, "unit_of_work", "true")
    with units.engine.begin() as connection:
        connection.execute(text("CREATE POLICY few ON unit_of_work AS RESTRICTIVE FOR DELETE USING (id <> 'u2')"))
    store = records(units, role, row_security="mine")
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, ["u1", "u2"])]
    found = {one.transaction: one for one in store.sweep(units.dataset, targets, 2)}
    assert {name: one.outcome for name, one in found.items()} == {"u1": Outcome.DELETED, "u2": Outcome.FAILED}
    assert "The database kept the row" in (found["u2"].error or "")
    assert units.whole("u2")
    store.close()


def test_references_that_a_policy_hides_are_not_whole(schema: str, tmp_path: Path) -> None:
    attached = Attachments(schema).has("a", "b", tenant="r", by="x")
    attached.url = secured(attached.engine, schema, "attachment", "\"blob key\" <> 'b'")
    with pytest.raises(SourceNotWhole, match=f"sql attachment in .*{REMEDY.format('attachment')}") as refused:
        rows_of(source(tmp_path, attached.settings()))
    assert "mine" not in str(refused.value)
    edge = {"sql": attached.url, "table": "attachment", "from": "by", "to": "blob key"}
    with pytest.raises(SourceNotWhole, match=REMEDY.format("attachment")):
        rows_of(edge_source(tmp_path, edge))


def test_objects_that_a_policy_hides_are_no_listing(schema: str, tmp_path: Path) -> None:
    blobs = SqlObjects(tmp_path, schema)
    blobs.put("a/1", b"x")
    blobs.put("a/2", b"x")
    targets = planned(blobs.store(), "a/1", "a/2")
    role = secured(blobs.engine, schema, "objs", "id <> 'a/2'")
    listing = {"sql": {**blobs.listing["sql"], "url": role}}
    store = blobs.store(listing=listing)
    with pytest.raises(Refused, match=REMEDY.format("objs")):
        [*store.listing.read(store.listing.shares(1)[0])]
    found = store.sweep("blobs/a", targets, 2)
    assert {one.outcome for one in found} == {Outcome.FAILED}
    assert REMEDY.format("objs") in (found[0].error or "")
    store.close()
    shown = blobs.store(listing={"sql": {**listing["sql"], "row_security": "mine"}})
    assert [row["key"] for batch in shown.listing.read(shown.listing.shares(1)[0]) for row in batch.to_pylist()] == ["a/1"]
    shown.close()
    blobs.close()


def test_tables_of_a_catalog_that_a_policy_hides_refuse_it(schema: str, tmp_path: Path) -> None:
    own = make_url(schema).set(drivername="postgresql+psycopg")
    place = {"type": "sql", "warehouse": f"file://{tmp_path}/lake"}
    catalog: Any = load_catalog("ice", uri=own.render_as_string(hide_password=False), **place)
    catalog.create_namespace("db")
    for name in ("shown", "secret"):
        catalog.create_table(f"db.{name}", Schema())
    role = make_url(secured(catalog.engine, schema, "iceberg_tables", "table_name <> 'secret'"))
    uri = role.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    store = IcebergStore(IcebergSettings.model_validate({"name": "ice", "catalog": {"uri": uri, **place}}))
    with pytest.raises(Refused, match="row-level security policy for table"):
        store.datasets()
    store.close()
    catalog.close()
