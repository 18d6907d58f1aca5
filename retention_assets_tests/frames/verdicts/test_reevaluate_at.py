"""The next evaluation: nothing changes before it, and something changes at it.

Belongs here: the law on random histories, policies and instants, judged by the kernel itself at those instants; the inverse of
a bound; and the cases of the calendar that a random draw seldom meets.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_assets.exchange import read_log
from retention_assets.frames.arrays import NEVER
from retention_assets.frames.log import Log
from retention_assets.frames.verdicts.candidate_marks import candidate_marks, verdicts_and_reevaluation
from retention_assets.frames.verdicts.reevaluate_at import begins_to_hold, ceases_to_hold
from retention_assets.frames.verdicts.selectors import FOREVER, TimeBound, cut_off
from retention_assets.policy.durations import Duration, from_micros, micros, parse_duration, parse_instant, text_of
from retention_assets.policy.model import Hold, Policy
from retention_assets.policy.purge import purge_of
from retention_assets_tests.histories import AS_OF, History, history, random_histories, to_lines
from retention_assets_tests.policies import (
    Known,
    known_table,
    random_holds,
    random_known,
    random_limits,
    random_policies,
    with_purges,
)

TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)
Said = Mapping[str, list[tuple[str, str | None]]]


def said(log: Log, policies: Sequence[Policy], holds: Sequence[Hold], as_of: datetime, known: pa.Table | None = None) -> Said:
    """By dataset the verdicts and who has the credit."""
    marks = candidate_marks(log.transactions, log.datasets, policies, holds, as_of, known)
    found: dict[str, list[tuple[str, str | None]]] = {}
    names, verdicts, credit = (marks[name].to_pylist() for name in ("dataset", "verdict", "policy"))
    for dataset, verdict, policy in zip(names, verdicts, credit, strict=True):
        found.setdefault(dataset, []).append((verdict, policy))
    return found


def reevaluations(
    log: Log, policies: Sequence[Policy], holds: Sequence[Hold], as_of: datetime, known: pa.Table | None = None
) -> dict[str, datetime | None]:
    """By dataset the next evaluation."""
    _, found = verdicts_and_reevaluation(log.transactions, log.datasets, policies, holds, as_of, known)
    return {row["dataset"]: row["next_look"] for row in found.to_pylist()}


@pytest.fixture
def log_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Iterable[History]], Log]:
    """Histories as a log."""
    file = tmp_path_factory.mktemp("logs") / "log.jsonl"

    def read(drawn: Iterable[History]) -> Log:
        file.write_text("".join(f"{line}\n" for line in to_lines(drawn)) or "\n")
        return read_log(file)

    return read


# --- the law ---

# From before most transactions are old enough to after most are; the month before March is what bounds go back in.
_MOMENTS = [
    AS_OF + timedelta(days=days, hours=hours) for days in (-34, -12, -4, -3, -2, -1, 0, 1, 5, 30) for hours in (-12, -1, 0, 5)
]
# About the 28th of February: what a month's end lets go on the evenings of the 28th to 30th of March, and keeps in the mornings.
_FEBRUARY = AS_OF - 30 * DAY
_LAST_OF_MARCH = [AS_OF + timedelta(days=days, hours=hours) for days in (-3, -2, -1, 0) for hours in (-12, 1, 5, 11)]
# Instants at which a batch is judged again: each next evaluation and the microsecond before it, and some between.
_BETWEEN = 6


@dataclass
class Tally:
    """How many evaluations time asked for, and at how many of them nothing changed."""

    count: int = 0
    early: int = 0


def hold_the_law(
    log: Log,
    policies: Sequence[Policy],
    holds: Sequence[Hold],
    as_of: datetime,
    rng: random.Random,
    known: pa.Table | None = None,
) -> Tally:
    """Judge a log at many instants after `as_of`, and hold the next evaluations against what changed when."""
    found = reevaluations(log, policies, holds, as_of, known)
    assert all(at is None or at > as_of for at in found.values())
    ahead = sorted({at for at in found.values() if at})
    instants = {at - TICK for at in ahead} | set(ahead) | {as_of + TICK, as_of + 400 * DAY}
    instants |= {as_of + (max([*ahead, as_of + DAY]) - as_of) * rng.random() for _ in range(_BETWEEN)}
    before = said(log, policies, holds, as_of, known)
    tally = Tally(sum(at is not None for at in found.values()))
    for instant in sorted(instants - {as_of}):
        after = said(log, policies, holds, instant, known)
        for dataset, at in found.items():
            if at is None or instant < at:
                assert after[dataset] == before[dataset], (dataset, as_of, instant, at)
            elif instant == at:
                tally.early += after[dataset] == before[dataset]
    return tally


def drawn_policies(rng: random.Random, *, with_limits: bool) -> list[Policy]:
    """Policies over every key that decides."""
    shapes = random_policies(rng, rng.randint(1, 5))
    if not with_limits:
        return [Policy.model_validate({key: value for key, value in shape.items() if key != "limits"}) for shape in shapes]
    for shape in shapes:
        if rng.random() < 0.3:
            shape["limits"] = random_limits(rng)
    policies = [Policy.model_validate(shape) for shape in shapes]
    return [credited_first(rng), *policies] if rng.random() < 0.5 else policies


def credited_first(rng: random.Random) -> Policy:
    """What belongs to it counts for the others and does not change itself: only other rows show that a limit was passed."""
    types = rng.choice((["SNAPSHOT"], ["APPEND"], ["DELETE", "RECORD"], ["UPDATE", "OBJECT", "APPEND"]))
    shape = {"name": "first", "datasets": {"include": ["*"]}, "branches": {"reach": "any"}, "latest_view": "allow"}
    return Policy.model_validate({**shape, "select": {"types": types}})


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "with_limits", "early"), [*((n, True, 0.15) for n in range(6)), *((n, False, 0.04) for n in range(4))]
)
def test_nothing_changes_before_the_next_look(
    seed: int, with_limits: bool, early: float, log_of: Callable[[Iterable[History]], Log]
) -> None:
    """Whatever the histories, policies, holds and instants are; and at a next evaluation something does change, nearly always.

    Where policies have tiny limits, what begins at an instant is often undone by the limit that it passes.
    """
    rng = random.Random(seed)
    total = Tally()
    for _ in range(8):
        drawn = random_histories(rng, 40)
        log = log_of(drawn)
        policies = with_purges(rng, drawn_policies(rng, with_limits=with_limits))
        holds = [Hold.model_validate(shape) for shape in random_holds(rng, rng.randint(0, 2))]
        known = known_table(random_known(rng, drawn)) if rng.random() < 0.5 else None
        one = hold_the_law(log, policies, holds, rng.choice(_MOMENTS) + TICK * rng.choice((0, 0, 1, -1)), rng, known)
        total.count, total.early = total.count + one.count, total.early + one.early
    assert total.count > 20
    assert total.early <= early * total.count, total


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("at_months_ends", [True, False])
def test_nothing_changes_before_the_next_look_where_limits_are_passed(
    at_months_ends: bool, seed: int, log_of: Callable[[Iterable[History]], Log]
) -> None:
    """One limited policy or two and one that has the credit for some of what they count: so that a limit is all that turns.

    At months' ends they let go of the same rows several times, and what goes back may bring one below its limit.
    """
    rng = random.Random(f"{seed} {at_months_ends}")
    total = Tally()
    for _ in range(8):
        as_of, days = (_FEBRUARY, 3) if at_months_ends else (AS_OF, 30)
        log = log_of(random_histories(rng, 80 if at_months_ends else 40, as_of=as_of, days=days, largest=10))
        shapes: list[dict[str, Any]] = [
            {
                "name": f"p{number}",
                "datasets": {"include": rng.choice((["*"], ["*"], ["lake/*"]))},
                "branches": {"reach": rng.choice(("any", "live"))},
                "select": {"older_than": rng.choice(_MONTHLY if at_months_ends else _DAILY)},
                "latest_view": rng.choice(("allow", None)),
                "limits": rng.choice(({"transactions": rng.randint(1, 4)}, random_limits(rng))),
            }
            for number in range(rng.randint(1, 2))
        ]
        policies = [credited_first(rng), *(Policy.model_validate(shape) for shape in shapes)]
        one = hold_the_law(log, policies, [], rng.choice(_LAST_OF_MARCH), rng)
        total.count, total.early = total.count + one.count, total.early + one.early
    assert total.count > 20
    # At months' ends a policy often comes back below a limit for some rows of several: the evaluations that find nothing are many.
    assert total.early < total.count, total


_MONTHLY = [
    "1mo",
    "1mo",
    {"age": "1mo", "align": "day"},
    "30d",
    {"age": "1mo", "of": "opened"},
    {"age": "1mo", "of": "superseded"},
]
_DAILY = [
    "5d",
    "10d",
    "2w",
    "20d",
    {"age": "15d", "align": "day"},
    {"age": "10d", "of": "opened"},
    {"age": "10d", "of": "superseded"},
]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_what_is_not_looked_at_again_says_the_same_once_its_marks_are_made(
    seed: int, log_of: Callable[[Iterable[History]], Log]
) -> None:
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
    assert changed > 3


def marked_too(marks: pa.Table, known: Known) -> pa.Table:
    """What is known once the marks of an evaluation are made."""
    made: dict[str, frozenset[str]] = dict(known)
    for row in marks.to_pylist():
        if row["verdict"] == "mark":
            made[row["dataset"]] = made.get(row["dataset"], frozenset()) | {row["transaction"]}
    return known_table(made)


def test_what_an_evaluation_marks_can_free_a_limit_and_then_it_is_looked_at_again(
    log_of: Callable[[Iterable[History]], Log],
) -> None:
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


@pytest.mark.long
@settings(max_examples=1500, deadline=None)
@given(_INSTANTS, _INSTANTS, st.sampled_from(_AGES), st.sampled_from([None, "day"]), st.lists(st.floats(0, 1), max_size=6))
def test_a_line_turns_at_the_next_instant_and_at_none_before(
    time: datetime, as_of: datetime, age_text: str, align: str | None, between: list[float]
) -> None:
    """Against the bound itself, before, at and between."""
    age = parse_duration(age_text)
    turn = TimeBound(np.array([micros(time)]), age, align)

    def lets_go(instant: datetime) -> bool:
        return micros(time) < cut_off(instant, age, align)

    now, row = lets_go(as_of), np.array([0])
    (at,) = (ceases_to_hold if now else begins_to_hold)(turn, row, as_of)
    last = from_micros(int(at)) - TICK if at != FOREVER else as_of + timedelta(days=1500)
    if at != FOREVER:
        assert lets_go(from_micros(int(at))) != now
    inside = [as_of + (last - as_of) * part for part in between] + [
        as_of + timedelta(hours=hours) for hours in range(0, 120, 3)
    ]
    assert all(lets_go(one) == now for one in [last, *inside] if one <= last)


def test_what_never_comes_is_never_looked_for() -> None:
    """A time beyond the calendar, and none at all."""
    turn = TimeBound(np.array([FOREVER, micros(parse_instant("9999-12-31T23:00:00Z"))]), Duration(months=1))
    assert begins_to_hold(turn, np.array([0, 1]), AS_OF).tolist() == [FOREVER, FOREVER]
    assert ceases_to_hold(TimeBound(np.array([NEVER]), Duration(months=1)), np.array([0]), AS_OF).tolist() == [FOREVER]


# --- cases of the calendar ---


def next_of(log: Log, policy: dict[str, Any], as_of: str, holds: Sequence[dict[str, Any]] = ()) -> str | None:
    """The next evaluation at the one dataset of a log."""
    rules = [Policy.model_validate({"name": "p", "datasets": {"include": ["*"]}, **policy})]
    (found,) = reevaluations(log, rules, [Hold.model_validate(hold) for hold in holds], parse_instant(as_of)).values()
    return text_of(found) if found else None


@pytest.mark.parametrize(
    ("closed", "policy", "as_of", "expected"),
    [
        # Strictly before: at the very bound it is still kept.
        ("2026-01-10T12:00:00Z", {"older_than": "30d"}, "2026-01-11", "2026-02-09T12:00:00.000001Z"),
        ("2026-01-10T12:00:00Z", {"older_than": "30d"}, "2026-02-09T12:00:00Z", "2026-02-09T12:00:00.000001Z"),
        # Nothing is left to change.
        ("2026-01-10T12:00:00Z", {"older_than": "30d"}, "2026-02-09T12:00:00.000001Z", None),
        # To midnight: the next day has to be over.
        ("2026-01-10T12:00:00Z", {"older_than": {"age": "30d", "align": "day"}}, "2026-01-11", "2026-02-10T00:00:00Z"),
        ("2026-01-10T00:00:00Z", {"older_than": {"age": "30d", "align": "day"}}, "2026-01-11", "2026-02-10T00:00:00Z"),
        # February has no 30th: the first of March is a month after it, and the first instant that is.
        ("2026-01-30T12:00:00Z", {"older_than": "1mo"}, "2026-02-01", "2026-03-01T00:00:00Z"),
        # A month before the 29th, 30th and 31st of March is the 28th of February, each day from its first hour on.
        ("2026-02-28T12:00:00Z", {"older_than": "1mo"}, "2026-03-28", "2026-03-28T12:00:00.000001Z"),
        ("2026-02-28T12:00:00Z", {"older_than": "1mo"}, "2026-03-28T13:00:00Z", "2026-03-29T00:00:00Z"),
        ("2026-02-28T12:00:00Z", {"older_than": "1mo"}, "2026-03-29T01:00:00Z", "2026-03-29T12:00:00.000001Z"),
        ("2026-02-28T12:00:00Z", {"older_than": "1mo"}, "2026-03-31T13:00:00Z", None),
        # Two years after a leap day is the first instant of March, and a leap day is two years before the last of February.
        ("2024-02-29T12:00:00Z", {"older_than": "2y"}, "2026-01-01", "2026-03-01T00:00:00Z"),
        ("2022-02-28T12:00:00Z", {"older_than": "2y"}, "2024-02-28T13:00:00Z", "2024-02-29T00:00:00Z"),
    ],
)  # fmt: skip
def test_the_next_look_is_exact_in_the_calendar(
    closed: str, policy: dict[str, Any], as_of: str, expected: str | None, log_of: Callable[[Iterable[History]], Log]
) -> None:
    log = log_of([history(f"-: T1:RECORD@{closed}")])
    assert next_of(log, {"select": policy}, as_of) == expected


TWO = "main: T1:APPEND@60d - T2:SNAPSHOT@50d - T3:SNAPSHOT@40d"
ALL = {"select": {"older_than": "1d"}}
IN_TEN_DAYS = text_of(AS_OF + 10 * DAY)
UNTIL_TEN: dict[str, Any] = {"datasets": "*", "until": IN_TEN_DAYS}
UNTIL_FIVE: dict[str, Any] = {"datasets": "*", "until": text_of(AS_OF + 5 * DAY)}
INTERLEAVED = (
    "main: T1:SNAPSHOT@60d - T3:SNAPSHOT@50d - T5:SNAPSHOT@2d | dev: T2:SNAPSHOT@60d - T4:SNAPSHOT@50d - T6:SNAPSHOT@2d "
    "| > T1 T2 T3 T4 T5 T6"
)


@pytest.mark.parametrize(
    ("drawing", "policy", "holds", "expected"),
    [
        pytest.param(TWO, ALL, [], None, id="nothing waits"),
        pytest.param(TWO, ALL, [{"datasets": "*", "until": IN_TEN_DAYS}], IN_TEN_DAYS, id="a hold ends"),
        pytest.param(TWO, ALL, [{"datasets": "*", "transactions": ["T3"], "until": IN_TEN_DAYS}], None, id="it holds what is spared anyway"),
        pytest.param(TWO, ALL, [{"datasets": "*", "until": IN_TEN_DAYS}, {"datasets": "*"}], None, id="another hold never ends"),
        pytest.param(f"{TWO} | #v1=T1@+5d", ALL, [], text_of(AS_OF + 5 * DAY), id="a tag expires"),
        pytest.param(f"{TWO} | #v1=T1@+5d | #v2=T1", ALL, [], None, id="another tag never expires"),
        pytest.param(f"{TWO} | #v1=T1@+5d", ALL, [{"datasets": "*", "until": IN_TEN_DAYS}], IN_TEN_DAYS, id="the last of both"),
        pytest.param(f"{TWO} | #v1=T1@+5d", ALL, [UNTIL_TEN | {"transactions": ["T1"]}], IN_TEN_DAYS, id="the hold of both is the last"),
        pytest.param(f"{TWO} | #v1=T1@+15d", ALL, [UNTIL_TEN | {"transactions": ["T1"]}], text_of(AS_OF + 15 * DAY), id="the tag of both is"),
        pytest.param(TWO, ALL, [UNTIL_TEN | {"transactions": ["T1"]}, UNTIL_FIVE | {"transactions": ["T2"]}], UNTIL_FIVE["until"],
                     id="a hold ends, and another one is about something else"),
        pytest.param(TWO, ALL, [UNTIL_TEN | {"transactions": ["T*"]}, UNTIL_FIVE | {"transactions": ["T2"]}], IN_TEN_DAYS,
                     id="a hold ends within another one"),
        pytest.param(INTERLEAVED, ALL, [UNTIL_TEN | {"transactions": ["T3"]}], IN_TEN_DAYS, id="a hold on one of interleaved branches"),
        pytest.param(TWO, {"select": {"older_than": "55d", "window": "complete"}}, [], text_of(AS_OF + 5 * DAY), id="the view at the cut-off is left"),
        pytest.param(TWO, {"select": {"in_views_older_than": "55d"}}, [], text_of(AS_OF + 5 * DAY + TICK), id="a view is old enough"),
        pytest.param(TWO, {"select": {"older_than": "90d", "beyond": {"views": 3}}}, [], None, id="something else keeps it for ever"),
        pytest.param(TWO, {"select": "all"}, [], None, id="a policy without time"),
    ],
)  # fmt: skip
def test_every_way_in_which_time_changes_a_verdict(
    drawing: str,
    policy: dict[str, Any],
    holds: list[dict[str, Any]],
    expected: str | None,
    log_of: Callable[[Iterable[History]], Log],
) -> None:
    assert next_of(log_of([history(drawing)]), policy, text_of(AS_OF), holds) == expected


GIB = 2**30
LIMITED: dict[str, Any] = {"name": "limited", "datasets": {"include": ["*"]}}
OBJECTS: dict[str, Any] = {"name": "objects", "datasets": {"include": ["*"]}, "select": {"types": ["OBJECT"]}}
# What comes to count in 5 days belongs to the policy `objects`, and nothing changes about itself.
BY_COUNT = "-: R1:RECORD@40d | -: R2:RECORD@40d | -: O3:OBJECT@25d | -: O4:OBJECT@20d"
BY_BYTES = f"-: R1:RECORD@40d={3 * GIB} | -: R2:RECORD@40d={3 * GIB} | -: O3:OBJECT@25d={3 * GIB} | -: O4:OBJECT@20d={3 * GIB}"
IN_FIVE, IN_TEN = text_of(AS_OF + 5 * DAY + TICK), text_of(AS_OF + 10 * DAY + TICK)


@pytest.mark.parametrize(
    ("drawing", "limits", "expected"),
    [
        pytest.param(BY_COUNT, {"transactions": 1}, None, id="it is passed already"),
        pytest.param(BY_COUNT, {"transactions": 2}, IN_FIVE, id="the first one passes it"),
        pytest.param(BY_COUNT, {"transactions": 3}, IN_TEN, id="the second one"),
        pytest.param(BY_COUNT, {"transactions": 4}, None, id="all of them are within it"),
        pytest.param(BY_COUNT, {"fraction": 0.5}, IN_FIVE, id="half of the log"),
        pytest.param(BY_COUNT, {"fraction": 0.75}, IN_TEN, id="three quarters of it"),
        pytest.param(BY_BYTES, {"bytes": 6 * GIB - 1}, None, id="a byte too many already"),
        pytest.param(BY_BYTES, {"bytes": 6 * GIB}, IN_FIVE, id="9 GiB pass it"),
        pytest.param(BY_BYTES, {"bytes": 9 * GIB - 1}, IN_FIVE, id="9 GiB pass it by a byte"),
        pytest.param(BY_BYTES, {"bytes": 9 * GIB}, IN_TEN, id="9 GiB do not, 12 do"),
        pytest.param(BY_BYTES, {"bytes": 12 * GIB - 1}, IN_TEN, id="12 do by a byte"),
        pytest.param(BY_BYTES, {"bytes": 12 * GIB}, None, id="12 do not"),
        pytest.param(BY_BYTES, {"transactions": 3, "bytes": 9 * GIB - 1}, IN_FIVE, id="the first of two limits"),
    ],
)  # fmt: skip
def test_a_limit_is_passed_by_what_changes_nothing_about_itself(
    drawing: str, limits: dict[str, Any], expected: str | None, log_of: Callable[[Iterable[History]], Log]
) -> None:
    """Then the others of the policy are marked no more: the look is theirs. Alone, and beside a dataset with smaller sizes."""
    shapes = [OBJECTS, {**LIMITED, "select": {"older_than": "30d"}, "limits": limits}]
    policies = [Policy.model_validate(shape) for shape in shapes]
    other = history("-: R1:RECORD@40d=1 | -: O2:OBJECT@25d=1 | -: O3:OBJECT@1d | -: O4:OBJECT@1d", dataset="lake/a")
    alone = reevaluations(log_of([history(drawing)]), policies, [], AS_OF)
    beside = reevaluations(log_of([other, history(drawing)]), policies, [], AS_OF)
    assert alone["lake/d"] == beside["lake/d"] == (None if expected is None else parse_instant(expected))


def test_a_limit_is_passed_by_what_a_tag_gives_up_and_a_purge_had_anyway(log_of: Callable[[Iterable[History]], Log]) -> None:
    """A purge goes over the tag, so S2 does not change when that ends; but then it counts for the other policy, and D1 stays."""
    drawn = history("main: D1:DELETE@60d - S2:SNAPSHOT@50d - S3:SNAPSHOT@1d | #v1=S2@+5d", attributes={"realm": "acme"})
    limited = {**LIMITED, "select": {"older_than": "30d"}, "limits": {"transactions": 1}}
    policies = [purge_of("acme", Duration(days=7)), Policy.model_validate(limited)]
    log, at = log_of([drawn]), AS_OF + 5 * DAY
    assert said(log, policies, [], AS_OF)["lake/d"][0] == ("mark", "limited")
    assert said(log, policies, [], at)["lake/d"][0] == ("spare", "limited")
    assert reevaluations(log, policies, [], AS_OF) == {"lake/d": at}


@pytest.mark.parametrize(
    ("as_of", "transactions", "expected"),
    [
        # Both are a month old on the evening of the 29th, and O2, of the last of February, is not on the morning of the 30th.
        ("2026-03-29T13:00:00Z", 1, "2026-03-30T00:00:00Z"),
        # Within the limit it changes nothing for R1.
        ("2026-03-29T13:00:00Z", 2, None),
        # On the evening of the 31st it is a month old for good.
        ("2026-03-31T13:00:00Z", 1, None),
    ],
)
def test_at_a_months_end_a_policy_comes_back_below_its_limit(
    as_of: str, transactions: int, expected: str | None, log_of: Callable[[Iterable[History]], Log]
) -> None:
    """R1 is marked when O2, which belongs to another policy, does not count any more."""
    log = log_of([history("-: R1:RECORD@2026-02-01T12:00:00Z | -: O2:OBJECT@2026-02-28T12:00:00Z")])
    limited = {**LIMITED, "select": {"older_than": "1mo"}, "limits": {"transactions": transactions}}
    policies = [Policy.model_validate(shape) for shape in (OBJECTS, limited)]
    at = None if expected is None else parse_instant(expected)
    assert reevaluations(log, policies, [], parse_instant(as_of)) == {"lake/d": at}


def test_what_is_known_of_one_dataset_moves_no_other_look(log_of: Callable[[Iterable[History]], Log]) -> None:
    """One more may count in each of them. In `b` what counts now is marked before, so the limit is passed one row later."""
    drawing = "-: R1:RECORD@40d | -: O2:OBJECT@25d | -: O3:OBJECT@20d"
    log = log_of([history(drawing, dataset=f"lake/{name}") for name in "abc"])
    limited = {**LIMITED, "select": {"older_than": "30d"}, "limits": {"transactions": 1}}
    elsewhere = {**OBJECTS, "name": "elsewhere", "datasets": {"include": ["lake/b"]}}
    policies = [Policy.model_validate(shape) for shape in (OBJECTS, elsewhere, limited)]
    in_five, in_ten = AS_OF + 5 * DAY + TICK, AS_OF + 10 * DAY + TICK
    for names, expected in ((("R1",), in_ten), (("O2",), in_ten), (("O2", "O3"), None)):
        known = known_table({"lake/b": frozenset(names)})
        assert reevaluations(log, policies, [], AS_OF, known) == {"lake/a": in_five, "lake/b": expected, "lake/c": in_five}
