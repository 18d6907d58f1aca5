"""Tombstones: DELETE transactions that tell readers of a latest view that a sweep takes files out of it.

The log is only appended to, never rewritten; `move_heads` moves the branch when the log is read. Deletion
begins only once the tombstones are on disk.
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from retention_assets.errors import Refused
from retention_assets.exchange import ADDED, is_log, is_plain
from retention_assets.frames.log import BRANCH, PROVENANCE, Log
from retention_assets.policy.durations import text_of
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.places.file_systems import FileSystem, is_local, is_s3, open_file_system
from retention_assets.stores.places.own_files import write_file

Row = Mapping[str, Any]

_COLUMNS = ["transaction", "parent_ordinal", "type", "status", "closed_at", "heads", "file_names"]


def can_append(log: str) -> bool:
    """Tell whether a log can be added to: a folder, or one local file of plain JSON lines."""
    fs, path = open_file_system(log)
    if is_local(fs):
        return Path(path).is_dir() or (Path(path).is_file() and is_plain(path))
    # by name: asking for capabilities makes no request
    return not is_log(log)


def tombstones_for(log: Log, dataset: str, targets: Collection[str], at: datetime) -> list[dict[str, Any]]:
    """Return one DELETE, in the exchange format, for each branch of a sound log whose latest view holds a target.

    Its id is derived from its purpose, so that one already there is not added again.
    """
    rows = log.transactions.select(_COLUMNS).to_pylist()
    in_view = _targets_in_view(rows, set(targets))
    lines = []
    for place, row in enumerate(rows):
        for branch in row["heads"] if in_view[place] else ():
            line = _tombstone(dataset, branch, _view(rows, place), in_view[place], row["transaction"], at)
            if line is not None:
                lines.append(line)
    known = {row["transaction"] for row in rows}
    return [line for line in lines if line["transaction"] not in known]


def _targets_in_view(rows: Sequence[Row], targets: set[str]) -> list[frozenset[str]]:
    # for each transaction, targets in the latest view of a branch that would stand there
    in_view: list[frozenset[str]] = []
    for row in rows:
        above = in_view[row["parent_ordinal"]] if row["parent_ordinal"] >= 0 else frozenset[str]()
        if row["status"] != "COMMITTED":
            in_view.append(above)
            continue
        begun = frozenset[str]() if row["type"] == "SNAPSHOT" else above
        in_view.append(begun | {row["transaction"]} if row["transaction"] in targets else begun)
    return in_view


def _view(rows: Sequence[Row], place: int) -> list[Row]:
    view: list[Row] = []
    while place >= 0:
        row = rows[place]
        if row["status"] == "COMMITTED":
            view.append(row)
            if row["type"] == "SNAPSHOT":
                break
        place = row["parent_ordinal"]
    return view[::-1]


def _tombstone(
    dataset: str, branch: str, view: Sequence[Row], targets: frozenset[str], head: str, at: datetime
) -> dict[str, Any] | None:
    files = _files_of(view, targets)
    # another DELETE has already taken these files out of the view, or it never had any
    if files == []:
        return None
    purpose = json.dumps([dataset, branch, sorted(targets)])
    # times of the transaction it follows: what retention adds makes no view younger
    times = dict.fromkeys(("opened_at", "closed_at"), text_of(view[-1]["closed_at"]))
    line = {
        "dataset": dataset, "transaction": f"{ADDED}{hashlib.sha256(purpose.encode()).hexdigest()[:16]}", "parent": head,
        "type": "DELETE", "status": "COMMITTED", **times,
        "attributes": {**PROVENANCE, BRANCH: branch, "added_at": text_of(at)},
    }  # fmt: skip
    return line if files is None else {**line, "files": files}


def _files_of(view: Sequence[Row], targets: frozenset[str]) -> list[str] | None:
    # files that a target was the last in the view to write; None where the log does not say
    owner: dict[str, str] = {}
    begun = False
    for row in view:
        begun = begun or row["transaction"] in targets
        names = row["file_names"]
        if names is None and begun:
            return None
        for name in names or ():
            if row["type"] == "DELETE":
                owner.pop(name, None)
            else:
                owner[name] = row["transaction"]
    return sorted(name for name, transaction in owner.items() if transaction in targets)


def append_tombstones(log: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append lines to a log, each visible whole or not at all. They are on disk on return."""
    fs, path = open_file_system(log)
    local = is_local(fs)
    if not can_append(log):
        raise Refused(
            f"The log {mask_secrets(log)} can't be appended to, so readers of the latest view would not learn what is "
            "deleted. Keep the log in a folder."
        )
    written = {f"{line['transaction']}.jsonl": f"{json.dumps(line, ensure_ascii=False)}\n".encode() for line in lines}
    if local and Path(path).is_file():
        _append_to_file(path, b"".join(written.values()))
        return
    for name, content in written.items():
        if local:
            write_file(os.path.join(path, name), content)
        else:
            _put(fs, f"{path}/{name}", content)


def _append_to_file(path: str, content: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            content = b"\n" + content
        done = os.write(file, content)
        if done < len(content):
            # A torn line would make the whole log unreadable; truncate it unless somebody has appended behind it.
            if os.fstat(file).st_size == size + done:
                os.ftruncate(file, size)
            raise OSError(f"only {done} of {len(content)} bytes could be written to {path}")
        os.fsync(file)
    finally:
        os.close(file)


def _put(fs: FileSystem, place: str, content: bytes) -> None:
    # object stores put atomically; elsewhere the file is renamed once it is whole
    if is_s3(fs):
        fs.pipe_file(place, content)
        return
    unfinished = f"{place}.unfinished"
    fs.pipe_file(unfinished, content)
    fs.mv(unfinished, place)
