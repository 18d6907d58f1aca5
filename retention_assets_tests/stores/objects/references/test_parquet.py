"""Parquet: columns as keys, whole by the footers, whatever becomes of the files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.stores.objects.references import SourceNotWhole
from retention_assets.stores.objects.sources import files
from retention_assets_tests.stores.objects.references.sources import edge_source, ends_of, objects_of, rows_of, source


def write(file: Path, rows_of_group: int = 1_000, **columns: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), file, row_group_size=rows_of_group)
    return file


def test_columns_of_any_name_are_keys_realms_and_who_refers(tmp_path: Path) -> None:
    write(tmp_path / "refs" / "1", blob=["a", "é"], tenant=["r", None], by=["mail 1", None], other=[1, 2])
    given = source(tmp_path, {"parquet": "refs/*", "key": "blob", "realm": "tenant", "from": "by"})
    assert rows_of(given) == [{"object": "a", "realm": "r", "from": "mail 1"}, {"object": "é", "realm": None, "from": None}]
    assert rows_of(source(tmp_path, {"parquet": "refs/*", "key": "blob"}))[0] == {"object": "a", "realm": None, "from": None}
    # One column may be asked for twice.
    assert rows_of(source(tmp_path, {"parquet": "refs/*", "key": "blob", "from": "blob"}))[0]["from"] == "a"


def test_edges_have_two_columns(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"from": ["a", None, "x"], "to": ["b", "c", None], "r": ["r", "s", "t"]}
    write(tmp_path / "edges", **columns)
    assert rows_of(edge_source(tmp_path, {"parquet": "edges", "realm": "r"})) == [{"from": "a", "to": "b", "realm": "r"}]


KEYS = {
    "large text": pa.array(["a", "b", None], pa.large_string()),
    "codes": pa.array(["a", "b", None]).dictionary_encode(),
    "text": pa.array(["a", None, "b"]),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_keys_are_text_and_rows_without_one_are_none(tmp_path: Path, keys: pa.Array) -> None:
    write(tmp_path / "refs", object=keys)
    assert objects_of(source(tmp_path, {"parquet": "refs"})) == ["a", "b"]


def test_numbers_are_the_keys_that_they_are_as_text(tmp_path: Path) -> None:
    write(tmp_path / "refs", object=pa.array([7, -1, None, 2**53 + 1], pa.int64()))
    assert objects_of(source(tmp_path, {"parquet": "refs"})) == ["-1", "7", "9007199254740993"]


@pytest.mark.parametrize("wanted", [1, 3, 100])
@pytest.mark.parametrize("group", [2, 7, 1_000])
@pytest.mark.parametrize("unread", [0, -1])
def test_every_row_is_in_one_share_and_one_that_nobody_read_is_missed(
    tmp_path: Path, wanted: int, group: int, unread: int
) -> None:
    for number in range(2):
        write(tmp_path / "refs" / str(number), group, object=[f"{number}-{one}" for one in range(20)])
    write(tmp_path / "refs" / "empty", object=pa.array([], pa.string()))
    pq.ParquetWriter(tmp_path / "refs" / "no groups", pa.schema([("object", pa.string())])).close()
    given = source(tmp_path, {"parquet": "refs/*"})
    assert objects_of(given, wanted) == sorted(f"{number}-{one}" for number in range(2) for one in range(20))
    shares = given.shares(wanted)
    assert len(shares) >= min(wanted, 3)
    rest = [share for share in shares if share != shares[unread]]
    missed = given.finish(ends_of(given, rest))
    assert [share.file for share in missed] == [shares[unread].file]
    assert given.finish([*ends_of(given, rest), *ends_of(given, missed)]) == []


FAULTS = {
    "cut short": (lambda text: text[:-10], "can't be read"),
    "no Parquet": (lambda text: b"PAR2" + text, "can't be read"),
    "empty": (lambda _: b"", "can't be read"),
    "a page spoiled": (lambda text: text.replace(b"needle", b"nEEdle"), "can't be read"),
}


@pytest.mark.parametrize(("spoil", "said"), FAULTS.values(), ids=FAULTS)
def test_a_file_that_is_not_whole_is_named(tmp_path: Path, spoil: Any, said: str) -> None:
    write(tmp_path / "refs" / "1", object=["a"])
    file = tmp_path / "refs" / "2"
    pq.write_table(
        pa.table({"object": ["needle"]}),
        file,
        write_page_checksum=True,
        use_dictionary=False,
        write_statistics=False,
        compression="none",
        store_schema=False,
    )
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(SourceNotWhole, match=rf"refs/2 {said}"):
        rows_of(source(tmp_path, {"parquet": "refs/*"}))


def test_columns_that_cannot_be_keys_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "refs", object=[1.5], blobs=["a"], raw=[b"a"])
    for key, said in (("object", "type double"), ("raw", "type binary"), ("blob", "no column blob; did you mean blobs")):
        with pytest.raises(SourceNotWhole, match=rf"refs can't be read: .*{said}"):
            rows_of(source(tmp_path, {"parquet": "refs", "key": key}))


def test_a_file_of_other_groups_that_takes_the_place_of_one_is_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "refs", 2, object=[str(one) for one in range(8)])
    given = source(tmp_path, {"parquet": "refs"})
    shares = given.shares(4)
    write(file, 4, object=[str(one) for one in range(8)])
    ends = ends_of(given, shares)
    assert sum(end.rows for end in ends) == 0
    again = given.finish(ends)
    assert [end.rows for end in ends_of(given, again)] == [8]
    assert given.finish([*ends, *ends_of(given, again)]) == []


def test_rows_that_are_fewer_than_the_footer_says_are_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "refs", 2, object=["a", "b", "c"])
    read = pq.ParquetFile.iter_batches

    def ends_early(self: pq.ParquetFile, *given: Any, **named: Any) -> Any:
        return list(read(self, *given, **named))[:1]

    monkeypatch.setattr(files, "_BATCH", 2)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", ends_early)
    with pytest.raises(SourceNotWhole, match="refs can't be read: its footer counts 3 rows, but it has 2"):
        rows_of(source(tmp_path, {"parquet": "refs"}))
