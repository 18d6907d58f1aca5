"""The frame of orders about tables, with an order whose steps are given: when it looks again, when it acts, and what a fault ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from retention_assets.errors import Withheld
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import SweptTarget, Target, always
from retention_assets.stores.table_order import ATTEMPTS, TableOrder

TARGETS = [Target("a"), Target("b")]


@dataclass
class Scripted(TableOrder):
    lost_races: int = 0
    fails_at: str = ""
    fault: Exception = field(default_factory=lambda: KeyError("x"))
    steps: list[str] = field(default_factory=list)

    def decide(self, targets: Sequence[Target]) -> bool:
        self.step("decide")
        self.going = {target.transaction: target for target in targets if target.transaction not in self.outcomes}
        return bool(self.going)

    def commit(self) -> bool:
        self.step("commit")
        self.in_doubt = True
        return self.steps.count("commit") > self.lost_races

    def act(self) -> None:
        self.settle(["a"], self.order.done)
        self.step("act")
        self.settle(["b"], self.order.done)

    def step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.fails_at:
            raise self.fault


def outcomes(answers: Sequence[SweptTarget]) -> list[Outcome]:
    return [answer.outcome for answer in answers]


@pytest.mark.parametrize("lost", [0, 1, ATTEMPTS - 1, ATTEMPTS])
def test_a_lost_race_is_looked_at_again_a_few_times(lost: int) -> None:
    order = Scripted(Order.DELETE, always, lost)
    answers, looks = order.run(TARGETS), min(lost + 1, ATTEMPTS)
    won = lost < ATTEMPTS
    assert order.steps == [*["decide", "commit"] * looks, *(["act"] if won else [])]
    assert outcomes(answers) == [Outcome.DELETED if won else Outcome.FAILED] * 2
    assert won or "other writers committed during each of 5 attempts" in str(answers[0].error)


@pytest.mark.parametrize(
    ("at", "order", "begun", "expected"),
    [
        ("decide", Order.SET_ASIDE, False, [Outcome.FAILED, Outcome.FAILED]),
        # what may be at its other place already stays begun
        ("decide", Order.SET_ASIDE, True, [Outcome.WITHHELD, Outcome.WITHHELD]),
        ("decide", Order.DELETE, True, [Outcome.FAILED, Outcome.FAILED]),
        # the first outcome of a target stands
        ("act", Order.SET_ASIDE, False, [Outcome.SET_ASIDE, Outcome.WITHHELD]),
        ("act", Order.DELETE, False, [Outcome.DELETED, Outcome.FAILED]),
    ],
)
def test_whatever_fails_is_an_outcome_of_what_has_none(at: str, order: Order, begun: bool, expected: list[Outcome]) -> None:
    answers = Scripted(order, always, fails_at=at).run([Target("a", begun_earlier=begun), Target("b")])
    assert outcomes(answers) == expected
    assert answers[1].error == "KeyError: 'x'"


def test_without_a_permit_the_rest_is_withheld() -> None:
    answers = Scripted(Order.DELETE, always, fails_at="act", fault=Withheld("not any more")).run(TARGETS)
    assert outcomes(answers) == [Outcome.DELETED, Outcome.WITHHELD]
    assert answers[1].error == "not any more"


def test_nothing_is_done_where_everything_has_its_outcome() -> None:
    order = Scripted(Order.DELETE, always)
    order.settle(["a", "b"], Outcome.SPARED, "needed")
    assert outcomes(order.run(TARGETS)) == [Outcome.SPARED] * 2
    assert order.steps == ["decide"]
