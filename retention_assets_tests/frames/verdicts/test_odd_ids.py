"""Ids that look like globs: a hold on one holds it, whoever asks, and what an exclude names stays out.

Belongs here: the whole way from a log to verdicts, the time of the next evaluation, and the last look of a sweep.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.frames import Log, candidate_marks, verdicts_and_reevaluation
from retention_assets.ledger import TransactionLife, life_of
from retention_assets.policy import Branches, Datasets, Duration, Hold, OlderThan, Policy, Selection
from retention_assets_tests.frames.test_soundness import branch, log_of, transaction
from retention_assets_tests.histories import AS_OF

FIELD = "urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:hive,a.b,PROD),[version=2.0].[type=string].x)"
ODD_IDS = [FIELD, "a*b", "a?b", "[ab]", "[!x]", "[z-a]", "[", "a[b", "[[]"]
OLD = Policy(
    name="old", datasets=Datasets(include=("lake/*",)), select=Selection(older_than=OlderThan(age=Duration(days=1))), latest_view="allow"
)  # fmt: skip


def odd_log(folder: Path, dataset: str = "lake/d", head: str = "main") -> Log:
    """Three transactions without a parent, two with ordinary ids; a branch points at one."""
    lines = [transaction(id_, parent=None, dataset=dataset) for id_ in ("T1", *ODD_IDS, "T2")]
    return log_of(folder, *lines, {**branch(head, "T1"), "dataset": dataset})


def verdicts(log: Log, policy: Policy, *holds: Hold) -> dict[str, str]:
    found = candidate_marks(log.transactions, log.datasets, [policy], holds, AS_OF)
    return dict(zip(found["transaction"].to_pylist(), found["verdict"].cast("string").to_pylist(), strict=True))


ANYWHERE = OLD.model_copy(update={"branches": Branches(reach="any")})


@pytest.mark.parametrize("id_", ODD_IDS)
def test_a_hold_on_an_id_that_looks_like_a_glob_holds_it(id_: str, tmp_path: Path) -> None:
    log = odd_log(tmp_path)
    hold = Hold.model_construct(
        name="h", datasets=Datasets(include=("lake/d",)), transactions=(id_,), reason="r", owner="o", until=AS_OF + timedelta(days=9)
    )  # fmt: skip
    assert verdicts(log, ANYWHERE)[id_] == "mark"
    assert verdicts(log, ANYWHERE, hold)[id_] == "spare"
    assert hold.covers(id_)
    assert life_of("lake/d", TransactionLife(id_, in_log=True), [hold], AS_OF).holds == ("h",)
    # When the hold ends is when its dataset is judged again.
    _, looks = verdicts_and_reevaluation(log.transactions, log.datasets, [ANYWHERE], [hold], AS_OF)
    assert looks["next_look"].to_pylist() == [hold.until]


@pytest.mark.parametrize("name", [f"lake/{id_}" for id_ in ODD_IDS])
def test_a_dataset_that_looks_like_a_glob_is_held_and_excluded_by_its_name(name: str, tmp_path: Path) -> None:
    log = odd_log(tmp_path, name)
    scope = Datasets.model_construct(include=(name,), exclude=(), with_={})
    assert verdicts(log, ANYWHERE)["T2"] == "mark"
    hold = Hold.model_construct(name="h", datasets=scope, transactions=None, reason="r", owner="o", until=None)
    assert verdicts(log, ANYWHERE, hold)["T2"] == "spare"
    without = Datasets.model_construct(include=("*",), exclude=(name,), with_={})
    assert verdicts(log, ANYWHERE.model_copy(update={"datasets": without}))["T2"] == "keep"


@pytest.mark.parametrize("head", ODD_IDS)
def test_a_branch_that_looks_like_a_glob_is_left_out_by_its_name(head: str, tmp_path: Path) -> None:
    log = odd_log(tmp_path, head=head)
    assert verdicts(log, OLD)["T1"] == "mark"
    branches = Branches.model_construct(include=("*",), exclude=(head,), only_in=None, not_in=None, windows=(), reach="live")
    assert verdicts(log, OLD.model_copy(update={"branches": branches}))["T1"] == "keep"
    branches = branches.model_copy(update={"include": (head,), "exclude": ()})
    assert verdicts(log, OLD.model_copy(update={"branches": branches}))["T1"] == "mark"
