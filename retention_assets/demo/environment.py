"""The environment of the demonstration below one folder: settings, policies, a lake, an Iceberg catalog, all with real bytes.

Belongs here: building it anew, and how much of it there is. What is in it is lake.py's and ice.py's.
"""

import shutil
from pathlib import Path

from retention_assets.demo.ice import write_ice
from retention_assets.demo.lake import write_lake

MARKER = ".retention-demo"

SETTINGS = """\
# The settings of the demonstration. Everything lies below this folder.
ledger: sqlite:///ledger.db
warehouse: warehouse
policies: policies
spark: {master: "local[2]", conf: {}}
automation: {discover: true, policies: true}
stores:
  - {name: lake, kind: files, log: log, data: "data/{dataset}/{transaction}"}
  - {name: ice, kind: iceberg, catalog: {type: sql, uri: "sqlite:///ice.db", warehouse: ice}}
"""

POLICIES = """\
# The policies of the demonstration.
policies:
  - name: raw-30-days
    description: Old raw data, once three newer views exist.
    datasets: {include: ["lake/raw.*"], exclude: ["lake/raw.legal_*"]}
    select: {older_than: 30d, beyond: {views: 3}}
  - name: shared-history
    description: What the demonstration of shared branches is about.
    datasets: {include: ["lake/demo.*"]}
    select: {older_than: 30d}
  - name: aborted
    description: Transactions that never became part of the data.
    datasets: {include: ["lake/*"]}
    select: {status: [ABORTED], older_than: 3d}
  - name: trash
    description: Derived data in the trash can be built again.
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
holds:
  - name: audit-2026
    datasets: ["lake/raw.payments"]
    reason: An audit asked for everything.
    owner: legal
    until: 2026-12-31
"""

# What building it anew takes away first. A marker says that the folder is the demonstration's own.
_OWN = ("data", "log", "policies", "ice", "warehouse", "dagster", "ice.db", "ledger.db", "ledger.db-shm", "ledger.db-wal")


def build(folder: Path) -> Path:
    """Write the environment anew below a folder that is empty or was made by this function. Returns its settings file."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise FileExistsError(f"{folder} holds something that is not the demonstration. Name an empty folder.")
    _clear(folder)
    (folder / "policies").mkdir(parents=True)
    (folder / MARKER).write_text("Made by `retention demo`; everything here can be built again.\n")
    (folder / "retention.yaml").write_text(SETTINGS)
    (folder / "policies" / "demo.yaml").write_text(POLICIES)
    write_lake(folder)
    write_ice(folder)
    return folder / "retention.yaml"


def _clear(folder: Path) -> None:
    for name in _OWN:
        place = folder / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def bytes_in(*folders: Path) -> int:
    """The bytes of all files below some folders, as the file system has them."""
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
