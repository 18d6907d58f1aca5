"""Histories: a drawing becomes rows and is read back, a drawing that says two things is refused, and random ones have every shape."""

import json
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from retention_assets.policy import parse_instant
from retention_assets_tests.histories import AS_OF, History, draw, from_lines, histories, history, random_histories, to_lines
from retention_assets_tests.oracle.views import branch_views
from retention_assets_tests.rounds import examples


def test_a_drawing_becomes_rows_in_the_exchange_format() -> None:
    drawn = history(
        "abc: T1:APPEND@40d..39d~1d=10[a,b]{derived=true} - T2:SNAPSHOT!@3d.. - T3:APPEND?@+1d\n-: T1 - X9:DELETE@36h[#2]"
        "| a,b: T2 | #v1=T2@+3d | > T1 X9 T2 T3",
        dataset="lake/x", attributes={"realm": "acme", "tier": "gold"},
    )  # fmt: skip
    lines = [json.loads(line) for line in to_lines([drawn])]
    assert lines[0] == {
        "dataset": "lake/x", "transaction": "T1", "parent": None, "type": "APPEND", "status": "COMMITTED",
        "opened_at": "2026-02-19T12:00:00Z", "closed_at": "2026-02-20T12:00:00Z", "archived_at": "2026-03-30T12:00:00Z",
        "bytes": 10, "files": ["a", "b"], "attributes": {"derived": "true"},
    }  # fmt: skip
    brief = [(line["transaction"], line["parent"], line["opened_at"], line["closed_at"], line["files"]) for line in lines[1:4]]
    assert brief == [
        ("X9", "T1", "2026-03-30T00:00:00Z", "2026-03-30T00:00:00Z", 2),
        ("T2", "T1", "2026-03-28T12:00:00Z", None, None),
        ("T3", "T2", "2026-04-01T12:00:00Z", None, None),
    ]
    assert lines[4:] == [
        {"dataset": "lake/x", "branch": "abc", "head": "T3"},
        {"dataset": "lake/x", "branch": "a", "head": "T2"},
        {"dataset": "lake/x", "branch": "b", "head": "T2"},
        {"dataset": "lake/x", "tag": "v1", "head": "T2", "expires_at": "2026-04-03T12:00:00Z"},
        {"dataset": "lake/x", "realm": "acme", "attributes": {"tier": "gold"}},
    ]


