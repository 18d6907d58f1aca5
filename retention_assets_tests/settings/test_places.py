"""Places: one folder under all of its names, and nothing where somebody else deletes."""

from pathlib import Path

import pytest

from retention_assets.errors import Problem
from retention_assets.settings import Settings
from retention_assets.settings.places import identities_of, place_of
from retention_assets.stores.files import FilesSettings
from retention_assets_tests.settings.settings_files import problems, read

SAME = [
    ("{0}/data", "file://{0}/data"),
    ("{0}/data", "FILE:{0}/data/"),
    ("{0}/data", "{0}/linked"),
    ("{0}/data", "{0}/folder/up/data"),
    ("{0}/not/there/yet", "{0}/folder/up/not//there/yet"),
    ("{0}/data/l.db", "sqlite+pysqlite:///{0}/linked/l.db"),
    ("s3://bucket/a", "S3://BUCKET//a/./"),
    ("s3://bucket/a", "s3n://key:secret@bucket/a"),
    ("s3://bucket", "simplecache::s3://bucket/"),
    ("gs://bucket/a", "gcs://bucket/a"),
    ("abfs://box@one.dfs.core.windows.net/a", "abfss://BOX@one.dfs.core.windows.net/a"),
    ("az://box/a", "abfs://box@one.dfs.core.windows.net/a"),
    ("hdfs://name/a", "webhdfs://name//a"),
]
OTHERS = [
    ("{0}/data", "{0}/data2"),
    ("{0}/data", "{0}"),
    ("s3://bucket/a", "s3://bucket/ab"),
    ("s3://bucket/a", "s3://other/a"),
    ("s3://bucket/a", "gs://bucket/a"),
    ("s3://bucket/a", "s3://bucket/A"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a folder `data`, a link to it, and a link to the folder above."""
    (tmp_path / "data").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "data")
    (tmp_path / "folder" / "up").symlink_to("..")
    return tmp_path


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_place_under_two_names_is_one(folder: Path, one: str, other: str) -> None:
    first, second = place_of(one.format(folder)), place_of(other.format(folder))
    assert first.holds(second)
    assert second.holds(first)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_lies_in_a_place_lies_in_it_under_its_other_name(folder: Path, one: str, other: str) -> None:
    for outer, inner in ((one, other), (other, one)):
        base, mark, query = inner.format(folder).partition("?")
        above, below = place_of(outer.format(folder)), place_of(f"{base.rstrip('/')}/in/it{mark}{query}")
        assert above.holds(below)
        assert not below.holds(above)


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_another_place_is_not_held(folder: Path, one: str, other: str) -> None:
    assert not place_of(one.format(folder)).holds(place_of(other.format(folder)))


LAKE = 'stores:\n  - {{name: lake, kind: files, log: {log}, data: "{data}/{{dataset}}/{{transaction}}"}}\n'


def lake(data: str, log: str = "logs", more: str = "", other: str = "") -> str:
    return f"{more}\n{LAKE.format(data=data, log=log)}{other}"


RAW = '  - {{name: raw, kind: files, log: {}, data: "{}/{{dataset}}/{{transaction}}"}}\n'
ICE = "  - {{name: ice, kind: iceberg, catalog: {{type: sql, uri: 'sqlite:///{}', warehouse: '{}'}}}}\n"
REST = "  - {{name: rest, kind: iceberg, catalog: {{type: rest, uri: 'https://c', warehouse: '{}'}}}}\n"
META = "  - {{name: meta, kind: aspects, url: 'sqlite:///{}'}}\n"

# What lies where somebody else deletes: the settings, and the two keys that are named.
AT_ODDS = {
    "the ledger": (lake("data", more="ledger: sqlite:///data/l.db"), "ledger", "stores[0].data"),
    "the ledger behind a link": (lake("data", more="ledger: sqlite:///linked/l.db"), "ledger", "stores[0].data"),
    "the warehouse": (lake("data", more="warehouse: data/w"), "warehouse", "stores[0].data"),
    "the warehouse, as a URI": (lake("data", more="warehouse: 'file://{0}/data/w'"), "warehouse", "stores[0].data"),
    "the warehouse in a bucket": (
        lake("s3://bucket/d", more="warehouse: s3a://bucket//d/w"), "warehouse", "stores[0].data",
    ),
    "the policies": (lake("data", more="policies: [policies, data/p.yaml]"), "policies[1]", "stores[0].data"),
    "the settings file": (
        lake("folder/up", "/else/log", "ledger: sqlite:////else/l.db\nwarehouse: /else/w\npolicies: /else/p"),
        "settings file", "stores[0].data",
    ),
    "the data of another": (lake("data", other=RAW.format("raw", "linked/deeper")), "stores[1].data", "stores[0].data"),
    "the same data as another": (lake("file://{0}/data", other=RAW.format("raw", "linked")), "stores[1].data", "stores[0].data"),
    "the same bucket by another scheme": (
        lake("s3://bucket/a", other=RAW.format("raw", "s3a://bucket/a/b")), "stores[1].data", "stores[0].data",
    ),
    "the log of another": (lake("data", other=RAW.format("data/logs", "raw")), "stores[1].log", "stores[0].data"),
    "the database of another": (lake("data", other=META.format("data/m.db")), "stores[1].url", "stores[0].data"),
    "a catalog": (lake("data", other=ICE.format("data/ice.db", "ice")), "stores[1].catalog.uri", "stores[0].data"),
    "the tables of a catalog": (lake("data", other=ICE.format("ice.db", "data/ice")), "stores[1].catalog.warehouse", "stores[0].data"),
    "data in the tables of a catalog": (
        lake("ice/data", other=ICE.format("ice.db", "ice")), "stores[0].data", "stores[1].catalog.warehouse",
    ),
    "the tables of a catalog elsewhere": (
        lake("s3://bucket/a", other=REST.format("s3a://bucket/a/ice")), "stores[1].catalog.warehouse", "stores[0].data",
    ),
    "the ledger in the warehouse": (lake("data", more="ledger: sqlite:///w/l.db\nwarehouse: w"), "ledger", "warehouse"),
    "data in the warehouse": (lake("w/data", more="warehouse: w"), "stores[0].data", "warehouse"),
    "a log in the warehouse": (lake("data", log="w/logs", more="warehouse: w"), "stores[0].log", "warehouse"),
}  # fmt: skip


def fault(folder: Path, text: str) -> Problem:
    # `read` writes the file there; data that holds it is data in that folder.
    [found] = problems(folder, text.replace("{0}", str(folder)))
    return found


@pytest.mark.parametrize("case", AT_ODDS)
def test_nothing_lies_where_somebody_else_deletes(folder: Path, case: str) -> None:
    text, inner, outer = AT_ODDS[case]
    problem = fault(folder, text)
    assert f"{inner} (" in problem.what
    assert f") lies in {outer} (" in problem.what
    assert problem.expected == "a folder of its own for each"
    assert problem.remedy
    if problem.remedy != "Move the data of one of them, or keep both histories in one log.":
        assert problem.remedy == f"Move {inner} out of it, or give {outer} a folder that holds nothing else."
    assert problem.key == ("warehouse" if "stores" not in inner + outer else "stores")


def test_places_beside_each_other_are_taken(folder: Path) -> None:
    text = lake(
        "data", log="data/logs",
        other=RAW.format("logs", "data2") + ICE.format("ice.db", "ice") + ICE.format("ice.db", "ice").replace("ice,", "more,")
        + REST.format("data") + META.format("ice.db"),
    )  # fmt: skip
    assert len(read(folder, text).stores) == 6


class Heap(FilesSettings):
    """A kind that is told of another store, as one that collects what nobody refers to."""

    def may_hold(self, other: object) -> bool:
        return isinstance(other, FilesSettings) and other.name == "lake"


def test_a_kind_may_lie_over_a_store_that_it_is_told_of_and_over_no_other(tmp_path: Path) -> None:
    def store(kind: type[FilesSettings], name: str, data: str) -> FilesSettings:
        return kind(name=name, log=f"{tmp_path}/log", data=f"{tmp_path}/{data}/{{dataset}}/{{transaction}}")

    heap = store(Heap, "heap", "all")
    assert len(Settings(stores=(heap, store(FilesSettings, "lake", "all/lake"))).stores) == 2
    with pytest.raises(ValueError, match="the stores heap and raw data in one folder"):
        Settings(stores=(heap, store(FilesSettings, "raw", "all/raw")))


def test_a_link_that_was_made_after_the_settings_were_read_is_seen(tmp_path: Path) -> None:
    settings = read(tmp_path, lake("data", more="ledger: sqlite:///state/l.db"))
    assert list(settings.place_conflicts()) == []
    (tmp_path / "data").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "data")
    [found] = settings.place_conflicts()
    assert (found.inner.key, found.outer.key) == ("ledger", "stores[0].data")
    assert found.stores == {"lake"}


def test_no_password_of_a_place_is_shown(folder: Path) -> None:
    problem = fault(folder, lake("s3://key:hush@bucket/a", other=RAW.format("raw", "s3://bucket/a/b")))
    assert "hush" not in str(problem)


def test_the_journals_of_a_database_are_its_own_as_well(tmp_path: Path) -> None:
    files = [tmp_path / f"ledger.db{end}" for end in ("", "-wal", "-shm")]
    for file in (*files, tmp_path / "ledger.db-other"):
        file.touch()
    assert identities_of([f"sqlite:///{files[0]}"]) == {(file.stat().st_dev, file.stat().st_ino) for file in files}
