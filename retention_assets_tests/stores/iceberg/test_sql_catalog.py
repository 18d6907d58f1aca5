"""What a SQL catalog is asked and how often; that its tables are found and loaded as PyIceberg would have it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import event

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg import catalog as catalog_module
from retention_assets.stores.iceberg import manifests
from retention_assets.stores.iceberg.catalog import CatalogTables, load_table
from retention_assets.stores.iceberg.fence import file_identity
from retention_assets.stores.iceberg.manifests import ParsedFiles
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, own_metadata, planned, sweep, swept
from retention_assets_tests.stores.iceberg.tables import SCHEMA, Warehouse, replaced


@contextmanager
def statements(store: IcebergStore) -> Iterator[list[tuple[str, bool]]]:
    said = list[tuple[str, bool]]()
    engine = store._catalog().engine  # type: ignore[attr-defined]

    def listen(_: Any, __: Any, statement: str, *___: Any) -> None:
        said.append((statement, "iceberg_tables" in statement and "table_name =" not in statement))

    event.listen(engine, "before_cursor_execute", listen)
    try:
        yield said
    finally:
        event.remove(engine, "before_cursor_execute", listen)


def asked_by_a_sweep(folder: Path, tables: int) -> tuple[int, int]:
    folder.mkdir()
    with Warehouse(folder) as warehouse:
        _, (one, two, _) = replaced(warehouse, 3)
        for number in range(tables):
            warehouse.table(f"other{number}")
        store = warehouse.store()
        # The first sweep of a store reads the metadata of all tables.
        assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
        with statements(store) as said:
            assert outcomes(sweep(store, two)) == {two: Outcome.DELETED}
        store.close()
    return sum(is_all for _, is_all in said), sum(not is_all for _, is_all in said)


def test_a_sweep_looks_at_all_tables_twice_and_asks_for_no_more_where_there_are_more(tmp_path: Path) -> None:
    few, many = asked_by_a_sweep(tmp_path / "few", 2), asked_by_a_sweep(tmp_path / "many", 20)
    # Right before the commit, and right before the first file is deleted.
    assert few == many
    assert few[0] == 2


def test_the_tokens_of_a_few_tables_are_asked_for_alone(warehouse: Warehouse, store: IcebergStore) -> None:
    table, _ = warehouse.table(), warehouse.table("other")
    with statements(store) as said:
        assert store.tokens([DATASET, "ice/db.none"]) == {DATASET: table.metadata_location}
    assert not any(is_all for _, is_all in said)


# Of one file: as a catalog may have it, and as a table beside it does.
SPELLINGS = {
    "the same": ("s3://b/t/metadata/2.json", "s3://b/t"),
    "another scheme of S3": ("s3a://b/t/metadata/2.json", "s3://b/t"),
    "the oldest scheme of S3": ("s3n://b/t/metadata/2.json", "s3a://b/t/"),
    "Google's two": ("gcs://b/t/metadata/2.json", "gs://b/t"),
    "a plain path": ("/b/t/metadata/2.json", "file:///b/t"),
    "one slash": ("file:/b/t/metadata/2.json", "file:///b/t"),
    "slashes and dots": ("file:///b//t/./x/../metadata/2.json", "/b/t"),
    "a slash at the end": ("file:///b/t/metadata/2.json", "file:///b/t//"),
    "percent signs": ("s3://b/t%20a%/metadata/2.json", "s3://b/t%20a%"),
    "signs of SQL": ("s3://b/t_'\\%/metadata/2.json", "s3://b/t_'\\%"),
    "letters of other scripts": ("s3://b/Straße/metadata/2.json", "s3a://b/Straße"),
}
OTHERS = ["s3://b/t2/metadata/2.json", "s3://b/T/metadata/2.json", "s3://b/t%20/metadata/2.json", "s3://b/t/metadata/x/2.json"]


@pytest.mark.parametrize(("location", "folder"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_table_beside_another_is_found_however_its_place_is_spelled(warehouse: Warehouse, location: str, folder: str) -> None:
    table = warehouse.table()
    table.metadata = table.metadata.model_copy(update={"location": folder})
    places = {"a.b%c": location, **{f"other{number}": place for number, place in enumerate(OTHERS)}}
    _insert(warehouse, places)
    known = CatalogTables(lambda namespace, name: f"{namespace}/{name}")
    assert known.look(warehouse.catalog, _no_names()) == {"db/t", *(f"db/{name}" for name in places)}
    assert known.sharing_folder(table) == {"db/t", "db/a.b%c"}


def _insert(warehouse: Warehouse, places: dict[str, str], kind: str = "TABLE") -> None:
    rows = [("ice", "db", name, location, kind) for name, location in places.items()]
    columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
    with sqlite3.connect(warehouse.folder / "catalog.db") as database:
        database.executemany(f"INSERT INTO iceberg_tables ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
    database.close()


def _no_names() -> Iterator[str]:
    yield pytest.fail("one statement tells")


FOLDERS = ("s3://b/t", "s3a://b/t", "s3://b/u", "/b/t", "file:///b/t")
ROWS = st.dictionaries(
    st.tuples(st.sampled_from(("a", "b")), st.sampled_from(("t", "u", "v"))),
    st.none() | st.builds("{}/metadata/{}.json".format, st.sampled_from(FOLDERS), st.integers(0, 2)),
)


class _Listed:
    def __init__(self, rows: dict[tuple[str, str], str | None]) -> None:
        self.rows = rows


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_after_any_changes_a_look_knows_what_a_first_look_would(looks: list[dict[tuple[str, str], str | None]]) -> None:
    """What is taken over from the look before must not be told from what is read anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog_module, "SqlCatalog", _Listed)
        patch.setattr(catalog_module, "_all_rows", lambda catalog: [(*name, at) for name, at in catalog.rows.items()])
        known, before = CatalogTables(_dataset), dict[tuple[str, str], str | None]()
        for rows in looks:
            changed = {_dataset(*name) for name, at in rows.items() if name not in before or before[name] != at}
            assert known.look(_Listed(rows), _no_names()) == changed  # type: ignore[arg-type]
            assert known.locations == {_dataset(*name): at for name, at in rows.items() if at}
            for folder in FOLDERS:
                identity = file_identity(f"{folder}/metadata")
                beside = {name for name, at in known.locations.items() if at and file_identity(at).startswith(f"{identity}/")}
                assert known._in_folder.get(identity, set()) == beside
            before = rows


