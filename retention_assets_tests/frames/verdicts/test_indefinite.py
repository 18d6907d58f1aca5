"""An entry that keeps everything is about its aspects: it is the reason why their versions stay, whoever asks."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from retention_assets.evaluation.explain import explain
from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames import Log, candidate_marks
from retention_assets.policy import AspectEntry, KeepAll, Policy, Selection, policies_for, sentence
from retention_assets_tests.frames.test_soundness import log_of, transaction

NOW = datetime(2026, 7, 1, tzinfo=UTC)
NAME = "meta/dataset.status"


def entry(entity: str, **kept: object) -> AspectEntry:
    return AspectEntry.model_validate({"entity": entity, "aspect": "*", "config": {"retention": kept}})


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A history, a record, and what is open of either."""
    lines = [transaction(f"T{number}", dataset=NAME, type="SNAPSHOT") for number in range(3)]
    lines += [transaction(name, dataset=NAME, parent=None, type="RECORD") for name in ("R", "O")]
    lines[-1] |= {"status": "OPEN", "closed_at": None}
    return log_of(tmp_path, *lines, {"dataset": NAME, "branch": "u", "head": "T2"})


def test_the_reason_names_the_entry_that_keeps_everything(log: Log) -> None:
    rules = policies_for([entry("dataset", indefinite={}), entry("*", version={"maxVersions": 1})], [NAME])
    found = candidate_marks(log.transactions, log.datasets, rules, (), NOW)
    assert found["verdict"].cast("string").to_pylist() == ["keep"] * 5
    assert found["reasons"].to_pylist() == [[{"code": "INDEFINITE", "witness": "datahub:dataset.*"}]] * 5
    said = explain(log, RulesInForce(tuple(rules), ()), NAME, "T0", NOW)
    assert [reason["text"] for reason in said.reasons] == ["Entry 'datahub:dataset.*' keeps every version of it."]
    (answer,) = said.policies
    assert (answer.selects, answer.sentence) == (False, "Keeps every version of every aspect of entity dataset.")
    assert [(line.key, line.holds) for line in answer.lines] == [("retention.indefinite", False)]


def test_a_rule_that_keeps_everything_selects_nothing_whatever_becomes_of_its_lines(log: Log) -> None:
    (rule,) = policies_for([entry("dataset", indefinite={})], [NAME])
    assert isinstance(rule, KeepAll)
    # As the last look of a sweep asks, who wants to know what protects: and as any other policy of that select would say.
    widened = rule.model_copy(update={"select": Selection(), "latest_view": None})
    plain = Policy.model_validate({**rule.model_dump(exclude_unset=True), "select": rule.select})
    for policy in (widened, plain):
        found = candidate_marks(log.transactions, log.datasets, [policy], (), NOW)
        assert not {"mark", "spare"} & set(found["verdict"].cast("string").to_pylist())
    assert sentence(rule) == rule.description
