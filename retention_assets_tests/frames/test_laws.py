"""The kernel against the oracle, and the laws that hold whatever the histories and policies are.

Belongs here: bulk comparison on random histories, and laws in the words of DESIGN.md. The oracle is written from the same
sentences in plain loops and shares nothing with the kernel but the policy model. A failure prints the drawing.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from retention_assets.frames import Log, branch_views, candidate_marks, retained_marks, view_ends
from retention_assets.frames.verdicts.reasons import SPARING
from retention_assets.policy import BRANCHED, Duration, Hold, Keeper, Policy, RetainRule, matches, purge_of
from retention_assets_tests.histories import AS_OF, History, histories, history, log_of, random_histories
from retention_assets_tests.oracle.agreement import Rows, disagreement, judged
from retention_assets_tests.oracle.verdicts import retained
from retention_assets_tests.oracle.views import Facts
from retention_assets_tests.oracle.views import branch_views as oracle_views
from retention_assets_tests.policies import (
    holds,
    keepers_of,
    policies,
    random_counts,
    random_holds,
    random_known,
    random_policies,
    random_policy,
    random_retain_rules,
    retain_rules,
    with_purges,
)
from retention_assets_tests.rounds import examples, rounds

SEEDS = range(rounds(2))
BOOKS, DATASETS_OF_ONE = 8, 125
PERIODS = {"hourly", "daily", "weekly", "monthly", "yearly"}
WITHOUT_WITNESS = ("OPEN", "NO_POLICY", "NO_FILES")
SPARING_CODES = {reason.name for reason in SPARING}


def built(drawn: Sequence[dict], held: Sequence[dict]) -> tuple[list[Policy], list[Keeper]]:  # type: ignore[type-arg]
    """Policies, holds and retain rules from their YAML shapes."""
    return [Policy.model_validate(policy) for policy in drawn], keepers_of(held)


def marked(rows: Rows) -> set[tuple[str, str]]:
    """What would be marked."""
    return {key for key, row in rows.items() if row["verdict"] == "mark"}


@pytest.mark.parametrize("seed", SEEDS)
def test_kernel_and_oracle_agree_on_many_random_histories(seed: int) -> None:
    """3,000 datasets over all seeds, judged in batches, each batch under policies of its own."""
    rng = random.Random(seed)
    for _ in range(BOOKS):
        drawn = random_histories(rng, DATASETS_OF_ONE)
        keepers = random_holds(rng, rng.randint(0, 2)) + random_retain_rules(rng, rng.choice((0, 0, 1, 2)))
        rules, held = built(random_policies(rng, rng.randint(0, 5)), keepers)
        rules = with_purges(rng, rules)
        known = random_known(rng, drawn) if rng.random() < 0.6 else None
        rows = judged(log_of(drawn), rules, held, known=known)
        for one in drawn:
            assert (different := disagreement(rows, one, rules, held, known)) is None, different


@settings(max_examples=examples(20), deadline=None)
@given(
    drawn=histories(),
    shapes=policies(),
    held_shapes=holds(),
    retain_shapes=retain_rules(),
    before=st.frozensets(st.sampled_from(("T1", "T2", "T3", "T5", "T8"))),
)
def test_kernel_and_oracle_agree_on_a_shrunk_history(
    drawn: History, shapes: list[Any], held_shapes: list[Any], retain_shapes: list[Any], before: frozenset[str]
) -> None:
    """The same, where a failure shrinks to the smallest history that shows it."""
    assume(drawn.transactions)  # a file without a line is no log
    rules, held = built(shapes, held_shapes + retain_shapes)
    known = {drawn.dataset: before}
    rows = judged(log_of([drawn]), rules, held, known=known)
    assert (different := disagreement(rows, drawn, rules, held, known)) is None, different


THREE_OLD = "main: S1:SNAPSHOT@50d - S2:SNAPSHOT@40d - S3:SNAPSHOT@30d - S4:SNAPSHOT@1d"


@pytest.mark.parametrize(
    "known", [(), ("lake/a",), ("lake/b",), ("lake/c",), ("lake/d",), ("lake/a", "lake/b"), ("lake/b", "lake/d")]
)
def test_what_is_marked_of_one_dataset_counts_for_no_other(known: tuple[str, ...]) -> None:
    """Three would go where two may. Groups of datasets with the same policies are interleaved, and of different sizes."""
    drawn = [history(THREE_OLD, dataset=f"lake/{name}") for name in "abcd"]
    drawn.append(history("main: S1:SNAPSHOT@50d", dataset="lake/aa"))
    datasets: list[list[str]] = [["*"], ["lake/b", "lake/d"], ["lake/aa"]]
    shapes = [
        {"name": f"p{number}", "datasets": {"include": include}, "select": {"older_than": "20d"}, "limits": {"transactions": 2}}
        for number, include in enumerate(datasets)
    ]
    rules, _ = built(shapes, [])
    rows = judged(log_of(drawn), rules, known={name: frozenset({"S2"}) for name in known})
    assert marked(rows) == {(name, f"S{number}") for name in known for number in (1, 2, 3)}


@pytest.mark.parametrize("seed", range(rounds(2)))
def test_branch_views_agree_with_the_oracle_in_every_scope(seed: int) -> None:
    """Each column of the table, seen by all branches and by some of them."""
    rng = random.Random(seed)
    drawn = random_histories(rng, 150)
    log = log_of(drawn)
    for scope in (["*"], ["main"], ["main", "release-*", "b7"], ["nothing"]):
        views = {(row["dataset"], row["transaction"]): row for row in branch_views(log.transactions, AS_OF, scope).to_pylist()}
        for one in drawn:
            chosen = [name for name in one.branches if matches(name, scope)]
            for transaction, want in oracle_views(one, chosen, AS_OF).items():
                got = views[one.dataset, transaction]
                columns = ("branches", "view", "newer", "superseded_at", "view_closed_at", "open_after")
                assert {name: got[name] for name in columns} == {name: getattr(want, name) for name in columns}, (
                    transaction,
                    one,
                )
                witness = got["protected_by"]
                assert (witness in want.protected_by) if want.protected_by else witness is None, (transaction, one)


def test_where_views_end_is_what_the_whole_table_says_of_it() -> None:
    """Of what is on branches and of what never is, apart and together."""
    branched = random_histories(random.Random(3), 150)
    records = history("main: R1:RECORD@50d - R2:RECORD@40d", dataset="ods/r")
    one_type = [[history(f"main: T1:{name}@9d - T2:{name}@8d")] for name in BRANCHED]
    for drawn in (branched, *one_type, [records], [*branched, records]):
        rows = log_of(drawn).transactions
        ends = view_ends(rows, AS_OF)
        assert len(ends) == len(rows) > 0
        assert ends.equals(branch_views(rows, AS_OF).select(ends.column_names))


def test_every_transaction_gets_one_verdict_with_the_reasons_that_it_needs() -> None:
    """Laws 1 and 2: one verdict each; a mark has a policy and nothing that spares, a spare has both, a keep has a reason."""
    rng = random.Random(7)
    for _ in range(rounds(3)):
        drawn = random_histories(rng, 200)
        rules, held = built(random_policies(rng, 3), random_holds(rng, 1))
        marks = candidate_marks(*_tables(log_of(drawn)), rules, held, AS_OF).to_pylist()
        assert len(marks) == sum(len(one.transactions) for one in drawn)
        assert len({(row["dataset"], row["transaction"]) for row in marks}) == len(marks)
        for row in marks:
            spares = {reason["code"] for reason in row["reasons"]} & SPARING_CODES
            assert row["reasons"], row
            assert (row["policy"] is not None) == (row["verdict"] in ("mark", "spare")), row
            assert bool(spares) == (row["verdict"] == "spare"), row
            assert all(reason["witness"] or reason["code"] in WITHOUT_WITNESS for reason in row["reasons"]), row


def test_nothing_protected_is_marked_and_no_policy_marks_nothing() -> None:
    """Laws 3 and 6, with policies that ask for everything."""
    rng = random.Random(8)
    drawn = random_histories(rng, 600)
    log = log_of(drawn)
    everything = [
        Policy.model_validate({"name": "all", "datasets": {"include": ["*"]}, "select": "all", "branches": {"reach": "any"}})
    ]
    protected = {
        (row["dataset"], row["transaction"])
        for row in branch_views(log.transactions, AS_OF).to_pylist()
        if row["protected_by"] is not None
    }
    rows = judged(log, everything)
    assert protected
    assert not marked(rows) & protected
    assert {row["verdict"] for row in judged(log, []).values()} <= {"keep", "open"}


def without_limits(rng: random.Random, count: int) -> list[dict]:  # type: ignore[type-arg]
    """Policies without limits: less to take can bring a policy below its limit, and then it takes something."""
    return [{key: value for key, value in policy.items() if key != "limits"} for policy in random_policies(rng, count)]


@pytest.mark.parametrize("seed", range(rounds(2)))
def test_one_more_tag_or_hold_never_adds_a_mark(seed: int) -> None:
    """Law 4, for what can be added anywhere."""
    rng = random.Random(seed)
    drawn = [one for one in random_histories(rng, 200) if one.transactions]
    rules, held = built(without_limits(rng, 3), random_holds(rng, 1))
    before = marked(judged(log_of(drawn), rules, held))
    more_held = [*held, Hold.model_validate({"name": "more", "datasets": ["lake/*"], "transactions": ["T1", "T3", "*5"]})]
    assert marked(judged(log_of(drawn), rules, more_held)) <= before
    tagged = [_tagged(one, rng) for one in drawn]
    assert marked(judged(log_of(tagged), rules, held)) <= before


@pytest.mark.parametrize("seed", range(rounds(2)))
def test_a_larger_count_one_more_period_and_one_more_retain_rule_never_add_a_mark(seed: int) -> None:
    """Law 4, for what is counted: by policies on branches and lines, and by retain rules."""
    rng = random.Random(200 + seed)
    log = log_of(random_histories(rng, 200))
    shapes = [{**policy, "select": {"beyond": random_counts(rng)}} for policy in without_limits(rng, 3)]
    retained = random_retain_rules(rng, 2)
    rules, held = built(shapes, retained)
    before = marked(judged(log, rules, held))
    assert before
    wider = [{**policy, "select": {"beyond": _wider(rng, policy["select"]["beyond"])}} for policy in shapes]
    assert marked(judged(log, built(wider, [])[0], held)) <= before
    kept = [{**rule, **({"newest": _wider(rng, rule["newest"])} if "newest" in rule else {})} for rule in retained]
    assert marked(judged(log, *built(shapes, kept))) <= before
    assert marked(judged(log, *built(shapes, [*retained, {**random_retain_rules(rng, 1)[0], "name": "more"}]))) <= before


def _wider(rng: random.Random, counts: dict) -> dict:  # type: ignore[type-arg]
    """One count larger, or one more period."""
    key = rng.choice(sorted({*PERIODS, "transactions"} | counts.keys() & {"bytes"}))
    return {**counts, key: "1024PiB" if key == "bytes" else counts.get(key, 0) + rng.choice((1, 2, 9))}


@pytest.mark.parametrize("seed", range(rounds(1)))
def test_what_a_period_keeps_stays_readable(seed: int) -> None:
    """Of what is kept for its period nothing goes that its view has before it; nor of what a retain rule keeps by a count."""
    rng = random.Random(300 + seed)
    drawn = [one for one in random_histories(rng, 150, kinds=("branched",)) if one.attributes.get("times") != "copied"]
    counts = random_counts(rng, sorted(PERIODS))
    everything = {"name": "p", "datasets": {"include": ["*"]}, "latest_view": "allow"}
    by_policy = judged(log_of(drawn), built([{**everything, "select": {"beyond": counts}}], [])[0])
    by_rule = judged(log_of(drawn), *built([{**everything, "select": "all"}], [{**RULE, "newest": counts}]))
    for rows, code in ((by_policy, "WITHIN_PERIODS"), (by_rule, "RETAIN_RULE")):
        kept = [key for key, row in rows.items() if code in {reason["code"] for reason in row["reasons"]}]  # type: ignore[attr-defined]
        assert kept
        for dataset, name in kept:
            facts = next(Facts(one, AS_OF) for one in drawn if one.dataset == dataset)
            for branch in facts.branches_of(facts.log[name]):
                state = {(dataset, before.name) for before in facts.state_at(branch, facts.log[name])}
                assert not state & marked(rows), (name, branch, facts.history, counts)


@pytest.mark.parametrize("seed", range(rounds(2)))
def test_the_independent_check_retains_what_the_oracle_does(seed: int) -> None:
    rng = random.Random(400 + seed)
    drawn = [one for one in random_histories(rng, 150) if one.transactions]
    log = log_of(drawn)
    every = log.transactions.select(["dataset", "transaction"]).cast(
        pa.schema({"dataset": pa.string(), "transaction": pa.string()})
    )
    for rule in map(RetainRule.model_validate, random_retain_rules(rng, 3)):
        found = {name: checked.marks for name, checked in retained_marks(log, every, [rule], AS_OF).items()}
        for one in drawn:
            facts = Facts(one, AS_OF)
            kept = [name for name, each in facts.log.items() if retained(rule, facts, each, AS_OF)]
            assert found.get(one.dataset, 0) == len(kept), (one, rule, kept)


RULE = {"name": "r", "reason": "law", "datasets": "*"}


def test_retain_beats_all() -> None:
    """Whatever is chosen by condition or age: no policy takes it, and no purge."""
    rng = random.Random(9)
    log = log_of(one for one in random_histories(rng, 300) if one.attributes.get("times") != "copied")
    everything = {
        "name": "p",
        "datasets": {"include": ["*"]},
        "select": "all",
        "latest_view": "allow",
        "branches": {"reach": "any"},
    }
    rules = [purge_of("acme", Duration(days=7), Duration()), *built([everything], [])[0]]
    rows = log.transactions.select(["dataset", "transaction", "type", "closed_at"]).to_pylist()
    kept = {
        (row["dataset"], row["transaction"])
        for row in rows
        if row["type"] == "SNAPSHOT" or row["closed_at"] is None or row["closed_at"] >= AS_OF - timedelta(days=3)
    }
    retained = keepers_of([{**RULE, "where": "type = 'SNAPSHOT'"}, {**RULE, "name": "q", "younger_than": "3d"}])
    assert marked(judged(log, rules)) & kept
    assert marked(judged(log, rules, retained)) == marked(judged(log, rules)) - kept


@pytest.mark.parametrize("seed", range(rounds(2)))
def test_one_more_branch_on_what_a_branch_reaches_never_adds_a_mark(seed: int) -> None:
    """Law 4 for branches. One that revives what no branch reached gives it to the policies for live branches: not meant here."""
    rng = random.Random(100 + seed)
    drawn = [one for one in random_histories(rng, 250) if one.branches]
    shapes = [{**policy, "branches": {"reach": rng.choice(["live", "any"])}} for policy in without_limits(rng, 3)]
    rules, held = built(shapes, [])
    before = marked(judged(log_of(drawn), rules, held))
    branched = [_branched(one, rng) for one in drawn]
    assert marked(judged(log_of(branched), rules, held)) <= before


def test_one_more_policy_at_the_end_takes_no_mark_and_no_credit_away() -> None:
    rng = random.Random(3)
    for _ in range(rounds(2)):
        log = log_of(random_histories(rng, 150))
        rules, held = built([*random_policies(rng, 3), random_policy(rng, "more")], random_holds(rng, 1))
        before, after = judged(log, rules[:-1], held), judged(log, rules, held)
        assert marked(before) <= marked(after)
        assert all(after[key]["policy"] == before[key]["policy"] for key in marked(before))


def lines_of(policy: dict, has_branches: bool) -> Iterator[dict]:  # type: ignore[type-arg]
    """The same policy without one of its lines, each in turn. Where there are branches, a scope says who is asked: no line."""
    select = {} if policy["select"] == "all" else policy["select"]
    for key in select:
        if key == "beyond":
            # What is counted, and in which groups and zone, is said beside the counts: no line of its own.
            for count in select["beyond"].keys() - {"zone", "where", "per"}:
                rest = without(count, select["beyond"])
                yield {**policy, "select": _all_or({**select, "beyond": rest} if rest else {**select, "beyond": None})}
        else:
            # `window` is about the age beside it.
            gone = {key: None, "window": None} if key == "older_than" else {key: None}
            yield {**policy, "select": _all_or({**select, **gone})}
    for key in ("only_in", "not_in") if has_branches else ("only_in", "not_in", "include", "exclude"):
        if key in policy.get("branches", {}):
            yield {**policy, "branches": {name: line for name, line in policy["branches"].items() if name != key}}


def without(count: str, beyond: dict) -> dict:  # type: ignore[type-arg]
    """The other counts, with what is said beside them if they can be meant."""
    rest = {key: value for key, value in beyond.items() if key != count}
    if not rest.keys() & PERIODS:
        rest.pop("zone", None)
    return rest if rest.keys() & {*PERIODS, "transactions", "bytes", "views"} else {}


def _all_or(select: dict) -> dict | str:  # type: ignore[type-arg]
    lines = {key: line for key, line in select.items() if line is not None}
    return "all" if lines in ({}, {"terminal_only": False}) else lines


@pytest.mark.parametrize("kind", ["branched", "mixed", "records", "objects", "bare"])
def test_no_line_selects_more_than_without_it(kind: str) -> None:
    """In every kind of dataset. What is unfinished needs a line by which it goes at all, and windows replace other lines."""
    rng = random.Random(f"lines {kind}")
    narrowed, compared = 0, 0
    for _ in range(rounds(6)):
        drawn = random_histories(rng, 60, kinds=(kind,))
        log = log_of(drawn)
        unfinished = {(one.dataset, row["transaction"]) for one in drawn for row in one.transactions if row["status"] == "OPEN"}
        for policy in without_limits(rng, 6):
            if policy["select"] != "all":
                policy["select"].pop("expired_refs", None)
            policy.get("branches", {}).pop("windows", None)
            (rule,), _ = built([policy], [])
            with_it = marked(judged(log, [rule])) - unfinished
            for shorter in lines_of(policy, kind in ("branched", "mixed")):
                (rule,), _ = built([shorter], [])
                without = marked(judged(log, [rule]))
                assert with_it <= without, (policy, shorter, with_it - without)
                narrowed, compared = narrowed + (with_it != without - unfinished), compared + 1
    assert compared > narrowed > 0


@pytest.mark.parametrize("seed", range(rounds(1)))
def test_the_order_and_the_batches_of_datasets_change_nothing(seed: int) -> None:
    """Law 5: lines of a log in any order of datasets, and datasets judged alone or together."""
    rng = random.Random(seed)
    drawn = random_histories(rng, 120)
    rules, held = built(random_policies(rng, 4), random_holds(rng, 1))
    known = random_known(rng, drawn)
    together = judged(log_of(drawn), rules, held, known=known)
    rng.shuffle(drawn)
    assert judged(log_of(drawn), rules, held, known=known) == together
    log = log_of(drawn)
    alone: Rows = {}
    cut = 0
    for size in log.datasets["transactions"].to_pylist():
        part = Log(log.transactions.slice(cut, size), log.datasets)
        alone |= judged(part, rules, held, known=known)
        cut += size
    assert alone == together


@pytest.mark.parametrize("seed", range(rounds(1)))
def test_shuffled_lines_give_the_same_verdicts_where_nothing_is_open(seed: int) -> None:
    """Parents give the order of a history. Only "an OPEN transaction follows" looks at the order of the log beside them."""
    rng = random.Random(seed)
    drawn = [one for one in random_histories(rng, 150) if all(row["status"] != "OPEN" for row in one.transactions)]
    rules, held = built(random_policies(rng, 4), [])

    def plain(rows: Rows) -> dict[tuple[str, str], object]:
        return {key: (row["verdict"], row["policy"], row["also"]) for key, row in rows.items()}

    assert plain(judged(log_of(drawn, shuffle=rng), rules, held)) == plain(judged(log_of(drawn), rules, held))


def _tables(log: Log) -> tuple[pa.Table, pa.Table]:
    return log.transactions, log.datasets


def _tagged(one: History, rng: random.Random) -> History:
    at = rng.choice(one.transactions)["transaction"]
    expires = rng.choice([None, AS_OF + timedelta(days=1)])
    return History(
        one.dataset, one.transactions, one.branches, {**one.tags, "one-more": (at, expires)}, one.attributes, one.as_of
    )


def _branched(one: History, rng: random.Random) -> History:
    parents = {row["transaction"]: row["parent"] for row in one.transactions}
    reached: list[str] = []
    for head in one.branches.values():
        at: str | None = head
        while at is not None:
            reached.append(at)
            at = parents[at]
    branches = {**one.branches, "one-more": rng.choice(sorted(set(reached)))}
    return History(one.dataset, one.transactions, branches, one.tags, one.attributes, one.as_of)
