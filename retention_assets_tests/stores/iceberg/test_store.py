"""The catalog of an Iceberg store: which tables there are, their tokens, and what cannot be read of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from retention_assets.errors import Refused
from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.iceberg import catalog as catalog_module
from retention_assets.stores.iceberg import store as iceberg_store
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, swept
from retention_assets_tests.stores.iceberg.tables import SCHEMA, Warehouse, append, place, replaced


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_text("{"), lambda file: file.write_text("{}")])
def test_a_table_whose_metadata_is_spoiled_has_a_fault_and_the_others_are_read(
    warehouse: Warehouse, store: IcebergStore, spoil: Callable[[Path], object]
) -> None:
    spoil(Path(place(warehouse.table("broken").metadata_location)))
    append(warehouse.table("sound"), 1)
    log = sound_log(store.read(store.datasets()))
    faults = dict(zip(log.datasets["dataset"].to_pylist(), log.datasets["fault"].to_pylist(), strict=True))
    assert faults["ice/db.broken"].startswith("the table's metadata can't be read: ")
    assert faults["ice/db.sound"] is None
    assert log.transactions.num_rows == 1


def test_metadata_that_a_commit_removed_while_it_was_opened_is_read_again(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.table()
    gone = iter([True])

    def load_table(*asked: Any) -> Table:
        if next(gone, False):
            raise FileNotFoundError("00001.metadata.json")
        return catalog_module.load_table(*asked)

    monkeypatch.setattr(iceberg_store, "load_table", load_table)
    assert store.read([DATASET])["fault"].to_pylist() == [None]
    assert next(gone, None) is None


def test_tokens_of_any_catalog_are_the_same(warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.table()
    asked = [DATASET, "ice/db.none"]
    tokens = store.tokens(asked)
    monkeypatch.setattr(catalog_module, "SqlCatalog", Warehouse)
    assert store.tokens(asked) == tokens == {DATASET: warehouse.load().metadata_location}


def test_tables_whose_names_differ_in_where_a_dot_belongs_have_own_tokens(warehouse: Warehouse, store: IcebergStore) -> None:
    warehouse.catalog.create_namespace("a")
    warehouse.catalog.create_namespace("a.b")
    nested = warehouse.catalog.create_table(("a", "b", "c"), SCHEMA)
    dotted = warehouse.catalog.create_table(("a", "b.c"), SCHEMA, location=f"file://{warehouse.data}/dotted")
    asked = ["ice/a.b%2Ec", "ice/a.b.c"]
    assert store.datasets() == asked
    assert store.tokens(asked) == {asked[0]: dotted.metadata_location, asked[1]: nested.metadata_location}


def test_another_catalog_in_the_same_database_does_not_speak_for_this_one(warehouse: Warehouse, store: IcebergStore) -> None:
    mine = warehouse.table()
    with SqlCatalog("other", **warehouse.properties) as other:
        other.create_namespace("db")
        other.create_table("db.t", SCHEMA, location=f"file://{warehouse.data}/other")
        other.create_table("db.more", SCHEMA)
    assert store.tokens([DATASET, "ice/db.more"]) == {DATASET: mine.metadata_location}


def test_a_table_that_was_dropped_after_it_was_listed_has_no_line(warehouse: Warehouse, store: IcebergStore) -> None:
    warehouse.table()
    names = store.datasets()
    warehouse.catalog.drop_table("db.t")
    assert (store.read(names).num_rows, dict(store.tokens(names))) == (0, {})


def test_namespaces_are_chosen_by_globs_however_deep_they_lie(warehouse: Warehouse) -> None:
    for namespace in ("raw", "raw.eu", "raw.eu.old", "curated", "rawer"):
        warehouse.table(namespace=namespace)
    chosen = warehouse.store(namespaces=["raw", "raw.*"])
    assert chosen.datasets() == ["ice/raw.eu.old.t", "ice/raw.eu.t", "ice/raw.t"]
    assert sound_log(chosen.read(chosen.datasets())).datasets["fault"].to_pylist() == [None] * 3
    assert set(chosen.tokens(chosen.datasets())) == set(chosen.datasets())
    chosen.close()


def test_many_tables_are_read_in_shares(warehouse: Warehouse, store: IcebergStore) -> None:
    for number in range(130):
        warehouse.table(f"t{number}")
    shares = store.shares(store.datasets())
    assert [len(share) for share in shares] == [64, 64, 2]
    assert sum(store.read(share).num_rows for share in shares) == 130
    assert len(store.tokens(store.datasets())) == 130


def test_a_catalog_that_is_away_is_refused_and_not_made(tmp_path: Path) -> None:
    secret = {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/catalog.db", "warehouse": str(tmp_path), "token": "hush"}
    store = IcebergStore(IcebergSettings(name="ice", catalog=secret))
    for ask in (
        store.datasets,
        lambda: store.read([DATASET]),
        lambda: store.tokens([DATASET]),
        lambda: store.prepare(DATASET, ["1"]),
    ):
        with pytest.raises(Refused, match="The catalog of the store ice can't be read: ") as refused:
            ask()
        assert "hush" not in str(refused.value)
    assert outcomes(swept(store, [Target("1")])) == {1: Outcome.FAILED}
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_without_tables_of_its_own_is_left_without(tmp_path: Path) -> None:
    store = IcebergStore(
        IcebergSettings(name="ice", catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/new.db", "warehouse": "w"})
    )
    with pytest.raises(Refused, match="can't be read"):
        store.datasets()
    store.close()
    assert (tmp_path / "new.db").stat().st_size == 0


def test_the_catalog_may_have_a_name_of_its_own(warehouse: Warehouse) -> None:
    warehouse.table()
    renamed = IcebergStore(IcebergSettings(name="lake", catalog={**warehouse.properties, "name": "ice"}))
    assert renamed.datasets() == ["lake/db.t"]
    assert renamed.read(["lake/db.t"]).num_rows == 1
    renamed.close()


NOTES = (
    ("no JSON", "{", Outcome.FAILED),
    ("no note", "{}", Outcome.FAILED),
    ("statistics that are none", '{"table": "x", "manifest_list": "l", "statistics": [1]}', Outcome.FAILED),
    ("another table of that name", '{"table": "x", "manifest_list": "l", "statistics": []}', Outcome.ALREADY_GONE),
    ("none at all", None, Outcome.ALREADY_GONE),
)


@pytest.mark.parametrize(("note", "outcome"), [pytest.param(*case, id=title) for title, *case in NOTES])
def test_an_unfit_note_deletes_nothing(warehouse: Warehouse, store: IcebergStore, note: str | None, outcome: Outcome) -> None:
    append(warehouse.table(), 1)
    there = warehouse.files()
    assert outcomes(swept(store, [Target("12345", note)])) == {12345: outcome}
    assert warehouse.files() == there


def test_a_note_outlives_the_table_it_was_made_for(warehouse: Warehouse, store: IcebergStore) -> None:
    _, (one, _) = replaced(warehouse, 2)
    [prepared] = store.prepare(DATASET, [str(one)])
    warehouse.catalog.drop_table("db.t")
    append(warehouse.table(), 3)
    there = warehouse.files()
    [result] = swept(store, [Target(prepared.transaction, prepared.note)]).values()
    assert (result.outcome, result.error) == (
        Outcome.ALREADY_GONE,
        "another table has the name now; the files of the earlier table stay",
    )
    assert warehouse.files() == there
