"""Laws of the sweep on random lakes: between mark and sweep anything may happen, and only what is still justified goes.

The oracle (oracle/) judges the histories as they are at the sweep, each mark by its own policy and in plain loops; the file system
says what is really gone. Law 7: sweeping twice frees nothing twice.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from retention_assets.policy import Hold, Policy, parse_instant
from retention_assets_tests.histories import History, random_history, to_lines
from retention_assets_tests.oracle import verdicts as oracle
from retention_assets_tests.policies import random_policies
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

DATASETS = 30
# In each of them something goes and something is spared.
SEEDS = (1, 3, 4, 5, 7)


def grown(rng: random.Random, history: History) -> History:
    """The history a week later: perhaps somebody made branches and tags on anything, or dropped some."""
    names = [row["transaction"] for row in history.transactions]
    branches, tags = dict(history.branches), dict(history.tags)
    for number in range(rng.choice((0, 0, 1, 2))):
        if names:
            branches[f"new-{number}"] = rng.choice(names)
    if names and rng.random() < 0.2:
        tags["new"] = (rng.choice(names), None)
    if branches and rng.random() < 0.15:
        branches.pop(rng.choice(sorted(branches)))
    return replace(history, branches=branches, tags=tags, as_of=DUE)


def written(lake: Lake, histories: Sequence[History]) -> None:
    lines = "".join(f"{line}\n" for line in to_lines(histories))
    (lake.folder / "log" / "all.jsonl").write_text(lines)


def closed_after(row: Mapping[str, Any], instant: datetime) -> bool:
    return row["closed_at"] is not None and parse_instant(row["closed_at"]) > instant


def judged(history: History, policy: Policy, holds: Sequence[Hold]) -> Mapping[str, oracle.Verdict]:
    """What the oracle says of a history under one policy; limits bound a marking, not a sweep."""
    return oracle.verdicts(history, [policy.model_copy(update={"limits": None})], holds, DUE)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_in_the_grace_only_what_is_still_justified_goes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"sweep {seed}")
    random_ones = (random_history(rng, f"lake/d{number}") for number in range(DATASETS))
    drawn = [one for one in random_ones if one.transactions]
    lake = Lake(tmp_path / "lake")
    documents = [{**one, "sweep": {"every": "0s", "batch": rng.choice((1, 3, 500))}} for one in random_policies(rng, 4)]
    about = (["lake/*"], ["lake/d1*", "lake/d2*"])
    documents = [{**one, "grace": "7d", "confirm": None, "datasets": {"include": rng.choice(about)}} for one in documents]
    documents = [{key: value for key, value in one.items() if value is not None} for one in documents]
    lake.says(", ".join(json.dumps(one) for one in documents))
    policies = {one["name"]: Policy.model_validate(one) for one in documents}
    written(lake, drawn)
    for history in drawn:
        for row in history.transactions:
            lake._fill(history.dataset, row["transaction"])
    lake.marks(MARKED)
    marks = marks_of(lake)
    later = [grown(rng, history) for history in drawn]
    written(lake, later)
    holds = [Hold.model_validate({"name": "h", "datasets": [f"lake/d{rng.randrange(DATASETS)}"], "reason": "law"})]
    taken_back = {mark for mark in sorted(marks) if rng.random() < 0.1}
    with lake.opened() as ledger:
        ledger.holds.place(holds[0], "ann")
        for dataset, transaction in sorted(taken_back):
            ledger.unmark.transactions(dataset, [transaction], "ann", "law")
    before = lake.left()
    results = lake.sweeps()
    assert [one for one in results.values() if one.refused or one.errors] == []
    verdicts = {(one.dataset, name): judged(one, policy, holds) for one in later for name, policy in policies.items()}
    due = {mark: policy for mark, policy in marks.items() if mark not in taken_back}
    # What closed after it was marked is taken for another one of the same name.
    anew = {(one.dataset, row["transaction"]) for one in later for row in one.transactions if closed_after(row, MARKED)}
    goes = {mark for mark, policy in due.items() if verdicts[mark[0], policy][mark[1]].verdict == "mark"} - anew
    place = {
        (one.dataset, row["transaction"]): f"{one.dataset.removeprefix('lake/')}/{row['transaction']}/"
        for one in later
        for row in one.transactions
    }
    kept = {mark: text for mark, text in place.items() if mark not in goes}
    assert lake.left() == {name: text for name, text in before.items() if name.startswith(tuple(kept.values()))}
    assert {mark for mark, status in statuses_of(lake).items() if status == "SWEPT"} == goes
    spared = sum(status == "SPARED" for status in statuses_of(lake).values())
    assert spared == len(due) - len(goes)
    assert goes
    assert spared
    assert counted(lake) == {"to_delete": len(due), "deleted": len(goes), "spared": spared, "failed": 0, "already_gone": 0}
    after = lake.left()
    assert lake.sweeps() == {}
    assert (lake.left(), lake.verified()) == (after, ())


def marks_of(lake: Lake) -> dict[tuple[str, str], str]:
    with lake.opened() as ledger:
        return {(row["dataset"], row["transaction"]): row["policy"] for row in ledger.marks.table().to_pylist()}


def statuses_of(lake: Lake) -> dict[tuple[str, str], str]:
    with lake.opened() as ledger:
        return {(row["dataset"], row["transaction"]): row["status"] for row in ledger.marks.table().to_pylist()}


def counted(lake: Lake) -> dict[str, Any]:
    with lake.opened() as ledger:
        reports = ledger.reports.of(DUE.date())
    return {
        name: sum(report[name] for report in reports) for name in ("to_delete", "deleted", "spared", "failed", "already_gone")
    }
