"""What kernel and oracle say beside a verdict: reasons with their witnesses, who gets the credit, limits, and its branch views."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from retention_assets.policy import Duration, Hold, RetainRule, purge_of
from retention_assets_tests.histories import AS_OF, history, log_of
from retention_assets_tests.oracle.agreement import agreed, judged
from retention_assets_tests.oracle.drawings import DELETED, DEMONSTRATION, THREE, answer_of, hold, policy
from retention_assets_tests.oracle.verdicts import Verdict, verdicts
from retention_assets_tests.oracle.views import ViewRow, branch_views


def days(ago: float) -> datetime:
    return AS_OF - timedelta(days=ago)


def _spare(*spared_by: tuple[str, str], name: str = "p", also: tuple[str, ...] = ()) -> Verdict:
    return Verdict("spare", name, also, frozenset(spared_by))


def test_every_branch_whose_latest_view_holds_it_is_a_witness() -> None:
    drawn = history(DEMONSTRATION + " | xyz: T2 - T5:APPEND@34d | uvw: T5")
    found = agreed(drawn, [policy()])
    assert found["T1"] == found["T2"] == _spare(("LATEST_VIEW", "xyz"), ("LATEST_VIEW", "uvw"))
    assert found["T4"] == _spare(("LATEST_VIEW", "abc"))


def test_a_spare_names_all_that_spares_it() -> None:
    drawn = history("main: T1:SNAPSHOT@9d - T2:APPEND@8d | #v1=T2 | #v2=T1")
    found = agreed(drawn, [policy()], [hold(transactions=["T2"]), hold("other")])
    assert found["T1"] == _spare(("LATEST_VIEW", "main"), ("TAG", "v1"), ("TAG", "v2"), ("HOLD", "other"))
    assert found["T2"] == _spare(("LATEST_VIEW", "main"), ("TAG", "v1"), ("HOLD", "h"), ("HOLD", "other"))


@pytest.mark.parametrize(
    ("given_hold", "held"),
    [
        (hold(), True),
        (hold(until="2026-03-31T12:00:00.000001Z"), True),
        (hold(until="2026-03-31T12:00:00Z"), False),  # it ends now
        (hold(transactions=["T[2-9]", "T1?"]), False),
        (hold(datasets=["ice/*"]), False),
        (hold(datasets={"include": ["*"], "exclude": ["lake/*"]}), False),
        (hold(datasets={"include": ["*"], "with": {"tier": "bronze", "realm": "acme"}}), True),
        (hold(datasets={"include": ["*"], "with": {"tier": "bronze", "realm": "globex"}}), False),
    ],
)
def test_a_hold_spares_what_it_names_while_it_lasts(given_hold: Hold, held: bool) -> None:
    drawn = history("-: R1:RECORD@9d | main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d", attributes={"tier": "bronze", "realm": "acme"})
    found = agreed(drawn, [policy()], [given_hold])
    assert found["T1"] == (_spare(("HOLD", "h")) if held else Verdict("mark", "p"))
    assert (found["R1"].verdict == "spare") == (held and given_hold.transactions is None)


@pytest.mark.parametrize(
    ("datasets", "chosen"),
    [
        ({"include": ["lake/*"]}, True),
        ({"include": ["ice/*", "lake/?"]}, True),
        ({"include": ["*"], "exclude": ["*/d"]}, False),
        ({"include": ["*"], "with": {"tier": "bronze"}}, True),
        ({"include": ["*"], "with": {"realm": "acme", "tier": "bronze"}}, True),
        ({"include": ["*"], "with": {"realm": "acme", "tier": "gold"}}, False),  # all must match
        ({"include": ["*"], "with": {"trashed": "true"}}, False),
    ],
)
def test_a_policy_is_about_the_datasets_that_it_names(datasets: dict[str, Any], chosen: bool) -> None:
    drawn = history("main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d", attributes={"tier": "bronze", "realm": "acme"})
    assert agreed(drawn, [policy(datasets=datasets)])["T1"].verdict == ("mark" if chosen else "keep")


@pytest.mark.parametrize(
    ("select", "code"),
    [
        ({"beyond": {"transactions": 9}}, "WITHIN_TRANSACTIONS"),
        ({"beyond": {"bytes": "1GiB"}}, "WITHIN_BYTES"),
        ({"beyond": {"daily": 9}}, "WITHIN_PERIODS"),
        ({"older_than": {"age": "0s", "of": {"attribute": "expires_at"}}}, "TIME_MISSING"),
        ({"where": "attributes['kind'] = 'full'"}, "CONDITION"),
    ],
)
def test_what_a_line_keeps_has_the_reason_of_that_line(select: dict[str, Any], code: str) -> None:
    log = log_of([history("main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d")])
    assert judged(log, [policy(select)])["lake/d", "T1"]["reasons"][0]["code"] == code  # type: ignore[index]


def test_a_purge_leaves_what_a_window_spares_and_versions_without_files() -> None:
    about = {"realm": "acme", "window.superseded-ms": "432000000", "window.spares": "true", "versions.empty": "kept"}
    drawn = history("main: T1:SNAPSHOT@9d - T2:DELETE@8d - T3:SNAPSHOT@6d - T4:SNAPSHOT@5d", attributes=about)
    rules = [purge_of("acme", Duration(days=7), Duration())]
    inside = _spare(("TABLE_WINDOW", "window.superseded-ms"), name=rules[0].name)
    assert agreed(drawn, rules) == {"T1": Verdict("mark", rules[0].name), "T2": Verdict("keep"), "T3": inside, "T4": inside}


@pytest.mark.parametrize(
    "lines", [{"younger_than": "1d"}, {"newest": {"daily": 1}}, {"where": "closed_at IS NULL OR bytes < 100"}]
)
def test_a_retain_rule_that_compares_the_times_of_a_copy_keeps_everything(lines: dict[str, Any]) -> None:
    rule = RetainRule.model_validate({"name": "r", "reason": "law", "datasets": "*", **lines})
    drawing, kept = "main: T1:SNAPSHOT@9d=100 - T2:SNAPSHOT@8d=100", _spare(("RETAIN_RULE", "r"))
    for copied, verdict in (({"times": "copied"}, kept), ({}, Verdict("mark", "p"))):
        assert agreed(history(drawing, attributes=copied), [policy()], [rule])["T1"] == verdict


def test_a_limit_does_not_count_what_a_retain_rule_keeps() -> None:
    rule = RetainRule.model_validate({"name": "r", "reason": "law", "datasets": "*", "younger_than": "8d"})
    found = agreed(history(THREE), [policy(limits={"transactions": 1})], [rule])
    assert (found["T1"], found["T2"]) == (Verdict("mark", "p"), _spare(("RETAIN_RULE", "r")))


def test_the_first_policy_that_may_gets_the_credit_and_the_others_are_listed_in_order() -> None:
    book = [policy(name="first"), policy({"types": ["APPEND"]}, "second"), policy(name="third", latest_view="allow")]
    found = agreed(history("main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T3:APPEND@7d"), book)
    assert found == {
        "T1": Verdict("mark", "first", ("third",)),
        "T2": Verdict("mark", "third", ("first",)),  # in the latest view only the third may
        "T3": Verdict("mark", "third", ("first", "second")),
    }


def test_a_held_transaction_names_the_policy_that_would_have_marked_it() -> None:
    book = [policy(name="first"), policy(name="second", latest_view="allow")]
    found = agreed(history("main: T1:SNAPSHOT@9d"), book, [hold()])
    assert found["T1"] == _spare(("HOLD", "h"), name="second", also=("first",))


@pytest.mark.parametrize(
    ("limits", "over"),
    [
        ({"transactions": 3}, False),  # T1, T2, T3: T4 is in the latest view and could not be marked
        ({"transactions": 2}, True),
        ({"bytes": 30}, False),  # no bytes known of T3: 0
        ({"bytes": 29}, True),
        ({"fraction": 0.6}, False),  # three of five: the OPEN one is of the log too
        ({"fraction": 0.59}, True),
        ({"transactions": 9, "bytes": 9, "fraction": 1}, True),  # over any of them
    ],
)
def test_over_its_limit_a_policy_marks_nothing_of_the_dataset(limits: dict[str, float], over: bool) -> None:
    found = agreed(history(THREE), [policy(limits=limits)])
    for name in ("T1", "T2", "T3"):
        assert found[name] == (_spare(("LIMIT", "p")) if over else Verdict("mark", "p"))
    assert found["T4"] == _spare(("LATEST_VIEW", "main"))


def test_a_limit_counts_inside_the_latest_view_when_the_policy_may_mark_there() -> None:
    book = [policy(limits={"transactions": 3}, latest_view="allow")]
    assert agreed(history(THREE), book)["T4"] == _spare(("LIMIT", "p"))


def test_a_limit_does_not_count_what_a_tag_or_a_hold_keeps() -> None:
    drawn, book = history(THREE + " | #v1=T1"), [policy(limits={"transactions": 1})]
    found = agreed(drawn, book, [hold(transactions=["T2"])])
    assert {name: one.verdict for name, one in found.items()} == answer_of("spare T1 T2 T4, mark T3, open T5")


def test_a_policy_within_its_limit_marks_what_another_over_its_limit_may_not() -> None:
    found = agreed(history(THREE), [policy(name="tight", limits={"bytes": 1}), policy(name="wide")])
    assert found["T1"] == Verdict("mark", "wide", ("tight",))
    assert found["T4"] == _spare(("LATEST_VIEW", "main"), name="tight", also=("wide",))


def test_a_limit_spares_where_only_the_policy_over_it_may_look_into_the_latest_view() -> None:
    book = [policy(name="plain"), policy(name="tight", latest_view="allow", limits={"transactions": 1})]
    assert agreed(history(THREE), book)["T4"] == _spare(("LIMIT", "tight"), name="plain", also=("tight",))


def test_a_limit_does_not_count_what_is_marked_or_swept_before() -> None:
    drawn, book = history(THREE), [policy(limits={"transactions": 1})]
    assert agreed(drawn, book, [], {"T1", "T3"})["T2"] == Verdict("mark", "p")
    assert agreed(drawn, book, [], {"T1", "T4"})["T2"] == _spare(("LIMIT", "p"))


def test_a_hold_can_bring_a_policy_back_within_its_limit() -> None:
    # One more hold adds marks where a policy stood over its limit.
    found = agreed(history(THREE), [policy(limits={"transactions": 2})], [hold(transactions=["T1"])])
    assert {name for name, one in found.items() if one.verdict == "mark"} == {"T2", "T3"}


def test_a_branch_can_make_what_was_unreachable_a_matter_for_a_policy_on_live_branches() -> None:
    # X3 was on no branch and stayed; on one it is an old view.
    found = agreed(history(DELETED + " - X5:SNAPSHOT@5d | back: X5"), [policy()])
    assert {name for name, one in found.items() if one.verdict == "mark"} == {"T1", "X3", "X4"}


def test_a_policy_with_an_opaque_line_is_refused_and_not_skipped() -> None:
    with pytest.raises(NotImplementedError, match="where"):
        verdicts(history("-: O1:OBJECT@9d"), [policy({"where": "bytes > 1"})], [], AS_OF)


TABLE = history(
    "main: T1:SNAPSHOT@9d - T2:APPEND@8d - T3:SNAPSHOT@6d - T4:DELETE@5d - T5:APPEND@4d - T6:SNAPSHOT@2d"
    "| dev: T2 - T7:APPEND!@7d - T8:SNAPSHOT@3d | -: T8 - T9:APPEND?@1d | -: T1 - X10:APPEND@1d | #v1=T4"
)


@pytest.mark.parametrize(
    ("name", "over_all", "over_main"),
    [
        # Both branches left T1 and T2: main with T3, dev last with T8, in which T2 has one newer transaction.
        ("T1", ViewRow(2, 1, 2, days(3), days(8), False, frozenset()), ViewRow(1, 2, 4, days(6), days(8), False, frozenset())),
        ("T2", ViewRow(2, 1, 1, days(3), days(8), False, frozenset()), ViewRow(1, 2, 3, days(6), days(8), False, frozenset())),
        # T4 is a DELETE: it does not count as newer.
        ("T3", ViewRow(1, 1, 2, days(2), days(4), False, frozenset({"v1"})), None),
        ("T4", ViewRow(1, 1, 2, days(2), days(4), False, frozenset({"v1"})), None),
        ("T5", ViewRow(1, 1, 1, days(2), days(4), False, frozenset()), None),
        ("T6", ViewRow(1, 0, 0, None, days(2), False, frozenset({"main"})), None),
        # T7 is ABORTED behind T2, which both branches hold.
        ("T7", ViewRow(2, None, None, None, None, False, frozenset()), ViewRow(1, None, None, None, None, False, frozenset())),
        # T9 is open behind T8. Over main alone nothing holds T8, and dev protects it all the same.
        ("T8", ViewRow(1, 0, 0, None, days(3), True, frozenset({"dev"})),
         ViewRow(0, None, None, None, None, False, frozenset({"dev"}))),
        ("T9", ViewRow(1, None, None, None, None, False, frozenset()), ViewRow(0, None, None, None, None, False, frozenset())),
        ("X10", ViewRow(0, None, None, None, None, False, frozenset()), None),
    ],
)  # fmt: skip
def test_branch_views_has_one_row_with_the_most_protective_answer_of_the_branches_in_scope(
    name: str, over_all: ViewRow, over_main: ViewRow | None
) -> None:
    assert branch_views(TABLE, ["main", "dev"], AS_OF)[name] == over_all, TABLE
    assert branch_views(TABLE, ["main"], AS_OF)[name] == (over_main or over_all), TABLE
