"""Conditions and notes: the facts by which an object is recognized again, so that a new object under the same key is never
deleted. By the strongest fact, these are the version in a versioned bucket, the generation, the ETag, or mtime in nanoseconds,
size and inode on disks. Objects of which nothing better is known have no condition: their `created_at` and `size` serve as one.

A note holds the size that deleting frees, the realm and all facts: two uploads of the same bytes have one ETag, but two times.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.frames.arrays import join_chunks
from retention_assets.policy.durations import micros
from retention_assets.stores.places import Entry
from retention_assets.stores.places.protocol import ANOTHER, NO_VERSION
from retention_assets.stores.protocol import Target

_UNTOLD = "it is unknown whether it is another object now"
_TEXTS, _NUMBERS = ("version", "generation", "etag"), ("mtime_ns", "size", "inode", "created_at")
_LINKS = "links"  # recorded, but not compared
_ESCAPED = r'["\\\x00-\x1f]'


@dataclass(frozen=True)
class ObjectCondition:
    """Recorded facts of an object; None where its place does not have one."""

    version: str | None = None
    generation: str | None = None
    etag: str | None = None
    mtime_ns: int | None = None
    size: int | None = None
    inode: int | None = None
    # in microseconds since the epoch
    created_at: int | None = None
    # number of hard links if more than one: removing one of them frees nothing
    links: int | None = None

    @classmethod
    def of(cls, facts: Any) -> Self:
        """Build a condition from its JSON object. Raises Refused for anything else."""
        numbers = (*_NUMBERS, _LINKS)
        if not (isinstance(facts, dict) and facts) or not all(
            (type(value) is int) if name in numbers else name in _TEXTS and isinstance(value, str)
            for name, value in facts.items()
        ):
            raise Refused(f"{quote(json.dumps(facts))} is not a condition of an object. Plan the deletion again.")
        return cls(**facts)


def stat_conditions(mtimes: pa.Array, sizes: pa.Array, inodes: pa.Array, links: pa.Array) -> pa.Array:
    mtime, size, inode, count = (numbers.cast(pa.string()) for numbers in (mtimes, sizes, inodes, links))
    several = pc.greater(links, 1)
    end: Any = "}"
    if pc.any(several).as_py():
        end = pc.if_else(several, pc.binary_join_element_wise(f',"{_LINKS}":', count, "}", ""), "}")
    return pc.binary_join_element_wise('{"mtime_ns":', mtime, ',"size":', size, ',"inode":', inode, end, "")


def tagged_conditions(versions: pa.Array, etags: pa.Array) -> pa.Array:
    """Conditions by version, else by ETag (without the quotes that servers add); null where there is neither. The version
    `null` of a suspended bucket identifies nothing, so it is recorded together with the ETag."""
    version, etag = fact_conditions("version", versions), fact_conditions("etag", pc.utf8_trim(etags, '"'))
    both = pc.binary_join_element_wise(pc.utf8_slice_codeunits(version, 0, -1), pc.utf8_slice_codeunits(etag, 1), ",")
    return pc.if_else(pc.fill_null(pc.equal(versions, NO_VERSION), False), pc.coalesce(both, etag), pc.coalesce(version, etag))


def fact_conditions(name: str, values: pa.Array) -> pa.Array:
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    if pc.any(pc.match_substring_regex(values, _ESCAPED)).as_py():
        values = pa.array([text and json.dumps(text, ensure_ascii=False)[1:-1] for text in values.to_pylist()], pa.string())
    return pc.binary_join_element_wise(f'{{"{name}":"', values, '"}', "")


# error of a target without a note whose object exists now
NO_NOTE = "It did not exist when the sweep was planned, so it is another object now."


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
        """Reason why the present object is not certainly the planned one. None if all common facts agree."""
        if self.condition is None:
            return None
        facts = {name: (getattr(self.condition, name), getattr(present, name)) for name in (*_TEXTS, *_NUMBERS)}
        common = {name: pair for name, pair in facts.items() if None not in pair}
        if any(was != now for was, now in common.values()):
            return ANOTHER
        # Neither size nor inode alone identifies an object.
        return None if common.keys() - {"size", "inode"} else _UNTOLD


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
        note = json.loads(target.note)
        facts, created_at, size, realm = (note[name] for name in ("condition", "created_at", "size", "realm"))
    except (ValueError, TypeError, KeyError):
        raise Refused(f"{quote(target.note)} is not a note of an object. Plan the deletion again.") from None
    condition = None
    if conditional:
        known = ObjectCondition.of(facts) if facts else ObjectCondition()
        condition = replace(known, created_at=created_at, size=size)
        if target.again and (known.etag or known.mtime_ns):
            # a restored bucket has it with another time, a folder with another inode
            condition = ObjectCondition(etag=known.etag, mtime_ns=None if known.etag else known.mtime_ns, size=size)
        if condition == ObjectCondition(size=size):
            raise Refused("The plan has no note that distinguishes it from another object of its key. It stays.")
    has_one_link = not facts or facts.get("links") is None
    freed_before = (size or 0) if target.begun_earlier and has_one_link else 0
    return PlannedObject(target.transaction, size or 0, realm, condition, freed_before)


def matches_file(note: str | None, file: Entry) -> bool:
    """Tell whether a note is literally that of a file, in any realm, so that it needs no parsing. Must make the text that
    `notes_of` makes."""
    if note is None:
        return False
    size, mtime = file.size, file.time or 0
    end = f',"created_at":{mtime // 1_000},"condition":{{"mtime_ns":{mtime},"size":{size},"inode":{file.inode}}}}}'
    return note.startswith(f'{{"size":{size},"realm":') and note.endswith(end)


def present_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, ObjectCondition]:
    return {row["key"]: present_facts(row["condition"], row["created_at"], row["size"]) for row in rows}


def present_facts(text: str | None, created_at: datetime | None, size: int | None) -> ObjectCondition:
    condition = ObjectCondition() if text is None else ObjectCondition.of(json.loads(text))
    return replace(condition, created_at=None if created_at is None else micros(created_at), size=size)
