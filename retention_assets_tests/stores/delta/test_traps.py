"""Traps into which other tools have fallen, and the tests that show that this store does not.

Deletion vectors taken for strays, shared, absolute, prefixed   test_cases 7 to 10, test_exact
Paths decoded twice or not at all                               here, test_cases 12, test_readers_elsewhere 23
Files of a writer that has not committed yet                    test_cases 15
Removals judged by the time that a writer noted                 test_exact, odd tombstones
Tombstones of checkpoints taken as the list of what may go      here, test_cases 16
A restored version that lacks files                             test_races, test_refusals
Commit times changed by a copy                                  test_windows 14
Versions misnumbered after a gap                                test_refusals 17
A source swept under its clone                                  test_readers_elsewhere 23
A log cut by somebody else in the middle of a sweep             test_races
"""

from pathlib import Path

import pytest

from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.delta.environments import S3Tables, keep
from retention_assets_tests.stores.delta.golden import GoldenTable
from retention_assets_tests.stores.delta.tables import VALUES, Table, file_uris, rows
from retention_assets_tests.stores.delta.test_cases import DELETED, overwritten
from retention_assets_tests.stores.delta.test_exact import data
from retention_assets_tests.stores.files.environments import S3


def test_a_path_is_decoded_exactly_once(tmp_path: Path) -> None:
    table = GoldenTable(tmp_path / "t", partitioned=True)
    table.commit(table.add_file(1, p="%20"))
    table.replace(table.add_file(2, p="%20"))
    [path] = table.states[0]
    assert path.startswith("p=%252520/")
    # what decoding twice would take for it
    other = table.folder / "p=%20" / table.place(path).name
    other.parent.mkdir()
    other.touch()
    assert keep(table.folder, 1).gone == {f"p=%2520/{other.name}"}
    assert (other.exists(), {file.exists() for file in table.files(1)}) == (True, {True})


def test_keys_of_s3_are_paths_decoded_once(tmp_path: Path, s3: S3) -> None:
    tables, count = S3Tables(tmp_path, s3), len(VALUES)
    table = Table(tables.folder / "t1", *range(count), partitioned=True)
    newest = table.overwrite(*range(count, 2 * count))
    tables.commit("lh/t1")
    before = tables.data().keys()
    [answer] = tables.store().sweep("lh/t1", [Target("0")], 2)
    assert answer.outcome is DELETED
    assert len(before - tables.data().keys()) == count
    assert {f"t1/{Path(place).relative_to(table.folder)}" for place in file_uris(table.folder, newest)} <= tables.data().keys()


@pytest.mark.parametrize("kept", ["interval 0 seconds", "interval 1 week"])
def test_tombstones_of_a_checkpoint_decide_nothing(kept: str, tmp_path: Path) -> None:
    """Whether it still has them or not: the version that they are of may be retained."""
    table = overwritten(tmp_path / "t", 4)
    table.set_properties({"delta.deletedFileRetentionDuration": kept})
    table.checkpoint()
    newest, before = table.overwrite(5), rows(table.folder, 1)
    assert keep(table.folder, 1, newest).outcomes() == dict.fromkeys((0, 2, 3), DELETED)
    assert rows(table.folder, 1) == before
    assert len(data(table.folder)) == 2
