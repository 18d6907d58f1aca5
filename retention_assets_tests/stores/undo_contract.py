"""The contract of stores that can set data aside (`undo`), beside the one that every store passes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import Permit, Remains, Target, always
from retention_assets_tests.stores.contract import Environment, Permits, with_data


class UndoContract:
    """Promises of stores that can set data aside (`undo`); a second base of their contract's subclass."""

    @pytest.fixture
    def undo(self, environment: Environment, ids: dict[str, str]) -> "Undo":
        return Undo(environment, [ids["T1"], ids["T2"]])

    @pytest.mark.usefixtures("ids")
    def test_it_says_that_it_can_and_leaves_nothing_behind(self, environment: Environment) -> None:
        store, before = environment.store(), environment.everything()
        assert (store.settings.undo_fault, store.undo_fault()) == (None, None)
        assert environment.everything() == before

    def test_what_is_set_aside_is_out_of_sight_and_comes_back_to_the_byte(self, environment: Environment, undo: "Undo") -> None:
        before, stays = undo.before, undo.before.keys() - undo.owned
        listed = with_data(environment.store(), undo.dataset)
        for begun in (False, True):
            assert undo.order(Order.SET_ASIDE, begun) == {Outcome.SET_ASIDE: sum(len(before[place]) for place in undo.owned)}
            assert environment.data() == {place: before[place] for place in stays}
            assert with_data(environment.store(), undo.dataset) == listed - set(undo.targets)
        assert set(undo.remains().values()) <= {Remains.NOTHING, Remains.UNKNOWN}
        for begun in (False, True):
            assert undo.order(Order.RESTORE, begun) == {Outcome.RESTORED: 0}
            assert environment.data() == before
            assert with_data(environment.store(), undo.dataset) == listed

    def test_what_is_deleted_for_good_frees_what_was_said_and_does_not_come_back(
        self, environment: Environment, undo: "Undo"
    ) -> None:
        freed = undo.order(Order.SET_ASIDE)[Outcome.SET_ASIDE]
        out_of_sight = environment.data()
        assert undo.order(Order.DELETE_ASIDE) == {Outcome.DELETED: freed}
        # a killed sweep has counted none of its bytes
        assert undo.order(Order.DELETE_ASIDE, begun=True) == {Outcome.ALREADY_GONE: freed if environment.recounts else 0}
        # without an order that had begun: something else took it
        assert undo.order(Order.DELETE_ASIDE) in ({Outcome.FAILED: 0}, {Outcome.ALREADY_GONE: 0})
        assert undo.order(Order.RESTORE) == {Outcome.FAILED: 0}
        assert undo.order(Order.SET_ASIDE, begun=True) == {Outcome.ALREADY_GONE: 0}
        assert environment.data() == out_of_sight

    def test_what_was_not_set_aside_is_never_deleted_as_if_it_were(self, environment: Environment, undo: "Undo") -> None:
        assert undo.order(Order.DELETE_ASIDE) in ({undo.missing: 0}, {Outcome.SPARED: 0})
        assert environment.data() == undo.before

    def test_nothing_comes_back_onto_what_is_there_again(self, environment: Environment, undo: "Undo") -> None:
        undo.order(Order.SET_ASIDE)
        for name in undo.targets:
            environment.occupy(undo.dataset, name)
        occupied = environment.everything()
        assert undo.order(Order.RESTORE) == {Outcome.FAILED: 0}
        assert environment.everything() == occupied
        assert undo.order(Order.DELETE_ASIDE).keys() == {Outcome.DELETED}
        assert environment.data().items() >= {place: occupied[place] for place in undo.owned & occupied.keys()}.items()

    def test_a_transaction_that_has_changed_is_not_set_aside(self, environment: Environment, undo: "Undo") -> None:
        undo.order(Order.SET_ASIDE)
        undo.order(Order.RESTORE)
        for name in undo.targets:
            environment.occupy(undo.dataset, name)
        before = environment.everything()
        assert undo.order(Order.SET_ASIDE) == {Outcome.SPARED: 0}
        assert environment.everything() == before

    @pytest.mark.parametrize("act", [Order.SET_ASIDE, Order.RESTORE, Order.DELETE_ASIDE])
    def test_without_a_permit_nothing_moves_and_orders_are_given_again_until_it_lasts(
        self, environment: Environment, undo: "Undo", act: Order
    ) -> None:
        """Each transaction is whole at one of its two places, unless it is being deleted for good."""
        if act is not Order.SET_ASIDE:
            undo.order(Order.SET_ASIDE)
        before = environment.everything()
        assert undo.order(act, permit=Permits(0)) == {Outcome.WITHHELD: 0}
        assert environment.everything() == before
        for times in range(1, 99):
            outcomes = undo.order(act, begun=True, permit=Permits(times))
            in_sight = environment.data().keys() & undo.owned
            wholes = [environment.owned(undo.dataset, name) & in_sight for name in undo.targets]
            assert act is Order.DELETE_ASIDE or all(places in (set(), *undo.each) for places in wholes)
            if Outcome.WITHHELD not in outcomes:
                break
        assert environment.data().keys() == undo.before.keys() - (undo.owned if act is not Order.RESTORE else set())


class Undo:
    """Two transactions of a dataset, as planned, and orders about them."""

    def __init__(self, environment: Environment, names: Sequence[str]) -> None:
        self.environment, self.dataset, self.before = environment, environment.datasets[0], environment.data()
        self.each = [environment.owned(self.dataset, name) for name in names]
        self.owned = set().union(*self.each)
        self.missing = Outcome.FAILED if environment.misses_trash else Outcome.ALREADY_GONE
        prepared = environment.store().prepare(self.dataset, names)
        self.targets = {
            one.transaction: Target(one.transaction, one.note, place_known=True, aside=f"7/{number}")
            for number, one in enumerate(prepared)
        }

    def order(self, order: Order, begun: bool = False, permit: Permit = always) -> dict[Outcome, int]:
        """Give an order; return the bytes by outcome."""
        targets = [replace(target, begun_earlier=begun) for target in self.targets.values()]
        store = self.environment.store()
        results = store.carry_out(order, self.dataset, targets, 2, permit)
        assert {result.transaction for result in results} == self.targets.keys()
        self.error = " ".join(result.error or "" for result in results)
        assert self.error or not {result.outcome for result in results} & {Outcome.FAILED, Outcome.SPARED, Outcome.WITHHELD}
        return {one.outcome: sum(each.bytes for each in results if each.outcome is one.outcome) for one in results}

    def remains(self) -> Mapping[str, Remains]:
        store = self.environment.store()
        return store.remains(self.dataset, [replace(target, begun_earlier=True) for target in self.targets.values()])
