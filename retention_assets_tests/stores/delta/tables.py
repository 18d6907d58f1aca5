"""Real Delta tables, written and read by deltalake, which shares no code with the store."""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
# Partition values by which paths go wrong. No `~`: deltalake can't compact a partition whose value holds one.
VALUES = ("plain", "a b", "50%", "x/y", "k:v", "a=b", "c+d", "why?", "#1", "%20", "{}", "it's", "ü", None)
# Lengths of random walks, and how often each is drawn: most are short, so that hundreds are written in half a minute.
LENGTHS, WEIGHTS = (4, 10, 30, 200), (45, 40, 14, 1)

Row = tuple[Any, ...]


def records(ids: Iterable[int]) -> pa.Table:
    """A row for each id, which decides about its partition."""
    return pa.Table.from_pylist([{"id": one, "p": VALUES[one % len(VALUES)], "v": 0} for one in ids], SCHEMA)


def has_value(value: str | None) -> str:
    return "p IS NULL" if value is None else "p = '{}'".format(value.replace("'", "''"))


class Unreadable(Exception):
    """A reader refuses a version of a table."""


class Table:
    """A table with columns id, p and v. Its creation is version 0; every method returns the version after it."""

    def __init__(self, folder: Path, *ids: int, partitioned: bool = False, properties: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        configuration = dict[str, str | None](properties or {})
        write_deltalake(folder, records(ids), partition_by=["p"] * partitioned, configuration=configuration)
        self.opened = DeltaTable(folder)

    @classmethod
    def open(cls, folder: Path) -> "Table":
        table = cls.__new__(cls)
        table.folder, table.opened = folder, DeltaTable(folder)
        return table

    @property
    def version(self) -> int:
        return self.opened.version()

    def append(self, *ids: int) -> int:
        write_deltalake(self.opened, records(ids), mode="append")
        return self.version

    def overwrite(self, *ids: int, where: str | None = None) -> int:
        """Instead of all rows, or of those for which a predicate holds, as it has to for the new ones."""
        write_deltalake(self.opened, records(ids), mode="overwrite", predicate=where)
        return self.version

    def delete(self, predicate: str) -> int:
        self.opened.delete(predicate)
        return self.version

    def update(self, predicate: str) -> int:
        self.opened.update({"v": "v + 1"}, predicate=predicate)
        return self.version

    def merge(self, *ids: int) -> int:
        merger = self.opened.merge(records(ids), "old.id = new.id", source_alias="new", target_alias="old")
        merger.when_matched_update({"v": "old.v + 10"}).when_not_matched_insert_all().execute()
        return self.version

    def compact(self) -> int:
        self.opened.optimize.compact()
        return self.version

    def z_order(self) -> int:
        self.opened.optimize.z_order(["id"])
        return self.version

    def restore(self, version: int) -> int:
        self.opened.restore(version)
        return self.version

    def track_changes(self) -> int:
        return self.set_properties({"delta.enableChangeDataFeed": "true"})

    def set_properties(self, properties: dict[str, str]) -> int:
        """Also some that deltalake does not know, which it refuses at a table's creation."""
        self.opened.alter.set_table_properties(properties, raise_if_not_exists=False)
        return self.version

    def checkpoint(self) -> int:
        self.opened.create_checkpoint()
        return self.version

    def clean_log(self) -> int:
        """Only versions from now on can be read afterwards, although this commits nothing but the property that allows it."""
        self.set_properties({"delta.logRetentionDuration": "interval 0 days"})
        self.checkpoint()
        self.opened.cleanup_metadata()
        return self.version


def random_table(folder: Path, seed: int, operations: int | None = None) -> Table:
    """A table after a random walk, the same for a seed except for names of files and times. The log of one in ten is cleaned."""
    rng = random.Random(seed)
    table = Table(folder, *range(rng.randint(0, 3)), partitioned=rng.random() < 0.5)
    if rng.random() < 0.3:
        table.track_changes()
    length = rng.choices(LENGTHS, WEIGHTS)[0] if operations is None else operations
    cleaned = rng.randrange(10 * length + 1)
    for number in range(length):
        if number == cleaned:
            table.clean_log()
        ids, some = [rng.randrange(3 * len(VALUES)) for _ in range(rng.randint(1, 3))], rng.randrange(len(VALUES))
        predicate = rng.choice((has_value(VALUES[some]), f"id = {ids[0]}", f"id % 3 = {some % 3}", f"id < {some}"))
        older = versions(table.folder)[:-1]
        steps: Sequence[tuple[int, Callable[[], int]]] = (
            (30, partial(table.append, *ids)),
            (8, partial(table.overwrite, *ids)),
            (8, partial(table.overwrite, some, some + len(VALUES), where=has_value(VALUES[some]))),
            (12, partial(table.delete, predicate)),
            (12, partial(table.update, predicate)),
            (10, partial(table.merge, *set(ids))),
            (6, table.compact),
            (3, table.z_order),
            (6, partial(table.restore, rng.choice(older)) if older else partial(table.append, *ids)),
            (1, table.track_changes),
            (1, partial(table.set_properties, {"retention.keep_versions": str(min(some, table.version))})),
            (2, table.checkpoint),
        )
        rng.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
    return table


def versions(folder: Path) -> list[int]:
    """All that can be read: from the first commit, or the oldest checkpoint, to the last commit."""
    log = folder / "_delta_log"
    commits = sorted(int(file.stem) for file in log.glob("*.json") if file.stem.isdigit())
    first = 0 if commits[0] == 0 else min(int(file.name.partition(".")[0]) for file in log.glob("*.checkpoint*"))
    return list(range(first, commits[-1] + 1))


def rows(folder: Path, version: int) -> list[Row]:
    return _read(lambda: DeltaTable(folder, version=version).scan())


def change_data(folder: Path, version: int) -> list[Row]:
    """The rows that a version changed, and how. deltalake finds no change data of a partition whose name is encoded."""
    return [row[:-2] for row in _read(lambda: DeltaTable(folder).load_cdf(version, version))]


def _read(opened: Callable[[], Any]) -> list[Row]:
    try:
        found = pa.table(opened()).to_pylist()
    except (DeltaError, pa.ArrowInvalid) as error:
        raise Unreadable(str(error)) from error
    # By their text, since a partition may be null.
    return sorted((tuple(row.values()) for row in found), key=repr)


def file_uris(folder: Path, version: int) -> list[str]:
    """The files that a version needs, as places on the disk."""
    return sorted(DeltaTable(folder, version=version).file_uris())


def files(folder: Path) -> dict[str, str]:
    """All files below, by their path from there, and a hash of what is in each."""
    found = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def paths_of(kind: str, log: str) -> list[str]:
    """The paths of the actions of a kind, as a commit has them."""
    return [action[kind]["path"] for action in map(json.loads, log.splitlines()) if kind in action]
