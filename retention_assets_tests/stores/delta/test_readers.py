"""The writers and readers of these tests themselves: both readers read what was written, and see a file that is missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.delta import golden, tables
from retention_assets_tests.stores.delta.golden import GoldenTable, checkpointed, column_mapped, vectors
from retention_assets_tests.stores.delta.readers import DuckDBReader, readings
from retention_assets_tests.stores.delta.tables import VALUES, Table, Unreadable, random_table, versions


@contextmanager
def missing(file: Path) -> Iterator[None]:
    aside = file.rename(file.with_name("aside"))
    yield
    aside.rename(file)


def test_each_operation_makes_a_version_of_what_it_says(tmp_path: Path) -> None:
    table = Table(tmp_path, 0, 1, partitioned=True)
    steps = [
        (table.append(2, 3), [0, 1, 2, 3]),
        (table.overwrite(15, where=tables.has_value(VALUES[1])), [0, 15, 2, 3]),
        (table.delete("id = 0"), [15, 2, 3]),
        (table.update("id = 2"), [15, 2, 3]),
        (table.merge(2, 4), [15, 2, 3, 4]),
        (table.overwrite(5, 6), [5, 6]),
        (table.append(5, 6), [5, 5, 6, 6]),
        (table.compact(), [5, 5, 6, 6]),
        (table.z_order(), [5, 5, 6, 6]),
        (table.restore(0), [0, 1]),
        (table.set_properties({"retention.keep_versions": "3,17"}), [0, 1]),
    ]
    assert [version for version, _ in steps] == [*range(1, 12)]
    assert [[row[0] for row in tables.rows(tmp_path, version)] for version, _ in steps] == [found for _, found in steps]
    assert [row[2] for row in tables.rows(tmp_path, 5)] == [0, 11, 0, 0]
    assert table.clean_log() == 12
    assert versions(tmp_path) == [12]


def test_a_random_walk_is_the_same_each_time_and_has_all_its_files(tmp_path: Path) -> None:
    one, two = (random_table(tmp_path / name, seed=5, operations=60) for name in ("one", "two"))
    found = [[tables.rows(table.folder, version) for version in versions(table.folder)] for table in (one, two)]
    assert found[0] == found[1]
    assert len(found[0]) > 30
    needed = {str(Path(file).relative_to(one.folder)) for file in tables.file_uris(one.folder, one.version)}
    assert needed < tables.files(one.folder).keys()


@pytest.mark.program
@pytest.mark.parametrize("seed", range(rounds(3)))
def test_both_readers_agree_on_each_version_of_a_random_table(seed: int, tmp_path: Path, duckdb_reader: DuckDBReader) -> None:
    random_table(tmp_path, seed, operations=12)
    found = readings(duckdb_reader, tmp_path, versions(tmp_path))
    assert len(found) == 2 * len(versions(tmp_path))
    assert all(found["deltalake", version] == rows for (_, version), rows in found.items())


@pytest.mark.program
def test_each_reader_sees_that_a_file_of_a_version_is_missing(tmp_path: Path, duckdb_reader: DuckDBReader) -> None:
    table = Table(tmp_path, *range(len(VALUES)), partitioned=True)
    table.overwrite(0)
    for file in tables.file_uris(tmp_path, 0):
        assert len(readings(duckdb_reader, tmp_path, [0])) == 2
        with missing(Path(file)):
            assert readings(duckdb_reader, tmp_path, [0, 1]).keys() == {("deltalake", 1), ("DuckDB", 1)}


def test_changes_are_read_and_a_missing_file_of_them_is_seen(tmp_path: Path) -> None:
    table = Table(tmp_path, 1, 15)
    table.track_changes()
    changed = table.update("id = 1")
    assert tables.change_data(tmp_path, changed) == [(1, "a b", 0, "update_preimage"), (1, "a b", 1, "update_postimage")]
    [file] = (tmp_path / "_change_data").iterdir()
    with missing(file), pytest.raises(Unreadable):
        tables.change_data(tmp_path, changed)


@pytest.mark.program
@pytest.mark.parametrize("name", golden.TABLES)
def test_a_table_after_the_protocol_is_read_as_it_was_meant(name: str, tmp_path: Path, duckdb_reader: DuckDBReader) -> None:
    table = golden.TABLES[name](tmp_path / "t")
    readable = versions(table.folder)
    meant = {(reader, version): table.rows(version) for version in readable for reader in ("deltalake", "DuckDB")}
    assert readings(duckdb_reader, table.folder, readable) == meant
    for version in readable:
        checkpoint = {file for file in table.log.rglob("*") if file.suffix == ".parquet" or ".checkpoint." in file.name}
        for file in table.files(version) - {table.place(path) for path in table.changed[version]} | checkpoint:
            with missing(file):
                assert readings(duckdb_reader, table.folder, [version]) == {}, file


@pytest.mark.program
def test_a_checkpoint_without_one_of_its_parts_is_passed_over(tmp_path: Path, duckdb_reader: DuckDBReader) -> None:
    table = checkpointed(tmp_path / "t", "parts", kept_from=0)
    (table.log / "_last_checkpoint").unlink()
    next(table.log.glob("*.0000000002.0000000003.parquet")).unlink()
    meant = {(reader, version): table.rows(version) for version in range(6) for reader in ("deltalake", "DuckDB")}
    assert readings(duckdb_reader, table.folder, range(6)) == meant


@pytest.mark.parametrize("scheme", ["file://", "file:", ""])
@pytest.mark.parametrize("written", [vectors, checkpointed, partial(column_mapped, partitioned=True)])
def test_a_clone_reads_files_of_its_source(scheme: str, written: Callable[[Path], GoldenTable], tmp_path: Path) -> None:
    source = written(tmp_path / "source")
    cloned = source.version - 1
    clone = golden.clone_of(tmp_path / "clone", source, cloned, scheme)
    assert [tables.rows(clone.folder, version) for version in range(3)] == [clone.rows(version) for version in range(3)]
    assert (clone.rows(0), clone.files(0)) == (source.rows(cloned), source.files(cloned))
    for file in source.files(cloned):
        with missing(file), pytest.raises(Unreadable):
            tables.rows(clone.folder, 0)


def test_change_data_and_a_checksum_after_the_protocol(tmp_path: Path) -> None:
    table = golden.with_change_data(tmp_path / "t")
    table.write_crc(numFiles=7)
    assert tables.change_data(table.folder, 1) == [(2, "new", "update_postimage"), (2, "old", "update_preimage")]
    assert '"numFiles": 7' in (table.log / f"{4:020}.crc").read_text()
