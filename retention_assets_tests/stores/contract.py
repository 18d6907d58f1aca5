"""The contract that every store passes (stores/protocol.py), whatever it keeps its data in.

Belongs here: promises that hold for all stores, in their words alone. A kind of store joins with an `Environment` of its own and
a subclass of `Contract` whose fixture `environment` gives one, empty and fresh for each test:

    class TestFilesStore(Contract):
        @pytest.fixture
        def environment(self, tmp_path: Path) -> Environment:
            return LocalFiles(tmp_path)

Does not belong here: what one kind promises beyond it.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from operator import attrgetter
from threading import Lock

import pytest

from retention_assets.clock import now
from retention_assets.errors import Withheld
from retention_assets.frames import LINES, sound_log
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import parse_duration
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import (
    Only,
    Permit,
    Reads,
    Remains,
    Store,
    SweptTarget,
    Target,
    always,
    data_finder,
    is_same_place,
    outside_times,
)

CHAIN = ("T1", "T2", "T3", "T4", "T5")
DRAWN = "main: " + " - ".join(f"{name}:SNAPSHOT@{30 - age}d" for age, name in enumerate(CHAIN))
# public names of the base of stores: all, those that are facts, and orders
METHODS = {name for name in vars(Store) if not name.startswith("_")} | {"settings"}
FACTS = ("log_is_complete", "reads", "guards", "shares_data", "drops_refs", "parts_at", "expiry")
ORDERS = {"sweep", "carry_out", "expire", "postpone"}


def facts_of(store: Store) -> dict[str, object]:
    return {name: _fact(name, store) for name in FACTS}


def _fact(name: str, store: Store) -> object:
    return attrgetter(name)(store)


def write_chains(environment: "Environment") -> dict[str, str]:
    """Datasets of one branch each; the ids of the first one by their drawn ones."""
    first, *_ = [environment.write(dataset, DRAWN) for dataset in environment.datasets]
    return first


class Environment(ABC):
    """The data of one store: it writes histories with real bytes, and looks at them without the store."""

    # Names of datasets as the store gives them, sorted: three, or as many as one such store can have.
    datasets: tuple[str, ...]
    # Its transactions are independent of each other (RECORDs): none has a parent, and no branch a head.
    independent: bool = False
    # A server with a clock is behind it.
    has_clock: bool = False
    # Bytes that a killed order deleted for good are counted by the next one.
    recounts: bool = True
    # It fails a target that is not in the trash although nobody began to delete it.
    misses_trash: bool = True
    # A transaction can be made again only with its whole dataset.
    made_together: bool = False
    # A restored transaction is pinned until somebody ends that.
    pins_restored: bool = False
    # Further keys of a policy, without which it selects nothing that lost its neighbours.
    policy: str = ""
    # Name that the store gives the branch of a dataset.
    branch: str = "main"

    @abstractmethod
    def store(self) -> Store:
        """The store, opened anew on what is there."""

    @abstractmethod
    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        """Write a dataset with this history (histories.py; SNAPSHOTs on one branch), with bytes; return the store's ids by drawn ones."""

    @abstractmethod
    def commit(self, dataset: str) -> str:
        """Add a transaction at the head of a dataset that was written; return its id."""

    @abstractmethod
    def data(self) -> dict[str, bytes]:
        """Return everything that a sweep could delete, by its place."""

    @abstractmethod
    def everything(self) -> dict[str, bytes]:
        """Return everything that the store keeps, the records of its histories included."""

    @abstractmethod
    def owned(self, dataset: str, transaction: str) -> set[str]:
        """Return the places in `data` that must go with this transaction alone; at least one until it is swept."""

    def reached(self, dataset: str, transaction: str) -> set[str]:
        """Return the places in `data` that it needs, alone or together with others."""
        return self.owned(dataset, transaction)

    def reads(self) -> Mapping[str, object]:
        """Return the rows that another reader reads of each transaction of the first dataset; empty if there is no such reader."""
        return {}

    def occupy(self, dataset: str, transaction: str) -> None:
        """Put something else at the place of a set aside transaction. Only asked of stores that can set aside."""
        raise NotImplementedError

    def make_again(self, dataset: str, transaction: str) -> None:
        """Make another transaction of this name; if that needs a whole dataset, make that one from the drawing of a chain."""
        raise NotImplementedError

    def drop(self, dataset: str) -> None:
        """Remove a dataset, but not its trash."""
        raise NotImplementedError

    def trash(self) -> set[str]:
        """Return the places in the trash. Only asked of stores that can set aside."""
        raise NotImplementedError

    @abstractmethod
    def broken(self, dataset: str, transaction: str) -> AbstractContextManager[None]:
        """Keep the data that this transaction owns from being deleted while the context lasts."""


