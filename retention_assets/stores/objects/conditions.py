"""Conditions: what must still hold of an object when it is deleted, so that another one under its key is never hit.

Belongs here: the facts by which an object is known again, their text (compact JSON), whole columns of such texts, and whether
an object is another one now.
Does not belong here: asking a place for the facts (listings/), and deleting under them (delete*.py).

The kinds, by the strongest fact: `version` of a bucket that keeps versions, `generation`, `etag`, `stat` (time of the last
change in nanoseconds, size and inode) on disks, `row` (creation in microseconds, and size) where nothing better is known. A
listing that somebody else made has no text for the last: there it is null, and the row's own `created_at` and `size` say it.
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
# Of a bucket whose versions were suspended: each object that is written then has this version, in place of the last.
NO_VERSION = "null"
_TEXTS, _NUMBERS = ("version", "generation", "etag"), ("mtime_ns", "size", "inode", "created_at")
# What is noted beside, and tells nothing from anything.
_LINKS = "links"
# What JSON writes in another way than it is.
_ESCAPED = r'["\\\x00-\x1f]'


@dataclass(frozen=True)
class ObjectCondition:
    """The facts of an object that were noted; those that its place does not have are none."""

    version: str | None = None
    generation: str | None = None
    etag: str | None = None
    mtime_ns: int | None = None
    size: int | None = None
    inode: int | None = None
    # In microseconds.
    created_at: int | None = None
    # How many names a file has, if more than one: without one of them nothing is freed.
    links: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The condition of a text. Raises Refused for one that is none."""
        try:
            facts = json.loads(text)
        except ValueError:
            facts = None
        if facts is None:
            raise Refused(f"{quote(text)} is no condition of an object. Plan the deletion anew.")
        return cls.of(facts)

    @classmethod
    def of(cls, facts: Any) -> Self:
        """The condition of facts by their names, as JSON has them. Raises Refused for anything else."""
        if not (isinstance(facts, dict) and facts and all(_is_fact(name, value) for name, value in facts.items())):
            raise Refused(f"{quote(json.dumps(facts))} is no condition of an object. Plan the deletion anew.")
        return cls(**facts)

    @classmethod
    def of_row(cls, text: str | None, created_at: datetime | None, size: int | None) -> Self:
        """The condition of a listed object: its text, or else what the row itself says. Raises Refused if that is nothing."""
        if text is not None:
            return cls.parse(text)
        if created_at is None:
            raise Refused("An object without a time of its creation can't be told from another one. It stays.")
        return cls(created_at=micros(created_at), size=size)

    @property
    def kind(self) -> ConditionKind:
        """By the strongest fact."""
        if self.version is not None:
            return "version"
        if self.generation is not None:
            return "generation"
        if self.etag is not None:
            return "etag"
        return "stat" if self.mtime_ns is not None else "row"

    @property
    def text(self) -> str:
        """As plans and listings note it."""
        facts = {name: value for name in (*_TEXTS, *_NUMBERS, _LINKS) if (value := getattr(self, name)) is not None}
        return json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


def changed(noted: ObjectCondition | str, present: ObjectCondition | str) -> str | None:
    """Why an object is not certainly the one that was noted, or none if it is: every fact that both have is the same."""
    one, other = (ObjectCondition.parse(found) if isinstance(found, str) else found for found in (noted, present))
    pairs = [(getattr(one, name), getattr(other, name)) for name in (*_TEXTS, *_NUMBERS)]
    common = [(was, now) for was, now in pairs if was is not None and now is not None]
    if any(was != now for was, now in common):
        return ANOTHER
    # Two objects often have one size.
    alone = all(getattr(one, name) is None or getattr(other, name) is None for name in (*_TEXTS, "mtime_ns", "created_at"))
    return _UNTOLD if alone else None


def stat_conditions(mtimes: pa.Array, sizes: pa.Array, inodes: pa.Array, links: pa.Array) -> pa.Array:
    """The texts for files of a disk."""
    size, inode = (_digits(numbers) for numbers in (sizes, inodes))
    several = pc.greater(links, 1)
    end: Any = "}"
    if pc.any(several).as_py():
        end = pc.if_else(several, pc.binary_join_element_wise(f',"{_LINKS}":', _digits(links), "}", ""), "}")
    return pc.binary_join_element_wise('{"mtime_ns":', _digits(mtimes), ',"size":', size, ',"inode":', inode, end, "")


def row_conditions(created_at: pa.Array, sizes: pa.Array) -> pa.Array:
    """The texts for objects of which no more is known than when they were created and their size; null without the former."""
    known = pc.coalesce(pc.binary_join_element_wise('"size":', _digits(sizes), ",", ""), "")
    created = _digits(created_at.cast(pa.int64()))
    return pc.binary_join_element_wise("{", known, '"created_at":', created, "}", "")


def tagged_conditions(versions: pa.Array | None, etags: pa.Array | None) -> pa.Array:
    """The texts for objects by their version, else by their ETag: null where there is neither.

    A version that says nothing (`null`) is noted together with the ETag.
    """
    version = None if versions is None else _fact("version", versions)
    etag = None if etags is None else _fact("etag", _bare(etags))
    if version is None or versions is None:
        return etag
    if etag is None:
        return pc.if_else(pc.equal(versions, NO_VERSION), pa.scalar(None, pa.string()), version)
    both = pc.binary_join_element_wise(pc.utf8_slice_codeunits(version, 0, -1), pc.utf8_slice_codeunits(etag, 1), ",")
    return pc.if_else(pc.fill_null(pc.equal(versions, NO_VERSION), False), pc.coalesce(both, etag), pc.coalesce(version, etag))


def _bare(etags: pa.Array) -> pa.Array:
    """ETags as inventories have them: without the quotes that the answers of a server put around them."""
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
