"""What tests share: one Spark session for the whole suite. A start costs seconds, a warm query tenths of one."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from retention_assets import silence
from retention_assets.settings import secrets
from retention_assets_tests.ceph import ceph
from retention_assets_tests.databases import mariadb, server, store_url, url
from retention_assets_tests.ledger.templates import make_again
from retention_assets_tests.selection import name_of, read_list, without_case
from retention_assets_tests.warm import keep_warm, share_jobs

if TYPE_CHECKING:
    import dagster as dg
    from pyspark.sql import SparkSession

    from retention_assets_tests.stores.files.environments import S3


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_seconds", 60.0)
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setattr(secrets, "_pattern", None)


__all__ = ["ceph", "mariadb", "server", "store_url", "url"]

# A choice of an archive, be it Java's default, keeps each environment of a test from creating one of its own on Java 19 and newer.
# `make test` names that of .ci/class_archive.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-Xshare:auto")

# Folders and modules that take their time; single tests of other modules carry the mark themselves.
_LONG = (
    "people",
    "dagster/automation",
    "dagster/embedding",
    "ledger",
    "stores",
    "sweep",
    "dagster/assets/test_swept_transactions.py",
    "dagster/test_chain.py",
    "dagster/test_checks.py",
    "dagster/test_held_realms.py",
    "dagster/test_jobs.py",
    "dagster/test_partition_events.py",
    "dagster/test_purged_realms.py",
    "dagster/test_run_folders.py",
    "frames/test_laws.py",
    "frames/verdicts/test_where_duckdb.py",
    "pipeline/test_sweep_stage.py",
    "sql/test_foreign.py",
    "test_silence.py",
)

# Modules that take longest, the slowest first: what begins last is to be short, or two workers wait for the third.
_SLOWEST = (
    "pipeline/test_cluster.py",
    "screens/test_screens.py",
    "screens/test_questions.py",
    "dagster/test_runs.py",
    "sweep/test_killed.py",
    "test_benchmarks.py",
    "demo/test_demo.py",
    "people/test_plan_laws.py",
    "sweep/test_campaign.py",
    "dagster/test_definitions.py",
    "test_packaging.py",
    "test_silence.py",
    "ledger/test_edits.py",
    "sweep/test_expiry.py",
    "frames/test_laws.py",
    "pipeline/test_spark.py",
    "stores/records/test_store.py",
)

# What a test may be given for a database; the first of these that it is given is tried by `make test`.
_DATABASES = ("sqlite", "postgresql", "mariadb", "mysql")

# What `make test` leaves out, as in the Makefile.
LEFT_OUT = {"again", "matrix", "kill", "program", "cluster", "screen", "large"}

# Half of what tests wait for is a disk that promises to keep what nobody wants kept. The suite needs a GiB or two.
_MEMORY, _ROOM = Path("/dev/shm"), 4 * 1024**3


def pytest_configure() -> None:
    """For all programs that tests start, too: temporary files are in memory where it has room."""
    # What one worker has compiled, or a program that a test starts, no other compiles again: it is a fifth of a short start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where nobody asks for it, what is long by where it stands is not even imported: that would take as long as the rest."""
    is_long = str(collection_path.relative_to(Path(__file__).parent)) in _LONG
    return True if is_long and "not long" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long by where it stands, and begin with what takes longest: side by side, all are to end together."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(_SLOWEST)}
    long = {here / name for name in _LONG}
    gone = [str(path) for path in (*long, *places) if not path.exists()]
    assert not gone, gone
    _mark_the_matrix(items)
    mark_by_list(read_list(), items)
    # A path is looked at once, not once for each of ten thousand tests.
    orders = {path: places.get(path, len(places)) for path in {item.path for item in items}}
    long_ones = {path for path in orders if long & {path, *path.parents}}
    items.sort(key=lambda item: orders[item.path])
    for item in items:
        if item.path in long_ones:
            item.add_marker(pytest.mark.long)


