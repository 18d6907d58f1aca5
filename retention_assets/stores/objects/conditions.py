"""Conditions: the facts by which an object is recognized again, so that a new object under the same key is never deleted.

By the strongest fact, the kinds are: `version` of a versioned bucket, `generation`, `etag`, `stat` (mtime in nanoseconds, size
and inode) on disks, and `row` (creation time in microseconds, and size) where nothing better is known. Finished listings have
null instead of a text of the kind `row`: the row's own `created_at` and `size` say the same.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.policy.durations import micros

ConditionKind = Literal["version", "generation", "etag", "stat", "row"]

ANOTHER = "another object now"
_UNTOLD = "nothing tells whether it is another object now"
# version id of objects written while versioning is suspended: each write replaces the last one
NO_VERSION = "null"
_TEXTS, _NUMBERS = ("version", "generation", "etag"), ("mtime_ns", "size", "inode", "created_at")
# recorded, but not compared
_LINKS = "links"
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
    # microseconds
    created_at: int | None = None
    # number of hard links if more than one: removing one of them frees nothing
    links: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a condition. Raises Refused if the text is not one."""
        try:
            facts = json.loads(text)
        except ValueError:
            facts = None
        if facts is None:
            raise Refused(f"{quote(text)} is no condition of an object. Plan the deletion anew.")
        return cls.of(facts)

    @classmethod
    def of(cls, facts: Any) -> Self:
        """Build a condition from its JSON object. Raises Refused for anything else."""
        if not (isinstance(facts, dict) and facts and all(_is_fact(name, value) for name, value in facts.items())):
            raise Refused(f"{quote(json.dumps(facts))} is no condition of an object. Plan the deletion anew.")
        return cls(**facts)

    @classmethod
    def of_row(cls, text: str | None, created_at: datetime | None, size: int | None) -> Self:
        """Build the condition of a listed object from its text, or else from the row. Raises Refused if both are missing."""
        if text is not None:
            return cls.parse(text)
        if created_at is None:
            raise Refused("An object without a time of its creation can't be told from another one. It stays.")
        return cls(created_at=micros(created_at), size=size)

    @property
    def kind(self) -> ConditionKind:
        if self.version is not None:
            return "version"
        if self.generation is not None:
            return "generation"
        if self.etag is not None:
            return "etag"
        return "stat" if self.mtime_ns is not None else "row"

    @property
    def text(self) -> str:
        facts = {name: value for name in (*_TEXTS, *_NUMBERS, _LINKS) if (value := getattr(self, name)) is not None}
        return json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


def changed(noted: ObjectCondition | str, present: ObjectCondition | str) -> str | None:
    """Reason why an object is not certainly the recorded one. None if all common facts agree, and size is not the only one."""
    one, other = (ObjectCondition.parse(found) if isinstance(found, str) else found for found in (noted, present))
    pairs = [(getattr(one, name), getattr(other, name)) for name in (*_TEXTS, *_NUMBERS)]
    common = [(was, now) for was, now in pairs if was is not None and now is not None]
    if any(was != now for was, now in common):
        return ANOTHER
    # Size alone does not identify an object.
    alone = all(getattr(one, name) is None or getattr(other, name) is None for name in (*_TEXTS, "mtime_ns", "created_at"))
    return _UNTOLD if alone else None


def stat_conditions(mtimes: pa.Array, sizes: pa.Array, inodes: pa.Array, links: pa.Array) -> pa.Array:
    size, inode = (_digits(numbers) for numbers in (sizes, inodes))
    several = pc.greater(links, 1)
    end: Any = "}"
    if pc.any(several).as_py():
        end = pc.if_else(several, pc.binary_join_element_wise(f',"{_LINKS}":', _digits(links), "}", ""), "}")
    return pc.binary_join_element_wise('{"mtime_ns":', _digits(mtimes), ',"size":', size, ',"inode":', inode, end, "")


def row_conditions(created_at: pa.Array, sizes: pa.Array) -> pa.Array:
    """Conditions of objects with no better facts than creation time and size; null without a creation time."""
    known = pc.coalesce(pc.binary_join_element_wise('"size":', _digits(sizes), ",", ""), "")
    created = _digits(created_at.cast(pa.int64()))
    return pc.binary_join_element_wise("{", known, '"created_at":', created, "}", "")


def tagged_conditions(versions: pa.Array | None, etags: pa.Array | None) -> pa.Array:
    """Conditions by version, else by ETag; null where there is neither. The version `null` of a suspended bucket identifies
    nothing, so it is recorded together with the ETag."""
    version = None if versions is None else _fact("version", versions)
    etag = None if etags is None else _fact("etag", _bare(etags))
    if version is None or versions is None:
        return etag
    if etag is None:
        return pc.if_else(pc.equal(versions, NO_VERSION), pa.scalar(None, pa.string()), version)
    both = pc.binary_join_element_wise(pc.utf8_slice_codeunits(version, 0, -1), pc.utf8_slice_codeunits(etag, 1), ",")
    return pc.if_else(pc.fill_null(pc.equal(versions, NO_VERSION), False), pc.coalesce(both, etag), pc.coalesce(version, etag))


def _bare(etags: pa.Array) -> pa.Array:
    """Strip the quotes that servers put around ETags; inventories have none."""
    return pc.utf8_trim(etags, '"')


def _fact(name: str, values: pa.Array) -> pa.Array:
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    if pc.any(pc.match_substring_regex(values, _ESCAPED)).as_py():
        texts = [None if value is None else ObjectCondition(**{name: value}).text for value in values.to_pylist()]
        return pa.array(texts, pa.string())
    return pc.binary_join_element_wise(f'{{"{name}":"', values, '"}', "")


def _digits(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string())


def _is_fact(name: str, value: object) -> bool:
    if name in (*_NUMBERS, _LINKS):
        return isinstance(value, int) and not isinstance(value, bool)
    return name in _TEXTS and isinstance(value, str)
