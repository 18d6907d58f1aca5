"""Which logs are trusted: every fault refuses its dataset whole, named with its transaction, and no other dataset.

Belongs here: the faults of DESIGN.md section 3 one by one, ordinals, parents. Does not belong here: what a line may hold
(exchange/test_json_lines.py).
Nothing downstream checks a log again. A fault that passes here, or a parent that is misread, deletes data.
"""

import json
import random
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_assets.exchange import read_log
from retention_assets.frames import DATASETS, LOG, Log
from retention_assets_tests.histories import History, random_histories, to_lines

AT = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:05:00Z"


def transaction(id_: Any, **changed: Any) -> dict[str, Any]:
    """A sound APPEND of lake/d; a key that is changed to `...` is left out."""
    line = {
        "dataset": "lake/d", "transaction": id_, "type": "APPEND", "status": "COMMITTED", "opened_at": AT, "closed_at": LATER,
        **changed,
    }  # fmt: skip
    return {key: value for key, value in line.items() if value is not ...}


def branch(name: str, head: str | None) -> dict[str, Any]:
    return {"dataset": "lake/d", "branch": name, "head": head}


def tag(name: str, head: str | None, **more: Any) -> dict[str, Any]:
    return {"dataset": "lake/d", "tag": name, "head": head, **more}


def log_of(tmp_path: Path, *lines: dict[str, Any]) -> Log:
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_log(file)


T1, T2 = transaction("T1"), transaction("T2")

# lines of lake/d, the words that the fault begins with, and the transaction that it names
SEVERAL = "a dataset has one realm, and its transactions or its lines name several"


def of_realm(name: str, realm: str, **keys: Any) -> dict[str, Any]:
    return transaction(name, attributes={"realm": realm}, **keys)