def _mark_the_matrix(items: Iterable[pytest.Item]) -> None:
    """Of one case over several databases, all but the first are `matrix`, unless it is about what tells them apart (`dialect`)."""
    tried = defaultdict[tuple[object, ...], dict[str, pytest.Item]](dict)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not item.get_closest_marker("dialect"):
            given: dict[str, object] = item.callspec.params
            databases = [one for one in given.values() if isinstance(one, str) and one in _DATABASES]
            # Each value that is not a database is one object for all the items that have it.
            rest = [(name, id(value)) for name, value in given.items() if not isinstance(value, str) or value not in databases]
            tried[item.path, item.originalname, *rest].update((database, item) for database in databases[:1])
    for by_database in tried.values():
        first = min(by_database, key=_DATABASES.index, default=None)
        for database in by_database.keys() - {first}:
            by_database[database].add_marker(pytest.mark.matrix)


def mark_by_list(numbers: Mapping[str, int], items: Iterable[pytest.Item]) -> None:
    """Mark all cases of a test but so many as are listed, if it is; those that are tried lie apart, and begin anywhere."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        name = without_case(name_of(item.nodeid))
        if name in numbers and LEFT_OUT.isdisjoint(own.name for own in item.iter_markers()):
            cases[name].append(item)
    for name, every in cases.items():
        number = numbers[name]
        step = max(1.0, len(every) / max(1, number))
        begin = crc32(name.encode()) % int(step)
        tried = {begin + int(step * at) for at in range(number)}
        for at, item in enumerate(every):
            if at not in tried:
                item.add_marker(pytest.mark.again)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Keep the signal that ends pytest: a run of Dagster leaves it the handler of SIGINT, which a shell's background programs ignore."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        return (yield)
    finally:
        signal.signal(signal.SIGTERM, before)


def pytest_collection_finish() -> None:
    """What modules and tests hold, they hold to the end: nobody need look through a million objects for what of it is garbage."""
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def new_databases() -> Iterator[None]:
    """Empty ledgers are made as the first one was, and what Alembic reads to make an instance of Dagster it reads once."""
    read = ScriptDirectory.from_config

    @cache
    def read_once(place: str) -> ScriptDirectory:
        config = Config()
        config.set_main_option("script_location", place)
        return read(config)

    def from_config(config: Config) -> ScriptDirectory:
        return read_once(config.get_main_option("script_location") or "")

    with pytest.MonkeyPatch.context() as patch:
        make_again(patch)
        patch.setattr(ScriptDirectory, "from_config", from_config)
        keep_warm(patch)
        yield


@pytest.fixture(scope="session")
def shared_jobs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        share_jobs(patch)
        yield


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from retention_assets.pipeline.spark import spark_session

    session = spark_session("local[2]", {"spark.driver.memory": "2g"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_server() -> "Iterator[S3]":
    """An S3 on loopback. The library behind it has one memory for all of a program, so there is one for all tests."""
    from retention_assets_tests.stores.files.environments import S3

    server = S3()
    yield server
    server.close()


@pytest.fixture
def local_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this test place their work in this Python. Where it is placed is tested where a run itself is."""
    from retention_assets_tests.local_spark import place_here

    place_here(monkeypatch)


@pytest.fixture(scope="session")
def new_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Dagster that was opened once. A copy of it is there six times as fast as another one."""
    import dagster

    home = tmp_path_factory.mktemp("home")
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(home))
        dagster.DagsterInstance.get().dispose()
    return home


@pytest.fixture
def instance_on_disk(new_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[dg.DagsterInstance]":
    """A Dagster instance that other programs and the command line find as well, and that is there before they look."""
    import dagster

    home = shutil.copytree(new_home, tmp_path / "home")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dagster.DagsterInstance.get() as made:
        yield made


@pytest.fixture
def instance(instance_on_disk: "dg.DagsterInstance") -> "dg.DagsterInstance":
    """What most tests of runs take; where it is made for every test of a folder, one in memory stands in its place."""
    return instance_on_disk