def _dataset(namespace: str, name: str) -> str:
    return f"{namespace}.{name}"


@pytest.mark.parametrize("old", [False, True])
def test_a_table_is_loaded_as_pyiceberg_loads_it(warehouse: Warehouse, old: bool) -> None:
    made = warehouse.table(**{"s3.region": "here"})
    warehouse.catalog.create_namespace("a.b")
    nested = warehouse.catalog.create_table(("a", "b", "c.d"), SCHEMA)
    if old:
        # As catalogs were before they kept views.
        with sqlite3.connect(warehouse.folder / "catalog.db") as database:
            database.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
        database.close()
    catalog = load_catalog("ice", **warehouse.properties)
    for table in (made, nested):
        other, own = catalog.load_table(table.name()), load_table(catalog, table.name(), ParsedFiles())
        assert (own, own.name(), own.catalog) == (other, other.name(), catalog)
        assert (type(own.io), own.io.properties) == (type(other.io), other.io.properties)
    catalog.close()


def test_neither_a_view_nor_a_name_without_a_place_is_a_table(warehouse: Warehouse) -> None:
    table = warehouse.table()
    _insert(warehouse, {"view": table.metadata_location}, "VIEW")
    _insert(warehouse, {"empty": ""})
    for name in ("view", "empty", "none"):
        with pytest.raises(NoSuchTableError):
            load_table(warehouse.catalog, ("db", name), ParsedFiles())


def test_metadata_that_is_written_anew_in_its_place_is_read_anew(warehouse: Warehouse) -> None:
    table, parsed = warehouse.table(), ParsedFiles()
    assert load_table(warehouse.catalog, table.name(), parsed).metadata == table.metadata
    other = table.metadata.model_copy(update={"location": f"file://{warehouse.data}/moved"})
    Path(table.metadata_location.removeprefix("file://")).write_text(other.model_dump_json())
    assert load_table(warehouse.catalog, table.name(), parsed).metadata == other


@pytest.mark.parametrize("what", ["list", "manifest"])
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-20] + bytes(20)], ids=["cut", "changed"])
def test_what_is_damaged_after_the_plan_deletes_nothing(
    warehouse: Warehouse, store: IcebergStore, what: str, damage: Callable[[bytes], bytes]
) -> None:
    table, (one, two) = replaced(warehouse, 2)
    targets = planned(store, one)
    file = own_metadata(table, two, what)
    file.write_bytes(damage(file.read_bytes()))
    there = warehouse.files()
    assert outcomes(swept(store, targets)) == {one: Outcome.FAILED}
    assert warehouse.files() == there


def test_a_sweep_parses_nothing_again(warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (one, _) = replaced(warehouse, 2)
    targets = planned(store, one)
    parse, parsed = manifests._blocks, list[int]()

    def blocks(data: bytes, wanted: Any) -> Iterator[Any]:
        parsed.append(len(data))
        return parse(data, wanted)

    monkeypatch.setattr(manifests, "_blocks", blocks)
    assert outcomes(swept(store, targets)) == {one: Outcome.DELETED}
    assert parsed == []
