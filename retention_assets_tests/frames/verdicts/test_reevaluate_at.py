"""The next evaluation: nothing changes before it, and after it the next one is later.

Belongs here: the law on random histories, policies and instants, judged by the kernel itself at those instants; the inverse of
a bound; and each way in which time changes a verdict.
"""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_assets.frames import Log, Reason, candidate_marks, verdicts_and_reevaluation
from retention_assets.frames.arrays import FOREVER
from retention_assets.frames.verdicts.selectors import NextLooks, SelectorLine, TimeBound, cut_off, old_enough_at
from retention_assets.policy import Duration, Keeper, Policy, from_micros, micros, parse_duration, parse_instant, text_of
from retention_assets_tests.histories import AS_OF, history, log_of, random_histories
from retention_assets_tests.policies import (
    Known,
    keepers_of,
    known_table,
    random_holds,
    random_known,
    random_limits,
    random_policies,
    random_retain_rules,
    with_purges,
)
from retention_assets_tests.rounds import examples, rounds

TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)
Said = Mapping[str, list[tuple[str, str | None]]]


def said(log: Log, policies: Sequence[Policy], holds: Sequence[Keeper], as_of: datetime, known: pa.Table | None = None) -> Said:
    """By dataset the verdicts and who has the credit."""
    marks = candidate_marks(log.transactions, log.datasets, policies, holds, as_of, known)
    found: dict[str, list[tuple[str, str | None]]] = {}
    names, verdicts, credit = (marks[name].to_pylist() for name in ("dataset", "verdict", "policy"))
    for dataset, verdict, policy in zip(names, verdicts, credit, strict=True):
        found.setdefault(dataset, []).append((verdict, policy))
    return found


def reevaluations(
    log: Log, policies: Sequence[Policy], holds: Sequence[Keeper], as_of: datetime, known: pa.Table | None = None
) -> dict[str, datetime | None]:
    """By dataset the next evaluation."""
    _, found = verdicts_and_reevaluation(log.transactions, log.datasets, policies, holds, as_of, known)
    return {row["dataset"]: row["next_look"] for row in found.to_pylist()}


# --- the law ---

# From before most transactions are old enough to after most are; the month before March is what bounds go back in.
_MOMENTS = [
    AS_OF + timedelta(days=days, hours=hours) for days in (-34, -12, -4, -3, -2, -1, 0, 1, 5, 30) for hours in (-12, -1, 0, 5)
]
# About the 28th of February: what a month's end lets go on the evenings of the 28th to 30th of March, and keeps in the mornings.
_FEBRUARY = AS_OF - 30 * DAY
_LAST_OF_MARCH = [AS_OF + timedelta(days=days, hours=hours) for days in (-3, -2, -1, 0) for hours in (-12, 1, 5, 11)]
Align = Literal["day", "week", "month", "quarter", "year"]
# Instants between at which a batch is judged again, besides the one before each next evaluation.
_BETWEEN = 6


def drawn_policies(rng: random.Random) -> list[Policy]:
    """Policies over every key that decides."""
    shapes = random_policies(rng, rng.randint(1, 5))
    shapes = [{**shape, "limits": random_limits(rng)} if rng.random() < 0.3 else shape for shape in shapes]
    return with_purges(rng, [Policy.model_validate(shape) for shape in shapes])


