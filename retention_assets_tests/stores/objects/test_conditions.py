"""Conditions: the text of each kind, columns of texts as single ones have them, and what another object is."""

from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.stores.objects.notes import (
    ObjectCondition,
    changed,
    stat_conditions,
    tagged_conditions,
)

KINDS = {
    "version": ObjectCondition(version="v1", etag="e1"),
    "generation": ObjectCondition(generation="12", etag="e1"),
    "etag": ObjectCondition(etag='W/"é\\'),
    "stat": ObjectCondition(mtime_ns=1_700_000_000_123_456_789, size=7, inode=2**64 - 1),
    "stat of several names": ObjectCondition(mtime_ns=1, size=7, inode=3, links=2),
    "row": ObjectCondition(created_at=-5, size=0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_condition_is_read_as_it_was_written(kind: str) -> None:
    condition = KINDS[kind]
    assert ObjectCondition.parse(condition.text) == condition
    assert " " not in condition.text


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"etag":1}', '{"size":"1"}', '{"size":true}', '{"other":"x"}', "null"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a condition of an object"):
        ObjectCondition.parse(text)


ANOTHER = "another object now"
CHANGES: tuple[tuple[str, dict[str, Any], dict[str, Any], str | None], ...] = (
    ("the same version", {"version": "1"}, {"version": "1", "etag": "x"}, None),
    ("another version", {"version": "1"}, {"version": "2"}, ANOTHER),
    ("no versions, another content", {"version": "null", "etag": "x"}, {"version": "null", "etag": "y"}, ANOTHER),
    ("the same bytes again on a disk", {"mtime_ns": 1, "size": 1, "inode": 1}, {"mtime_ns": 1, "size": 1, "inode": 2}, ANOTHER),
    ("a name more", {"mtime_ns": 1, "size": 1, "inode": 1}, {"mtime_ns": 1, "size": 1, "inode": 1, "links": 2}, None),
    ("a row made again", {"created_at": 1, "size": 1}, {"created_at": 2, "size": 1}, ANOTHER),
    ("a size that nobody knew", {"created_at": 1}, {"created_at": 1, "size": 1}, None),
    ("an inventory's ETag, a version's place", {"etag": "x"}, {"version": "1", "etag": "x"}, None),
    ("nothing in common", {"etag": "x"}, {"mtime_ns": 1}, "it is unknown whether it is another object now"),
    ("only a size in common", {"etag": "x", "size": 1}, {"created_at": 1, "size": 1},
     "it is unknown whether it is another object now"),
)  # fmt: skip


@pytest.mark.parametrize(("noted", "present", "expected"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_another_object_is_told(noted: dict[str, Any], present: dict[str, Any], expected: str | None) -> None:
    assert changed(ObjectCondition(**noted), ObjectCondition(**present)) == expected
    assert changed(ObjectCondition(**present), ObjectCondition(**noted)) == expected


def test_columns_have_the_texts_of_single_conditions() -> None:
    mtimes, sizes, inodes, links = [5, -1], [0, 7], [1, 2**64 - 1], [1, 3]
    stats = stat_conditions(pa.array(mtimes), pa.array(sizes), pa.array(inodes, pa.uint64()), pa.array(links))
    assert stats.to_pylist() == [
        ObjectCondition(mtime_ns=5, size=0, inode=1).text,
        ObjectCondition(mtime_ns=-1, size=7, inode=2**64 - 1, links=3).text,
    ]


TAGS: tuple[tuple[str | None, str | None, ObjectCondition | None], ...] = (
    ("v1", "e1", ObjectCondition(version="v1")),
    ("null", '"e1"', ObjectCondition(version="null", etag="e1")),
    ("null", None, None),
    (None, "e1", ObjectCondition(etag="e1")),
    ("", 'W/"\\', ObjectCondition(etag="W/\"\\")),
    (None, None, None),
    (None, "", None),
)  # fmt: skip


@pytest.mark.parametrize("hostile", [False, True])
def test_tags_become_conditions(hostile: bool) -> None:
    cases = [case for case in TAGS if hostile or "\\" not in (case[1] or "")]
    versions, etags = (pa.array([case[place] for case in cases], pa.string()) for place in (0, 1))
    found = tagged_conditions(versions, etags).to_pylist()
    assert [text and ObjectCondition.parse(text) for text in found] == [case[2] for case in cases]
    assert tagged_conditions(None, etags).to_pylist() == [
        text if case[0] in (None, "") else tagged_conditions(None, pa.array([case[1]], pa.string()))[0].as_py()
        for case, text in zip(cases, found, strict=True)
    ]
    assert tagged_conditions(pa.array(["v", "null", None]), None).to_pylist() == ['{"version":"v"}', None, None]
