"""Visibility marks of many datasets at once, on both databases: they only rise, whoever raises them at the same time."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from retention_assets.ledger import Ledger, Raise, raise_by, rule_faults
from retention_assets.ledger.invariants import visibility_rises
from retention_assets.policy.durations import Duration
from retention_assets_tests.ledger.states import T0, raise_visibility

DAY = timedelta(days=1)
NAMES = [f"lake/d{number}" for number in range(50)]


def raises(days: int, names: list[str] = NAMES) -> dict[str, Raise]:
    return {name: Raise(T0 + days * DAY, f"to day {days}") for name in names}


def advances(ledger: Ledger) -> int:
    return sum('"ADVANCE"' in line for line in ledger.audit_lines())


def faults(ledger: Ledger) -> list[object]:
    """What the whole record, the look before a sweep and the checks have to say."""
    with ledger.database.reading() as connection:
        return [*ledger.verify().faults, *rule_faults(connection), *visibility_rises(connection)]


def test_many_marks_rise_at_once_and_each_has_its_act(ledger: Ledger) -> None:
    assert ledger.visibility.raise_to(raises(1), "ann") == dict.fromkeys(NAMES, T0 + DAY)
    assert advances(ledger) == len(NAMES)
    assert faults(ledger) == []


def test_where_nothing_rises_nothing_is_written(ledger: Ledger) -> None:
    ledger.visibility.raise_to(raises(2), "ann")
    before = ledger.verify().rows
    assert (
        ledger.visibility.raise_to(raises(2), "bob")
        == ledger.visibility.raise_to(raises(1), "bob")
        == dict.fromkeys(NAMES, T0 + 2 * DAY)
    )
    assert ledger.visibility.raise_to({}, "bob") == {}
    assert ledger.verify().rows == before


def test_only_those_rise_that_are_lower(ledger: Ledger) -> None:
    ledger.visibility.raise_to(raises(5, NAMES[:3]), "ann")
    after = ledger.visibility.raise_to(raises(4, NAMES[:6]), "bob")
    assert [after[name] for name in NAMES[:6]] == [T0 + 5 * DAY] * 3 + [T0 + 4 * DAY] * 3
    assert advances(ledger) == 6
    assert faults(ledger) == []


def test_twenty_who_raise_the_same_marks_end_at_the_highest(ledger: Ledger) -> None:
    seed = random.Random(17)
    wanted = [
        [{name: Raise(T0 + seed.randrange(1000) * DAY, None) for name in seed.sample(NAMES[:8], 5)} for _ in range(4)]
        for _ in range(20)
    ]

    def raiser(number: int) -> bool:
        return all(
            found[name] >= to.visible_from
            for some in wanted[number]
            for found in (ledger.visibility.raise_to(some, f"raiser {number}"),)
            for name, to in some.items()
        )

    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(raiser, range(20)))
    highest: dict[str, object] = {}
    for some in (one for mine in wanted for one in mine):
        for name, to in some.items():
            highest[name] = max(to.visible_from, highest.get(name, to.visible_from))  # type: ignore[call-overload]
    assert ledger.visibility.of_all() == highest
    assert faults(ledger) == []


def test_clocks_that_are_months_wrong_hide_nothing_that_is_current(ledger: Ledger) -> None:
    """Databend's notes: a marker whose clock is two months ahead; and one that is two months behind."""
    month, newest = Duration(days=30), T0
    right = raise_by(month, T0 + DAY, newest)
    assert right.visible_from == T0 - 29 * DAY
    hurried = raise_by(month, T0 + 61 * DAY, newest)
    assert hurried.visible_from == newest
    ledger.visibility.raise_to({"lake/d": right}, "right")
    ledger.visibility.raise_to({"lake/d": hurried}, "two months ahead")
    slow = raise_by(month, T0 - 60 * DAY, newest)
    assert ledger.visibility.raise_to({"lake/d": slow}, "two months behind") == {"lake/d": newest}
    # What is written after, by clocks that are right again, is readable at once.
    assert ledger.visibility.of("lake/d") == newest
    assert faults(ledger) == []


def test_the_marker_of_databends_page(ledger: Ledger) -> None:
    """Insert if it does not exist, update if it is less, leave it otherwise; the effective value is returned each time."""
    assert ledger.visibility.of("lake/d") is None
    steps = [(1, 1), (3, 3), (2, 3), (3, 3), (4, 4)]
    for wanted, effective in steps:
        assert raise_visibility(ledger, "lake/d", T0 + wanted * DAY, "call system$retention_mark") == T0 + effective * DAY
    assert advances(ledger) == 3
    assert faults(ledger) == []