@pytest.mark.parametrize(
    ("drawing", "fault"),
    [
        ("main T1:APPEND@1d", "neither a path"),
        ("main: T1:APPEND", "not a step"),
        ("main: T1:COPY@1d", "not a type"),
        ("main: T1:APPEND@soon", "not a duration"),
        ("main: T1", "no type and no time"),
        ("main: T1:APPEND@2d - T1:APPEND@1d", "T1 is drawn twice"),
        ("main: T1:APPEND@2d | main: T1", "'main' is drawn twice"),
        ("main: T1:APPEND@1d..2d", "closed before opened"),
        ("main: T1:APPEND@1d..", "time of closing"),
        ("main: T1:APPEND@2d{derived}", "not an attribute"),
        ("main: T1:APPEND@2d | #v1=T2", "T2, which is not drawn"),
        ("main: T1:APPEND@2d | > T1 T2", "not of the drawn"),
    ],
)
def test_a_drawing_that_says_two_things_or_nothing_is_an_error(drawing: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        history(drawing)


@given(histories())
@settings(max_examples=examples(20), deadline=None)
def test_a_random_history_is_drawn_and_read_back(one: History) -> None:
    assert history(draw(one), as_of=one.as_of, dataset=one.dataset, attributes=one.attributes) == one


def test_random_histories_are_read_back_from_their_lines() -> None:
    found = [one for one in random_histories(random.Random(8), 300) if one.transactions]
    assert from_lines(to_lines(found), as_of=AS_OF) == found


def _shapes(one: History) -> Iterator[str]:
    rows = {row["transaction"]: row for row in one.transactions}
    children = Counter(row["parent"] for row in one.transactions)
    forks = {name for name, count in children.items() if name is not None and count > 1}
    heads = set(one.branches.values())

    def forks_above(name: str | None) -> int:
        return 0 if name is None else (name in forks) + forks_above(rows[name]["parent"])

    yield f"{min(len(one.branches), 4)} branches"
    yield "empty" if not rows else "large" if len(rows) > 20 else "middling"
    if children[None] > 1:
        yield "several roots"
    if len(heads) < len(one.branches):
        yield "several branches on a head"
    if any(children[head] for head in heads):
        yield "a head inside"
    if any(forks_above(name) > 1 for name in forks):
        yield "a fork of a fork"
    if rows and any(row.branches == 0 for row in branch_views(one, list(one.branches), AS_OF).values()):
        yield "unreachable"
    for name, row in rows.items():
        where = "root" if row["parent"] is None else "inside" if children[name] else "leaf"
        yield f"{row['status']} {where}"
        if name in heads:
            yield f"{row['status']} head"
        yield row["type"]
        yield f"files {type(row['files']).__name__}"
        if row["bytes"] is None:
            yield "bytes null"
        if row["status"] == "OPEN" and row["closed_at"]:
            yield f"OPEN and closed {row['type']}"
        if row["type"] == "OBJECT":
            yield f"referenced {row['attributes'].get('referenced')}"
        parent = rows.get(row["parent"])
        if parent and parent["closed_at"] and row["closed_at"] and row["closed_at"] <= parent["closed_at"]:
            yield "an equal time" if row["closed_at"] == parent["closed_at"] else "a time before its parent"
    sizes = [row["bytes"] or 0 for row in rows.values()]
    if sum(size < 2**32 for size in sizes) > 1 and sum(sizes) >= 2**32 and max(sizes) < 2**32:
        yield "bytes carry"
    if sum(sizes) >= 2**63:
        yield "bytes beyond 64 bits"
    own = {key: text for key, text in one.attributes.items() if key.startswith("history.expire.")}
    if own:
        yield "own windows" if all(text.isdecimal() and int(text) for text in own.values()) else "own windows unreadable"
    if any(".branch." in key for key in own):
        yield "own windows of branches"
    for head, expires in one.tags.values():
        if expires is None:
            yield "tag"
        else:
            yield "tag expired" if expires < AS_OF else "tag ends now" if expires == AS_OF else "tag ends"
        yield f"tag on {rows[head]['status']}"


def test_random_histories_have_every_shape_and_are_sound() -> None:
    seen: Counter[str] = Counter()
    for one in random_histories(random.Random(11), 2000):
        seen.update(set(_shapes(one)))
        names = [row["transaction"] for row in one.transactions]
        assert len(set(names)) == len(names) <= 30
        assert all(row["parent"] is None or row["parent"] in names[:at] for at, row in enumerate(one.transactions)), one
        assert {*one.branches.values(), *(head for head, _ in one.tags.values())} <= set(names), one
        for row in one.transactions:
            assert row["status"] != "COMMITTED" or row["closed_at"] is not None, one
            both = row["opened_at"] and row["closed_at"]
            assert not both or parse_instant(row["opened_at"]) <= parse_instant(row["closed_at"]), one
    places = ("root", "inside", "leaf", "head")
    wanted = [
        *(f"{status} {place}" for status in ("OPEN", "ABORTED", "COMMITTED") for place in places),
        *(f"{count} branches" for count in range(5)), "empty", "middling", "large", "several roots", "a head inside",
        "several branches on a head", "a fork of a fork", "unreachable", "tag", "tag expired", "tag ends now", "tag ends",
        "tag on OPEN", "tag on ABORTED", "SNAPSHOT", "APPEND", "UPDATE", "DELETE", "RECORD", "OBJECT", "files list",
        "files int", "files NoneType", "bytes null", "an equal time", "a time before its parent",
        "own windows", "own windows of branches", "own windows unreadable", "bytes carry", "bytes beyond 64 bits",
        *(f"referenced {said}" for said in ("false", "true", None, "unknown", "", "False", "0")),
        *(f"OPEN and closed {type_}" for type_ in ("APPEND", "SNAPSHOT", "RECORD", "OBJECT")),
    ]  # fmt: skip
    assert {shape: seen[shape] for shape in wanted if seen[shape] < 10} == {}
