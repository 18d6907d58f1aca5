"""Actions of a Delta log: commits read line by line, checkpoints from Parquet or JSON. What is not understood is refused.

Only names, sizes and vectors of files are read, and what decides about versions; statistics are skipped.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq

from retention_assets.errors import Refused, quote
from retention_assets.stores.delta.folder import LOG, TableFolder
from retention_assets.stores.places import IDENTITY, TRASH

_ACTIONS = frozenset(
    {"add", "remove", "cdc", "metaData", "protocol", "commitInfo", "txn", "domainMetadata", "checkpointMetadata", "sidecar"}
)
_READER, _WRITER = 3, 7
# A feature is known once it is clear that it adds no files that no action names, and no other owner of files.
_FEATURES = frozenset(
    {
        "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection", "clustering",
        "columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "icebergCompatV1", "icebergCompatV2",
        "icebergCompatV3", "icebergWriterCompatV1", "icebergWriterCompatV3", "identityColumns", "inCommitTimestamp",
        "inCommitTimestamp-preview", "invariants", "materializePartitionColumns", "rowTracking", "timestampNtz",
        "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding-preview",
        "variantType", "variantType-preview",
    }
)  # fmt: skip
_MANAGED = ("catalogManaged", "catalogOwned", "catalogOwned-preview", "coordinatedCommits", "coordinatedCommits-preview")
_CHECKPOINT_COLUMNS = (
    "add.path", "add.size", "add.deletionVector.storageType", "add.deletionVector.pathOrInlineDv",
    "add.deletionVector.offset", "metaData", "protocol", "sidecar.path",
)  # fmt: skip


class FileAction(NamedTuple):
    """A file of an action by its name in the table, with the vector that belongs to it."""

    name: str
    # its path as the log has it
    path: str
    size: int | None
    # file of its deletion vector, None if it has none or an inline one; and what tells this vector from others
    vector_file: str | None = None
    vector: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        return self.name, self.vector


@dataclass
class Commit:
    """Actions of a commit. A checkpoint is a commit that adds all files of its version."""

    adds: list[FileAction] = field(default_factory=list)
    removes: list[FileAction] = field(default_factory=list)
    change_data: list[FileAction] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    changes_data: bool = False
    # files of a checkpoint that hold the rest of it
    sidecars: list[str] = field(default_factory=list)
    has_protocol: bool = False
    actions: int = 0

    @property
    def is_empty(self) -> bool:
        """True if it neither adds nor removes a file."""
        return not (self.adds or self.removes or self.change_data)


def read_commit(folder: TableFolder, content: bytes) -> Commit:
    """Parse a commit. Raises Refused for what is cut short, contradictory or unknown."""
    commit = Commit()
    _take_lines(folder, commit, content)
    if not commit.actions:
        raise Refused("it holds no action: it may be cut short")
    _check(commit)
    return commit


def read_checkpoint(folder: TableFolder, files: Sequence[str]) -> Commit:
    """Read a checkpoint from all of its files, and the sidecars that these name."""
    commit, names = Commit(), list(files)
    while names:
        for name in names:
            if name.endswith(".json"):
                [content] = folder.read([name])
                _take_lines(folder, commit, content)
            else:
                _take_rows(folder, commit, name)
        names, commit.sidecars = commit.sidecars, []
    if not (commit.has_protocol and commit.metadata):
        raise Refused("the checkpoint has no protocol or no metadata")
    return commit


# json.loads would look for the encoding of each line
_scan = json.JSONDecoder().raw_decode


def _take_lines(folder: TableFolder, commit: Commit, content: bytes) -> None:
    for line in content.decode().split("\n"):
        if not (line := line.strip()):
            continue
        try:
            actions, end = _scan(line)
        except ValueError as fault:
            raise Refused(f"it has a line that is no JSON object, and may be cut short: {fault}") from fault
        pairs = actions.items() if isinstance(actions, dict) else ()
        given = [kind for kind, action in pairs if action is not None]
        if end < len(line) or len(given) != 1:
            raise Refused("it has a line that is more or less than one action")
        _take(folder, commit, given[0], actions[given[0]])
        commit.actions += 1


def _take(folder: TableFolder, commit: Commit, kind: str, action: Mapping[str, Any]) -> None:
    if kind == "add" or kind == "remove":
        (commit.adds if kind == "add" else commit.removes).append(_file_action(folder, action))
        commit.changes_data = commit.changes_data or bool(action.get("dataChange", True))
    elif kind == "cdc":
        commit.change_data.append(_file_action(folder, action))
    elif kind == "commitInfo":
        commit.info = action
    elif kind == "metaData":
        commit.metadata = action
    elif kind == "protocol":
        _check_protocol(action)
        commit.has_protocol = True
    elif kind == "sidecar":
        # sidecars are always in this folder, whatever stands before the name
        commit.sidecars.append(f"_sidecars/{unquote(action['path']).rpartition('/')[2]}")
    elif kind not in _ACTIONS:
        raise Refused(f"it has the unknown action {kind!r}. Update retention, or leave this table out")


def _file_action(folder: TableFolder, action: Mapping[str, Any]) -> FileAction:
    path, vector, size = action["path"], action.get("deletionVector"), action.get("size")
    name = path if "%" not in path and ":" not in path and path[:1] != "/" else folder.name_of(path)
    if size is not None and not -1 <= size < 2**60:
        raise Refused(f"it has a file of {size} bytes")
    if name[:1] in ("", ".", "_") or "/." in name:
        _check_name(name)
    if not vector:
        return FileAction(name, path, size)
    kind, text = vector["storageType"], vector["pathOrInlineDv"]
    if (vector_file := folder.vector_name(kind, text)) is not None:
        _check_name(vector_file)
    return FileAction(name, path, size, vector_file, f"{kind}{text}@{vector.get('offset')}")


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or parts[0] in (LOG, TRASH, IDENTITY) or "." in parts or ".." in parts:
        raise Refused(f"it names {quote(name)} as a file of the table, which can't be one")


def _take_rows(folder: TableFolder, commit: Commit, name: str) -> None:
    for kind, action in _rows(folder, name, _CHECKPOINT_COLUMNS):
        if kind == "metaData":
            action["configuration"] = dict(action.get("configuration") or ())
        _take(folder, commit, kind, action)


def _rows(folder: TableFolder, name: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    with folder.open(name) as file:
        parquet = pq.ParquetFile(file)
        stored = {str(column.path) for column in map(parquet.schema.column, range(len(parquet.schema.names)))}
        chosen = [name for name in columns if any(path == name or path.startswith(f"{name}.") for path in stored)]
        for batch in parquet.iter_batches(columns=chosen):
            for row in batch.to_pylist():
                yield from ((kind, action) for kind, action in row.items() if action)


def paths_of_checkpoint(folder: TableFolder, name: str) -> Iterator[str]:
    """Yield the paths of files and deletion vectors in a part of a checkpoint, whatever else is in it."""
    for _, action in _rows(folder, name, ("add.path", "add.deletionVector.pathOrInlineDv")):
        yield from filter(None, (action.get("path"), (action.get("deletionVector") or {}).get("pathOrInlineDv")))


def _check_protocol(action: Mapping[str, Any]) -> None:
    features = {*(action.get("readerFeatures") or ()), *(action.get("writerFeatures") or ())}
    if managed := sorted(features.intersection(_MANAGED)):
        raise Refused(f"it is managed by a catalog (feature {managed[0]}), so its newest versions may not be in its folder")
    if unknown := sorted(features - _FEATURES):
        raise Refused(f"it has the unknown feature {unknown[0]}. Update retention, or leave this table out")
    if action.get("minReaderVersion", 1) > _READER or action.get("minWriterVersion", 1) > _WRITER:
        versions = f"{action.get('minReaderVersion')} and {action.get('minWriterVersion')}"
        raise Refused(f"it has the unknown protocol versions {versions}. Update retention, or leave this table out")


def _check(commit: Commit) -> None:
    added = {action.key for action in commit.adds}
    if len(added) < len(commit.adds) or len({action.name for action in commit.adds}) < len(commit.adds):
        raise Refused(f"it adds {_first_twice(commit.adds)} twice")
    if both := added.intersection(action.key for action in commit.removes):
        raise Refused(f"it adds and removes {min(both)[0]} with the same deletion vector")


def _first_twice(actions: Iterable[FileAction]) -> str:
    seen: set[str] = set()
    return next(action.name for action in actions if action.name in seen or seen.add(action.name))  # type: ignore[func-returns-value]