FAULTS = {
    "duplicate-id": ([T1, T2, transaction("T1")], "duplicate id", "T1"),
    "duplicate-id-of-equal-lines": ([T1, T1], "duplicate id", "T1"),
    "unknown-parent": ([T1, transaction("T2", parent="T0")], "unknown parent: T0", "T2"),
    "parent-of-another-dataset": ([transaction("T2", parent="E1")], "unknown parent: E1", "T2"),
    "empty-parent": ([T1, transaction("T2", parent="")], "unknown parent", "T2"),
    "cycle-of-one": ([transaction("T1", parent="T1")], "cycle", "T1"),
    "cycle-of-two": ([transaction("T1", parent="T2"), transaction("T2", parent="T1")], "cycle", "T1"),
    "cycle-of-three-with-a-root-beside": (
        [transaction("R", parent=None), *(transaction(f"T{n}", parent=f"T{n % 3 + 1}") for n in (1, 2, 3))], "cycle", "T1",
    ),
    "head-on-an-unknown-transaction": ([T1, branch("main", "T9")], "head on an unknown transaction: main", "T9"),
    "head-on-a-transaction-of-another-dataset": ([T1, branch("main", "E1")], "head on an unknown transaction: main", "E1"),
    "head-on-nothing": ([T1, branch("main", None)], "head on an unknown transaction: main", None),
    "head-without-any-transaction": ([branch("main", "T1")], "head on an unknown transaction: main", "T1"),
    "tag-on-an-unknown-transaction": ([T1, tag("v1", "T9")], "tag on an unknown transaction: v1", "T9"),
    "expired-tag-on-an-unknown-transaction": ([T1, tag("v1", "T9", expires_at=AT)], "tag on an unknown transaction: v1", "T9"),
    "two-branches-of-one-name": (
        [T1, T2, branch("main", "T1"), branch("main", "T2")], "two branches of one name: main", "T2",
    ),
    "two-branches-of-one-name-and-head": (
        [T1, branch("main", "T1"), branch("main", "T1")], "two branches of one name: main", "T1",
    ),
    "two-tags-of-one-name": ([T1, tag("v1", "T1"), tag("v1", "T1")], "two tags of one name: v1", "T1"),
    "unknown-type": ([T1, transaction("T2", type="MERGE")], "unknown type: MERGE", "T2"),
    "type-in-lower-case": ([transaction("T1", type="append")], "unknown type: append", "T1"),
    "no-type": ([transaction("T1", type=...)], "unknown type", "T1"),
    "unknown-status": ([transaction("T1", status="DONE")], "unknown status: DONE", "T1"),
    "no-status": ([transaction("T1", status=None)], "unknown status", "T1"),
    "null-id": ([T1, transaction(None)], "missing id", None),
    "no-id": ([T1, transaction(...)], "missing id", None),
    # Each word of a transaction alone shows that a line was meant to be one: it is no word about the dataset.
    **{
        f"no-id-but-{key}": ([T1, {"dataset": "lake/d", key: value}], "missing id", None)
        for key, value in (("type", "APPEND"), ("status", "OPEN"), ("opened_at", AT), ("closed_at", AT), ("parent", "T1"), ("parent", None),
            ("archived_at", AT), ("bytes", 7), ("bytes", 0), ("files", 2), ("files", ["a"]), ("files", []), ("expires_at", AT))
    },
    "no-id-but-both-times": ([T1, {"dataset": "lake/d", "opened_at": AT, "closed_at": LATER}], "missing id", None),
    "no-id-but-a-time-and-attributes": ([T1, {"dataset": "lake/d", "closed_at": AT, "attributes": {"tier": "a"}}], "missing id", None),
    "empty-id": ([T1, transaction("")], "missing id", ""),
    "branch-without-a-name": ([T1, branch("", "T1")], "missing id", None),
    "tag-without-a-name": ([T1, tag("", "T1")], "missing id", None),
    "head-without-a-branch": ([T1, {"dataset": "lake/d", "head": "T1"}], "missing id", None),
    "closed-before-opened": ([transaction("T1", opened_at=LATER, closed_at=AT)], "closed before opened", "T1"),
    "aborted-before-opened": (
        [transaction("T1", status="ABORTED", opened_at=LATER, closed_at=AT)], "closed before opened", "T1",
    ),
    "committed-without-closed-at": ([transaction("T1", closed_at=None)], "COMMITTED without closed_at", "T1"),
    "committed-with-closed-at-left-out": ([transaction("T1", closed_at=...)], "COMMITTED without closed_at", "T1"),
    "record-without-closed-at": ([transaction("T1", type="RECORD", closed_at=None)], "COMMITTED without closed_at", "T1"),
    "negative-bytes": ([transaction("T1", bytes=-1)], "negative bytes", "T1"),
    "negative-files": ([transaction("T1", files=-1)], "negative files", "T1"),
    "open-closed-before-opened": ([transaction("T1", status="OPEN", opened_at=LATER, closed_at=AT)], "closed before opened", "T1"),
    "record-closed-before-opened": ([transaction("T1", type="RECORD", opened_at=LATER, closed_at=AT)], "closed before opened", "T1"),
    "transaction-and-tag-in-a-line": ([T1, transaction("T2", tag="v1", head="T1")], "a line that is more than one thing", "T2"),
    "branch-and-tag-in-a-line": ([T1, {**branch("main", "T1"), "tag": "v1"}], "a line that is more than one thing", None),
    "three-things-in-a-line": ([T1, {**transaction("T2"), **branch("main", "T1"), "tag": "v1"}], "a line that is more than one thing", "T2"),
    "two-things-in-a-line": ([T1, transaction("T2", branch="main", head="T1")], "a line that is more than one thing", "T2"),
    "two-lines-that-contradict-each-other": (
        [T1, {"dataset": "lake/d", "attributes": {"tier": "a"}}, {"dataset": "lake/d", "attributes": {"tier": "b"}}],
        "two lines about the dataset that contradict each other", None,
    ),
    "two-lines-that-contradict-each-other-in-part": (
        [T1, *({"dataset": "lake/d", "attributes": {"tier": "a", "owner": owner, owner: "x"}} for owner in ("ann", "bob"))],
        "two lines about the dataset that contradict each other", None,
    ),
    "two-realms": (
        [T1, {"dataset": "lake/d", "realm": "acme"}, {"dataset": "lake/d", "attributes": {"realm": "globex"}}],
        "two lines about the dataset that contradict each other", None,
    ),
    "transactions-of-two-realms": ([of_realm("T1", "acme"), of_realm("T2", "acme/eu"), of_realm("T3", "acme")], SEVERAL, "T2"),
    "one-transaction-of-a-realm": ([T1, of_realm("T2", "acme")], SEVERAL, "T2"),
    "one-transaction-of-none": ([of_realm("T1", "acme"), transaction("T2"), of_realm("T3", "acme")], SEVERAL, "T2"),
    "transactions-of-another-realm": ([of_realm("T1", "acme"), {"dataset": "lake/d", "realm": "acme/eu"}], SEVERAL, "T1"),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "fault", "named"), FAULTS.values(), ids=FAULTS)