def monthly_policies(rng: random.Random) -> list[Policy]:
    """One that has the credit for some of what the others count, and those with limits: what goes back may bring one below it."""
    first = {"select": {"types": rng.choice((["SNAPSHOT"], ["APPEND"], ["DELETE", "RECORD"]))}, "latest_view": "allow"}
    ages = ("1mo", "1mo", "30d", *({"age": "1mo", key: value} for key, value in (("align", "day"), ("of", "opened"))))
    limited = {"select": {"older_than": rng.choice(ages)}, "limits": {"transactions": rng.randint(1, 4)}}
    return [
        Policy.model_validate({"name": name, "datasets": {"include": ["*"]}, "branches": {"reach": "any"}, **shape})
        for name, shape in (("first", first), ("limited", limited), ("other", {"select": {"older_than": rng.choice(ages)}}))
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(rounds(1)))
@pytest.mark.parametrize("at_months_ends", [True, False])
def test_nothing_changes_before_the_next_look(at_months_ends: bool, seed: int) -> None:
    """Whatever the histories, policies, holds and instants are; and at many a next evaluation something does change."""
    rng = random.Random(f"{seed} {at_months_ends}")
    looks = hits = 0
    for _ in range(8):
        about: dict[str, Any] = {"as_of": _FEBRUARY, "days": 3, "largest": 10} if at_months_ends else {}
        drawn = random_histories(rng, 60 if at_months_ends else 40, **about)
        log, as_of = (
            log_of(drawn),
            rng.choice(_LAST_OF_MARCH if at_months_ends else _MOMENTS) + TICK * rng.choice((0, 0, 1, -1)),
        )
        policies = monthly_policies(rng) if at_months_ends else drawn_policies(rng)
        holds = keepers_of(random_holds(rng, rng.randint(0, 2)) + random_retain_rules(rng, rng.choice((0, 0, 1, 2))))
        known = known_table(random_known(rng, drawn)) if rng.random() < 0.5 else None
        found = reevaluations(log, policies, holds, as_of, known)
        assert all(at is None or at > as_of for at in found.values())
        ahead = sorted({at for at in found.values() if at})
        looks += len(ahead)
        instants = {at - TICK for at in ahead} | set(ahead) | {as_of + TICK, as_of + 400 * DAY}
        instants |= {as_of + (max([*ahead, as_of + DAY]) - as_of) * rng.random() for _ in range(_BETWEEN)}
        before = said(log, policies, holds, as_of, known)
        for instant in sorted(instants - {as_of}):
            after = said(log, policies, holds, instant, known)
            changed = {dataset for dataset in found if after[dataset] != before[dataset]}
            assert not [one for one in changed if (at := found[one]) is None or instant < at], (as_of, instant)
            hits += any(found[one] == instant for one in changed)
    assert hits > looks / 20 > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(rounds(1)))
def test_what_is_not_looked_at_again_says_the_same_once_its_marks_are_made(seed: int) -> None:
    """The other reason to look again: marks count towards limits no more. With tiny limits this does happen."""
    rng = random.Random(seed)
    changed = 0
    for _ in range(16):
        drawn = random_histories(rng, 60)
        log = log_of(drawn)
        policies = [
            Policy.model_validate(shape if rng.random() < 0.3 else {**shape, "limits": random_limits(rng)})
            for shape in random_policies(rng, rng.randint(2, 5))
        ]
        known = random_known(rng, drawn) if rng.random() < 0.5 else {}
        marks, found = verdicts_and_reevaluation(log.transactions, log.datasets, policies, [], AS_OF, known_table(known))
        again = {row["dataset"]: row["again"] for row in found.to_pylist()}
        before, after = (
            said(log, policies, [], AS_OF, known_table(known)),
            said(log, policies, [], AS_OF, marked_too(marks, known)),
        )
        assert again.keys() == before.keys()
        for dataset in again:
            if not again[dataset]:
                assert after[dataset] == before[dataset], dataset
            changed += after[dataset] != before[dataset]
    assert changed > 0


def marked_too(marks: pa.Table, known: Known) -> pa.Table:
    """What is known once the marks of an evaluation are made."""
    made: dict[str, frozenset[str]] = dict(known)
    for row in marks.to_pylist():
        if row["verdict"] == "mark":
            made[row["dataset"]] = made.get(row["dataset"], frozenset()) | {row["transaction"]}
    return known_table(made)


def test_what_an_evaluation_marks_can_free_a_limit_and_then_it_is_looked_at_again() -> None:
    """Three are too many for `few`, of which `old` marks two; with those in the ledger the third is within the limit."""
    drawing = "-: T1:RECORD@40d | -: T2:RECORD@40d | -: T3:RECORD@4d | -: T4:RECORD@1d"
    # In the dataset after it marks are made as well, and no limit is reached: nobody looks again for them.
    log = log_of([history(drawing), history("-: T1:RECORD@40d | -: T2:RECORD@1d", dataset="lake/within")])
    shapes: list[dict[str, Any]] = [
        {"name": "few", "datasets": {"include": ["*"]}, "select": {"older_than": "2d"}, "limits": {"transactions": 2}},
        {"name": "old", "datasets": {"include": ["*"]}, "select": {"older_than": "30d"}},
    ]
    policies = [Policy.model_validate(shape) for shape in shapes]

    def judged(known: pa.Table | None) -> tuple[list[str], bool]:
        marks, found = verdicts_and_reevaluation(log.transactions, log.datasets, policies, [], AS_OF, known)
        assert marks["verdict"].to_pylist()[4:] == ["mark", "keep"]
        assert found["again"][1].as_py() is False
        return marks["verdict"].to_pylist()[:4], found["again"][0].as_py()

    assert judged(None) == (["mark", "mark", "spare", "keep"], True)
    known = pa.table({"dataset": ["lake/d"] * 2, "transaction": ["T1", "T2"]})
    assert judged(known) == (["mark", "mark", "mark", "keep"], False)


