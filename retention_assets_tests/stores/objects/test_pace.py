"""So many objects a second, and half as many when a store says that it is too much."""

import pytest

from retention_assets.clock import Moment
from retention_assets.stores.places import protocol
from retention_assets.stores.places.protocol import DeletionPace


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(protocol, "moment", lambda: Moment(0, 1000 + sum(waits)))
    monkeypatch.setattr(protocol, "sleep", wait)
    return waits


def test_the_first_goes_at_once_and_the_next_when_its_turn_has_come(slept: list[float]) -> None:
    turns = DeletionPace(100)
    for _ in range(3):
        turns.wait(50)
    assert slept == [0.5, 0.5]


def test_without_a_limit_nobody_waits(slept: list[float]) -> None:
    turns = DeletionPace(0)
    for _ in range(3):
        turns.wait(1_000_000)
    assert slept == []


@pytest.mark.parametrize(("rate", "rates"), [(3000, [1500, 750, 375]), (0, [1750, 875, 437.5]), (3, [1.5, 1, 1])])
def test_whoever_is_told_to_slow_down_halves(rate: float, rates: list[float]) -> None:
    turns, seen = DeletionPace(rate), list[float]()
    for _ in rates:
        turns.halve()
        seen.append(turns.rate)
    assert seen == rates
