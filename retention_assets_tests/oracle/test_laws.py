"""Laws that the oracle obeys whatever the histories and policies are, and where each law ends."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from retention_assets.policy.model import Hold, Policy
from retention_assets_tests import policies as material
from retention_assets_tests.histories import AS_OF, History, history, random_histories
from retention_assets_tests.oracle.drawings import DELETED, FIVE, THREE, hold, policy
from retention_assets_tests.oracle.verdicts import Verdict, remaining_refs, verdicts
from retention_assets_tests.oracle.views import Facts, branch_views


def _bulk(seed: int, n: int, **knobs: Any) -> Iterator[tuple[random.Random, History, list[Policy], list[Hold]]]:
    """Random datasets, each with a policy book of its own."""
    rng = random.Random(seed)
    for one in random_histories(rng, n, **knobs):
        book = [Policy.model_validate(entry) for entry in material.random_policies(rng, rng.randint(0, 4))]
        holds = [Hold.model_validate(entry) for entry in material.random_holds(rng, rng.choice((0, 0, 1, 2)))]
        yield rng, one, book, holds


def _marks(found: dict[str, Verdict]) -> set[str]:
    return {name for name, one in found.items() if one.verdict == "mark"}


def _without_limits(book: list[Policy]) -> list[Policy]:
    return [one.model_copy(update={"limits": None}) for one in book]


def test_every_transaction_gets_one_verdict_with_what_belongs_to_it() -> None:
    seen: Counter[str] = Counter()
    for _, one, book, holds in _bulk(1, 600):
        found = verdicts(one, book, holds, AS_OF)
        assert list(found) == [row["transaction"] for row in one.transactions]
        protected = {name: row.protected_by for name, row in branch_views(one, [], AS_OF).items()}
        # Whoever drops expired refs is not kept from anything by one of them.
        left = remaining_refs(Facts(one, AS_OF), AS_OF).history
        protected_by_rest = {name: row.protected_by for name, row in branch_views(left, [], AS_OF).items()}
        drop = {rule.name for rule in book if rule.select.expired_refs == "drop"}
        allow = {rule.name for rule in book if rule.latest_view == "allow"}
        for row in one.transactions:
            verdict = found[row["transaction"]]
            seen[verdict.verdict] += 1
            seen.update(code for code, _ in verdict.spared_by)
            assert (verdict.policy is not None) == (verdict.verdict in ("mark", "spare")), one
            assert bool(verdict.spared_by) == (verdict.verdict == "spare"), one
            assert verdict.policy not in verdict.also, one
            assert (verdict.verdict == "open") == (row["status"] == "OPEN" and row["type"] not in ("RECORD", "OBJECT")), one
            if verdict.verdict == "mark":
                by = (protected_by_rest if verdict.policy in drop else protected)[row["transaction"]]
                assert not by or (verdict.policy in allow and by <= one.branches.keys()), one
    assert all(seen[key] >= 10 for key in ("mark", "spare", "keep", "open", "LATEST_VIEW", "TAG", "HOLD", "LIMIT")), seen


def test_without_a_policy_nothing_is_marked() -> None:
    for _, one, _, holds in _bulk(2, 200):
        assert {verdict.verdict for verdict in verdicts(one, [], holds, AS_OF).values()} <= {"keep", "open"}


def test_one_more_policy_at_the_end_takes_no_mark_and_no_credit_away() -> None:
    for rng, one, book, holds in _bulk(3, 400):
        more = Policy.model_validate(material.random_policy(rng, "more"))
        before, after = verdicts(one, book, holds, AS_OF), verdicts(one, [*book, more], holds, AS_OF)
        assert all(after[name].policy == before[name].policy for name in _marks(before)), one
        assert _marks(before) <= _marks(after), one


def test_one_more_tag_or_hold_never_adds_a_mark_where_no_limit_is_at_work() -> None:
    for rng, one, book, holds in _bulk(4, 400):
        names = [row["transaction"] for row in one.transactions if row["type"] not in ("RECORD", "OBJECT")]
        before = _marks(verdicts(one, rules := _without_limits(book), holds, AS_OF))
        more = Hold.model_validate(material.random_holds(rng, 1)[0] | {"name": "more"})
        assert _marks(verdicts(one, rules, [*holds, more], AS_OF)) <= before, one
        if names:
            tagged = replace(one, tags={**one.tags, "more": (rng.choice(names), None)}, drawn=None)
            assert _marks(verdicts(tagged, rules, holds, AS_OF)) <= before, tagged


def test_one_more_branch_never_adds_a_mark_among_what_was_live_and_looked_at() -> None:
    for rng, one, book, holds in _bulk(5, 400):
        names = [row["transaction"] for row in one.transactions if row["type"] not in ("RECORD", "OBJECT")]
        if not names:
            continue
        # Every branch in scope: a branch that comes into a scope brings transactions to look at, which is no protection.
        rules = [
            rule.model_copy(update={"branches": rule.branches.model_copy(update={"include": ("*",), "exclude": ()})})
            for rule in _without_limits(book)
        ]
        live = {name for name, row in branch_views(one, list(one.branches), AS_OF).items() if row.branches}
        grown = replace(one, branches={**one.branches, "more": rng.choice(names)}, drawn=None)
        before, after = _marks(verdicts(one, rules, holds, AS_OF)), _marks(verdicts(grown, rules, holds, AS_OF))
        assert after & live <= before, grown


def test_the_order_of_the_log_changes_nothing_but_what_an_open_transaction_follows() -> None:
    moved = 0
    for rng, one, book, holds in _bulk(6, 300):
        if any(row["status"] == "OPEN" for row in one.transactions):
            continue
        waiting, order = list(one.transactions), list[dict[str, Any]]()
        while waiting:
            placed = {row["transaction"] for row in order}
            row = rng.choice([row for row in waiting if row["parent"] is None or row["parent"] in placed])
            waiting.remove(row)
            order.append(row)
        shuffled = replace(one, transactions=order, drawn=None)
        moved += order != one.transactions
        assert verdicts(shuffled, book, holds, AS_OF) == verdicts(one, book, holds, AS_OF), shuffled
    assert moved > 50


def test_a_log_that_is_not_parents_first_is_read_parents_first() -> None:
    drawn = history(FIVE + " | dev: T2 - T5:APPEND@1d")
    assert verdicts(replace(drawn, transactions=drawn.transactions[::-1]), [policy()], [], AS_OF) == verdicts(
        drawn, [policy()], [], AS_OF
    )


def test_a_hold_can_bring_a_policy_back_within_its_limit() -> None:
    # Not a law but its limit: STYLE.md's fourth law does not hold for a policy that stood over its limit.
    book = [policy(limits={"transactions": 2})]
    assert not _marks(verdicts(history(THREE), book, [], AS_OF))
    assert _marks(verdicts(history(THREE), book, [hold(transactions=["T1"])], AS_OF)) == {"T2", "T3"}


def test_a_branch_can_make_what_was_unreachable_a_matter_for_a_policy_on_live_branches() -> None:
    # The same: X3 was on no branch and stayed; on one it is an old view.
    assert _marks(verdicts(history(DELETED), [policy()], [], AS_OF)) == {"T1"}
    grown = history(DELETED + " - X5:SNAPSHOT@5d | back: X5")
    assert _marks(verdicts(grown, [policy()], [], AS_OF)) == {"T1", "X3", "X4"}
