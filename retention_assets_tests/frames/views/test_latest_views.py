"""The naive latest views: drawings, the oracle on random histories, and which marks they are held against.

Belongs here: `frames/views/latest_views.py` alone, without Spark and without the views that it is to check.
"""

import random

import numpy as np
import pyarrow as pa
import pytest

from retention_assets.frames import Log, needed_marks, rows_in_views
from retention_assets.frames.views.latest_views import latest_views
from retention_assets.ledger import CANDIDATES
from retention_assets_tests.histories import AS_OF, history, log_of, random_histories
from retention_assets_tests.oracle.views import branch_views


def seen(log: Log) -> dict[str, str]:
    """The transactions in latest views, each with its branch."""
    found, branches = latest_views(log.transactions)
    rows = np.flatnonzero(found >= 0).tolist()
    names = log.transactions["transaction"].take(pa.array(rows, pa.int64())).to_pylist()
    return {name: branches[found[row]] for name, row in zip(names, rows, strict=True)}


@pytest.mark.parametrize(
    ("drawing", "latest"),
    [
        ("main: S1:SNAPSHOT@9d - A2:APPEND@8d - S3:SNAPSHOT@7d - A4:APPEND@6d", "S3 A4"),
        ("main: A1:APPEND@9d - A2:APPEND@8d", "A1 A2"),  # no SNAPSHOT: from the root
        ("main: S1:SNAPSHOT@9d - S2:SNAPSHOT!@8d - A3:APPEND@7d", "S1 A3"),  # what was aborted begins nothing
        ("main: S1:SNAPSHOT@9d - A2:APPEND?@8d", "S1"),  # what is open is in no view
        ("main: S1:SNAPSHOT@9d - D2:DELETE@8d", "S1 D2"),
        ("main: S1:SNAPSHOT@9d - S2:SNAPSHOT@8d  |  old: S1", "S1 S2"),
        ("main: S1:SNAPSHOT@9d - A2:APPEND@8d - A3:APPEND@7d  |  b: A2 - A4:APPEND@6d  |  c: A2", "S1 A2 A3 A4"),
        ("-: S1:SNAPSHOT@9d - S2:SNAPSHOT@8d", ""),  # on no live branch
        ("-: R1:RECORD@9d  |  -: O1:OBJECT@9d", ""),
        ("main: S1:SNAPSHOT@9d - S2:SNAPSHOT@8d\n#v1=S1", "S2"),  # a tag pins, and is no branch
    ],
)
def test_what_is_in_a_latest_view(drawing: str, latest: str) -> None:
    assert set(seen(log_of([history(drawing)]))) == set(latest.split())


def test_the_oracle_says_the_same_of_random_histories() -> None:
    drawn = random_histories(random.Random(8), 400)
    sound = {one.dataset: one for one in drawn}
    log = log_of(drawn)
    refused = {row["dataset"] for row in log.datasets.to_pylist() if row["fault"]}
    found, _ = latest_views(log.transactions)
    rows = log.transactions.select(["dataset", "transaction"]).to_pylist()
    naive: dict[str, set[str]] = {name: set() for name in sound.keys() - refused}
    for row in np.flatnonzero(found >= 0).tolist():
        naive[rows[row]["dataset"]].add(rows[row]["transaction"])
    for name, mine in naive.items():
        one = sound[name]
        views = branch_views(one, set(one.branches), AS_OF)
        assert mine == {transaction for transaction, view in views.items() if view.view == 0}, one
    assert sum(map(len, naive.values())) > 400


def mark(
    transaction: str, policy: str = "p", reason: str = "SELECTED", version: int = 1, dataset: str = "lake/d"
) -> dict[str, object]:
    """A new mark."""
    row = {"dataset": dataset, "transaction": transaction, "policy": policy, "policy_version": version}
    return {**row, "reason": reason, "grace": "7d", "bytes": 1}


@pytest.mark.parametrize(
    ("marks", "bad"),
    [
        ([mark("S1")], []),
        ([mark("S2")], [("S2", "main", 1)]),
        ([mark("S2"), mark("A3"), mark("S1")], [("S2", "main", 2)]),
        ([mark("S2", reason="LATEST_VIEW_ALLOWED")], [("S2", "main", 1)]),  # says so, and its policy does not
        ([mark("S2", policy="may")], [("S2", "main", 1)]),  # may, and does not say so
        ([mark("S2", policy="may", reason="LATEST_VIEW_ALLOWED")], []),
        ([mark("S2", policy="may", reason="LATEST_VIEW_ALLOWED", version=2)], [("S2", "main", 1)]),
        ([mark("S2", policy="::realm/acme")], []),
        ([mark("S2", dataset="lake/other")], []),  # the same name elsewhere
    ],
)  # fmt: skip
def test_which_marks_are_needed(marks: list[dict[str, object]], bad: list[tuple[str, str, int]]) -> None:
    log = log_of([history("main: S1:SNAPSHOT@9d - S2:SNAPSHOT@8d - A3:APPEND@7d")])
    views = rows_in_views(log.transactions)
    found = needed_marks(pa.Table.from_pylist(marks, schema=CANDIDATES), {("may", 1)}, (), lambda: views, lambda: views)
    assert [(row["transaction"], row["branch"], row["marks"]) for row in found.to_pylist()] == bad


def test_a_long_chain_with_many_heads_is_walked_once() -> None:
    """Every head near the end of a chain without a SNAPSHOT: walks that began anew would take hours."""
    size = 200_000
    heads: list[list[str]] = [[] for _ in range(size)]
    for row in range(size // 2, size):
        heads[row] = [f"b{row}"]
    log = pa.table(
        {
            "dataset": ["lake/d"] * size,
            "transaction": [str(row) for row in range(size)],
            "ordinal": pa.array(range(size), pa.int32()),
            "parent_ordinal": pa.array(range(-1, size - 1), pa.int32()),
            "type": ["APPEND"] * size,
            "status": ["COMMITTED"] * size,
            "heads": heads,
        }
    )
    found, branches = latest_views(log)
    assert (len(branches), int((found < 0).sum())) == (size // 2, 0)
