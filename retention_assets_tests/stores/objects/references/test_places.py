"""Locations as keys: two spellings of one place are one, and what may be either is refused."""

from pathlib import Path

import pyarrow as pa
import pytest

from retention_assets.stores.objects.references import SourceNotWhole
from retention_assets.stores.objects.sources.stores import ListingRoot

DEFAULT = {"s3a": "s3", "s3n": "s3"}

# root, location, key (None: outside)
SPELLINGS = [
    ("s3://b/wh", "s3://b/wh/t/data/1", "t/data/1"),
    ("s3://b/wh/", "s3a://b/wh/t/1", "t/1"),
    ("s3a://b/wh", "S3://b/wh/t/1", "t/1"),
    ("s3://b", "s3n://b/t/1", "t/1"),
    ("s3://b/", "s3://b//t/1", "/t/1"),
    ("s3://b/wh", "s3://b/wh//1", "/1"),
    ("s3://b/wh", "s3://b/wh/a%20b?c#d e", "a%20b?c#d e"),
    ("s3://b/wh", "s3://b/wh", None),
    ("s3://b/wh", "s3://b/wh/", None),
    ("s3://b/wh", "s3://b/wh2/1", None),
    ("s3://b/wh", "s3://b/other/1", None),
    ("s3://b/wh", "s3://c/other/1", None),
    ("s3://b/wh", "/other/1", None),
    ("gs://b/wh", "gcs://b/wh/1", "1"),
    ("abfss://c@a.dfs.core.windows.net/wh", "abfs://c@a.dfs.core.windows.net/wh/1", "1"),
    ("/no/wh", "file:///no/wh/t/1", "t/1"),
    ("/no/wh/", "file:/no/wh/t/1", "t/1"),
    ("file:///no/wh", "/no/wh/t/1", "t/1"),
    ("/no/wh", "file://localhost/no/wh/1", "1"),
    ("/no/wh", "/no//wh/./t/../u/1", "u/1"),
    ("/no/wh", "/no/wh/../other/1", None),
    ("/no/wh", "/no/wh/a:b/c%d?e#f", "a:b/c%d?e#f"),
    ("/no/wh", "s3://b/other/1", None),
    ("hdfs://nn:8020/wh", "hdfs://nn:8020/wh/1", "1"),
]


@pytest.mark.parametrize(("root", "location", "key"), SPELLINGS)
def test_a_location_is_a_key_below_the_root(root: str, location: str, key: str | None) -> None:
    given = pa.array([location], pa.string())
    assert ListingRoot(root, DEFAULT).keys(given, "t").to_pylist() == ([] if key is None else [key])
    # Whatever stands beside it.
    other = f"{root.rstrip('/')}/z"
    assert sorted(ListingRoot(root, DEFAULT).keys(pa.array([other, location]), "t").to_pylist()) == sorted(
        ["z", *([key] if key else [])]
    )


# root, location, what the settings say, key; or the setting that must be declared
DOUBTS = [
    ("s3://b/wh", "oss://b/wh/1", {}, {}, "equal_schemes: {oss: s3}"),
    ("s3://b/wh", "oss://b/wh/1", {"oss": "s3"}, {}, "1"),
    ("s3://b/wh", "oss://b/wh/1", {"oss,cos": "s3"}, {}, "1"),
    ("s3://b/wh", "oss://b/wh/1", {"oss": "oss"}, {}, None),
    ("s3://b/wh", "s3://c/wh/1", {}, {}, "equal_authorities: {c: b}"),
    ("s3://b/wh", "s3a://c/wh/1", {}, {"c": "b"}, "1"),
    ("s3://b/wh", "s3://c/wh/1", {}, {"c": "c"}, None),
    ("s3://b/wh", "oss://c/wh/1", {"oss": "s3"}, {}, "equal_authorities: {c: b}"),
    ("s3://b/wh", "oss://c/wh/1", {"oss": "s3"}, {"c": "b"}, "1"),
    ("s3://b", "s3://c/anything", {}, {}, "equal_authorities: {c: b}"),
    ("gs://b/wh", "s3a://b/wh/1", {"s3a": "s3"}, {}, "equal_schemes: {s3a: gs}"),
    ("/wh", "s3://b/wh/1", {}, {}, "equal_schemes: {s3: file}"),
    ("hdfs:///wh", "hdfs://nn/wh/1", {}, {"nn": ""}, "1"),
]


