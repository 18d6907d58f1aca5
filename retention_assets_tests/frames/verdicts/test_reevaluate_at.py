"""The next look: nothing changes before it, and something changes at it.

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
from retention_assets.frames.verdicts.selectors import FOREVER, TimeBound, cut_off
from retention_assets.frames.verdicts.turning_times import begins_to_hold, ceases_to_hold
from retention_assets.policy.durations import Duration, from_micros, micros, parse_duration, parse_instant, text_of
from retention_assets.policy.model import Hold, Policy
from retention_assets_tests.histories import AS_OF, History, history, random_histories, to_lines
from retention_assets_tests.policies import random_holds, random_policies

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


def looks(log: Log, policies: Sequence[Policy], holds: Sequence[Hold], as_of: datetime) -> dict[str, datetime | None]:
    """By dataset the next look."""
    _, found = verdicts_and_reevaluation(log.transactions, log.datasets, policies, holds, as_of)
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
# Instants at which a batch is judged again: each next look and the microsecond before it, and some between.
_BETWEEN = 6


@dataclass
class Tally:
    """How many next looks there were, and at how many of them nothing changed."""

    looks: int = 0
    early: int = 0


def hold_the_law(log: Log, policies: Sequence[Policy], holds: Sequence[Hold], as_of: datetime, rng: random.Random) -> Tally:
    """Judge a log at many instants after `as_of`, and hold the next looks against what changed when."""
    found = looks(log, policies, holds, as_of)
    assert all(at is None or at > as_of for at in found.values())
    known = sorted({at for at in found.values() if at})
    instants = {at - TICK for at in known} | set(known) | {as_of + TICK, as_of + 400 * DAY}
    instants |= {as_of + (max([*known, as_of + DAY]) - as_of) * rng.random() for _ in range(_BETWEEN)}
    before = said(log, policies, holds, as_of)
    tally = Tally(sum(at is not None for at in found.values()))
    for instant in sorted(instants - {as_of}):
        after = said(log, policies, holds, instant)
        for dataset, at in found.items():
            if at is None or instant < at:
                assert after[dataset] == before[dataset], (dataset, as_of, instant, at)
            elif instant == at:
                tally.early += after[dataset] == before[dataset]
    return tally


def drawn_policies(rng: random.Random, *, with_limits: bool) -> list[Policy]:
    """Policies over every key that decides."""
    shapes = random_policies(rng, rng.randint(1, 5))
    return [Policy.model_validate({k: v for k, v in shape.items() if with_limits or k != "limits"}) for shape in shapes]


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "with_limits", "early"), [*((n, True, 0.15) for n in range(8)), *((n, False, 0.02) for n in range(5))]
)
def test_nothing_changes_before_the_next_look(
    seed: int, with_limits: bool, early: float, log_of: Callable[[Iterable[History]], Log]
) -> None:
    """Whatever the histories, policies, holds and instants are; and at a next look something does change, nearly always.

    Where policies have tiny limits, what begins at an instant is often undone by the limit that it passes.
    """
    rng = random.Random(seed)
    total = Tally()
    for _ in range(8):
        log = log_of(random_histories(rng, 40))
        policies = drawn_policies(rng, with_limits=with_limits)
        holds = [Hold.model_validate(shape) for shape in random_holds(rng, rng.randint(0, 2))]
        one = hold_the_law(log, policies, holds, rng.choice(_MOMENTS) + TICK * rng.choice((0, 0, 1, -1)), rng)
        total.looks, total.early = total.looks + one.looks, total.early + one.early
    assert total.looks > 20
    assert total.early <= early * total.looks, total


def test_what_an_evaluation_marks_can_free_a_limit_and_then_it_is_looked_at_again(
    log_of: Callable[[Iterable[History]], Log],
) -> None:
    """Three are too many for `few`, of which `old` marks two; with those in the ledger the third is within the limit."""
    drawing = "-: T1:RECORD@40d | -: T2:RECORD@40d | -: T3:RECORD@4d | -: T4:RECORD@1d"
    log = log_of([history(drawing)])
    shapes: list[dict[str, Any]] = [
        {"name": "few", "datasets": {"include": ["*"]}, "select": {"older_than": "2d"}, "limits": {"transactions": 2}},
        {"name": "old", "datasets": {"include": ["*"]}, "select": {"older_than": "30d"}},
    ]
    policies = [Policy.model_validate(shape) for shape in shapes]

    def judged(known: pa.Table | None) -> tuple[list[str], bool]:
        marks, found = verdicts_and_reevaluation(log.transactions, log.datasets, policies, [], AS_OF, known)
        return marks["verdict"].to_pylist(), found["again"][0].as_py()

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
    """The next look at the one dataset of a log."""
    rules = [Policy.model_validate({"name": "p", "datasets": {"include": ["*"]}, **policy})]
    (found,) = looks(log, rules, [Hold.model_validate(hold) for hold in holds], parse_instant(as_of)).values()
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
