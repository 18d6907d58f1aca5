"""Retain rules at the sweep: what one keeps is spared, and refused where the re-check fails to see it."""

import json
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention_assets.frames import Log, retained_by, retained_marks
from retention_assets.outcomes import Outcome
from retention_assets.policy import Newest, RetainRule
from retention_assets.sweep import Fate, Recheck, Verdict, Verdicts
from retention_assets_tests.histories import AS_OF, log_of, random_histories
from retention_assets_tests.rounds import rounds
from retention_assets_tests.sweep.lakes import ALL, FIVE, OLD, Lake

OTHER = re.sub(r"S(\d)", r"K\1", FIVE)
RULE = "{{name: law, reason: seven years, datasets: ['lake/d'], {}}}"


def lets_through(_: Recheck, __: Log, marks: pa.Table, *___: Any) -> Verdicts:
    return Verdicts(dict.fromkeys(marks["id"].to_pylist(), Verdict(Fate.GOES)))


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("where: \"transaction IN ('S2', 'S4')\"", {"S2", "S4"}),
        ("younger_than: 78d", {"S3", "S4", "S5"}),
        ("newest: {transactions: 2}", {"S5"}),
        ('newest: {monthly: 2, where: "bytes > 0"}', {"S5"}),
        ("younger_than: 78d, where: \"transaction <> 'S4'\"", {"S3", "S5"}),
    ],
)
def test_a_rule_that_came_after_the_mark_spares_what_it_keeps(lake: Lake, lines: str, kept: set[str]) -> None:
    lake.has(FIVE).has(OTHER, "lake/other").marks()
    lake.says(OLD, retain=RULE.format(lines))
    results = lake.sweeps()
    assert (lake.there(), lake.there("lake/other")) == ({"S6", *kept}, {"K6"})
    assert results["lake/d"].outcomes[Outcome.SPARED] == len(kept)
    assert {lake.why(name) for name in kept} == {"Retain rule 'law' keeps it."}
    assert lake.marks() == 0


def test_what_a_rule_keeps_is_never_marked(lake: Lake) -> None:
    lake.says(OLD, retain=RULE.format("younger_than: 75d"))
    assert lake.has(FIVE).marks() == 2


def test_a_rule_that_comes_while_a_sweep_deletes_keeps_the_rest(lake: Lake) -> None:
    lake.has(FIVE).marks()
    lake.sweeps(store=lake.elsewhere(lambda: lake.says(OLD, retain=RULE.format("younger_than: 69d"))))
    assert lake.there() == {"S4", "S5", "S6"}
    assert lake.why("S4") == "Retain rule 'law' keeps it."


def test_a_rule_that_the_re_check_misses_stops_its_dataset_and_no_other(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.has(FIVE).has(OTHER, "lake/other").marks()
    lake.says(OLD, retain=RULE.format("newest: {transactions: 3}"))
    monkeypatch.setattr(Recheck, "check", lets_through)
    results = lake.sweeps()
    refused = str(results["lake/d"].refused)
    assert refused.startswith("nothing of lake/d is swept: retain rule law keeps S4, but it is marked (2 such marks).")
    assert (lake.there(), lake.there("lake/other")) == (ALL, {"K6"})


def test_a_rule_ends_only_when_its_own_folder_is_read_without_it(lake: Lake) -> None:
    lake.says(OLD, retain=RULE.format("younger_than: 7y"))
    assert lake.has(FIVE).marks() == 0
    (lake.folder / "others").mkdir()
    (lake.folder / "others" / "p.yaml").write_text(f"policies: [{OLD}]\n")
    lake.configures(policies="others")
    assert lake.marks() == 0
    lake.configures(policies="policies")
    lake.says(OLD)
    assert lake.marks() == 5
    with lake.opened() as ledger:
        acts = [act for act in map(json.loads, ledger.audit_lines()) if act["deed"] in ("HOLD", "RELEASE")]
    assert [(act["deed"], act["detail"]["name"]) for act in acts] == [("HOLD", "law"), ("RELEASE", "law")]


def random_newest(rng: random.Random) -> Newest:
    keys = ("transactions", "hourly", "daily", "weekly", "monthly", "yearly")
    counts = {key: rng.randint(1, 5) for key in rng.sample(keys, rng.randint(1, 4))}
    zone = rng.choice(("Europe/Berlin", "America/New_York", "Asia/Kathmandu", None))
    per = rng.choice((None, None, ("type",), ("type", "referenced")))
    where = rng.choice((None, None, "bytes > 3"))
    zone = zone if counts.keys() != {"transactions"} else None
    return Newest.model_validate({**counts, "zone": zone, "per": per, "where": where})


def test_the_independent_check_counts_as_the_verdicts_do() -> None:
    """Both are asked about random forests; they share no code that counts."""
    rng = random.Random(31)
    for _ in range(rounds(6)):
        log = log_of(drawn for drawn in random_histories(rng, 60) if drawn.transactions)
        about = {"name": "law", "reason": "r", "datasets": ["*"]}
        rules = [RetainRule.model_validate({**about, "newest": random_newest(rng)}) for _ in range(3)]
        names = log.transactions["dataset"].cast(pa.string())
        for rule in rules:
            kept = retained_by([rule], log, AS_OF)
            marks = pa.table({"dataset": names, "transaction": log.transactions["transaction"]})
            counts = {name: checked.marks for name, checked in retained_marks(log, marks, [rule], AS_OF).items()}
            assert counts == dict(zip(*np.unique(np.array(names.to_pylist())[kept], return_counts=True), strict=True))
            assert retained_marks(log, marks.filter(pa.array(~kept)), [rule], AS_OF) == {}