# --- the inverse of a bound ---

_AGES = ("0s", "90s", "12h", "30d", "1mo", "2mo", "13mo", "2y", "P1M1D", "P1MT36H", "P3M2DT1S")
_ANY_DAY = st.integers(0, 515 * 86_400_000_000).map(
    lambda after: datetime(2023, 11, 1, tzinfo=UTC) + timedelta(microseconds=after)
)
_CORNERS = st.sampled_from([parse_instant(f"{day}T{time}Z") for day in (
    "2024-01-31", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-29", "2024-03-30", "2024-03-31", "2024-04-30", "2024-05-31",
    "2025-02-28", "2025-03-28", "2025-03-31",
) for time in ("00:00:00", "00:00:00.000001", "11:00:00", "23:59:59.999999")])  # fmt: skip
_INSTANTS = st.one_of(_CORNERS, _ANY_DAY)
_ONE_ROW: Any = SimpleNamespace(starts=np.array([0]))


@pytest.mark.long
@settings(max_examples=examples(20), deadline=None)
@given(
    _INSTANTS,
    _INSTANTS,
    st.sampled_from(_AGES),
    st.sampled_from([None, "day", "week", "month", "quarter", "year"]),
    st.lists(st.floats(0, 1), max_size=6),
)
def test_a_line_turns_at_the_next_instant_and_at_none_before(
    time: datetime, as_of: datetime, age_text: str, align: Align | None, between: list[float]
) -> None:
    """Against the bound itself, before, at and between; for what it lets go now, unto the midnight at which it may go back."""
    age = parse_duration(age_text)

    def lets_go(instant: datetime) -> bool:
        return micros(time) < cut_off(instant, age, align)

    now = lets_go(as_of)
    looks = NextLooks(_ONE_ROW, as_of)
    row = np.array([micros(time)])
    looks.add_line(SelectorLine("", Reason.TOO_YOUNG, np.array([not now]), bound=TimeBound(row, age, align)))
    at = None if looks.least[0] == FOREVER else from_micros(int(looks.least[0]))
    assert at is None or at > as_of
    assert at is None or now or lets_go(at)
    last = at - TICK if at else as_of + timedelta(days=1500)
    inside = [as_of + (last - as_of) * part for part in between] + [as_of + timedelta(hours=hour) for hour in range(0, 120, 3)]
    assert all(lets_go(one) == now for one in [last, *inside] if one <= last)


def test_what_never_comes_is_never_looked_for() -> None:
    """A time beyond the calendar, and none at all."""
    times = np.array([FOREVER, micros(parse_instant("9999-12-31T23:00:00Z"))])
    for age in (Duration(months=1), Duration(days=30)):
        assert old_enough_at(times, age, None, AS_OF).tolist() == [FOREVER, FOREVER]


# --- each way in which time changes a verdict ---

TWO = "main: T1:APPEND@60d - T2:SNAPSHOT@50d - T3:SNAPSHOT@40d"
ALL = {"select": {"older_than": "1d"}}
FIVE, TEN = text_of(AS_OF + 5 * DAY), text_of(AS_OF + 10 * DAY)
RULE = {"name": "r", "reason": "law", "datasets": "*"}
UNTIL_FIVE, UNTIL_TEN = {"datasets": "*", "until": FIVE}, {"datasets": "*", "until": TEN}


def test_the_next_look_is_when_the_first_leaves_its_window() -> None:
    """Each dataset by its own window, which spares or is the rule; one that nobody can read never ends."""
    drawn, looks = [], dict[str, datetime | None]()
    for name, days, ends in (("s1", 55, 5), ("s2", 1, None), ("s3", None, None), ("r1", 45, 5), ("b1", 41, 1)):
        own = {"window.superseded-ms": str(days and days * 86_400_000)} | ({} if name == "r1" else {"window.spares": "true"})
        drawn.append(history(TWO, dataset=f"lake/{name}", attributes=own))
        looks[f"lake/{name}"] = AS_OF + ends * DAY + TICK if ends else None
    lines = {"s?": {"beyond": {"views": 1}}, "[rb]1": {"from_table": True}}
    rules = [
        Policy.model_validate({"name": key, "datasets": {"include": [f"lake/{key}"]}, "select": lines[key]}) for key in lines
    ]
    assert reevaluations(log_of(drawn), rules, [], AS_OF) == looks


