"""Exactly what retained versions need is left: random tables of deltalake, and tables laid down after the protocol."""

import random
from pathlib import Path
from urllib.parse import unquote

import pytest

from retention_assets.outcomes import Outcome
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.delta import tables
from retention_assets_tests.stores.delta.environments import keep
from retention_assets_tests.stores.delta.golden import TABLES, odd_tombstones
from retention_assets_tests.stores.delta.readers import DuckDBReader, readings
from retention_assets_tests.stores.delta.tables import Unreadable, file_uris, files, random_table, versions


def needed(folder: Path, number: int) -> set[str]:
    """The files of a version: what it can be read by, and its change data."""
    log = folder / "_delta_log" / f"{number:020}.json"
    changes = tables.paths_of("cdc", log.read_text("utf-8")) if log.exists() else []
    return {str(Path(place).relative_to(folder)) for place in file_uris(folder, number)} | set(map(unquote, changes))


def data(folder: Path) -> set[str]:
    return {name for name in files(folder) if not name.startswith("_delta_log")}


def rows(folder: Path, number: int) -> object:
    try:
        return tables.rows(folder, number)
    except Unreadable:
        return None


@pytest.mark.parametrize("seed", range(rounds(24)))
def test_random_tables_keep_what_is_retained_and_nothing_else(seed: int, tmp_path: Path) -> None:
    folder, rng = tmp_path / "t", random.Random(seed)
    random_table(folder, seed)
    numbers = versions(folder)
    retained = {*rng.sample(numbers, rng.randint(0, min(5, len(numbers)))), numbers[-1]}
    before, there = {number: rows(folder, number) for number in retained}, data(folder)
    named = set[str]().union(*(needed(folder, number) for number in numbers))
    swept = keep(folder, *retained)
    # the table may pin some itself
    kept = retained | swept.kept | {number for number, outcome in swept.outcomes().items() if outcome is Outcome.SPARED}
    wanted = set[str]().union(*(needed(folder, number) for number in kept))
    assert data(folder) == {name for name in there if name in wanted or name not in named}, seed
    assert {number: rows(folder, number) for number in retained} == before, seed


@pytest.mark.program
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("seed", range(2))
def test_a_table_after_the_protocol_keeps_what_is_retained(
    name: str, seed: int, tmp_path: Path, duckdb_reader: DuckDBReader
) -> None:
    table = TABLES[name](tmp_path / "t")
    numbers = versions(table.folder)
    retained = {*random.Random(seed).sample(numbers, 2), numbers[-1]}
    before = readings(duckdb_reader, table.folder, retained)
    named = {str(file.relative_to(table.folder)) for number in numbers for file in table.files(number)}
    swept = keep(table.folder, *retained)
    wanted = {str(file.relative_to(table.folder)) for number in retained for file in table.files(number)}
    assert swept.gone == named - wanted
    assert readings(duckdb_reader, table.folder, retained) == before


def test_tombstones_of_any_time_are_judged_by_their_commit(tmp_path: Path) -> None:
    table = odd_tombstones(tmp_path / "t")
    swept = keep(table.folder, table.version)
    assert len(swept.gone) == 3
