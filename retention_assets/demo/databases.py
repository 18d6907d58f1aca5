"""SQLite databases of the demonstration: aspects as DataHub keeps them, and units of work with their children.

Times count from the day on which the demonstration begins.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

from retention_assets.demo.lake import AS_OF

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
# without it, deleting by the parent's key scans the whole table
_INDEX = "CREATE INDEX ix_{0}_unit_of_work_id ON {0} (unit_of_work_id)"

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
            ods.execute(_INDEX.format(child))
            rows = [(f"uow-{unit:04d}", part, "…") for unit in range(_UNITS_OF_WORK) for part in range(2)]
            ods.executemany(f"INSERT INTO {child} VALUES (?, ?, ?)", rows)


def _aspects() -> Iterator[tuple[str, str, int, str, str]]:
    # each version a week older than the one after it; version 0 is the current one, 1 the oldest of the others
    for name, aspect, history in (
        ("orders", "datasetProperties", 30),
        ("clicks", "datasetProperties", 4),
        ("orders", "status", 6),
    ):
        urn = f"urn:li:dataset:(urn:li:dataPlatform:hive,shop.{name},PROD)"
        for back in range(history + 1):
            version = history - back + 1 if back else 0
            content = json.dumps({"description": f"{name}, as of {back} weeks ago"})
            yield urn, aspect, version, content, _text(AS_OF - timedelta(weeks=back, hours=1))


def _units() -> Iterator[tuple[str, str, str | None, str | None, str]]:
    # five days apart, so that the oldest are older than any period; one in ten never finished, one in five is not archived
    for number in range(_UNITS_OF_WORK):
        started = AS_OF - timedelta(days=5 * (_UNITS_OF_WORK - number))
        finished = started + timedelta(hours=3)
        is_finished, is_archived = number % 10 != 9, number % 5 != 4
        yield (
            f"uow-{number:04d}",
            _text(started),
            _text(finished) if is_finished else None,
            _text(finished + timedelta(days=1)) if is_finished and is_archived else None,
            _JOURNEYS[number % 3],
        )


def _text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")


def rows_in(folder: Path) -> Mapping[str, int]:
    """Number of rows in each table."""
    found = {}
    for file, tables in ((META, ("metadata_aspect_v2",)), (ODS, ("unit_of_work", *CHILDREN))):
        with closing(sqlite3.connect(folder / file)) as connection:
            for table in tables:
                found[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return found
