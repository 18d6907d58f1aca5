"""Notes: facts of a planned object, by which it is recognized when it is deleted. A note holds the size that deleting frees,
the realm and all facts of conditions.py: two uploads of the same bytes have one ETag, but two times."""

import json
from collections.abc import Iterable, Mapping
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
from retention_assets.stores.places import Entry
from retention_assets.stores.protocol import SweptTarget, Target

# for targets without a note that exist now
NO_NOTE = "It was not there when the sweep was planned, so it is another object now."


@dataclass(frozen=True)
class PlannedObject:
    """An object as it was when the plan was written."""

    key: str
    size: int
    realm: str | None
    # None: any object under the key may be deleted (`delete: {condition: none}`)
    condition: ObjectCondition | None
    # bytes freed if an earlier sweep had begun to delete it and it is gone; 0 for a file with other hard links
    freed_before: int = 0

    def change(self, present: ObjectCondition) -> str | None:
        """Reason why the present object is not certainly the planned one; None if it is."""
        return None if self.condition is None else changed(self.condition, present)


def notes_of(objects: pa.Table) -> pa.Array:
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
    """Parse a target's note; None if it has none because nothing existed when it was planned. Raises Refused for any other
    text."""
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
    """Outcome of an object that no longer exists in any version."""
    return SweptTarget(one.key, Outcome.ALREADY_GONE, one.freed_before)


def says_of_file(note: str | None, found: Entry) -> bool:
    """Tell whether a note matches a file literally, so that it needs no parsing. Must produce the text of `notes_of`, with any
    realm."""
    if note is None:
        return False
    size, mtime = found.size, found.time or 0
    end = f',"created_at":{mtime // 1_000},"condition":{{"mtime_ns":{mtime},"size":{size},"inode":{found.inode}}}}}'
    return note.startswith(f'{{"size":{size},"realm":') and note.endswith(end)


def present_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, ObjectCondition]:
    """Facts of present objects (rows of `tables.OBJECTS`), by key."""
    return {row["key"]: present_facts(row["condition"], row["created_at"], row["size"]) for row in rows}


def present_facts(text: str | None, created_at: datetime | None, size: int | None) -> ObjectCondition:
    known = ObjectCondition() if text is None else ObjectCondition.parse(text)
    return replace(known, created_at=None if created_at is None else micros(created_at), size=size)
