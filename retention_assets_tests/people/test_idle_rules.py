"""Rules whose names match nothing are said; and what protects is compared in one Unicode normalisation."""

import unicodedata
from pathlib import Path

import pytest

from retention_assets.people.plan import PlanRequest, make_plan
from retention_assets_tests.people.conftest import Run
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "lake/café") for form in ("NFC", "NFD"))


@pytest.fixture
def judged(lake: Lake, run: Run, local_spark: None) -> Lake:
    lake.has(HISTORY, "lake/orders").has(HISTORY, "lake/clicks")
    assert run("run", "--mark-only", "--as-of", MARKED.isoformat())[0] == 0
    return lake


@pytest.mark.parametrize(
    ("policy", "hold", "sentence"),
    [
        (OLD.replace("lake/*", "lake/Orders"), "", "Policy old is about no dataset: nothing matches 'lake/Orders'. Did you mean lake/orders?"),
        (OLD.replace("['lake/*']", "['lake/*'], exclude: ['lake/order']"), "", "Policy old excludes nothing by 'lake/order'. Did you mean lake/orders?"),
        (OLD, "{name: h, datasets: ['lake/orders '], reason: r}", "Hold h holds nothing: no dataset matches 'lake/orders '. Did you mean lake/orders?"),
        (OLD, "{name: h, datasets: ['lake/orderѕ'], reason: r}", "Hold h holds nothing: no dataset matches 'lake/orderѕ'. Did you mean lake/orders?"),
        (OLD, "{name: h, datasets: ['lake/*'], transactions: ['s1'], reason: r}", "Hold h holds nothing by 's1'. Did you mean S1?"),
        (OLD, "{name: h, datasets: ['lake/*'], transactions: ['S1', 'T*'], reason: r}", "Hold h holds nothing by 'T*'."),
    ],
    ids=["case of a policy", "exclude", "blank", "look-alike", "transaction", "one glob of two"],
)  # fmt: skip
def test_a_name_that_means_nothing_is_said(policy: str, hold: str, sentence: str, judged: Lake, run: Run) -> None:
    judged.says(policy, hold)
    at = ("--as-of", DUE.isoformat())
    for typed in (("plan", *at), ("validate",), ("run", "--mark-only", *at)):
        assert sentence in run(*typed)[2], typed


@pytest.mark.parametrize(
    ("about", "where", "sentence"),
    [
        ("lake/order", "S1", "Retain rule r retains nothing: no dataset matches 'lake/order'. Did you mean lake/orders?"),
        ("lake/*", "S9", "Retain rule r retains nothing: no transaction of 2 datasets meets its lines."),
        ("lake/*", "S1", ""),
    ],
    ids=["dataset", "condition", "something"],
)
def test_a_retain_rule_that_retains_nothing_is_said(about: str, where: str, sentence: str, judged: Lake, run: Run) -> None:
    judged.says(OLD, retain=retained(about, where))
    said = run("validate")[2]
    assert (sentence in said, "retains nothing" in said) == (True, bool(sentence))


def retained(datasets: str, transaction: str) -> str:
    return f"{{name: r, reason: why, datasets: {{include: ['{datasets}']}}, where: \"transaction = '{transaction}'\"}}"


def test_rules_that_mean_something_are_not_said(judged: Lake, run: Run) -> None:
    judged.says(
        OLD.replace("['lake/*']", "['lake/*'], exclude: ['lake/cl*']"),
        "{name: h, datasets: ['lake/*'], transactions: ['S[1]'], reason: r}",
    )
    assert make_plan(PlanRequest(as_of=DUE), judged.environment).notes == ()
    assert "Hold" not in run("validate")[2]
    code, _, err = run("plan", "-d", "lake/order?s")
    assert (code, "No store has a dataset of lake/order?s. Did you mean lake/orders?" in err) == (1, True)


@pytest.mark.parametrize("names", ["['S1']", "['S[12]']", ""], ids=["a name", "a glob", "all"])
def test_a_hold_over_what_is_set_aside_holds_something(names: str, lake: Lake, run: Run, local_spark: None) -> None:
    """The log does not have it any more, so that no evaluation does."""
    lake.says(OLD.replace("sweep:", "undo: 14d, sweep:"))
    lake.has(HISTORY).has(HISTORY, "lake/dropped").marks()
    lake.sweeps(DUE)
    lake.forgets("S1")
    lake.forgets("S2")
    (lake.folder / "log" / "lake-dropped.jsonl").unlink()
    assert run("run", "--mark-only", "--as-of", DUE.isoformat())[0] == 0
    globs = f"transactions: {names}, " if names else ""
    for dataset in ("lake/d", "lake/dropped", "lake/*"):
        lake.says(OLD, f"{{name: h, datasets: ['{dataset}'], {globs}reason: r}}")
        assert "Hold h holds nothing" not in run("validate")[2], dataset
    lake.says(OLD, "{name: h, datasets: ['lake/d'], transactions: ['S1', 'S9'], reason: r}")
    assert "Hold h holds nothing by 'S9'." in run("validate")[2]
    # a rule can't be asked about what is set aside
    lake.says(OLD, retain=retained("lake/d", "S9"))
    assert "retains nothing" not in run("validate")[2]


def test_before_anything_was_judged_nothing_is_said(lake: Lake, run: Run) -> None:
    lake.has(HISTORY).says(OLD.replace("lake/*", "lake/none"))
    assert "is about no dataset" not in run("validate")[2]


@pytest.mark.parametrize(("name", "typed"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED), (DECOMPOSED, f"{COMPOSED[:-2]}*")])
@pytest.mark.parametrize("rule", ["hold", "exclude", "transaction"])
def test_what_protects_means_a_name_in_every_normalisation(name: str, typed: str, rule: str, tmp_path: Path) -> None:
    transaction = name.partition("/")[2] if rule == "transaction" else "S1"
    dataset = "lake/d" if rule == "transaction" else name
    lake = Lake(tmp_path / "lake").has(HISTORY.replace("S1", transaction), dataset)
    plain = {"exclude": OLD.replace("['lake/*']", f"['lake/*'], exclude: ['{typed}']")}.get(rule, OLD)
    globs = f"transactions: ['{typed.partition('/')[2]}'], " if rule == "transaction" else ""
    hold = "" if rule == "exclude" else f"{{name: h, datasets: ['{dataset if globs else typed}'], {globs}reason: r}}"
    lake.says(plain, hold)
    assert lake.marks() == (1 if rule == "transaction" else 0)
    # Marked before the rule came, and spared by it.
    lake.says(OLD)
    lake.marks()
    lake.says(plain, hold)
    if rule != "exclude":
        lake.sweeps()
        assert transaction in lake.there(dataset)


def test_an_include_means_what_is_typed(tmp_path: Path) -> None:
    """What selects may not become wider."""
    lake = Lake(tmp_path / "lake", policies=OLD.replace("lake/*", DECOMPOSED)).has(HISTORY, COMPOSED)
    assert lake.marks() == 0
