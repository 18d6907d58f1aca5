"""A second reader of logs, which finds versions that would lose nothing. It follows the adds and removes of each path.

It shares no code with the reader that the sweep uses, so that a fault there is not repeated here. It errs to one side: what it
does not understand counts as a file of its own.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from retention_assets.stores.delta.folder import TableFolder

_NEVER = 1 << 62
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(json|parquet)")
_PARTS = re.compile(r"(\d{20}\.checkpoint\.)\d{10}\.(\d{10})\.parquet")
_COLUMNS = ("add", "sidecar")


class _Life(NamedTuple):
    path: str
    begin: int
    end: int


def check_needs(folder: TableFolder, going: Sequence[int], retained: Sequence[int]) -> dict[int, str]:
    """Return the versions that go, but have no file that is missing in all retained ones, and say who has them."""
    keeping, leaving = sorted(retained), sorted(going)
    losing: set[int] = set()
    for _, begin, end in _lives(folder):
        next_kept = bisect_left(keeping, begin)
        if next_kept == len(keeping) or keeping[next_kept] >= end:
            losing.update(leaving[bisect_left(leaving, begin) : bisect_left(leaving, end)])
    return {number: f"retained versions need all files of version {number}" for number in leaving if number not in losing}


def _lives(folder: TableFolder) -> Iterator[_Life]:
    born: dict[str, int] = {}
    names = [file.name for file in folder.list_log() if file.size is not None]
    commits = {int(name[:20]): name for name in names if re.fullmatch(r"\d{20}\.json", name)}
    if first := min(commits, default=0):
        matches = [match for match in map(_CHECKPOINT.fullmatch, names) if match]
        checkpoints = [match[0] for match in matches if int(match[1]) >= first - 1]
        checkpoints = [name for name in checkpoints if _has_all_parts(name, checkpoints)]
        oldest = min((name[:20] for name in checkpoints), default="")
        for name in checkpoints if oldest else ():
            if name.startswith(oldest):
                born |= dict.fromkeys(_checkpoint_files(folder, name), int(oldest))
        commits = {number: name for number, name in commits.items() if number > int(oldest or 0)}
    for number in sorted(commits):
        [content] = folder.read([commits[number]])
        removed: list[str] = []
        added: list[str] = []
        for line in content.splitlines():
            action = json.loads(line) if line.strip() else {}
            removed += _paths(action.get("remove"))
            added += _paths(action.get("add"))
            yield from (_Life(path, number, number + 1) for path in _paths(action.get("cdc")))
        for path in removed:
            if path not in added and path in born:
                yield _Life(path, born.pop(path), number)
        for path in added:
            born.setdefault(path, number)
    yield from (_Life(path, begin, _NEVER) for path, begin in born.items())


def _has_all_parts(name: str, names: Sequence[str]) -> bool:
    if not (parts := _PARTS.fullmatch(name)):
        return True
    return all(f"{parts[1]}{part:010}.{parts[2]}.parquet" in names for part in range(1, int(parts[2]) + 1))


def _paths(action: Mapping[str, Any] | None) -> list[str]:
    # a data file, and its deletion vector as a file of its own
    if not action:
        return []
    vector = action.get("deletionVector") or {}
    stored = [f"vector {vector['pathOrInlineDv']}"] if vector.get("storageType", "i") != "i" else []
    return [str(action["path"]), *stored]


def _checkpoint_files(folder: TableFolder, name: str) -> Iterable[str]:
    rows: list[Mapping[str, Any]]
    if name.endswith(".json"):
        [content] = folder.read([name])
        rows = [json.loads(line) for line in content.splitlines() if line.strip()]
    else:
        with folder.open(name) as file:
            table = pq.ParquetFile(file)
            rows = table.read(columns=[one for one in _COLUMNS if one in table.schema_arrow.names]).to_pylist()
    for row in rows:
        yield from _paths(row.get("add"))
        if row.get("sidecar"):
            yield from _checkpoint_files(folder, f"_sidecars/{row['sidecar']['path'].rpartition('/')[2]}")
