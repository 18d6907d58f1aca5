"""Connections to PostgreSQL that die at a commit: what this sweep has deleted is never said to be gone already."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from retention_assets.outcomes import Outcome
from retention_assets.settings.urls import Url
from retention_assets.sql import foreign
from retention_assets.sql.errors import RETRY_TRANSIENT
from retention_assets.sql.guarded_delete import GuardedDelete
from retention_assets.stores.protocol import LocatedStore, Remains, Store, SweptTarget, Target
from retention_assets.stores.records.settings import RecordsSettings
from retention_assets.stores.records.store import RecordsStore
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.aspects.environments import Table
from retention_assets_tests.stores.objects.cycle import DUE, ObjectsCycle
from retention_assets_tests.stores.objects.environments import SqlObjects
from retention_assets_tests.stores.proxy import Proxy, proxied
from retention_assets_tests.stores.records.environments import Units

URN = "urn:li:dataset:1"


class Deleting:
    """A store through a proxy, three transactions of it, and the bytes of each."""

    def __init__(self, proxy: Proxy, store: Store, dataset: str, names: list[str], size: int) -> None:
        self.proxy, self.store, self.dataset, self.names, self.size = proxy, store, dataset, names, size

    def targets(self) -> list[Target]:
        return [Target(one.transaction, one.note, place_known=True) for one in self.store.prepare(self.dataset, self.names)]

    def swept(self, targets: list[Target]) -> dict[str, SweptTarget]:
        return {one.transaction: one for one in self.store.sweep(self.dataset, targets, 1)}


def _units(schema: str, url: str, _: Path) -> tuple[Store, str, list[str], int]:
    units = Units(schema, children=("summary",)).has("u1", "u2", "u3", "stays")
    return (
        RecordsStore(RecordsSettings.model_validate({**units.settings, "url": Url(url)})),
        units.dataset,
        ["u1", "u2", "u3"],
        0,
    )


def _versions(schema: str, url: str, _: Path) -> tuple[Store, str, list[str], int]:
    table = Table(schema)
    table.chain(URN, "status", {0: 1, 1: 5, 2: 4, 3: 3})
    table.database.close()
    return table.store(url=url), "meta/dataset.status", [f"{URN}@{version}" for version in (1, 2, 3)], len(f"{URN} 1")


def _blobs(schema: str, url: str, folder: Path) -> tuple[Store, str, list[str], int]:
    blobs = SqlObjects(folder, schema)
    for key in ("a/1", "a/2", "a/3", "a/stays"):
        blobs.put(key, b"xx")
    return blobs.store(listing={"sql": {**blobs.listing["sql"], "url": url}}), "blobs/a", ["a/1", "a/2", "a/3"], 2


KINDS: dict[str, Callable[[str, str, Path], tuple[Store, str, list[str], int]]] = {
    "children": _units, "records": _units, "aspects": _versions, "objects": _blobs,
}  # fmt: skip


@pytest.fixture(params=KINDS)
def deleting(request: pytest.FixtureRequest, server: str, tmp_path: Path) -> Iterator[Deleting]:
    schema = new_schema(server)
    with proxied(schema) as (proxy, url):
        made = Deleting(proxy, *KINDS[request.param](schema, url, tmp_path))
        if request.param == "records":
            proxy.about = b'DELETE FROM "unit_of_work"'
        yield made
        made.store.close()  # type: ignore[attr-defined]


def test_what_was_deleted_without_an_answer_is_deleted_and_counted(deleting: Deleting) -> None:
    targets = deleting.targets()
    deleting.proxy.loses = True
    found = deleting.swept(targets)
    assert deleting.proxy.lost == 1
    assert {name: (one.outcome, one.bytes) for name, one in found.items()} == dict.fromkeys(
        deleting.names, (Outcome.DELETED, deleting.size)
    )
    assert isinstance(deleting.store, LocatedStore)
    assert not {Remains.ALL, Remains.SOME} & set(deleting.store.remains(deleting.dataset, targets).values())


@pytest.mark.parametrize("deleting", ["records", "aspects", "objects"], indirect=True)
def test_what_nobody_knows_to_be_deleted_stays_begun_and_counts_when_it_is_looked_at(
    deleting: Deleting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "RETRY_TRANSIENT", replace(RETRY_TRANSIENT, attempts=2, pause=0))
    targets = deleting.targets()
    deleting.proxy.loses = deleting.proxy.goes_down = True
    found = deleting.swept(targets)
    assert {one.outcome for one in found.values()} == {Outcome.WITHHELD}
    assert "lost at a commit" in (found[deleting.names[0]].error or "")
    deleting.proxy.is_down = False
    again = deleting.swept([replace(one, begun_earlier=True) for one in targets])
    assert {one.outcome for one in again.values()} == {Outcome.ALREADY_GONE}
    assert {one.bytes for one in again.values()} == {deleting.size}


ROWS = {
    "records": ("unit_of_work", "kind", "id = 'u2'"),
    "aspects": ("metadata_aspect_v2", "createdby", "version = 2"),
    "objects": ("objs", "weight", "id = 'a/2'"),
}


@pytest.mark.parametrize("store_url", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("kind", ROWS)
def test_nobody_changes_a_row_between_its_comparison_and_the_commit(
    store_url: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, dataset, names, _ = KINDS[kind](store_url, store_url, tmp_path)
    targets = [Target(one.transaction, one.note) for one in store.prepare(dataset, names)]
    name, column, condition = ROWS[kind]
    refused, look = list[str](), GuardedDelete.surely_gone

    def meanwhile(deletion: GuardedDelete[Any, Any], connection: Connection, *others: Any) -> list[str]:
        with deletion.database.engine.connect() as writer:
            is_postgresql = connection.dialect.name == "postgresql"
            writer.exec_driver_sql(f"SET {'lock_timeout = 100' if is_postgresql else 'innodb_lock_wait_timeout = 0'}")
            with pytest.raises(OperationalError) as fault:
                writer.exec_driver_sql(f"UPDATE {name} SET {column} = {column} WHERE {condition}")
            refused.append(str(fault.value))
            writer.invalidate()
        return look(deletion, connection, *others)

    monkeypatch.setattr(GuardedDelete, "surely_gone", meanwhile)
    assert {one.outcome for one in store.sweep(dataset, targets, 1)} == {Outcome.DELETED}
    assert len(refused) == 1
    assert "lock" in refused[0].lower()
    store.close()  # type: ignore[attr-defined]


LOSES = """
CREATE SEQUENCE losses;
CREATE FUNCTION loses() RETURNS trigger AS $$ BEGIN
    IF nextval('losses') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL;
