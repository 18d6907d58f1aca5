"""Delta tables that deltalake can't write, laid down action by action as the public Delta protocol describes them.

A table knows the rows and the files of each of its versions, so that readers and stores are compared with what was meant.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import NAMESPACE_OID, UUID, uuid5

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets_tests.stores.delta.tables import Row

Action = dict[str, Any]
# Milliseconds: the first commit is of 1 January 2026, and each other one of the next day.
BEGIN, DAY, YEAR_3000 = 1_767_225_600_000, 86_400_000, 32_503_680_000_000
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

_TYPES = {"int": pa.int32(), "long": pa.int64(), "text": pa.string(), "flag": pa.bool_(), "list": pa.list_(pa.string())}
_TYPES["map"] = pa.map_(pa.string(), pa.string())


def _fields(said: str) -> dict[str, pa.DataType]:
    return {name: _TYPES[kind] for name, kind in (field.split(":") for field in said.split())}


_VECTOR = _fields("storageType:text pathOrInlineDv:text offset:int sizeInBytes:int cardinality:long")
_FILE = _fields("path:text partitionValues:map size:long dataChange:flag") | {"deletionVector": pa.struct(_VECTOR)}
_PROTOCOL = _fields("minReaderVersion:int minWriterVersion:int readerFeatures:list writerFeatures:list")
_METADATA = _fields("id:text schemaString:text partitionColumns:list configuration:map")
_SIDECAR = _fields("path:text sizeInBytes:long modificationTime:long")
# The columns of checkpoints: of sidecars the first two, of the first form the first four.
ACTIONS = {
    "add": pa.struct(_FILE | _fields("modificationTime:long stats:text")),
    "remove": pa.struct(_FILE | _fields("deletionTimestamp:long extendedFileMetadata:flag")),
    "protocol": pa.struct(_PROTOCOL),
    "metaData": pa.struct(_METADATA | {"format": pa.struct(_fields("provider:text options:map"))}),
    "checkpointMetadata": pa.struct(_fields("version:long")),
    "sidecar": pa.struct(_SIDECAR),
}


def z85(data: bytes) -> str:
    words = [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
    return "".join(Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def bitmap(positions: Sequence[int]) -> bytes:
    """A RoaringBitmapArray: its magic number, one bitmap with key 0, and in it one container, which lists positions below 65,536."""
    header = struct.pack("<IQIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(positions) - 1, 16)
    return header + struct.pack(f"<{len(positions)}H", *sorted(positions))


class GoldenTable:
    """A table with columns id and p, by which it may be partitioned. `mapping` is a mode of column mapping, by id or by name."""

    def __init__(
        self, folder: Path, *features: str, writer_features: Sequence[str] = (), partitioned: bool = False, mapping: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.log, self.partitioned, self.mapping = folder, folder / "_delta_log", partitioned, mapping
        self.log.mkdir(parents=True)
        self.version = self.number = -1
        self.content: dict[str, list[Row]] = {}
        # Of each vector, by its descriptor as JSON, the positions that it deletes and the file that it is in.
        self.vectors: dict[str, tuple[Sequence[int], Path | None]] = {"null": ((), None)}
        self.states: dict[int, dict[str, Action]] = {-1: {}}
        self.changed: dict[int, list[str]] = {}
        self.tombstones: dict[str, Action] = {}
        configuration = dict(properties or {})
        if mapping:
            features = (*features, "columnMapping")
            configuration |= {"delta.columnMapping.mode": mapping, "delta.columnMapping.maxColumnId": "2"}
        self.timed = "delta.enableInCommitTimestamps" in configuration
        schema = {"type": "struct", "fields": [self._field(1, "id", "long"), self._field(2, "p", "string")]}
        protocol = dict(zip(_PROTOCOL, (3, 7, [*features], [*features, *writer_features]), strict=True))
        values = str(self._uuid()), json.dumps(schema), ["p"] * partitioned, configuration
        self.metadata = dict(zip(_METADATA, values, strict=True)) | {"format": {"provider": "parquet", "options": {}}}
        self.first: list[Action] = [{"protocol": protocol}, {"metaData": self.metadata}]

    def add_file(self, *ids: int, p: str | None = None) -> Action:
        """A data file with a row for each id."""
        added = self._write("", ids, p)
        return {"add": added | {"modificationTime": BEGIN, "stats": json.dumps({"numRecords": len(ids)})}}

    def change_file(self, change: str, *ids: int, p: str | None = None) -> Action:
        """A file of change data that says `insert`, `delete`, `update_preimage` or `update_postimage` of each id."""
        return {"cdc": self._write("_change_data/", ids, p, change) | {"dataChange": False}}

    def remove(self, added: Action, at: int | None = BEGIN) -> Action:
        """The removal of a file as it was added, with its vector. By `at`, in milliseconds, it says when; it may say nothing."""
        kept = {name: value for name, value in added["add"].items() if name not in ("modificationTime", "stats")}
        said = {} if at is None else {"deletionTimestamp": at}
        return {"remove": kept | said | {"extendedFileMetadata": True}}

    def write_vectors(self, *vectors: Sequence[int], prefix: str = "", absolute: bool = False) -> list[Action]:
        """Descriptors of vectors that lie in one file, one after the other: positions in a data file of rows that are deleted."""
        uuid = self._uuid()
        file = self.folder / prefix / f"deletion_vector_{uuid}.bin"
        named = ("p", file.as_uri()) if absolute else ("u", prefix + z85(uuid.bytes))
        data, descriptors = b"\x01", []
        for positions in vectors:
            content = bitmap(positions)
            descriptors.append(dict(zip(_VECTOR, (*named, len(data), len(content), len(positions)), strict=True)))
            self.vectors[json.dumps(descriptors[-1])] = positions, file
            data += struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        return descriptors

    def inline_vector(self, *positions: int) -> Action:
        """A descriptor that is the vector. The positions are even in number: base 85 has no padding."""
        text, size = z85(bitmap(positions)), len(bitmap(positions))
        descriptor = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": len(positions)}
        self.vectors[json.dumps(descriptor)] = positions, None
        return descriptor

    def mask(self, added: Action, vector: Action) -> list[Action]:
        """The same file with a vector instead of the one that it had: rows are deleted without writing the file anew."""
        return [self.remove(added), {"add": added["add"] | {"deletionVector": vector}}]

    def commit(self, *actions: Action, version: int | None = None, operation: str = "WRITE", at: int | None = None) -> int:
        state, first = dict(self.states[self.version]), self.first * (self.version < 0)
        self.version = self.version + 1 if version is None else version
        at = BEGIN + self.version * DAY if at is None else at
        info = {"timestamp": at, "operation": operation, "engineInfo": "golden"}
        info |= {"inCommitTimestamp": at} if self.timed else {}
        file = self.log / f"{self.version:020}.json"
        _write_actions(file, [{"commitInfo": info}, *first, *actions])
        os.utime(file, (at / 1000, at / 1000))
        for removed in (action["remove"] for action in actions if "remove" in action):
            state.pop(removed["path"], None)
            self.tombstones[f"{removed['path']} {removed.get('deletionVector')}"] = {"remove": removed}
        for added in (action["add"] for action in actions if "add" in action):
            state[added["path"]] = {"add": added}
            self.tombstones.pop(f"{added['path']} {added.get('deletionVector')}", None)
        self.states[self.version] = state
        self.changed[self.version] = [action["cdc"]["path"] for action in actions if "cdc" in action]
        return self.version

    def replace(self, *added: Action, **words: Any) -> int:
        """A commit that removes all that is there and adds these."""
        return self.commit(*map(self.remove, self.states[self.version].values()), *added, **words)

    def checkpoint(self, form: str = "classic") -> None:
        """Of the newest version: `classic`, in three `parts`, or of the second form with two sidecars and a top in `json` or `parquet`."""
        stem, files = f"{self.version:020}.checkpoint", [*self.states[self.version].values(), *self.tombstones.values()]
        last = {"version": self.version, "size": len(self.first) + len(files)}
        if form == "classic":
            _write_actions(self.log / f"{stem}.parquet", [*self.first, *files], 4)
        elif form == "parts":
            last["parts"] = 3
            for number, part in enumerate((self.first, files[::2], files[1::2]), start=1):
                _write_actions(self.log / f"{stem}.{number:010}.{3:010}.parquet", part, 4)
        else:
            top = [{"checkpointMetadata": {"version": self.version}}, *self.first]
            (self.log / "_sidecars").mkdir(exist_ok=True)
            for half in (files[::2], files[1::2]):
                place = self.log / "_sidecars" / f"{self._uuid()}.parquet"
                _write_actions(place, half, 2)
                top.append({"sidecar": dict(zip(_SIDECAR, (place.name, place.stat().st_size, BEGIN), strict=True))})
            _write_actions(self.log / f"{stem}.{self._uuid()}.{form}", top, 6)
        (self.log / "_last_checkpoint").write_text(json.dumps(last), "utf-8")

    def write_crc(self, **wrong: Any) -> None:
        """The checksum of the newest version, or one that says something else."""
        sizes = [action["add"]["size"] for action in self.states[self.version].values()]
        said = {"tableSizeBytes": sum(sizes), "numFiles": len(sizes), "numMetadata": 1, "numProtocol": 1}
        said |= self.first[0] | {"metadata": self.metadata} | wrong
        (self.log / f"{self.version:020}.crc").write_text(json.dumps(said), "utf-8")

    def rows(self, version: int) -> list[Row]:
        state = self.states[version].items()
        found = (row for path, added in state for at, row in enumerate(self.content[path]) if at not in self._vector(added)[0])
        return sorted(found, key=repr)

    def files(self, version: int) -> set[Path]:
        """The files that a version needs: data, vectors, and its change data."""
        state = self.states[version]
        vectors = {file for _, file in map(self._vector, state.values()) if file}
        return vectors | {self.place(path) for path in [*state, *self.changed[version]]}

    def place(self, path: str) -> Path:
        """The file that a path of the log means."""
        return self.folder / unquote(path).removeprefix("file:")

    def _vector(self, added: Action) -> tuple[Sequence[int], Path | None]:
        return self.vectors[json.dumps(added["add"].get("deletionVector"))]

    def _uuid(self) -> UUID:
        self.number += 1
        return uuid5(NAMESPACE_OID, f"{self.folder.name} {self.number}")

    def _physical(self, name: str) -> str:
        return f"col-{name}" if self.mapping else name

    def _field(self, number: int, name: str, kind: str) -> Action:
        mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": self._physical(name)}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapped if self.mapping else {}}

    def _write(self, above: str, ids: Sequence[int], p: str | None, change: str = "") -> Action:
        # A value is encoded in the name of its folder, and the folder once more in the log.
        folder = f"p={quote(p or '__HIVE_DEFAULT_PARTITION__', safe='')}/" if self.partitioned else ""
        path = quote(f"{above}{folder}part-{self._uuid()}.parquet", safe="/=")
        names = self._physical("id"), self._physical("p"), "_change_type"
        numbers = [{"PARQUET:field_id": str(number)} for number in (1, 2, 3)]
        schema = pa.schema(map(pa.field, names, map(_TYPES.get, ("long", "text", "text")), (True,) * 3, numbers))
        table = pa.table([ids, [p] * len(ids), [change] * len(ids)], schema=schema)
        place = self.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.drop_columns([names[1]] * self.partitioned + [names[2]] * (not change)), place)
        self.content[path] = [(one, p) for one in ids]
        values = {names[1]: p} if self.partitioned else {}
        return {"path": path, "partitionValues": values, "size": place.stat().st_size, "dataChange": True}


def _written_anew(table: GoldenTable) -> GoldenTable:
    """Two more versions of which only the last keeps its file."""
    table.commit(table.add_file(20, 21))
    table.replace(table.add_file(30, p="end"))
    return table


def vectors(folder: Path, prefix: str = "", absolute: bool = False) -> GoldenTable:
    """Two files by version 1 have their vectors in one `.bin`; by 2 the first file is gone, by 3 the second has another vector."""
    table = GoldenTable(folder, "deletionVectors")
    one, two = table.add_file(*range(6)), table.add_file(*range(10, 16), p="two")
    table.commit(one, two)
    shared = table.write_vectors((1, 2, 5), (0,), prefix=prefix, absolute=absolute)
    _, one, _, two = masked = [*table.mask(one, shared[0]), *table.mask(two, shared[1])]
    table.commit(*masked, operation="DELETE")
    table.commit(table.remove(one))
    table.commit(*table.mask(two, *table.write_vectors((0, 3), prefix=prefix, absolute=absolute)))
    return _written_anew(table)


def inline_vector(folder: Path) -> GoldenTable:
    """Version 1 has a vector that lies in the log alone, and version 2 another one."""
    table = GoldenTable(folder, "deletionVectors")
    added = table.add_file(*range(6))
    table.commit(added)
    for positions in ((1, 3), (0, 1, 3, 5)):
        _, added = masked = table.mask(added, table.inline_vector(*positions))
        table.commit(*masked, operation="DELETE")
    return _written_anew(table)


def column_mapped(folder: Path, mode: str = "name", partitioned: bool = False) -> GoldenTable:
    """If it is partitioned, DuckDB reads no partition value."""
    table = GoldenTable(folder, partitioned=partitioned, mapping=mode)
    table.commit(table.add_file(1, 2, p="a b"), table.add_file(3))
    return _written_anew(table)


def checkpointed(folder: Path, form: str = "classic", kept_from: int = 3) -> GoldenTable:
    """Version 3, which has a vector, has a checkpoint, and commits before it are gone; with `kept_from` 0 they are there as well."""
    table = GoldenTable(folder, "deletionVectors", *["v2Checkpoint"] * (form in ("json", "parquet")), partitioned=True)
    one, two, _ = added = [table.add_file(number, number + 10, p=("a b", "%20", "ü")[number]) for number in range(3)]
    for action in added:
        table.commit(action)
    table.commit(table.remove(one), *table.mask(two, *table.write_vectors((0,))), table.add_file(3, p="a b"))
    table.checkpoint(form)
    for version in range(kept_from):
        (table.log / f"{version:020}.json").unlink()
    return _written_anew(table)


def timed(folder: Path) -> GoldenTable:
    """Timestamps inside the commits, each a year before what the file of its commit says."""
    table = GoldenTable(folder, writer_features=["inCommitTimestamp"], properties={"delta.enableInCommitTimestamps": "true"})
    for number in range(4):
        table.replace(table.add_file(number))
        os.utime(table.log / f"{number:020}.json", ((BEGIN + 365 * DAY) / 1000,) * 2)
    return table


def with_change_data(folder: Path) -> GoldenTable:
    """Versions 1 and 2 have change data: an update of a row, and a deletion."""
    table = GoldenTable(folder, writer_features=["changeDataFeed"], properties={"delta.enableChangeDataFeed": "true"})
    table.commit(table.add_file(1, 2, p="old"))
    changes = [table.change_file(f"update_{image}image", 2, p=p) for image, p in (("pre", "old"), ("post", "new"))]
    table.replace(table.add_file(1, p="old"), table.add_file(2, p="new"), *changes, operation="UPDATE")
    table.replace(table.add_file(1, p="old"), table.change_file("delete", 2, p="new"), operation="DELETE")
    return _written_anew(table)


def odd_tombstones(folder: Path) -> GoldenTable:
    """Three removals that were of 1970, of no time, and will be of the year 3000."""
    table = GoldenTable(folder)
    added = [table.add_file(number) for number in range(4)]
    table.commit(*added)
    for action, at in zip(added, (0, None, YEAR_3000), strict=False):
        table.commit(table.remove(action, at))
    return table


def clone_of(folder: Path, source: GoldenTable, version: int | None = None, scheme: str = "file://") -> GoldenTable:
    """A shallow clone: to the files of a version, the newest if none is said, it adds one of its own, and then removes the first.

    deltalake reads paths that begin with `file://`, `file:` (as Spark writes them) and `/`; DuckDB only the last of these.
    """
    clone = GoldenTable(folder, partitioned=source.partitioned, mapping=source.mapping)
    clone.first = [source.first[0], {"metaData": source.metadata | {"id": clone.metadata["id"]}}]
    for path, action in source.states[source.version if version is None else version].items():
        added = action["add"] | {"path": scheme + quote(str(source.place(path)))}
        if (vector := added.get("deletionVector")) and vector["storageType"] == "u":
            positions, file = source.vectors[json.dumps(vector)]
            added["deletionVector"] = vector | {"storageType": "p", "pathOrInlineDv": (scheme or "file://") + quote(str(file))}
            clone.vectors[json.dumps(added["deletionVector"])] = positions, file
        clone.content[added["path"]] = source.content[path]
        clone.states[-1][added["path"]] = {"add": added}
    clone.commit(*clone.states[-1].values(), operation="CLONE")
    clone.commit(clone.add_file(100))
    clone.commit(clone.remove(next(iter(clone.states[0].values()))))
    return clone


# Of all these the rows can be read by DuckDB.
TABLES: Mapping[str, Callable[[Path], GoldenTable]] = {
    "shared_vector_file": vectors,
    "prefixed_vector": partial(vectors, prefix="ab"),
    "absolute_vector": partial(vectors, absolute=True),
    "inline_vector": inline_vector,
    "mapped_by_name": column_mapped,
    "mapped_by_id": partial(column_mapped, mode="id"),
    "classic_checkpoint": checkpointed,
    "multi_part_checkpoint": partial(checkpointed, form="parts"),
    "v2_checkpoint_json": partial(checkpointed, form="json"),
    "v2_checkpoint_parquet": partial(checkpointed, form="parquet"),
    "in_commit_timestamps": timed,
    "change_data": with_change_data,
    "odd_tombstones": odd_tombstones,
}


def _write_actions(file: Path, actions: Sequence[Action], columns: int = 0) -> None:
    if file.suffix == ".json":
        file.write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")
    else:
        pq.write_table(pa.Table.from_pylist([*actions], schema=pa.schema([*ACTIONS.items()][:columns])), file)
