"""Iceberg tables of the demonstration: a few weeks of snapshots, a branch and a tag.

PyIceberg gives every snapshot the present time, so the times are moved in the tables' own metadata afterwards, before
anybody reads it.
"""

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from retention_assets.demo.lake import AS_OF

# left in the folder of a table by a write that never committed
ORPHANS = (
    "data/00000-0-failed-write-00001.parquet",
    "data/00000-0-failed-write-00002.parquet",
    "metadata/failed-write.metadata.json",
)
_ROWS = 2_000
_TIME = re.compile(r"(timestamp-ms|last-updated-ms)$")


def catalog_of(folder: Path) -> Catalog:
    place = folder.absolute()
    return load_catalog("ice", type="sql", uri=f"sqlite:///{place / 'ice.db'}", warehouse=f"file://{place / 'ice'}")


def write_ice(folder: Path) -> None:
    """Write two tables: one that is replaced every four days, and one with a tag and a branch that people rely on."""
    (folder / "ice").mkdir()
    with catalog_of(folder) as catalog:
        catalog.create_namespace("shop")
        orders = catalog.create_table("shop.orders", _batch(0).schema)
        for number in range(12):
            orders.overwrite(_batch(number)) if number else orders.append(_batch(number))
        prices = catalog.create_table("shop.prices", _batch(0).schema)
        for number in range(8):
            prices.append(_batch(number))
        # A live file outside of its table's folder: its place says nothing about it.
        elsewhere = folder.absolute() / "ice" / "landing" / "prices-2019.parquet"
        elsewhere.parent.mkdir()
        pq.write_table(_batch(8), elsewhere)
        prices.add_files([f"file://{elsewhere}"])
        snapshots = [snapshot.snapshot_id for snapshot in prices.metadata.snapshots]
        with prices.manage_snapshots() as change:
            change.create_tag(snapshots[1], "year-end").create_branch(snapshots[2], "audit")
        for table in (orders, prices):
            _age(table)


def write_orphans(folder: Path) -> None:
    """Write files that no table reaches: of a failed write, a stray metadata file, and the folder of a dropped table."""
    warehouse = folder / "ice"
    # A table that this catalog does not know looks like one that it has forgotten.
    with load_catalog("gone", type="sql", uri="sqlite:///:memory:", warehouse=f"file://{warehouse.absolute()}") as gone:
        gone.create_namespace("shop")
        gone.create_table("shop.carts", _batch(0).schema).append(_batch(0))
    with catalog_of(folder) as catalog:
        table = Path(catalog.load_table("shop.prices").location().removeprefix("file://"))
    for name in ORPHANS:
        (table / name).write_bytes(b"left behind by a write that failed" * _ROWS)
    # All of it is older than the policies ask: only a reference keeps a file.
    at = (AS_OF - timedelta(days=40)).timestamp()
    for file in warehouse.rglob("*"):
        os.utime(file, (at, at))


def add_branch(folder: Path, table: str, branch: str, snapshot: int) -> None:
    with catalog_of(folder) as catalog, catalog.load_table(table).manage_snapshots() as change:
        change.create_branch(snapshot, branch)


def orphans_left(folder: Path) -> set[str]:
    warehouse = folder / "ice"
    strays = [warehouse / "shop" / "prices" / name for name in ORPHANS]
    files = [*strays, *(warehouse / "shop" / "carts").rglob("*")]
    return {str(file.relative_to(warehouse)) for file in files if file.is_file()}


def rows_of(folder: Path) -> dict[str, int]:
    """Number of rows that every branch and tag of every table reads back."""
    with catalog_of(folder) as catalog:
        counts = {}
        for name in catalog.list_tables("shop"):
            table = catalog.load_table(name)
            for ref, target in sorted(table.metadata.refs.items()):
                counts[f"{'.'.join(name)} {ref}"] = table.scan(snapshot_id=target.snapshot_id).to_arrow().num_rows
        return counts


def _batch(number: int) -> pa.Table:
    ids = pa.array(range(number * _ROWS, (number + 1) * _ROWS), pa.int64())
    return pa.table({"id": ids, "batch": [f"batch {number}"] * _ROWS})


def _age(table: Table) -> None:
    written = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(written.read_text())
    times = sorted({holder[key] for holder, key in _times(metadata)})
    step = timedelta(weeks=7) / len(times)
    moved = {value: int((AS_OF - step * (len(times) - place)).timestamp() * 1000) for place, value in enumerate(times)}
    for holder, key in _times(metadata):
        holder[key] = moved[holder[key]]
    written.write_text(json.dumps(metadata))


def _times(node: Any) -> list[tuple[dict[str, Any], str]]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = [(node, key) for key in node if _TIME.search(key)] if isinstance(node, dict) else []
    return own + [time for child in inner for time in _times(child)]
