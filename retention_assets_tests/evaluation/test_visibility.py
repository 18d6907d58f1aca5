"""Which retention counts for a dataset at an instant: the longest one of the past week, and none while part of it had none."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.evaluation.rules_in_force import load_rulebook, rules_digests
from retention_assets.evaluation.visibility import RuleInTime, VisibilityRules, raise_visibility
from retention_assets.frames import Log, sound_log
from retention_assets.frames.statistics import newest_closes
from retention_assets.ledger import Ledger
from retention_assets.policy import VisibilityRule, parse_duration
from retention_assets_tests.clocks import open_simulated
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import Lake

DAY = timedelta(days=1)
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def rule(retention: str, include: str = "lake/*", exclude: str = "") -> VisibilityRule:
    datasets = {"include": [include], **({"exclude": [exclude]} if exclude else {})}
    return VisibilityRule.model_validate({"datasets": datasets, "retention": retention})


def spell(retention: str, begin: float, end: float | None = None, include: str = "lake/*") -> RuleInTime:
    """An entry that was in force between two days."""
    return RuleInTime(rule(retention, include), T0 + begin * DAY, None if end is None else T0 + end * DAY)


# Name, versions, day, and the retention that counts: - where no entry is about the dataset, and ? while it waits.
CASES = [
    ("a new entry waits", [spell("30d", 0)], 6.99, "?"),
    ("and counts when a week is over", [spell("30d", 0)], 7, "30d"),
    ("a shortened entry: the old retention counts for a week", [spell("60d", 0, 20), spell("30d", 20)], 26.99, "60d"),
    ("then the new one", [spell("60d", 0, 20), spell("30d", 20)], 27, "30d"),
    ("a new longer one beside an old one counts at once", [spell("30d", 0), spell("60d", 10, None, "lake/d")], 10, "60d"),
    ("a new shorter one beside an old one changes nothing", [spell("60d", 0), spell("30d", 10, None, "lake/d")], 30, "60d"),
    ("one that came back after a gap waits anew", [spell("60d", 0, 10), spell("60d", 11)], 17.99, "?"),
    ("by the end of the gap", [spell("60d", 0, 10), spell("60d", 11)], 18, "60d"),
    ("one that another took over from has no gap", [spell("60d", 0, 10), spell("60d", 10, None, "lake/d")], 12, "60d"),
    ("a month is shorter than 30 days in March", [spell("1mo", 0), spell("30d", 0, None, "lake/d")], 60, "30d"),
    ("and longer in April", [spell("1mo", 0), spell("30d", 0, None, "lake/d")], 95, "1mo"),
]  # fmt: skip


@pytest.mark.parametrize(("versions", "day", "counts"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_which_retention_counts(versions: Sequence[RuleInTime], day: float, counts: str) -> None:
    found = VisibilityRules(tuple(versions), T0 + day * DAY).for_dataset("lake/d", {})
    said = "-" if found is None else "?" if found.waits_until else str(found.rule.retention)
    assert said == counts


def test_it_says_until_when_an_entry_waits() -> None:
    found = VisibilityRules((spell("30d", 3),), T0 + 5 * DAY).for_dataset("lake/d", {})
    assert found is not None
    assert found.waits_until == T0 + 10 * DAY


_SPELLS = st.lists(
    st.builds(
        lambda begin, length, age: spell(f"{age}d", begin, None if length is None else begin + length),
        st.integers(0, 20), st.one_of(st.none(), st.integers(1, 20)), st.integers(1, 90),
    ),
    max_size=6,
)  # fmt: skip


@given(_SPELLS, st.integers(0, 40))
def test_it_is_the_longest_of_every_hour_of_the_week(versions: list[RuleInTime], day: int) -> None:
    """A naive oracle: what was in force in the middle of each half day of the past week, and at the instant itself."""
    at = T0 + day * DAY
    moments = [at - half * DAY / 2 - DAY / 4 for half in range(14)] + [at]
    there = [[one for one in versions if one.begin <= moment and (one.end is None or moment < one.end)] for moment in moments]
    found = VisibilityRules(tuple(versions), at).for_dataset("lake/d", {})
    assert (found is None) == (not there[-1])
    if found is not None:
        assert (found.waits_until is not None) == (not all(there))
        if all(there):
            assert found.rule.retention == max((one.rule.retention for some in there for one in some), key=lambda one: one.days)


def test_an_entry_chooses_by_attributes_and_leaves_out() -> None:
    bronze = VisibilityRule.model_validate({"datasets": {"include": ["*"], "with": {"tier": "bronze"}}, "retention": "9d"})
    versions = (RuleInTime(bronze, T0, None), RuleInTime(rule("5d", "lake/*", "lake/d"), T0, None))
    rules = VisibilityRules(versions, T0 + 9 * DAY)
    found = {
        (name, tier): rules.for_dataset(name, {"tier": tier}) for name in ("lake/d", "lake/e") for tier in ("bronze", "gold")
    }
    said = {key: str(one.rule.retention) if one else None for key, one in found.items()}
    assert said == {
        ("lake/d", "bronze"): "9d", ("lake/d", "gold"): None, ("lake/e", "bronze"): "9d", ("lake/e", "gold"): "5d",
    }  # fmt: skip


# --- through the book -------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return (
        Lake(tmp_path / "lake")
        .has("main: A:SNAPSHOT@90d - B:SNAPSHOT@80d - C:SNAPSHOT@20d")
        .has("main: X:SNAPSHOT@1d", "lake/e")
    )


@pytest.fixture
def ledger(lake: Lake) -> Iterator[Ledger]:
    with open_simulated(lake.ledger_url) as opened:
        yield opened


def says(lake: Lake, *entries: str) -> None:
    (lake.folder / "policies" / "v.yaml").write_text(f"visibility: [{', '.join(entries)}]\n")


def evaluates(lake: Lake, ledger: Ledger, day: float) -> dict[str, str]:
    """What an evaluation at a day does to the marks: how many days before AS_OF each is then."""
    at = AS_OF + day * DAY
    load_rulebook(ledger, lake.settings, "run", at)
    log = read(lake)
    raise_visibility(ledger, [(log.datasets, newest_closes(log.transactions))], at, "run")
    return {name: f"{(AS_OF - visible_from) / DAY:g}" for name, visible_from in ledger.visibility.of_all().items()}


def read(lake: Lake) -> Log:
    store = lake.stores["lake"]
    return sound_log(store.read(store.datasets()))


LAKE_30D = "{datasets: {include: ['lake/*']}, retention: 30d}"


def test_a_shortened_entry_is_the_next_version_and_waits(lake: Lake, ledger: Ledger) -> None:
    says(lake, LAKE_30D.replace("30d", "80d"))
    evaluates(lake, ledger, 0)
    says(lake, LAKE_30D)
    assert evaluates(lake, ledger, 10) == {"lake/d": "70", "lake/e": "70"}
    assert evaluates(lake, ledger, 16) == {"lake/d": "64", "lake/e": "64"}
    assert evaluates(lake, ledger, 17) == {"lake/d": "20", "lake/e": "13"}
    assert [one.version for one in ledger.policy_book.newest() if one.name == "visibility:lake/*"] == [2]


def test_an_entry_in_no_file_any_more_raises_nothing(lake: Lake, ledger: Ledger) -> None:
    says(lake, LAKE_30D)
    evaluates(lake, ledger, 0)
    (lake.folder / "policies" / "v.yaml").unlink()
    assert evaluates(lake, ledger, 7) == {}
    assert [one.name for one in ledger.policy_book.in_force() if one.name.startswith("visibility:")] == []


def test_what_a_person_wrote_is_drift(lake: Lake, ledger: Ledger) -> None:
    says(lake, LAKE_30D)
    evaluates(lake, ledger, 0)
    ledger.policy_book.write(rule("60d"), "ann", "longer")
    [warning] = load_rulebook(ledger, lake.settings, "run").drifted
    assert warning.startswith("Visibility entry 'lake/*' in the files differs from version 2 in the book, which ann wrote")
    assert "`force_overwrite: true`" in warning


def test_a_changed_entry_has_its_own_datasets_judged_anew(lake: Lake, ledger: Ledger) -> None:
    def digests() -> list[str]:
        names = ["lake/d", "lake/e"]
        return rules_digests(load_rulebook(ledger, lake.settings, "run").rules(names, AS_OF), names, AS_OF)

    says(lake, LAKE_30D)
    before = digests()
    says(lake, LAKE_30D, "{datasets: {include: [lake/e]}, retention: 9d}")
    assert [one == other for one, other in zip(before, digests(), strict=True)] == [True, False]


def test_a_reason_names_the_entry(lake: Lake, ledger: Ledger) -> None:
    says(lake, LAKE_30D)
    evaluates(lake, ledger, 0)
    evaluates(lake, ledger, 7)
    assert any("retention of 30 days as of 2026-04-07T12:00:00Z (visibility:lake/*)" in line for line in ledger.audit_lines())
    assert parse_duration("30d").before(AS_OF + 7 * DAY) == ledger.visibility.of("lake/d")
