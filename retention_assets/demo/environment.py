"""Environment of the demonstration below one folder: settings, policies, a lake, Iceberg and Delta tables, and two databases.

The databases hold aspects as DataHub keeps them, and units of work with their children.
"""

import fcntl
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import click

from retention_assets.demo.delta import write_delta
from retention_assets.demo.ice import write_ice, write_orphans
from retention_assets.demo.lake import AS_OF, write_lake
from retention_assets.errors import Refused

META, ODS = "meta.db", "ods.db"
CHILDREN = ("summary", "process_object")

_ASPECTS = """
CREATE TABLE metadata_aspect_v2 (
    urn VARCHAR(500) NOT NULL, aspect VARCHAR(200) NOT NULL, version BIGINT NOT NULL, metadata TEXT NOT NULL,
    systemmetadata TEXT, createdon DATETIME NOT NULL, createdby VARCHAR(255) NOT NULL, createdfor VARCHAR(255),
    PRIMARY KEY (urn, aspect, version)
)
"""
_UNITS = """
CREATE TABLE unit_of_work (
    id TEXT PRIMARY KEY, started_at DATETIME NOT NULL, finished_at DATETIME, archived_at DATETIME, journey_type TEXT NOT NULL
)
"""
_CHILD = "CREATE TABLE {0} (unit_of_work_id TEXT NOT NULL REFERENCES unit_of_work (id), part INTEGER NOT NULL, content TEXT)"

# weeks of history of each aspect
_HISTORIES = {("orders", "datasetProperties"): 30, ("clicks", "datasetProperties"): 4, ("orders", "status"): 6}
_UNITS_OF_WORK = 240
_JOURNEYS = ("PAYMENT", "RECALL", "BULK")


def write_databases(folder: Path) -> None:
    """Write both databases, as their applications would have left them."""
    with closing(sqlite3.connect(folder / META)) as meta, meta:
        meta.execute(_ASPECTS)
        meta.executemany("INSERT INTO metadata_aspect_v2 VALUES (?, ?, ?, ?, NULL, ?, 'urn:li:corpuser:etl', NULL)", _aspects())
    with closing(sqlite3.connect(folder / ODS)) as ods, ods:
        ods.execute(_UNITS)
        ods.executemany("INSERT INTO unit_of_work VALUES (?, ?, ?, ?, ?)", _units())
        for child in CHILDREN:
            ods.execute(_CHILD.format(child))
            # without it, deleting by the parent's key scans the whole table
            ods.execute(f"CREATE INDEX ix_{child}_unit_of_work_id ON {child} (unit_of_work_id)")
            rows = [(f"uow-{unit:04d}", part, "…") for unit in range(_UNITS_OF_WORK) for part in range(2)]
            ods.executemany(f"INSERT INTO {child} VALUES (?, ?, ?)", rows)


def _aspects() -> Iterator[tuple[object, ...]]:
    # each version a week older than the one after it; version 0 is the current one, 1 the oldest of the others
    for (name, aspect), history in _HISTORIES.items():
        urn = f"urn:li:dataset:(urn:li:dataPlatform:hive,shop.{name},PROD)"
        for back in range(history + 1):
            version = history - back + 1 if back else 0
            content = json.dumps({"description": f"{name}, as of {back} weeks ago"})
            yield urn, aspect, version, content, _text(AS_OF - timedelta(weeks=back, hours=1))


def _units() -> Iterator[tuple[object, ...]]:
    # five days apart, so that the oldest are older than any period; one in ten never finished, one in five is not archived
    for number in range(_UNITS_OF_WORK):
        started = AS_OF - timedelta(days=5 * (_UNITS_OF_WORK - number))
        finished = started + timedelta(hours=3) if number % 10 != 9 else None
        archived = finished + timedelta(days=1) if finished and number % 5 != 4 else None
        yield f"uow-{number:04d}", _text(started), _text(finished), _text(archived), _JOURNEYS[number % 3]


def _text(instant: datetime | None) -> str | None:
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f") if instant else None


