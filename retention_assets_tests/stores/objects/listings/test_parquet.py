"""A list of objects in Parquet files: columns of any fitting type, shares, and files that are not what they were."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import Refused
from retention_assets.stores.objects.sources.finished import objects_of
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of, settings_of

AT = datetime(2026, 11, 20, 1, 2, 3, 456789, UTC)


def listing(folder: Path, columns: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    files = {"files": f"{folder}/*.parquet", "as_of": "2026-11-20T00:00:00Z", **({"columns": columns} if columns else {})}
    return {"parquet": files, **more}


def table(*keys: str, **columns: Any) -> pa.Table:
    size = len(keys)
    given = {"key": list(keys), "created_at": pa.array([AT] * size, pa.timestamp("us", "UTC")), "size": [1] * size}
    return pa.table({name: column for name, column in {**given, **columns}.items() if column is not None})


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    said = {"k": ["a", "b"], "t": [AT, AT], "s": [1, None], "e": ['"x"', None], "r": ["acme", "b"], "c": ["d", None]}
    pq.write_table(pa.table({**said, "v": pa.nulls(2, pa.string())}), tmp_path / "x.parquet")
    names = {"key": "k", "created_at": "t", "size": "s", "etag": "e", "version": "v", "kind": "c"}
    made = listing_of(listing(tmp_path, names), realm={"column": "r"})
    assert made.begin() == datetime(2026, 11, 20, tzinfo=UTC)
    assert listed(made) == {
        "a": {"realm": "acme", "kind": "d", "size": 1, "created_at": AT, "condition": '{"etag":"x"}'},
        "b": {"realm": "b", "kind": None, "size": None, "created_at": AT, "condition": None},
    }


def test_what_is_not_named_is_found_by_its_role_but_a_realm_is_said(tmp_path: Path) -> None:
    pq.write_table(table("a", realm=["acme"], kind=["doc"], etag=["x"], size=None), tmp_path / "x.parquet")
    [row] = listed(listing_of(listing(tmp_path))).values()
    assert row == {"realm": None, "kind": None, "size": None, "created_at": AT, "condition": '{"etag":"x"}'}


TIMES = {
    "microseconds": (pa.array([AT], pa.timestamp("us", "UTC")), AT),
    "nanoseconds in another zone": (pa.array([AT], pa.timestamp("ns", "Europe/Berlin")), AT),
    "milliseconds": (pa.array([AT.replace(microsecond=456000)], pa.timestamp("ms", "UTC")), AT.replace(microsecond=456000)),
    "without a zone": (pa.array([AT.replace(tzinfo=None)], pa.timestamp("us")), AT),
    "text": (pa.array(["2026-11-20T02:02:03.456789+01:00"]), AT),
    "text without a zone": (pa.array(["2026-11-20 01:02:03.456789"]), AT),
    "a dictionary of text": (pa.array(["2026-11-20T01:02:03.456789Z"]).dictionary_encode(), AT),
    "finer ones, which are cut": (pa.array([1_000_001_999], pa.timestamp("ns", "UTC")), datetime(1970, 1, 1, 0, 0, 1, 1, UTC)),
    "none": (pa.array([None], pa.timestamp("us", "UTC")), None),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_are_instants(tmp_path: Path, name: str) -> None:
    column, expected = TIMES[name]
    pq.write_table(table("a", created_at=column), tmp_path / "x.parquet")
    assert listed(listing_of(listing(tmp_path)))["a"]["created_at"] == expected


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()])
def test_keys_of_any_kind_of_text(tmp_path: Path, kind: pa.DataType) -> None:
    keys = pa.array(["é/b"]).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(["é/b"]).dictionary_encode()
    pq.write_table(table("a", key=keys), tmp_path / "x.parquet")
    assert listed(listing_of(listing(tmp_path))).keys() == {"é/b"}


BAD: tuple[tuple[str, dict[str, Any], dict[str, str] | None, str], ...] = (
    ("no key", {"key": None}, None, r"x\.parquet has no column key.*It has created_at, size"),
    ("no time", {"created_at": None}, None, r"x\.parquet has no column created_at"),
    ("a named column", {}, {"size": "bytes"}, r"x\.parquet has no column bytes for the size"),
    ("numbers as times", {"created_at": [17]}, None, r"The column created_at of .*x\.parquet can't be read.*int64"),
    ("days as times", {"created_at": pa.array([1], pa.date32())}, None, "The column created_at of .*date32"),
    ("words as times", {"created_at": ["yesterday"]}, None, "The column created_at of .*yesterday"),
    ("a key that is null", {"key": pa.array([None], pa.string())}, None, "The column key of .*an object has no key"),
    ("bytes that are no text", {"key": pa.array([b"\xff"])}, None, "The column key of .*can't be read"),
    ("a size that is no number", {"size": ["x"]}, None, "The column size of .*can't be read"),
)


@pytest.mark.parametrize(("columns", "names", "expected"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_is_no_list_of_objects_is_refused(
    tmp_path: Path, columns: dict[str, Any], names: dict[str, str] | None, expected: str
) -> None:
    pq.write_table(table("a", **columns), tmp_path / "x.parquet")
    with pytest.raises(Refused, match=expected):
        listed(listing_of(listing(tmp_path, names)))


def test_no_file_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"No file is at .*\*\.parquet"):
        listing_of(listing(tmp_path)).shares(1)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(Refused, match=r"x\.parquet can't be read as Parquet"):
        listed(listing_of(listing(tmp_path)))


@pytest.mark.parametrize("wanted", [1, 2, 3, 7, 50])
def test_shares_are_files_or_groups_of_rows(tmp_path: Path, wanted: int) -> None:
    keys = [f"{number:03d}" for number in range(60)]
    for number in range(3):
        pq.write_table(table(*keys[number * 20 : number * 20 + 20]), tmp_path / f"{number}.parquet", row_group_size=6)
    made = listing_of(listing(tmp_path))
    shares = made.shares(wanted)
    assert len(shares) == min(wanted, 12)
    assert listed(made, wanted).keys() == set(keys)


@pytest.mark.parametrize("wanted", [1, 4])
def test_a_file_that_changed_or_went_meanwhile_fails(tmp_path: Path, wanted: int) -> None:
    pq.write_table(table("a", "b"), tmp_path / "x.parquet", row_group_size=1)
    made = listing_of(listing(tmp_path))
    [share, *_] = made.shares(wanted)
    pq.write_table(table("a", "b", "c"), tmp_path / "x.parquet", row_group_size=1)
    with pytest.raises(Refused, match=r"x\.parquet changed since the listing began"):
        list(made.read(share))
    (tmp_path / "x.parquet").unlink()
    with pytest.raises(Refused, match=r"x\.parquet can't be read"):
        list(made.read(share))


def test_a_file_that_is_put_in_place_of_one_that_is_being_read_fails(tmp_path: Path) -> None:
    pq.write_table(table("a", "b"), tmp_path / "x.parquet", row_group_size=1)
    made = listing_of(listing(tmp_path))
    [share] = made.shares(1)
    reading = made.read(share)
    next(reading)
    pq.write_table(table("a", "b", "c"), tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "x.parquet")
    with pytest.raises(Refused, match=r"x\.parquet changed since the listing began"):
        list(reading)


def test_a_file_of_which_not_all_rows_are_read_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table("a", "b"), tmp_path / "x.parquet")
    made = listing_of(listing(tmp_path))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_: iter([table("a").to_batches()[0]]))
    with pytest.raises(Refused, match=r"x\.parquet claims 2 rows, but has 1"):
        list(made.read(*made.shares(1)))


def test_objects_are_found_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_bytes(b"123")
    pq.write_table(table("a", "gone"), tmp_path / "x.parquet")
    made = listing_of(listing(tmp_path, path=str(tmp_path / "root")))
    assert listed(made).keys() == {"a", "gone"}
    assert found(made, ["a", "gone"])["a"]["size"] == 3
    with pytest.raises(Refused, match=r"kind parquet .* Set `listing\.path`"):
        listing_of(listing(tmp_path)).find(["a"])


def test_what_is_found_has_the_realm_that_the_list_says(tmp_path: Path) -> None:
    for key in ("a", "b", "unlisted"):
        (tmp_path / "root").mkdir(exist_ok=True)
        (tmp_path / "root" / key).write_bytes(b"123")
    pq.write_table(table("gone", "b", "a", realm=["x", None, "acme"]), tmp_path / "x.parquet")
    made = listing_of(listing(tmp_path, {"realm": "realm"}, path=str(tmp_path / "root")))
    rows = found(made, ["a", "b", "gone", "unlisted"])
    assert {key: (row["realm"], row["size"]) for key, row in rows.items()} == {"a": ("acme", 3), "b": (None, 3)}
    assert found(made, ["gone"]) == {}


def test_files_in_a_bucket_and_times_as_it_says_them(s3: S3, tmp_path: Path) -> None:
    pq.write_table(table("a"), tmp_path / "x.parquet")
    s3.put("lists/x.parquet", (tmp_path / "x.parquet").read_bytes())
    files = {"files": "s3://lake/lists/*.parquet", "as_of": "2026-11-20T00:00:00Z"}
    assert listed(listing_of({"parquet": files}))["a"]["created_at"] == AT
    # What is asked of the place itself has whole seconds.
    assert listed(listing_of({"parquet": files, "path": "s3://lake/x"}))["a"]["created_at"] == AT.replace(microsecond=0)


def test_columns_of_the_right_type_are_passed_on_as_they_are() -> None:
    batch = table("a", "b").to_batches()[0]
    made = objects_of(batch, {"key": "key", "created_at": "created_at", "size": "size"}, False, "x")
    for name in ("key", "created_at", "size"):
        assert made[name].buffers()[-1].address == batch[name].buffers()[-1].address


def test_only_one_dataset_is_known_before_the_list_is_read(tmp_path: Path) -> None:
    made = listing_of(listing(tmp_path))
    assert made.distinct_names(settings_of(listing(tmp_path))) == ["blobs/blobs"]
    assert made.distinct_names(settings_of(listing(tmp_path), dataset="{0}")) is None