END $$ LANGUAGE plpgsql;
CREATE CONSTRAINT TRIGGER loses AFTER DELETE ON objs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION loses()
"""


def test_a_server_that_ends_the_connection_before_the_commit_has_deleted_nothing_and_is_asked_again(
    server: str, tmp_path: Path
) -> None:
    blobs = SqlObjects(tmp_path, new_schema(server))
    blobs.put("a/1", b"xx")
    with blobs.engine.begin() as connection:
        connection.exec_driver_sql(LOSES)
    store = blobs.store()
    targets = [Target(one.transaction, one.note) for one in store.prepare("blobs/a", ["a/1"])]
    assert store.sweep("blobs/a", targets, 1) == [SweptTarget("a/1", Outcome.DELETED, 2)]
    with blobs.engine.connect() as connection:
        assert connection.execute(text("SELECT last_value FROM losses")).scalar_one() > 1
    store.close()
    blobs.close()


def test_a_whole_sweep_counts_what_went_with_a_lost_answer(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is away for longer than anybody tries: the mark stays begun, and the sweep after it knows whose it was."""
    monkeypatch.setattr(foreign, "RETRY_TRANSIENT", replace(RETRY_TRANSIENT, attempts=2, pause=0))
    schema = new_schema(server)
    with proxied(schema) as (proxy, url):
        blobs = SqlObjects(tmp_path, schema)
        blobs.put("a/1", b"xx")
        cycle = ObjectsCycle(blobs, listing={"sql": {**blobs.listing["sql"], "url": url}})
        assert cycle.marks() == 1
        proxy.loses = proxy.goes_down = True
        first = cycle.sweeps(as_of=DUE)["blobs/a"]
        assert proxy.lost == 1
        assert first.bytes_freed == 0
        assert first.refused
        assert cycle.statuses() == {"a/1": "SWEEPING"}
        proxy.is_down = False
        assert cycle.sweeps(as_of=DUE)["blobs/a"].bytes_freed == 2
        assert cycle.statuses() == {"a/1": "SWEPT"}
        blobs.close()