def rows_in(folder: Path) -> Mapping[str, int]:
    """Number of rows in each table."""
    counts = {}
    for file, tables in ((META, ("metadata_aspect_v2",)), (ODS, ("unit_of_work", *CHILDREN))):
        with closing(sqlite3.connect(folder / file)) as connection:
            for table in tables:
                counts[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return counts


MARKER = ".retention-demo"

SETTINGS = """\
# The settings of the demonstration. Everything is in this folder.
ledger: sqlite:///ledger.db
warehouse: warehouse
policies: policies
spark: {master: "local[2]", conf: {}}
# `--as-of` moves the clock, so a week of grace is over in a moment. A real environment has no such line, and refuses an as_of
# in the future. A ledger keeps the kind of clock it was made with.
clock: {simulated: true}
# Everything that Dagster's daemon can do by itself, slow enough to watch.
automation: {discover: true, policies: true, evaluate: 1m, sweep: 1m, report: true}
stores:
  - {name: lake, kind: files, log: log, data: "data/{dataset}/{transaction}"}
  - {name: ice, kind: iceberg, catalog: {type: sql, uri: "sqlite:///ice.db", warehouse: ice}}
  # The files in the warehouse of those tables that no table reaches. Expired snapshots reach fewer files than before.
  - {name: orphans, kind: objects, listing: {path: ice}, references: [{store: ice}], brakes: {references_shrink: 0.6}}
  - {name: lakehouse, kind: delta, tables: ["tables/*"]}
  - {name: meta, kind: aspects, url: "sqlite:///meta.db"}
  - name: ods
    kind: records
    url: "sqlite:///ods.db"
    root:
      table: unit_of_work
      key: id
      opened_at: started_at
      closed_at: finished_at
      archived_at: archived_at
      type: journey_type
    children: [{table: summary, key: unit_of_work_id}, {table: process_object, key: unit_of_work_id}]
"""

POLICIES = """\
# The policies of the demonstration.
policies:
  - name: raw-30-days
    description: Old raw data, once three newer views exist.
    datasets: {include: ["lake/raw.*"], exclude: ["lake/raw.legal_*"]}
    select: {older_than: 30d, beyond: {views: 3}}
  - name: shared-history
    description: Datasets with shared branches.
    datasets: {include: ["lake/demo.*"]}
    select: {older_than: 30d}
  - name: aborted
    description: Transactions that never became part of the data.
    datasets: {include: ["lake/*"]}
    select: {status: [ABORTED], older_than: 3d}
  - name: trash
    description: Derived data in the trash, which can be built again.
    datasets: {include: ["lake/*"], with: {trashed: "true", derived: "true"}}
    select: all
    latest_view: allow
  - name: careful
    description: A mistake that its limits catch.
    datasets: {include: ["lake/wide.*"]}
    select: {older_than: 1d}
    limits: {fraction: 0.5}
  - name: ice-snapshots
    description: Two views of each table, and everything younger than two weeks.
    datasets: {include: ["ice/*"]}
    select: {older_than: 14d, beyond: {views: 2}}
  - name: orphan-files
    description: Files that no table has reached for a week.
    datasets: {include: ["orphans/*"]}
    select: {unreferenced: true, older_than: 7d}
  - name: sales-versions
    description: Versions of Delta tables that were replaced more than three days ago, outside of the window of their table.
    datasets: {include: ["lakehouse/*"]}
    select: {older_than: {age: 3d, of: superseded}}
  - name: units-2-years
    description: Units of work that finished more than two years ago; payments only once they are archived.
    datasets: {include: ["ods/*"]}
    select: {older_than: {age: P2Y, align: day}, terminal_only: true, archived_before_purge: [PAYMENT]}
    sweep: {batch: 40, every: 1s, parallelism: 8}
holds:
  - name: audit-2026
    datasets: ["lake/raw.payments"]
    reason: An audit asked for everything.
    owner: legal
    until: 2026-12-31
"""

DATAHUB = """\
# DataHub's own retention file, as it is: for each aspect the most specific entry wins, whole.
- entity: "*"
  aspect: "*"
  config: {retention: {version: {maxVersions: 20}}}
- entity: dataset
  aspect: datasetProperties
  config: {retention: {version: {maxVersions: 5}, time: {maxAgeInSeconds: 2592000}}}
- entity: dataset
  aspect: status
  config: {retention: {version: {maxVersions: 1}}}
"""

HOME = "dagster"
INSTANCE = """\
# Dagster's home in the demonstration.
telemetry: {enabled: false}
# No invitation in front of the first page.
nux: {enabled: false}
concurrency:
  # A run starts a Spark of its own: two at a time are enough for one machine.
  runs: {max_concurrent_runs: 2}
  # Runs that sweep are in a pool and start one at a time. The ledger's lease keeps two sweeps from one dataset.
  pools: {granularity: run, default_limit: 1}
# A run whose program was killed ends as failed, and gives its place in the pool back. A busy machine is slow to start one.
run_monitoring: {enabled: true, poll_interval_seconds: 20, free_slots_after_run_end_seconds: 20, start_timeout_seconds: 900}
# Runs that ask for it are launched again when they fail: an evaluation after a change of policy files.
run_retries: {enabled: true}
# Most ticks find nothing to do.
retention:
  sensor: {purge_after_days: {skipped: 1, started: 7, success: 7, failure: 7}}
  schedule: {purge_after_days: {skipped: 7, started: 30, success: 30, failure: 30}}
"""

# Removed before building anew. A marker says that the folder is the demonstration's own.
_OWN = (
    "data", "log", "policies", "ice", "tables", "warehouse", HOME, "ice.db", "ledger.db", "ledger.db-shm", "ledger.db-wal",
    META, ODS,
)  # fmt: skip


def build_environment(folder: Path) -> Path:
    """Write the environment anew below a folder that is empty or was made by this function. Returns its settings file."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise Refused(f"{folder} has files that do not belong to the demonstration. Name an empty folder.")
    if (folder / MARKER).is_file():
        os.close(_lock(folder))
    for name in _OWN:
        place = folder / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    (folder / "policies").mkdir(parents=True)
    # it holds the ledger
    folder.chmod(0o700)
    (folder / MARKER).write_text("Made by `retention demo`. It can build everything here again.\n")
    (folder / "retention.yaml").write_text(SETTINGS)
    (folder / "policies" / "demo.yaml").write_text(POLICIES)
    (folder / "policies" / "datahub.yaml").write_text(DATAHUB)
    (folder / HOME).mkdir()
    (folder / HOME / "dagster.yaml").write_text(INSTANCE)
    write_lake(folder)
    write_ice(folder)
    write_orphans(folder)
    write_delta(folder)
    write_databases(folder)
    return folder / "retention.yaml"


def _lock(folder: Path) -> int:
    # The kernel gives the lock back when the program ends, however it ends.
    marker = os.open(folder / MARKER, os.O_RDWR)
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(marker)
        raise Refused(f"`make dev` has {folder} open. End it, then run this again.") from None
    return marker


def open_dagster(folder: Path) -> None:
    """Become `dagster dev` on the environment, after a yes on a terminal: its automation deletes what is due."""
    try:
        marker = _lock(folder)
    except Refused as fault:
        raise SystemExit(str(fault)) from None
    click.echo(f"Dagster marks and sweeps by itself here: it deletes what is due in {folder} within minutes, and nothing else.")
    if sys.stdin.isatty() and sys.stdout.isatty() and not click.confirm("Go on?"):
        raise SystemExit("Nothing was started, and nothing is deleted.")
    # Dagster keeps the lock.
    os.set_inheritable(marker, True)
    os.execv(sys.executable, [sys.executable, "-m", "dagster", "dev", "--workspace", "workspace.yaml"])


def bytes_in(folder: Path) -> Mapping[str, int]:
    """Bytes of the files of each lake."""
    lakes = {"the lake": "data", "Iceberg": "ice", "Delta": "tables"}
    files = {name: (folder / place).rglob("*") for name, place in lakes.items()}
    return {name: sum(file.stat().st_size for file in places if file.is_file()) for name, places in files.items()}
