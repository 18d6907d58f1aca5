"""Verdicts by dataset: they add up to the rows, and each has an example with its reason."""

import pyarrow as pa

from retention_assets.frames.statistics import DATASET_COUNTS, count_by_dataset
from retention_assets.frames.verdicts.decisions import CANDIDATE_MARKS


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
