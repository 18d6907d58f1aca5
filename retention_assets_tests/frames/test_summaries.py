"""Summaries of logs and verdicts, counted a second time in plain loops: columns, largest datasets, branches, reasons.

Belongs here: the frames that add up (log_sums, branch_ends, count_reasons), on drawings and on random histories.
"""

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.frames import (
    CANDIDATE_MARKS,
    LARGEST,
    LOG,
    History,
    Log,
    branch_views,
    branch_views_and_ends,
    candidate_marks,
)
from retention_assets.frames.statistics import (
    DATASET_COUNTS,
    EXAMPLES,
    count_by_dataset,
    count_reasons,
    largest_datasets,
    log_sums,
    merge_reason_counts,
)
from retention_assets.frames.views.branch_views import branch_ends
from retention_assets.policy import Policy, micros
from retention_assets_tests.histories import AS_OF, history, log_of, random_histories
from retention_assets_tests.policies import random_policies


@pytest.fixture
def log() -> Log:
    """Three hundred random histories."""
    return log_of(random_histories(random.Random(6), 300))


def halves(table: pa.Table) -> list[pa.Table]:
    """A log in two parts of whole datasets."""
    names = table["dataset"].cast(pa.string()).to_pylist()
    cut = names.index(names[len(names) // 2])
    return [table.slice(0, cut), table.slice(cut)]


# --- branches ---------------------------------------------------------------------------------------------------------


def walked(log: pa.Table) -> dict[tuple[str, str], tuple[int, int, Any]]:
    """Each branch by a walk from its head to the root: views, transactions of the latest one, newest close."""
    rows: dict[tuple[str, int], dict[str, Any]] = {(row["dataset"], row["ordinal"]): row for row in log.to_pylist()}
    found = {}
    for head in rows.values():
        path, at = [], head
        while at:
            path.append(at)
            at = rows.get((at["dataset"], at["parent_ordinal"]), {})
        views: list[list[dict[str, Any]]] = []
        for row in reversed(path):
            if row["status"] == "COMMITTED" and row["type"] not in ("RECORD", "OBJECT"):
                if not views or row["type"] == "SNAPSHOT":
                    views.append([])
                views[-1].append(row)
        latest = views[-1] if views else []
        for branch in head["heads"] or ():
            found[head["dataset"], branch] = (len(views), len(latest), latest[-1]["closed_at"] if latest else None)
    return found


def ends_of(log: pa.Table, most: int = 10**6) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = branch_ends(History(log.combine_chunks(), micros(AS_OF)), most).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("drawing", "expected"),
    [
        ("main: S1:SNAPSHOT@9d - A2:APPEND@8d - S3:SNAPSHOT@7d - A4:APPEND@6d", {"main": (2, 2)}),
        ("main: A1:APPEND@9d - A2:APPEND@8d", {"main": (1, 2)}),
        ("main: A1:APPEND@9d - S2:SNAPSHOT@8d", {"main": (2, 1)}),
        ("abc: T1:APPEND@9d - T2:APPEND@8d - T3:SNAPSHOT@7d  |  xyz: T2 - T5:APPEND@6d", {"abc": (2, 1), "xyz": (1, 3)}),
        ("main: S1:SNAPSHOT@9d - X2:SNAPSHOT!@8d - A3:APPEND?@7d", {"main": (1, 1)}),  # what is not committed begins nothing
        ("main: X1:APPEND!@9d", {"main": (0, 0)}),
        ("a,b: S1:SNAPSHOT@9d", {"a": (1, 1), "b": (1, 1)}),
    ],
)
def test_a_branch_has_its_views_and_the_size_of_the_latest(drawing: str, expected: dict[str, tuple[int, int]]) -> None:
    rows = ends_of(log_of([history(drawing)]).transactions)
    assert {row["branch"]: (row["views"], row["transactions"]) for row in rows} == expected


def test_branches_of_random_histories_are_as_a_walk_finds_them(log: Log) -> None:
    found = {
        (row["dataset"], row["branch"]): (row["views"], row["transactions"], row["newest_close"])
        for row in ends_of(log.transactions)
    }
    assert found == walked(log.transactions)
    assert len(found) > 300


def test_the_largest_latest_views_are_kept(log: Log) -> None:
    rows = ends_of(log.transactions)
    assert [row["transactions"] for row in rows] == sorted((row["transactions"] for row in rows), reverse=True)
    assert ends_of(log.transactions, 7) == rows[:7]


def test_views_and_ends_are_computed_together(log: Log) -> None:
    views, ends = branch_views_and_ends(log.transactions, AS_OF)
    assert views.equals(branch_views(log.transactions, AS_OF))
    assert ends.to_pylist() == ends_of(log.transactions, 1_000)


# --- sums -------------------------------------------------------------------------------------------------------------


def test_sums_are_as_loops_count_them_and_parts_add_up(log: Log) -> None:
    rows = log.transactions.to_pylist()
    branches, tags = (sum(len(row[name] or ()) for row in rows) for name in ("heads", "tags"))
    (whole,) = log_sums(log.transactions).to_pylist()
    assert whole == {"bytes": sum(row["bytes"] or 0 for row in rows), "branches": branches, "tags": tags}
    parts = [log_sums(part).to_pylist()[0] for part in halves(log.transactions)]
    assert {name: sum(part[name] for part in parts) for name in whole} == whole


def test_a_sum_of_sizes_does_not_wrap_around() -> None:
    huge = 2**62
    drawing = " - ".join(f"A{number}:APPEND@{9 - number}d" for number in range(4))
    small = log_of([history(f"main: {drawing}"), history("main: S:SNAPSHOT@1d", dataset="lake/small")]).transactions
    table = small.set_column(LOG.get_field_index("bytes"), LOG.field("bytes"), [[*[huge] * 4, 5]])
    assert log_sums(table)["bytes"].to_pylist() == [4 * huge + 5]
    rows = largest_datasets(table).to_pylist()
    assert [int(row["bytes"]) for row in rows] == [4 * huge, 5]


def test_the_largest_datasets_are_those_with_most_bytes(log: Log) -> None:
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for row in log.transactions.to_pylist():
        sizes[row["dataset"]] += row["bytes"] or 0
        counts[row["dataset"]] += 1
    expected = sorted(sizes, key=lambda name: (-sizes[name], -counts[name]))[:LARGEST]
    rows = largest_datasets(log.transactions).to_pylist()
    assert [(row["bytes"], row["transactions"]) for row in rows] == [(sizes[name], counts[name]) for name in expected]


def test_nothing_has_statistics_and_no_branches() -> None:
    assert [len(table) for table in branch_views_and_ends(LOG.empty_table(), AS_OF)] == [0, 0]
    assert log_sums(LOG.empty_table()).to_pylist() == [{"bytes": 0, "branches": 0, "tags": 0}]
    assert len(largest_datasets(LOG.empty_table())) == 0


# --- reasons ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def verdicts(log: Log) -> pa.Table:
    """Of random policies."""
    policies = [Policy.model_validate(one) for one in random_policies(random.Random(3), 5)]
    return candidate_marks(log.transactions, log.datasets, policies, [], AS_OF)


def test_reasons_are_counted_as_a_loop_counts_them(log: Log, verdicts: pa.Table) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    given: set[tuple[str, ...]] = set()
    for row, size in zip(verdicts.to_pylist(), log.transactions["bytes"].to_pylist(), strict=True):
        for reason in row["reasons"]:
            key = (row["verdict"], reason["code"])
            counts[key] += 1
            sizes[key] += size or 0
            given.add((*key, row["dataset"], row["transaction"], row["policy"], reason["witness"]))
    rows = merge_reason_counts(count_reasons(verdicts, log.transactions["bytes"]).to_pylist())
    assert {(row["verdict"], row["code"]): row["transactions"] for row in rows} == counts
    assert {(row["verdict"], row["code"]): row["bytes"] for row in rows} == sizes
    assert len(counts) > 10
    for row in rows:
        examples = [tuple(one.values()) for one in row["examples"]]
        assert 1 <= len(examples) <= EXAMPLES
        assert {(row["verdict"], row["code"], *one) for one in examples} <= given


def test_reasons_of_parts_add_up(log: Log, verdicts: pa.Table) -> None:
    cut = len(verdicts) // 3
    sizes = log.transactions["bytes"]
    parts = [count_reasons(verdicts.slice(0, cut), sizes.slice(0, cut)), count_reasons(verdicts.slice(cut), sizes.slice(cut))]
    apart = merge_reason_counts(pa.concat_tables(parts).to_pylist())
    whole = merge_reason_counts(count_reasons(verdicts, sizes).to_pylist())
    pieces = pa.concat_tables([verdicts.slice(0, cut), verdicts.slice(cut)])
    in_pieces = merge_reason_counts(count_reasons(pieces, sizes).to_pylist())
    assert [{**row, "examples": None} for row in in_pieces] == [{**row, "examples": None} for row in whole]
    assert [{**row, "examples": None} for row in apart] == [{**row, "examples": None} for row in whole]
    # In the order of verdicts, the most frequent first.
    order = [(("mark", "spare", "keep", "open").index(row["verdict"]), -row["transactions"]) for row in whole]
    assert order == sorted(order)


def row(dataset: str, transaction: str, verdict: str, policy: str | None, *codes: str) -> dict[str, object]:
    reasons = [{"code": code, "witness": "main"} for code in codes]
    return {"dataset": dataset, "transaction": transaction, "verdict": verdict, "policy": policy, "reasons": reasons}


def test_verdicts_are_counted_by_dataset_and_policy_with_the_first_as_an_example() -> None:
    verdicts = pa.Table.from_pylist(
        [
            row("lake/a", "T1", "mark", "p", "SELECTED"),
            row("lake/a", "T2", "mark", "p", "SELECTED"),
            row("lake/a", "T3", "open", None),
            row("lake/b", "T1", "spare", "p", "LATEST_VIEW", "TAG"),
        ],
        CANDIDATE_MARKS,
    )
    found = count_by_dataset(verdicts, pa.chunked_array([[2**62, 2**62, None, 7]], pa.int64()))
    assert found.schema == DATASET_COUNTS
    assert [tuple(one.values()) for one in found.to_pylist()] == [
        ("lake/a", "mark", "p", 2, 2**63, "T1", "SELECTED", "main"),
        ("lake/a", "open", None, 1, None, "T3", None, None),
        ("lake/b", "spare", "p", 1, 7, "T1", "LATEST_VIEW", "main"),
    ]


def test_nothing_is_counted_of_nothing() -> None:
    assert count_by_dataset(CANDIDATE_MARKS.empty_table(), pa.chunked_array([[]], pa.int64())) == DATASET_COUNTS.empty_table()