@pytest.mark.parametrize(
    ("drawing", "policy", "holds", "expected"),
    [
        pytest.param(TWO, ALL, [], None, id="nothing waits"),
        pytest.param(TWO, {"select": "all"}, [], None, id="a policy without time"),
        pytest.param(TWO, {"select": {"older_than": "55d"}}, [], text_of(AS_OF + 5 * DAY + TICK), id="the next is old enough"),
        pytest.param(
            TWO, {"select": {"older_than": "55d", "window": "complete"}}, [], FIVE, id="the view at the cut-off is left"
        ),
        pytest.param(
            TWO, {"select": {"in_views_older_than": "55d"}}, [], text_of(AS_OF + 5 * DAY + TICK), id="a view is old enough"
        ),
        pytest.param(TWO, ALL, [UNTIL_TEN], TEN, id="a hold ends"),
        pytest.param(TWO, ALL, [UNTIL_TEN, UNTIL_FIVE, {"datasets": "*"}], FIVE, id="the first of several holds"),
        pytest.param(TWO, ALL, [UNTIL_TEN, {**UNTIL_FIVE, "datasets": "other/*"}], TEN, id="a hold on another dataset"),
        pytest.param(TWO, ALL, [{**RULE, "younger_than": "65d"}], text_of(AS_OF + 5 * DAY + TICK), id="a retain rule lets go"),
        pytest.param(
            TWO, {"select": {"older_than": {"age": "40d", "align": "month"}}}, [], "2026-04-10T00:00:00Z", id="a month begins"
        ),
        pytest.param(
            f"{TWO} | -: R1:RECORD@1d{{expires_at={FIVE}}}",
            {"select": {"older_than": {"age": "0s", "of": {"attribute": "expires_at"}}}},
            [],
            text_of(AS_OF + 5 * DAY + TICK),
            id="its own end comes",
        ),
        pytest.param(f"{TWO} | #v1=T1@+5d | #v2=T1", ALL, [UNTIL_TEN], FIVE, id="a tag expires"),
        pytest.param(f"{TWO} | #v1=T1@5d | #v2=T1", ALL, [], None, id="a tag that has expired, and one that never does"),
        # A month before the 29th, 30th and 31st of March is the 28th of February, each day from its first hour on.
        pytest.param("-: T1:RECORD@2026-02-28T12:00:00Z", "2026-03-28T00:00", [], "2026-03-28T12:00:00.000001Z", id="a month"),
        pytest.param("-: T1:RECORD@2026-02-28T12:00:00Z", "2026-03-28T13:00", [], "2026-03-29T00:00:00Z", id="it goes back"),
        pytest.param(
            "-: T1:RECORD@2026-02-28T12:00:00Z", "2026-03-29T01:00", [], "2026-03-29T12:00:00.000001Z", id="once more"
        ),
        pytest.param("-: T1:RECORD@2026-02-28T12:00:00Z", "2026-03-31T13:00", [], None, id="no more"),
        pytest.param("-: T1:RECORD@2026-01-30T12:00:00Z", "2026-02-01T00:00", [], "2026-03-01T00:00:00Z", id="no such day"),
    ],
)
def test_every_way_in_which_time_changes_a_verdict(
    drawing: str, policy: dict[str, Any] | str, holds: list[dict[str, Any]], expected: str | None
) -> None:
    """An instant in the place of a policy: that of the evaluation, by a policy of a month."""
    of_a_month = isinstance(policy, str)
    as_of = parse_instant(f"{policy}:00Z") if of_a_month else AS_OF
    shape = {"select": {"older_than": "1mo"}} if isinstance(policy, str) else policy
    rules = [Policy.model_validate({"name": "p", "datasets": {"include": ["*"]}, **shape})]
    found = reevaluations(log_of([history(drawing)]), rules, keepers_of(holds), as_of)
    assert [at and text_of(at) for at in found.values()] == [expected]