@pytest.mark.usefixtures("ids")
class Contract:
    @pytest.fixture
    def ids(self, environment: Environment) -> dict[str, str]:
        return write_chains(environment)

    def test_it_speaks_the_protocol(self, environment: Environment) -> None:
        store = environment.store()
        assert {dataset.partition("/")[0] for dataset in environment.datasets} == {store.name}

    def test_a_store_that_is_open_travels_and_answers_the_same(self, environment: Environment) -> None:
        store = environment.store()
        answers = (store.name, facts_of(store), store.datasets())
        travelled: Store = pickle.loads(pickle.dumps(store))
        assert (travelled.name, facts_of(travelled), travelled.datasets()) == answers
        assert travelled.read(environment.datasets).equals(store.read(environment.datasets))

    def test_every_dataset_is_found_and_read_as_it_was_written(self, environment: Environment, ids: dict[str, str]) -> None:
        store = environment.store()
        assert store.datasets() == list(environment.datasets)
        lines = store.read(environment.datasets)
        assert lines.schema == LINES
        log = sound_log(lines)
        assert log.datasets["fault"].to_pylist() == [None] * len(environment.datasets)
        rows = [row for row in log.transactions.to_pylist() if row["dataset"] == environment.datasets[0]]
        assert [row["transaction"] for row in rows] == [ids[name] for name in CHAIN]
        branched = not environment.independent
        assert [row["parent"] for row in rows] == [None, *(ids[name] if branched else None for name in CHAIN[:-1])]
        assert [row["heads"] for row in rows] == [[], [], [], [], [environment.branch] if branched else []]

    def test_the_time_that_it_tells_is_the_present_of_its_server(self, environment: Environment) -> None:
        """Files on this machine have no clock of their own, and tell none."""
        store = environment.store()
        told = list(outside_times([store]))
        assert len(told) == len(list(outside_times([RecordingStore(store)]))) == environment.has_clock
        assert all(abs(at - now()) < timedelta(minutes=5) for at in told)

    def test_only_what_was_asked_for_is_read(self, environment: Environment) -> None:
        lines = environment.store().read([environment.datasets[-1], f"{environment.store().name}/not-there"])
        assert set(lines["dataset"].to_pylist()) == {environment.datasets[-1]}

    def test_nothing_is_read_when_nothing_is_asked_for(self, environment: Environment) -> None:
        assert environment.store().read([]).equals(LINES.empty_table())
        assert environment.store().shares([]) == []

    def test_shares_hold_each_dataset_once(self, environment: Environment) -> None:
        store = environment.store()
        asked = [*environment.datasets, f"{store.name}/not-there"]
        assert sorted(dataset for share in store.shares(asked) for dataset in share) == sorted(asked)

    def test_a_token_stays_until_the_history_changes(self, environment: Environment) -> None:
        store, (changed, *_) = environment.store(), environment.datasets
        before = store.tokens(environment.datasets)
        assert set(before) == set(environment.datasets)
        assert environment.store().tokens(environment.datasets) == before
        environment.commit(changed)
        assert store.tokens([changed])[changed] != before[changed]

    def test_what_is_not_there_has_no_token(self, environment: Environment) -> None:
        assert environment.store().tokens([f"{environment.store().name}/not-there"]) == {}

    def test_what_was_committed_after_opening_is_read(self, environment: Environment) -> None:
        store, (changed, *_) = environment.store(), environment.datasets
        assert len(sound_log(store.read([changed])).transactions) == len(CHAIN)
        new = environment.commit(changed)
        assert sound_log(store.read([changed])).transactions["transaction"].to_pylist()[-1] == new

    def test_reading_and_preparing_change_nothing(self, environment: Environment, ids: dict[str, str]) -> None:
        before, store = environment.everything(), environment.store()
        names = store.datasets()
        store.shares(names)
        store.read(names)
        store.tokens(names)
        prepared = store.prepare(names[0], [*ids.values(), "no-such-transaction"])
        assert [one.transaction for one in prepared] == [*ids.values(), "no-such-transaction"]
        assert environment.everything() == before

    # One target is one part, however many there may be.
    @pytest.mark.parametrize(
        ("chosen", "parallelism"), [(("T1",), 1), (("T2",), 4), (CHAIN[:4], 1), (CHAIN[:4], 4), (("T4", "T1"), 4)]
    )
    def test_a_sweep_deletes_what_its_targets_own_and_nothing_else(
        self, environment: Environment, ids: dict[str, str], chosen: tuple[str, ...], parallelism: int
    ) -> None:
        before, dataset = environment.data(), environment.datasets[0]
        gone = set[str]().union(*(environment.owned(dataset, ids[name]) for name in chosen))
        swept = _sweep(environment.store(), dataset, [ids[name] for name in chosen], parallelism)
        assert {one.transaction: one.outcome for one in swept} == {ids[name]: Outcome.DELETED for name in chosen}
        assert environment.data() == {place: content for place, content in before.items() if place not in gone}
        assert gone
        assert sum(one.bytes for one in swept) == sum(len(before[place]) for place in gone)

    def test_a_prepared_transaction_frees_what_was_prepared(self, environment: Environment, ids: dict[str, str]) -> None:
        store, dataset = environment.store(), environment.datasets[0]
        [prepared] = store.prepare(dataset, [ids["T1"]])
        [swept] = _sweep(store, dataset, [ids["T1"]])
        assert prepared.bytes in (None, swept.bytes)

    def test_sweeping_twice_frees_nothing_twice(self, environment: Environment, ids: dict[str, str]) -> None:
        dataset, chosen = environment.datasets[0], [ids["T1"], ids["T2"]]
        _sweep(environment.store(), dataset, chosen)
        before = environment.data()
        again = _sweep(environment.store(), dataset, chosen)
        assert {(one.transaction, one.outcome, one.bytes) for one in again} == {
            (name, Outcome.ALREADY_GONE, 0) for name in chosen
        }
        assert environment.data() == before

    def test_what_has_data_is_what_was_not_deleted(self, environment: Environment, ids: dict[str, str]) -> None:
        dataset, before = environment.datasets[0], environment.everything()
        listed = with_data(environment.store(), dataset)
        # A store that can't tell finds none.
        assert listed in (set(ids.values()), set())
        assert environment.everything() == before
        _sweep(environment.store(), dataset, [ids["T1"], ids["T2"]])
        assert with_data(environment.store(), dataset) == listed - {ids["T1"], ids["T2"]}

    def test_an_unknown_transaction_is_an_outcome_and_deletes_nothing(self, environment: Environment) -> None:
        before = environment.everything()
        [swept] = _sweep(environment.store(), environment.datasets[0], ["no-such-transaction"])
        assert swept.outcome in (Outcome.ALREADY_GONE, Outcome.FAILED)
        assert swept.bytes == 0
        assert environment.everything() == before

    def test_a_transaction_of_an_unknown_dataset_is_an_outcome(self, environment: Environment, ids: dict[str, str]) -> None:
        before, store = environment.everything(), environment.store()
        [swept] = _sweep(store, f"{store.name}/not-there", [ids["T1"]])
        assert swept.outcome in (Outcome.ALREADY_GONE, Outcome.FAILED)
        assert environment.everything() == before

    def test_one_failing_target_keeps_no_other_from_going(self, environment: Environment, ids: dict[str, str]) -> None:
        before, dataset = environment.data(), environment.datasets[0]
        stays, goes = environment.owned(dataset, ids["T2"]), environment.owned(dataset, ids["T3"])
        with environment.broken(dataset, ids["T2"]):
            swept = {one.transaction: one for one in _sweep(environment.store(), dataset, [ids["T2"], ids["T3"]])}
        assert swept[ids["T3"]].outcome is Outcome.DELETED
        assert swept[ids["T2"]].outcome is Outcome.FAILED
        assert swept[ids["T2"]].error
        assert swept[ids["T2"]].bytes == 0
        assert environment.data().keys() >= before.keys() - goes - stays
        assert not environment.data().keys() & goes

    def test_a_place_is_said_alike_to_all_and_changed_by_who_claims_it_alone(self, environment: Environment) -> None:
        before, dataset = environment.everything(), environment.datasets[0]
        found = _place(environment, dataset)
        assert found == _place(environment, dataset)
        assert environment.everything() == before
        if found is not None:
            claimed = _place(environment, dataset, claim=True)
            assert claimed is not None
            assert is_same_place(found, claimed)
            assert _place(environment, dataset) == claimed == _place(environment, dataset, claim=True)
            assert environment.everything().items() >= before.items()

    def test_what_is_left_is_said_as_it_is_or_not_at_all(self, environment: Environment, ids: dict[str, str]) -> None:
        store, dataset, names = environment.store(), environment.datasets[0], [ids["T1"], ids["T2"]]
        notes = {one.transaction: one.note for one in store.prepare(dataset, names)}
        targets = [Target(name, notes[name]) for name in names]
        assert set(store.remains(dataset, targets).values()) <= {Remains.ALL, Remains.UNKNOWN}
        store.sweep(dataset, targets[:1], 1)
        before = environment.everything()
        found = store.remains(dataset, targets)
        if store.place(dataset) is None:
            # a store that does not know where the data is does not know what is left of it
            assert found == {}
            return
        assert found[names[0]] in (Remains.NOTHING, Remains.FREED)
        assert found[names[1]] in (Remains.ALL, Remains.UNKNOWN)
        assert environment.everything() == before

    def test_a_dry_run_answers_as_the_store_does_and_changes_nothing(
        self, environment: Environment, ids: dict[str, str]
    ) -> None:
        """Every method of the base, but for looks, which only a store that reads SOME takes."""
        store, dataset, names = environment.store(), environment.datasets[0], [ids["T1"], ids["T2"]]
        notes = {one.transaction: one.note for one in store.prepare(dataset, names)}
        targets = [Target(name, notes[name], place_known=True, aside="7/1") for name in names]
        far = now() + timedelta(days=9_000)
        only = Only({dataset: names})
        questions: dict[str, Callable[[Store], object]] = {
            "name": lambda one: one.name,
            "settings": lambda one: one.settings,
            "innermost": lambda one: type(one.innermost),
            **{fact: partial(_fact, fact) for fact in FACTS},
            "datasets": lambda one: one.datasets(),
            "shares": lambda one: one.shares(environment.datasets),
            "read": lambda one: one.read(environment.datasets).to_pylist(),
            "read only some": lambda one: one.read([dataset], only if one.reads is not Reads.WHOLE else None).to_pylist(),
            "tokens": lambda one: one.tokens(environment.datasets),
            "policies": lambda one: list(one.policies()),
            "present": lambda one: one.present() is None,
            "place": lambda one: one.place(dataset),
            "store_place": lambda one: one.store_place(),
            "data_finder": lambda one: sorted(one.data_finder(dataset)(names)),
            "warnings": lambda one: one.warnings(),
            "policy_warnings": lambda one: one.policy_warnings([]),
            "undo_warnings": lambda one: one.undo_fault() or one.undo_warnings(parse_duration("7d")),
            "undo_fault": lambda one: one.undo_fault(),
            "accepted_cascades": lambda one: one.accepted_cascades(),
            "explain_needs": lambda one: one.explain_needs(dataset, names[0]),
            "know_swept": lambda one: one.know_swept(dataset, [], [], []),
            "check_needs": lambda one: one.check_needs(dataset, names, []),
            "wanted_again": lambda one: one.wanted_again(dataset, names),
            "has_looked": lambda one: one.has_looked,
            "among": lambda one: type(one.among(2).innermost),
            "prepare": lambda one: one.prepare(dataset, names),
            "remains": lambda one: one.remains(dataset, targets),
            "find_postponable": lambda one: list(one.find_postponable(dataset, far, (), None)) if one.expiry else [],
            "count_expiring": lambda one: one.count_expiring(dataset, now(), far, ()) if one.expiry else [],
        }
        before, recording = environment.everything(), RecordingStore(environment.store())
        assert {part: ask(recording) for part, ask in questions.items()} == {
            part: ask(store) for part, ask in questions.items()
        }
        assert METHODS - {*questions} == {"answer_by", "close", "look", "was_looked_at", *ORDERS}
        for order in Order:
            assert {one.outcome for one in recording.carry_out(order, dataset, targets, 2)} == {order.done}
        assert {one.outcome for one in recording.sweep(dataset, targets, 2)} == {Outcome.DELETED}
        assert {one.outcome for one in recording.expire(dataset, targets, far, 2)} == {Outcome.EXPIRING}
        assert {one.outcome for one in recording.postpone(dataset, targets, far, far)} == {Outcome.EXPIRING}
        assert (recording.place(dataset, claim=True), recording.store_place(claim=True)) == (
            store.place(dataset),
            store.store_place(),
        )
        assert environment.everything() == before

    def test_what_failed_can_be_swept_once_it_is_mended(self, environment: Environment, ids: dict[str, str]) -> None:
        dataset = environment.datasets[0]
        owned = environment.owned(dataset, ids["T2"])
        with environment.broken(dataset, ids["T2"]):
            _sweep(environment.store(), dataset, [ids["T2"]])
        [swept] = _sweep(environment.store(), dataset, [ids["T2"]])
        assert swept.outcome in (Outcome.DELETED, Outcome.ALREADY_GONE)
        assert not environment.data().keys() & owned

    @pytest.mark.parametrize("parallelism", [1, 4])
    def test_without_a_permit_nothing_is_deleted_and_no_target_is_said_to_be_done(
        self, environment: Environment, ids: dict[str, str], parallelism: int
    ) -> None:
        before, dataset, targets = environment.everything(), environment.datasets[0], [ids["T1"], ids["T2"], ids["T3"]]
        swept = _sweep(environment.store(), dataset, targets, parallelism, Permits(0))
        assert {one.transaction: (one.outcome, one.bytes) for one in swept} == dict.fromkeys(targets, (Outcome.WITHHELD, 0))
        assert all("no more of this" in (one.error or "") for one in swept)
        assert environment.everything() == before

    @pytest.mark.parametrize("parallelism", [1, 4])
    def test_once_the_permit_is_refused_nothing_further_goes_and_the_next_sweep_finishes_it(
        self, environment: Environment, ids: dict[str, str], parallelism: int
    ) -> None:
        """At every point at which the store asks, one after the other, until it asks no more often."""
        before, dataset, targets = environment.data(), environment.datasets[0], [ids["T1"], ids["T2"], ids["T3"]]
        owned = {name: environment.owned(dataset, name) for name in targets}
        there, times, complete = before, 0, False
        while not complete:
            permits = Permits(times, environment.data)
            swept = {one.transaction: one for one in _sweep(environment.store(), dataset, targets, parallelism, permits)}
            assert swept.keys() == set(targets)
            there, complete = environment.data(), permits.seen is None
            # Of several threads one may be in the middle of an act that was permitted.
            assert complete or there == permits.seen or parallelism > 1
            # What is not gone as a whole is said to be withheld.
            assert all(one.outcome is Outcome.WITHHELD or not there.keys() & owned[name] for name, one in swept.items())
            times += 1
        assert times > 1
        assert there == {place: content for place, content in before.items() if place not in set().union(*owned.values())}


def _place(environment: Environment, dataset: str, claim: bool = False) -> str | None:
    return environment.store().place(dataset, claim)


class Permits:
    """A permit that is granted `times` times, then refused. `seen` is the data at the first refusal."""

    def __init__(self, times: int, look: Callable[[], dict[str, bytes]] = dict) -> None:
        self.left, self.look, self.lock = times, look, Lock()
        self.seen: dict[str, bytes] | None = None

    def __call__(self) -> None:
        with self.lock:
            self.left -= 1
            if self.left >= 0:
                return
            if self.seen is None:
                self.seen = self.look()
        raise Withheld("no more of this")


def with_data(store: Store, dataset: str) -> set[str]:
    names = sound_log(store.read([dataset])).transactions["transaction"].to_pylist()
    return set(data_finder(store, dataset)(names))


def _sweep(
    store: Store, dataset: str, transactions: list[str], parallelism: int = 2, permit: Permit = always
) -> list[SweptTarget]:
    notes = {one.transaction: one.note for one in store.prepare(dataset, transactions)}
    return store.sweep(dataset, [Target(name, notes[name]) for name in transactions], parallelism, permit)