def test_a_fault_refuses_its_dataset_and_names_the_transaction_and_no_other_dataset(
    lines: list[dict[str, Any]], fault: str, named: str | None, tmp_path: Path
) -> None:
    sound = [transaction("E1", dataset=name) for name in ("lake/c", "lake/e")]
    log = log_of(tmp_path, sound[0], *lines, sound[1])
    faults = {row["dataset"]: (row["fault"], row["fault_transaction"]) for row in log.datasets.to_pylist()}
    assert faults["lake/c"] == faults["lake/e"] == (None, None)
    assert faults["lake/d"][0].startswith(fault)
    assert faults["lake/d"][1] == named
    assert log.transactions["dataset"].to_pylist() == ["lake/c", "lake/e"]
    assert [row["transactions"] for row in log.datasets.to_pylist()] == [1, 0, 1]


def test_what_is_odd_but_sound_is_read(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        transaction("a", status="ABORTED", closed_at=None),
        transaction("b", status="OPEN", closed_at=None, opened_at=None),
        transaction("c", closed_at=AT, bytes=0, files=0),
        transaction("d", status="OPEN", parent="b"),
        branch("main", "a"), branch("x", "a"), tag("main", "a"), tag("old", "c", expires_at=AT),
    )  # fmt: skip
    assert log.datasets.to_pylist() == [
        {"dataset": "lake/d", "transactions": 4, "attributes": [], "fault": None, "fault_transaction": None}
    ]
    rows = log.transactions.to_pylist()
    assert [(row["heads"], row["tags"]) for row in rows] == [(["main", "x"], ["main"]), ([], []), ([], ["old"]), ([], [])]


# --- parents and ordinals ---


def links(log: Log) -> dict[str, tuple[int, str | None, int]]:
    """For each transaction its ordinal, its parent and its parent's ordinal."""
    rows = log.transactions.to_pylist()
    return {row["transaction"]: (row["ordinal"], row["parent"], row["parent_ordinal"]) for row in rows}


def test_a_parent_left_out_is_the_line_before_in_the_same_dataset(tmp_path: Path) -> None:
    # Null is a root, and what is left out follows whatever transaction stands before it, roots and branches included.
    log = log_of(
        tmp_path, T1, transaction("E1", dataset="lake/e"), T2, branch("main", "T2"), transaction("E2", dataset="lake/e"),
        transaction("T3", parent=None), transaction("T4"), transaction("T5", parent="T1"), transaction("T6"),
    )  # fmt: skip
    assert links(log) == {
        "T1": (0, None, -1), "T2": (1, "T1", 0), "T3": (2, None, -1), "T4": (3, "T3", 2), "T5": (4, "T1", 0),
        "T6": (5, "T5", 4), "E1": (0, None, -1), "E2": (1, "E1", 0),
    }  # fmt: skip


def test_children_before_their_parents_are_put_behind_them_and_the_rest_stays(tmp_path: Path) -> None:
    order = [("C", "B"), ("X", None), ("B", "A"), ("Y", "X"), ("A", None), ("Z", "X")]
    log = log_of(tmp_path, *(transaction(name, parent=parent) for name, parent in order))
    names = log.transactions["transaction"].to_pylist()
    at = {name: place for place, name in enumerate(names)}
    assert at["A"] < at["B"] < at["C"]
    # What did not have to wait keeps the order of the log, which is the only order there is.
    assert [name for name in names if name in "XYZ"] == ["X", "Y", "Z"]
    assert links(log) == {name: (at[name], parent, at[parent] if parent else -1) for name, parent in order}


def test_a_log_of_children_first_is_not_turned_round_where_it_does_not_have_to_be(tmp_path: Path) -> None:
    # T2 was opened and closed before T1; the log says otherwise, and order never comes from times.
    log = log_of(tmp_path, T1, transaction("T2", opened_at="2020-01-01T00:00:00Z", closed_at="2020-01-01T00:00:00Z"))
    assert log.transactions["transaction"].to_pylist() == ["T1", "T2"]


def test_the_same_ids_in_two_datasets_are_different_transactions(tmp_path: Path) -> None:
    log = log_of(tmp_path, *(transaction(name, dataset=where) for name in ("T1", "T2") for where in ("lake/b", "lake/a")))
    assert [(row["dataset"], row["transaction"], row["parent"]) for row in log.transactions.to_pylist()] == [
        ("lake/a", "T1", None), ("lake/a", "T2", "T1"), ("lake/b", "T1", None), ("lake/b", "T2", "T1"),
    ]  # fmt: skip


