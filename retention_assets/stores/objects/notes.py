"""Notes: what a plan says of an object, by which a sweep knows it again when it is to be deleted.

Belongs here: the text of a note, and reading it. In it are the size that deleting frees, the realm, and every fact by which the
object is told from another one under its key (conditions.py): two uploads of the same bytes have one ETag, but two times.
Does not belong here: comparing (conditions.py), and deleting (delete.py).
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.frames.arrays import join_chunks
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import micros
from retention_assets.stores.objects.conditions import ObjectCondition, changed
from retention_assets.stores.protocol import SweptTarget, Target

# Of a target without a note, where there is something of its name.
NO_NOTE = "It was not there when the sweep was planned, so it is another object now."


@dataclass(frozen=True)
class PlannedObject:
    """An object that a plan has, as it was when it was looked at again before the plan was written."""

    key: str
    size: int
    realm: str | None
    # None: whatever is there may go (`delete: {condition: none}`).
    condition: ObjectCondition | None
    # What an earlier sweep has freed that had begun on it, if it is gone by now: a file with other names frees nothing.
    freed_before: int = 0

    def change(self, present: ObjectCondition) -> str | None:
        """Why what is there now is not certainly what was planned, or none if it is."""
        return None if self.condition is None else changed(self.condition, present)


@dataclass(frozen=True)
class Seen:
    """Some objects that were looked at: those that still are what was planned, those that are gone, what is said of others."""

    same: list[PlannedObject]
    gone: list[PlannedObject]
    spared: list[SweptTarget]


Look = Callable[[Sequence[PlannedObject]], Seen]


def notes_of(objects: pa.Table) -> pa.Array:
    """The notes of objects (rows of `tables.OBJECTS`), as compact JSON."""
    # Few realms have many objects.
    realms = join_chunks(objects["realm"]).dictionary_encode()
    texts = pa.array([json.dumps(name, ensure_ascii=False) for name in realms.dictionary.to_pylist()], pa.string())
    realm = texts.take(realms.indices)
    created = objects["created_at"].cast(pa.int64()).cast(pa.string())
    parts = (
        '{"size":', pc.fill_null(objects["size"].cast(pa.string()), "null"),
        ',"realm":', pc.fill_null(realm, "null"),
        ',"created_at":', pc.fill_null(created, "null"),
        ',"condition":', pc.fill_null(objects["condition"], "null"),
        "}",
    )  # fmt: skip
    return join_chunks(pc.binary_join_element_wise(*parts, ""))


def planned_of(target: Target, conditional: bool) -> PlannedObject | None:
    """What the plan says of a target; none where it was not there when it was planned. Raises Refused for another's note."""
    if target.note is None:
        return None
    try:
        said = json.loads(target.note)
        facts, created_at, size, realm = (said[name] for name in ("condition", "created_at", "size", "realm"))
    except (ValueError, TypeError, KeyError):
        raise Refused(f"{quote(target.note)} is no note of an object. Plan the deletion anew.") from None
    condition = None
    if conditional:
        known = ObjectCondition.of(facts) if facts else ObjectCondition()
        condition = replace(known, created_at=created_at, size=size)
        if condition == ObjectCondition(size=size):
            raise Refused("Nothing was noted by which it can be told from another object of its key. It stays.")
    one_name = not facts or facts.get("links") is None
    return PlannedObject(target.transaction, size or 0, realm, condition, size or 0 if target.begun_earlier and one_name else 0)


def already_gone(one: PlannedObject) -> SweptTarget:
    """What is said of one that is not there any more, and whose bytes are no longer anywhere."""
    return SweptTarget(one.key, Outcome.ALREADY_GONE, one.freed_before)


def says_of_file(note: str | None, found: os.stat_result) -> bool:
    """Whether a note says of a file to the letter what is there now: then nothing has to be taken apart.

    It is the same text as that of `notes_of`, with any realm.
    """
    if note is None:
        return False
    size, mtime = found.st_size, found.st_mtime_ns
    end = f',"created_at":{mtime // 1_000},"condition":{{"mtime_ns":{mtime},"size":{size},"inode":{found.st_ino}}}}}'
    return note.startswith(f'{{"size":{size},"realm":') and note.endswith(end)


def present_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, ObjectCondition]:
    """The facts of objects as they are now (rows of `tables.OBJECTS`), by key."""
    return {row["key"]: present_facts(row["condition"], row["created_at"], row["size"]) for row in rows}


def present_facts(text: str | None, created_at: datetime | None, size: int | None) -> ObjectCondition:
    """Everything by which one is told from another."""
    known = ObjectCondition() if text is None else ObjectCondition.parse(text)
    return replace(known, created_at=None if created_at is None else micros(created_at), size=size)
