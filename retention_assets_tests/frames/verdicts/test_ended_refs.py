"""Branches and tags that are over: which and when, when to look again, and the naive check of what is marked for it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import BadInput
from retention_assets.frames import (
    Log,
    candidate_marks,
    ended_refs,
    needed_marks,
    new_marks,
    rows_in_views,
    verdicts_and_reevaluation,
    without_ended,
)
from retention_assets.policy import Policy, load_policies, sentence
from retention_assets_tests.frames.verdicts.test_selectors import DAY, ENDED, ages, own
from retention_assets_tests.histories import AS_OF, history, log_of

MS = timedelta(milliseconds=1)


def policy(**select: Any) -> Policy:
    return Policy.model_validate({"name": "p", "datasets": {"include": ["*"]}, "select": {"from_table": True, **select}})


DROPS = policy(expired_refs="drop")


@pytest.fixture
def log() -> Log:
    """dev ends 100 days after its snapshot of 20 days ago, v1 was over long ago."""
    return log_of([history(ENDED, attributes=own(DAY, 1) | ages("1", str(100 * DAY)))])


ENDS = AS_OF + timedelta(days=80) + MS


def test_a_ref_is_over_a_millisecond_after_its_age_and_is_known_by_where_it_points(log: Log) -> None:
    assert ended_refs(log, AS_OF) == {("lake/d", "S1"): ("v1",)}
    assert ended_refs(log, ENDS - timedelta(microseconds=1)) == {("lake/d", "S1"): ("v1",)}
    assert ended_refs(log, ENDS) == {("lake/d", "S1"): ("v1",), ("lake/d", "D4"): ("dev",)}


@pytest.mark.parametrize(("one", "looks"), [(DROPS, True), (policy(), False)])
def test_a_dataset_is_judged_again_when_a_ref_ends_that_the_policy_drops(log: Log, one: Policy, looks: bool) -> None:
    _, when = verdicts_and_reevaluation(log.transactions, log.datasets, [one], [], AS_OF)
    assert (when["next_look"][0].as_py() == ENDS) is looks
    _, when = verdicts_and_reevaluation(log.transactions, log.datasets, [one], [], ENDS)
    assert when["next_look"][0].as_py() is None


def needed(log: Log, as_of: Any, by: Policy, reason: str | None = None) -> list[tuple[str, str]]:
    """What the naive check says of the marks of a policy, and of which branch."""
    verdicts = candidate_marks(log.transactions, log.datasets, [by], [], ENDS)
    marks = new_marks(verdicts, log.transactions, [by], {"p": 1})
    if reason:
        marks = marks.set_column(marks.column_names.index("reason"), "reason", [[reason] * len(marks)])
    dropping = {("p", 1)} if by.drops_refs else set()
    remaining = without_ended(log.transactions, log.datasets, as_of)
    views, views_then = (lambda: rows_in_views(log.transactions)), (lambda: rows_in_views(remaining))
    found = needed_marks(marks, set(), dropping, views, views_then)
    return [(row["transaction"], row["branch"]) for row in found.to_pylist()]


def test_the_naive_check_lets_go_what_only_a_branch_keeps_that_is_over(log: Log) -> None:
    assert needed(log, ENDS, DROPS) == []
    assert needed(log, ENDS - MS, DROPS) == [("D4", "dev")]
    # It must be said of the mark, and the policy must be one that may.
    assert needed(log, ENDS, DROPS, "SELECTED") == [("D4", "dev")]


def test_a_mark_says_that_only_a_ref_was_left(log: Log) -> None:
    verdicts = candidate_marks(log.transactions, log.datasets, [DROPS], [], ENDS)
    marks = new_marks(verdicts, log.transactions, [DROPS], {"p": 1}).to_pylist()
    assert {row["transaction"]: row["reason"] for row in marks} == {"S1": "EXPIRED_REF", "S2": "SELECTED", "D4": "EXPIRED_REF"}
    witnesses = {row["transaction"]: row["reasons"][-1]["witness"] for row in verdicts.to_pylist() if row["verdict"] == "mark"}
    assert witnesses == {"S1": "tag v1", "S2": "p", "D4": "branch dev"}


def test_a_policy_says_what_it_drops() -> None:
    assert "they are dropped together with what they alone keep, never main" in sentence(DROPS)
    assert sentence(policy(expired_refs="keep")) == sentence(policy())


@pytest.mark.parametrize("said", ["drop", "keep"])
def test_refs_are_dropped_by_what_the_dataset_says_alone(tmp_path: Path, said: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"policies: [{{name: p, datasets: {{include: ['*']}}, select: {{older_than: 3d, expired_refs: {said}}}}}]")
    with pytest.raises(BadInput) as raised:
        load_policies([file])
    [problem] = raised.value.problems
    assert (problem.key, problem.expected) == ("select.expired_refs", "expired_refs together with from_table: true")
    assert problem.remedy == "Add `from_table: true`, or leave expired_refs out."