def test_the_tables_have_the_schemas_that_frames_read(tmp_path: Path) -> None:
    log = log_of(tmp_path, T1, branch("main", "T1"))
    assert (log.transactions.schema, log.datasets.schema) == (LOG, DATASETS)
    empty = log_of(tmp_path, transaction("T1", type="X"))
    assert (empty.transactions.schema, len(empty.transactions)) == (LOG, 0)


def test_a_realm_that_all_transactions_name_is_the_datasets(tmp_path: Path) -> None:
    log = log_of(
        tmp_path, of_realm("T1", "acme"), of_realm("T2", "acme"), transaction("T3", type="DELETE"),
        {"dataset": "lake/d", "attributes": {"tier": "a"}},
        of_realm("E1", "beta", dataset="lake/e"), {"dataset": "lake/e", "realm": "beta"}, transaction("F1", dataset="lake/f"),
    )  # fmt: skip
    found = {row["dataset"]: (dict(row["attributes"]), row["fault"]) for row in log.datasets.to_pylist()}
    assert found == {
        "lake/d": ({"realm": "acme", "tier": "a"}, None), "lake/e": ({"realm": "beta"}, None), "lake/f": ({}, None),
    }  # fmt: skip


def test_attributes_of_a_dataset_are_gathered_from_its_lines(tmp_path: Path) -> None:
    log = log_of(
        tmp_path, {"dataset": "lake/d", "realm": "acme", "attributes": {"tier": "a"}}, T1,
        {"dataset": "lake/d", "attributes": {"tier": "a", "derived": "true"}}, {"dataset": "lake/only"},
    )  # fmt: skip
    found = {row["dataset"]: dict(row["attributes"]) for row in log.datasets.to_pylist()}
    assert found == {"lake/d": {"realm": "acme", "tier": "a", "derived": "true"}, "lake/only": {}}


# Reading costs a tenth of a second however short the log, so an example of the two laws is many datasets.
MANY = st.integers(0, 2**32).map(lambda seed: (random_histories(random.Random(seed), 12), random.Random(seed)))


@settings(deadline=None, max_examples=10)
@given(MANY)
def test_any_order_of_lines_with_explicit_parents_gives_the_same_parents_and_sound_ordinals(
    drawn: tuple[list[History], random.Random],
) -> None:
    many, rng = drawn
    lines = to_lines(many)
    before = read_text(lines)
    rng.shuffle(lines)
    after = read_text(lines)
    expected = {(one.dataset, row["transaction"], row["parent"]) for one in many for row in one.transactions}
    assert parents(before) == parents(after) == expected
    assert refs(before) == refs(after)
    for log in (before, after):
        by_dataset = groupby(log.transactions.to_pylist(), key=lambda row: row["dataset"])
        for rows in (list(group) for _, group in by_dataset):
            assert [row["ordinal"] for row in rows] == list(range(len(rows)))
            for row in rows:
                assert row["parent_ordinal"] < row["ordinal"]
                parent = rows[row["parent_ordinal"]]["transaction"] if row["parent_ordinal"] >= 0 else None
                assert parent == row["parent"]


@settings(deadline=None, max_examples=10)
@given(MANY)
def test_a_log_that_has_its_parents_first_keeps_its_order(drawn: tuple[list[History], random.Random]) -> None:
    many = sorted(drawn[0], key=lambda one: one.dataset)
    log = read_text(to_lines(many))
    read = groupby(log.transactions.to_pylist(), key=lambda row: row["dataset"])
    orders = {dataset: [row["transaction"] for row in rows] for dataset, rows in read}
    for one in many:
        names = [row["transaction"] for row in one.transactions]
        if all(row["parent"] in (None, *names[:place]) for place, row in enumerate(one.transactions)):
            assert orders.get(one.dataset, []) == names


def read_text(lines: list[str]) -> Log:
    """A log from text; a folder of its own for each, since Hypothesis runs many in one test."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "log.jsonl"
        file.write_text("\n".join(lines or ['{"dataset":"lake/d"}']))
        return read_log(file)


def parents(log: Log) -> set[tuple[str, str, str | None]]:
    return {(row["dataset"], row["transaction"], row["parent"]) for row in log.transactions.to_pylist()}


def refs(log: Log) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {
        (row["dataset"], row["transaction"]): (row["heads"], row["tags"], row["tag_expiries"])
        for row in log.transactions.to_pylist()
    }
