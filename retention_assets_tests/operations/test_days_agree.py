"""`forecast` and `simulate` tell each day alike: what is marked, deleted, spared and waits."""

import json
import random
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.operations.forecast import ForecastRequest, forecast
from retention_assets.operations.simulation import SimulationRequest, simulate
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import Lake

DAYS = 14
# A history of a daily view, of which a tag keeps one for five days, and a branch beside it.
HISTORY = " - ".join(f"T{age}:SNAPSHOT@{age}d={age}" for age in range(40, 20, -1))
# Ages, a count, a limit and graces of their own.
POLICIES = [
    {"name": "old", "select": {"older_than": "30d"}, "grace": "3d"},
    {"name": "counted", "select": {"beyond": {"transactions": 8}}, "grace": "7d"},
    {"name": "limited", "select": {"older_than": "25d"}, "limits": {"transactions": 4}, "grace": "1d"},
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Marked in part three days ago, by policies that were others then."""
    documents = [{**one, "datasets": {"include": ["lake/*"]}, "sweep": {"every": "0s"}} for one in POLICIES]
    policies = ", ".join(map(json.dumps, documents))
    lake = Lake(tmp_path / "lake", policies=policies.replace("30d", "33d"))
    lake.has(f"main: {HISTORY} | #v1=T35@+5d", "lake/a").has(f"main: {HISTORY}", "lake/b").has(f"main: {HISTORY}", "lake/c")
    lake.marks(AS_OF - timedelta(days=3))
    holds = [
        {"name": "law", "datasets": ["lake/b"], "transactions": ["T33", "T34"], "reason": "law", "until": "2026-04-05"},
        {"name": "audit", "datasets": ["lake/c"], "reason": "audit", "until": "2026-04-03T18:00:00Z"},
    ]
    lake.says(policies, ", ".join(map(json.dumps, holds)))
    with lake.opened() as ledger:
        rng = random.Random("days agree")
        for row in ledger.marks.table().to_pylist():
            if rng.random() < 0.2:
                ledger.unmark.transactions(row["dataset"], [row["transaction"]], "ann", "needed")
    return lake


def test_forecast_and_simulate_agree_on_each_day(lake: Lake) -> None:
    environment = lake.environment
    days = forecast(ForecastRequest(days=DAYS, as_of=AS_OF), environment).in_force.days
    simulated = simulate(SimulationRequest(days=DAYS, begin=AS_OF), environment).days
    foreseen = [(day.date, day.marked, day.deleted, day.spared, day.waiting, day.bytes_marked) for day in days]
    assert foreseen == [
        (
            day.as_of.date(), day.newly_marked.transactions, day.deleted.transactions, day.spared.transactions,
            day.waiting.transactions, day.newly_marked.bytes,
        )
        for day in simulated
    ]  # fmt: skip
    # Something of everything happens, and not on a single day.
    for numbers in list(zip(*foreseen, strict=True))[1:]:
        assert len(set(numbers)) > 1
