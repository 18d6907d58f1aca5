"""Conditions: the text of each kind, columns of texts as single ones have them, and what another object is."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.stores.objects.notes import (
    ObjectCondition,
    PlannedObject,
    planned_of,
    stat_conditions,
    tagged_conditions,
)
from retention_assets.stores.protocol import Target


@pytest.mark.parametrize("text", ["[]", "{}", '{"etag":1}', '{"size":"1"}', '{"size":true}', '{"other":"x"}', "null"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a condition of an object"):
        ObjectCondition.of(json.loads(text))


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
    for planned, other in ((noted, present), (present, noted)):
        assert PlannedObject("a", 1, None, ObjectCondition(**planned)).change(ObjectCondition(**other)) == expected


def test_columns_have_the_texts_of_single_conditions() -> None:
    mtimes, sizes, inodes, links = [5, -1], [0, 7], [1, 2**64 - 1], [1, 3]
    stats = stat_conditions(pa.array(mtimes), pa.array(sizes), pa.array(inodes, pa.uint64()), pa.array(links))
    assert [ObjectCondition.of(json.loads(text)) for text in stats.to_pylist()] == [
        ObjectCondition(mtime_ns=5, size=0, inode=1),
        ObjectCondition(mtime_ns=-1, size=7, inode=2**64 - 1, links=3),
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
    assert [text and ObjectCondition.of(json.loads(text)) for text in found] == [case[2] for case in cases]
    assert tagged_conditions(pa.array(["v", "null", None]), pa.nulls(3, pa.string())).to_pylist() == [
        '{"version":"v"}',
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("noted", "there", "same"),
    [
        # a bucket that is restored writes anew: size and ETag tell
        ({"etag": "x"}, {"etag": "x", "size": 10, "created_at": 9}, True),
        ({"etag": "x", "version": "null"}, {"etag": "x", "version": "null", "size": 10, "created_at": 9}, True),
        ({"etag": "x"}, {"etag": "x", "size": 11, "created_at": 1}, False),
        ({"etag": "x"}, {"etag": "y", "size": 10, "created_at": 1}, False),
        # a file that is copied back has another inode
        ({"mtime_ns": 5, "size": 10, "inode": 1}, {"mtime_ns": 5, "size": 10, "inode": 2, "created_at": 1}, True),
        ({"mtime_ns": 5, "size": 10, "inode": 1}, {"mtime_ns": 6, "size": 10, "inode": 1, "created_at": 1}, False),
        ({"version": "a"}, {"version": "a", "size": 10, "created_at": 1}, True),
        ({"version": "a"}, {"version": "b", "size": 10, "created_at": 1}, False),
        (None, {"size": 10, "created_at": 1}, True),
        (None, {"size": 10, "created_at": 9}, False),
    ],
)
def test_a_deleted_object_is_there_again_by_what_a_copy_keeps_of_it(
    noted: dict[str, Any] | None, there: dict[str, Any], same: bool
) -> None:
    note = json.dumps({"size": 10, "realm": None, "created_at": 1, "condition": noted})
    planned = planned_of(Target("k", note, again=datetime(2026, 1, 1, tzinfo=UTC)), conditional=True)
    assert planned is not None
    assert (planned.change(ObjectCondition(**there)) is None) is same