@pytest.mark.parametrize(("root", "location", "schemes", "authorities", "expected"), DOUBTS)
def test_the_same_path_in_another_place_is_declared_or_refused(
    root: str, location: str, schemes: dict[str, str], authorities: dict[str, str], expected: str | None
) -> None:
    given, root_ = (
        pa.array([location, "s3://elsewhere/x"] if root != "s3://b" else [location]),
        ListingRoot(root, schemes, authorities),
    )
    if expected and ":" in expected:
        with pytest.raises(SourceNotWhole, match=f"table t names {location}.*below that of {root}.*") as raised:
            root_.keys(given, "table t")
        assert expected in str(raised.value)
    else:
        assert root_.keys(given, "table t").to_pylist() == ([expected] if expected else [])


def test_files_are_found_by_the_links_that_lead_to_them(tmp_path: Path) -> None:
    (tmp_path / "disk" / "wh" / "real").mkdir(parents=True)
    (tmp_path / "wh").symlink_to(tmp_path / "disk" / "wh")
    (tmp_path / "disk" / "wh" / "link").symlink_to("real")
    for root in (f"{tmp_path}/wh", f"file://{tmp_path}/disk/wh"):
        for location in (f"{tmp_path}/wh/real/1", f"file://{tmp_path}/disk/wh/real/1"):
            assert set(ListingRoot(root).keys(pa.array([location]), "t").to_pylist()) == {"real/1"}
        assert set(ListingRoot(root).keys(pa.array([f"{tmp_path}/wh/link/1"]), "t").to_pylist()) >= {"real/1"}
        assert set(ListingRoot(root).folders(pa.array([f"{tmp_path}/wh/link"]), "t").to_pylist()) >= {"real/"}
        # Beside one that no link leads to.
        both = pa.array([f"{tmp_path}/disk/wh/other/2", f"{tmp_path}/wh/link/1"])
        assert set(ListingRoot(root).keys(both, "t").to_pylist()) >= {"other/2", "real/1"}


FOLDERS = [
    ("s3://b/wh", "s3://b/wh/t", ["t/"]),
    ("s3://b/wh", "s3a://b/wh/t/u//", ["t/u/"]),
    ("s3://b/wh", "s3://b/wh", ["/"]),
    ("s3://b/wh/x/", "s3://b/wh", ["/"]),
    ("s3://b/wh", "s3://b", ["/"]),
    ("s3://b/wh", "s3://b/", ["/"]),
    ("s3://b/wh", "s3://b/w", []),
    ("s3://b/wh", "s3://c/other", []),
    ("/no/wh", "/no/wh/t/", ["t/"]),
    ("/no/wh", "file:///no", ["/"]),
    ("/no/wh", "/", ["/"]),
    ("/no/wh", "/no/wh/t/../..", ["/"]),
]


@pytest.mark.parametrize(("root", "folder", "keys"), FOLDERS)
def test_a_folder_is_everything_below_it(root: str, folder: str, keys: list[str]) -> None:
    assert sorted(set(ListingRoot(root, DEFAULT).folders(pa.array([folder]), "t").to_pylist())) == keys


def test_no_locations_are_no_keys() -> None:
    nothing = pa.array([], pa.string())
    for root in ("/no/wh", "s3://b/wh"):
        assert ListingRoot(root).keys(nothing, "t").to_pylist() == ListingRoot(root).folders(nothing, "t").to_pylist() == []


def test_a_folder_in_another_place_is_refused_by_its_own_name() -> None:
    with pytest.raises(SourceNotWhole, match=r"t names s3://c/wh/t, whose path lies below that of s3://b/wh"):
        ListingRoot("s3://b/wh").folders(pa.array(["s3://c/wh/t/"]), "t")
