"""What happens to marks and to what is set aside, and what must be there after: the same for every kind of store.

Belongs here: events that each kind knows, over the contract's environments, through the engine. What only one kind has (a second
name of a table, an edge, a child row) is in that kind's tests; what a person types, in `people`.
"""

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import sound_log
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Hold
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.contract import DRAWN, Environment, write_chains
from retention_assets_tests.stores.delta.environments import LocalTables
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse, Warehouse
from retention_assets_tests.stores.iceberg.test_contract import IcebergTables
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.stores.records.environments import Records
from retention_assets_tests.sweep.cycle import Cycle, replay_until
from retention_assets_tests.sweep.datasets import DUE

WEEK, TICK, DAY = timedelta(days=7), timedelta(microseconds=1), timedelta(days=1)
UNTIL = DUE + timedelta(days=14)
# Those that can set aside first.
KINDS = ("files", "objects", "delta", "iceberg", "records", "aspects")
SETTLES, ORDERS = "ledger.batches.Sweeps.settle", "sweep.dataset_sweep.execute_order"


class ChainsOfTables(IcebergTables):
    """Tables that are written already, until somebody makes one anew."""

    policy = "branches: {reach: any}, "

    def __init__(self, warehouse: Warehouse, names: dict[str, str]) -> None:
        super().__init__(warehouse)
        self.names = names

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        is_there = self.warehouse.catalog.table_exists(dataset.partition("/")[2])
        return self.names if is_there else super().write(dataset, drawing)


class Kinds:
    """Cycles over stores of any kind, and a backup of what such a store keeps."""

    def __init__(self, folder: Path, chains: KeptWarehouse[dict[str, str]], stack: ExitStack) -> None:
        self.folder, self.chains, self.stack = folder, chains, stack
        self.root = folder / "store"

    def cycle(self, kind: str, undo: str = "") -> Cycle:
        self.root.mkdir()
        environment = self._environment(kind)
        return Cycle(environment, f"sqlite:///{self.folder}/ledger.db", self.folder / "settings", undo=undo, drawing=DRAWN)

    def _environment(self, kind: str) -> Environment:
        if kind == "iceberg":
            made = self.chains.made
            tables = ChainsOfTables(self.stack.enter_context(self.chains.opened()), made)
            self.stack.callback(tables.close)
            self.root = self.chains.folder
            return tables
        if kind in ("records", "aspects"):
            url = f"sqlite:///{self.root}/store.db"
            sqlite3.connect(self.root / "store.db").close()
            return Records(url) if kind == "records" else Aspects(url)
        if kind == "objects":
            return LocalObjects(self.root)
        return LocalFiles(self.root) if kind == "files" else LocalTables(self.root)

    def back_up(self) -> None:
        shutil.copytree(self.root, self.folder / "backup")

    def put_back(self) -> None:
        """Everything that is in the backup; what came since stays beside it."""
        databases = [*(self.folder / "backup").glob("*.db")]
        for file in databases:
            with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(self.root / file.name)) as target:
                source.backup(target)
        shutil.copytree(self.folder / "backup", self.root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db"))


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> KeptWarehouse[dict[str, str]]:
    return KeptWarehouse(tmp_path_factory.mktemp("chains"), lambda warehouse: write_chains(IcebergTables(warehouse)))


@pytest.fixture
def kinds(tmp_path: Path, chains: KeptWarehouse[dict[str, str]]) -> Iterator[Kinds]:
    with ExitStack() as stack:
        yield Kinds(tmp_path, chains, stack)


@pytest.fixture(params=KINDS)
def cycle(request: pytest.FixtureRequest, kinds: Kinds) -> Cycle:
    """All transactions of a chain are marked but the newest, or all of those that are independent."""
    made = kinds.cycle(request.param)
    assert len(made.due) == 4 + made.kept.independent
    return made


@pytest.fixture(params=KINDS[:4])
def aside(request: pytest.FixtureRequest, kinds: Kinds) -> Cycle:
    """They are set aside."""
    made = kinds.cycle(request.param, "undo: 14d, ")
    assert outcomes(made) == {Outcome.SET_ASIDE: len(made.due)}
    return made


def outcomes(cycle: Cycle, at: timedelta = timedelta(), **sweeper: object) -> dict[Outcome, int]:
    """Sweep so long after the marks are due; nothing is refused and nothing fails."""
    result = cycle.sweeps(DUE + at, **sweeper).get(cycle.dataset)
    if result is None:
        return {}
    assert (result.refused, result.errors) == (None, [])
    return {outcome: count for outcome, count in result.outcomes.items() if count}


def one_of(cycle: Cycle) -> str:
    return cycle.due[0]


def names_of(cycle: Cycle) -> list[str]:
    names: list[str] = sound_log(cycle.kept.store().read([cycle.dataset])).transactions["transaction"].to_pylist()
    return names


def newest_alone(cycle: Cycle) -> dict[str, bytes]:
    """What is there once all went but the newest of a chain: and of other datasets everything."""
    others = cycle.before.keys() - set().union(*cycle.reached.values())
    kept = set() if cycle.kept.independent else cycle.kept.reached(cycle.dataset, names_of(cycle)[-1])
    return {place: content for place, content in cycle.data().items() if place in kept or place in others}


def rule_about(cycle: Cycle, owner: str) -> str:
    where = f"where: \"transaction = '{one_of(cycle)}'\", " * (owner == "retain")
    names = f"transactions: ['{one_of(cycle)}'], " * (owner == "holds")
    return f"{{name: legal, datasets: ['{cycle.glob}'], {where}{names}reason: why}}"


def narrowed(cycle: Cycle) -> str:
    return cycle.policy.replace("older_than: 1d", f"older_than: 1d, where: \"transaction <> '{one_of(cycle)}'\"")


# By what keeps one of them: how it begins, how it ends, and what is said of it meanwhile.
Happens = Callable[[Cycle], object]
KEEPERS: dict[str, tuple[Happens, Happens, str]] = {
    "hold": (lambda cycle: cycle.hold(cycle.dataset, one_of(cycle)), Cycle.release, "Hold 'legal' keeps it."),
    "hold of a file": (
        lambda cycle: cycle.says(cycle.policy, holds=rule_about(cycle, "holds")),
        lambda cycle: cycle.says(cycle.policy), "Hold 'legal' keeps it.",
    ),
    "retain rule": (
        lambda cycle: cycle.says(cycle.policy, retain=rule_about(cycle, "retain")),
        lambda cycle: cycle.says(cycle.policy), "Retain rule 'legal' keeps it.",
    ),
}  # fmt: skip
GRACE: dict[str, tuple[Happens, Happens, str]] = {
    **KEEPERS,
    "narrowed policy": (
        lambda cycle: cycle.says(narrowed(cycle)), lambda cycle: cycle.says(cycle.policy), "no policy in force selects it",
    ),
    "another under its name": (
        lambda cycle: cycle.kept.make_again(cycle.dataset, one_of(cycle)), lambda _: None, "It is another transaction|does not have it",
    ),
}  # fmt: skip


# What is read from policy files no store knows of: a few kinds are enough.
SOME_KINDS = {
    "hold of a file": ("files", "iceberg"), "narrowed policy": ("files", "delta"), "retain rule": ("files", "objects", "records"),
}  # fmt: skip


def each(events: Iterable[str], kinds: Iterable[str]) -> list[tuple[str, str]]:
    return [(kind, event) for event in events for kind in kinds if kind in SOME_KINDS.get(event, KINDS)]


@pytest.mark.parametrize(("cycle", "event"), each(GRACE, KINDS), indirect=["cycle"])
def test_what_is_kept_in_the_grace_stays_and_has_a_grace_of_its_own_once_that_is_over(cycle: Cycle, event: str) -> None:
    begins, ends, why = GRACE[event]
    begins(cycle)
    there, reads = cycle.data(), cycle.kept.reads()
    # a version is made again with its whole table
    whole = event == "another under its name" and cycle.kept.made_together
    stays = {*cycle.due} if whole else {one_of(cycle)}
    goes = {*cycle.due} - stays
    expected = {Outcome.DELETED: len(goes), Outcome.SPARED: len(stays)}
    assert outcomes(cycle) == {outcome: count for outcome, count in expected.items() if count}
    assert cycle.data() == {place: there[place] for place in there.keys() - cycle.alone(goes)}
    is_read = cycle.kept.reads()
    assert {name: is_read.get(name) for name in reads} == {name: None if name in goes else reads[name] for name in reads}
    assert cycle.statuses() == dict.fromkeys(goes, "SWEPT") | dict.fromkeys(stays, "SPARED")
    assert any(words in cycle.why(one_of(cycle)) for words in why.split("|"))
    report = cycle.report()
    assert [report[name] for name in ("to_delete", "deleted", "spared", "failed")] == [len(cycle.due), len(goes), len(stays), 0]
    ends(cycle)
    assert cycle.marks(DUE) == len(stays)
    assert outcomes(cycle, WEEK - TICK) == {}
    assert outcomes(cycle, WEEK) == {Outcome.DELETED: len(stays)}
    assert (cycle.data(), cycle.verified()) == (newest_alone(cycle), ())


def test_what_is_committed_in_the_grace_lets_nothing_more_go_and_the_next_evaluation_marks_it(cycle: Cycle) -> None:
    cycle.kept.commit(cycle.dataset)
    assert outcomes(cycle) == {Outcome.DELETED: len(cycle.due)}
    # what is current by then may be at the place of what was
    assert cycle.data().keys() >= cycle.without_due().keys()
    assert not cycle.data().keys() & cycle.alone({*cycle.due})
    assert cycle.marks(DUE) == 1
    assert (outcomes(cycle, WEEK - TICK), outcomes(cycle, WEEK)) == ({}, {Outcome.DELETED: 1})
    assert (cycle.data(), cycle.verified()) == (newest_alone(cycle), ())


def test_what_was_dropped_in_the_grace_is_swept_of_no_store(cycle: Cycle) -> None:
    cycle.kept.drop(cycle.dataset)
    there = cycle.data()
    result = cycle.sweeps()[cycle.dataset]
    # of objects nobody knows a dataset but by them
    spared = {name for name, status in cycle.statuses().items() if status == "SPARED"}
    assert spared == ({*cycle.due} if result.refused is None else set())
    assert "does not have it" in (result.refused or cycle.why(one_of(cycle)))
    assert ("SWEPT" in cycle.statuses().values(), cycle.data()) == (False, there)
    assert cycle.verified() == ()


def test_one_that_can_not_be_deleted_keeps_no_other_and_goes_with_the_next_run(cycle: Cycle) -> None:
    with cycle.kept.broken(cycle.dataset, one_of(cycle)):
        result = cycle.sweeps()[cycle.dataset]
    others = len(cycle.due) - 1
    assert (result.outcomes, len(result.errors)) == ({Outcome.DELETED: others, Outcome.FAILED: 1}, 1)
    assert cycle.why(one_of(cycle)) in result.errors[0]
    assert cycle.statuses()[one_of(cycle)] == "MARKED"
    assert not cycle.alone(cycle.due[1:]) & cycle.data().keys()
    assert [cycle.report()[name] for name in ("deleted", "failed", "finished_at")] == [others, 1, None]
    assert outcomes(cycle, TICK).keys() <= {Outcome.DELETED, Outcome.ALREADY_GONE}
    report = cycle.report()
    assert [report[name] for name in ("to_delete", "failed")] == [len(cycle.due), 1]
    assert report["deleted"] + report["already_gone"] == len(cycle.due)
    assert report["finished_at"] is not None
    assert (cycle.data(), set(cycle.statuses().values()), cycle.verified()) == (cycle.without_due(), {"SWEPT"}, ())


@pytest.mark.parametrize(
    ("act", "held"), [(ORDERS, True), (SETTLES, False), (SETTLES, True)], ids=["not deleted, held", "deleted", "deleted, held"]
)
def test_what_a_killed_sweep_had_begun_is_finished_and_what_is_left_of_it_is_kept_if_it_is_held(
    cycle: Cycle, act: str, held: bool
) -> None:
    cycle.dies_before(act)
    begun = {name for name, status in cycle.statuses().items() if status == "SWEEPING"}
    assert begun
    there = cycle.data()
    gone = {name for name in begun if not cycle.alone({name}) & there.keys()}
    assert gone == (begun if act == SETTLES else set())
    if held:
        cycle.hold()
    result = cycle.sweeps()[cycle.dataset]
    assert (result.refused, result.errors) == (None, [])
    swept = gone if held else {*cycle.due}
    left = {*cycle.due} - swept
    assert cycle.statuses() == dict.fromkeys(swept, "SWEPT") | dict.fromkeys(left, "SPARED")
    assert cycle.data() == (there if held else cycle.without_due())
    assert cycle.report()["bytes_freed"] == cycle.freed() or not cycle.kept.recounts
    assert cycle.verified() == ()


def test_what_was_begun_and_is_made_again_is_spared_at_the_latest_by_the_hold_that_is_named(cycle: Cycle) -> None:
    cycle.dies_before(ORDERS)
    one = min(name for name, status in cycle.statuses().items() if status == "SWEEPING")
    cycle.kept.make_again(cycle.dataset, one)
    there = cycle.data()
    refused = cycle.sweeps()[cycle.dataset].refused
    # of a snapshot that is there under no name any more nobody knows what is left
    assert (refused is not None) is isinstance(cycle.kept, IcebergTables)
    if refused is not None:
        assert f"place a hold on {cycle.dataset} (`retention hold`)" in refused
        assert cycle.data() == there
        cycle.hold(cycle.dataset)
        cycle.sweeps()
        cycle.release()
    stays = {*cycle.due} if cycle.kept.made_together else {one}
    # an object that was planned is gone, whoever put another one at its key
    end = "SWEPT" if isinstance(cycle.kept, LocalObjects) else "SPARED"
    assert cycle.statuses() == dict.fromkeys({*cycle.due} - stays, "SWEPT") | dict.fromkeys(stays, end)
    assert cycle.data() == {place: there[place] for place in there.keys() - cycle.alone({*cycle.due} - stays)}
    assert (cycle.marks(DUE), outcomes(cycle, WEEK)) == (len(stays), {Outcome.DELETED: len(stays)})
    assert (cycle.data(), cycle.verified()) == (newest_alone(cycle), ())


def test_what_a_backup_brought_back_goes_by_no_mark_and_with_nothing_else(kinds: Kinds, cycle: Cycle) -> None:
    kinds.back_up()
    assert outcomes(cycle) == {Outcome.DELETED: len(cycle.due)}
    kinds.put_back()
    there = cycle.data()
    assert there == cycle.before
    assert (cycle.marks(DUE), outcomes(cycle, WEEK)) == (0, {})
    # what is due next goes alone
    cycle.kept.commit(cycle.dataset)
    assert cycle.marks(DUE + WEEK) == 1
    assert outcomes(cycle, 2 * WEEK) == {Outcome.DELETED: 1}
    assert cycle.alone({*cycle.due}) <= cycle.data().keys()
    assert (set(cycle.statuses().values()), cycle.verified()) == ({"SWEPT"}, ())


@pytest.fixture
def back(kinds: Kinds, cycle: Cycle) -> Cycle:
    """What was swept is there again."""
    kinds.back_up()
    assert outcomes(cycle) == {Outcome.DELETED: len(cycle.due)}
    cycle.swept, cycle.reads_after = {*cycle.data()}, cycle.kept.reads()
    kinds.put_back()
    return cycle


def is_swept_again(cycle: Cycle) -> bool:
    """Exactly what was deleted is gone again; a table's log tells of the second sweep as well."""
    others = {place for place in cycle.data().keys() ^ cycle.swept if "_delta_log" not in place}
    reads = cycle.kept.reads()
    return not others and all(reads.get(name) == rows for name, rows in cycle.reads_after.items())


def test_what_a_backup_brought_back_goes_again_by_a_replay_and_nothing_else(back: Cycle) -> None:
    there, report = back.data(), back.report()
    assert (back.replays(plan=True), back.data()) == ((back.due, {}), there)
    assert (back.replays(DUE + DAY), is_swept_again(back)) == ((back.due, {}), True)
    again = back.report(DUE + DAY)
    assert (again["replayed"], again["deleted"], again["bytes_freed"]) == (len(back.due), 0, report["bytes_freed"])
    assert (back.report()["replayed"], back.replays(DUE + DAY)) == (0, ([], {}))
    assert (set(back.statuses().values()), back.verified()) == ({"SWEPT"}, ())


@pytest.mark.parametrize("cycle", ["aspects"], indirect=True)
def test_a_backup_that_is_older_than_the_plan_has_the_same_rows(kinds: Kinds, cycle: Cycle) -> None:
    kinds.back_up()
    cycle.kept.commit(cycle.dataset)
    assert outcomes(cycle) == {Outcome.DELETED: len(cycle.due)}
    kinds.put_back()
    assert (cycle.replays(), cycle.data(), cycle.verified()) == ((cycle.due, {}), cycle.without_due(), ())


@pytest.mark.parametrize(("cycle", "event"), each(KEEPERS, KINDS), indirect=["cycle"])
def test_what_is_kept_since_stays_there_again_and_goes_once_that_is_over(back: Cycle, event: str) -> None:
    begins, ends, why = KEEPERS[event]
    begins(back)
    one, *others = back.due
    assert back.replays() == (others, {one: why})
    assert back.alone({one}) <= back.data().keys()
    ends(back)
    assert (back.replays(), is_swept_again(back), back.verified()) == (([one], {}), True, ())


def test_what_was_made_again_after_its_sweep_is_no_life_to_replay(cycle: Cycle) -> None:
    assert outcomes(cycle) == {Outcome.DELETED: len(cycle.due)}
    cycle.kept.make_again(cycle.dataset, one_of(cycle))
    there = cycle.data()
    assert (cycle.replays(), cycle.data(), cycle.verified()) == (([], {}), there, ())


@pytest.mark.parametrize(
    ("act", "held"), [(ORDERS, True), (ORDERS, False), (SETTLES, False), (SETTLES, True)],
    ids=["not deleted, held", "not deleted", "deleted", "deleted, held"],
)  # fmt: skip
def test_what_a_killed_replay_had_begun_is_finished_by_the_next_run_unless_it_is_held(
    back: Cycle, act: str, held: bool
) -> None:
    back.dies_before(act, does=back.replays)
    there = back.data()
    assert (there == back.before) is (act == ORDERS)
    if held:
        back.hold()
    result = back.sweeps(DUE + DAY)[back.dataset]
    assert (result.refused, result.errors, back.verified()) == (None, [], ())
    assert back.data() == there if held else is_swept_again(back)
    gone = len([name for name in back.due if not back.alone({name}) & there.keys()])
    assert back.report(DUE + DAY)["replayed"] == (gone if held else len(back.due))
    assert (outcomes(back, 2 * DAY), set(back.statuses().values())) == ({}, {"SWEPT"})


@pytest.mark.kill
@pytest.mark.parametrize("cycle", ["files", "objects", "delta"], indirect=True)
def test_a_replay_that_is_killed_between_any_two_writes_is_finished_by_the_next_run(
    kinds: Kinds, back: Cycle, sweepers: Any
) -> None:
    acts, counted = sweepers.Value("i", 0), 0
    for number in range(9):
        kinds.put_back()
        # the first comes to its end, the others die at points between its first write and its last
        last = counted * number // 9 if number else 10_000
        program = sweepers.Process(target=replay_until, args=(last, back.url, back.kept.store(), back.settings, acts))
        program.start()
        program.join()
        assert program.exitcode == (-signal.SIGKILL if number else 0)
        counted = counted or acts.value
        with back.opened() as ledger:
            change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
            is_begun = bool(len(ledger.sweeps.planned(begun_in=[back.dataset])))
        assert outcomes(back).keys() <= {Outcome.DELETED, Outcome.ALREADY_GONE}
        # it died before it had ordered anything, or nothing was left to do
        assert back.replays()[0] == [] or not is_begun
        assert (is_swept_again(back), back.verified()) == (True, ())
    assert back.report()["replayed"] == 9 * len(back.due)


def test_what_is_made_again_after_its_sweep_goes_by_its_own_mark_alone(cycle: Cycle) -> None:
    assert outcomes(cycle) == {Outcome.DELETED: len(cycle.due)}
    cycle.kept.make_again(cycle.dataset, one_of(cycle))
    there = cycle.data()
    assert (outcomes(cycle, DAY), cycle.data()) == ({}, there)
    new = cycle.marks(DUE + DAY)
    assert new == (len(cycle.due) if cycle.kept.made_together else 1)
    assert (cycle.marks(DUE + 2 * DAY), outcomes(cycle, DAY + WEEK - TICK), cycle.data()) == (0, {}, there)
    assert outcomes(cycle, DAY + WEEK) == {Outcome.DELETED: new}
    report = cycle.report(DUE + DAY + WEEK)
    assert (report["to_delete"], report["deleted"], report["classes"]["due"]) == (new, new, new)
    assert (cycle.data(), cycle.verified()) == (newest_alone(cycle), ())


# --- what is set aside ---


def counts(cycle: Cycle, at: timedelta = timedelta()) -> dict[str, int]:
    report = cycle.report(DUE + at)
    names = ("to_delete", "set_aside", "deleted", "restored", "failed", "bytes_set_aside", "bytes_freed")
    return {name: report[name] for name in names if report[name]}


@pytest.mark.parametrize("event", ["nothing", "narrowed policy", "another under its name", "dropped"])
def test_what_is_set_aside_goes_for_good_when_its_time_is_over_whatever_became_of_its_name(aside: Cycle, event: str) -> None:
    size = counts(aside)["bytes_set_aside"]
    assert counts(aside) == {"to_delete": len(aside.due), "set_aside": len(aside.due), "bytes_set_aside": size}
    assert (aside.data(), set(aside.statuses().values())) == (aside.without_due(), {"SWEPT"})
    assert size == sum(len(aside.before[place]) for place in aside.alone({*aside.due}))
    if event == "nothing":
        assert aside.marks(DUE) == 0
    elif event == "narrowed policy":
        aside.says(narrowed(aside))
    elif event == "another under its name":
        aside.kept.make_again(aside.dataset, one_of(aside))
    elif event == "dropped":
        aside.kept.drop(aside.dataset)
    there = aside.data()
    assert (outcomes(aside, UNTIL - DUE - TICK), aside.data()) == ({}, there)
    assert outcomes(aside, UNTIL - DUE) == {Outcome.DELETED: len(aside.due)}
    assert aside.ends(aside.dataset, *aside.due) == ["DELETED"] * len(aside.due)
    assert aside.data() == there
    assert aside.kept.trash() == set()
    assert counts(aside, UNTIL - DUE) == {"bytes_freed": size}
    assert (outcomes(aside, UNTIL - DUE + DAY), aside.verified()) == ({}, ())


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_nothing_is_restored_into_what_is_not_there_until_it_is_there(kinds: Kinds, kind: str) -> None:
    cycle = kinds.cycle(kind, "undo: 14d, ")
    cycle.sweeps()
    kinds.back_up()
    cycle.kept.drop(cycle.dataset)
    cycle.orders(Order.RESTORE, one_of(cycle))
    there, trash = cycle.data(), cycle.kept.trash()
    for only in (Order.RESTORE, None):
        why = f"nothing of {cycle.dataset} is swept: its store does not have it"
        assert (cycle.sweeps(only=only)[cycle.dataset].refused, cycle.data(), cycle.kept.trash()) == (why, there, trash)
    kinds.put_back()
    assert outcomes(cycle) == {Outcome.RESTORED: 1}
    assert cycle.data().keys() == cycle.without_due().keys() | cycle.reached[one_of(cycle)]
    assert cycle.verified() == ()


def test_what_is_restored_is_as_it_was_and_is_marked_anew_once_its_hold_is_released(aside: Cycle) -> None:
    first, second, *others = aside.due
    hold = Hold.model_validate(
        {"name": "back", "datasets": aside.dataset, "transactions": [first, second], "reason": "we need them"}
    )
    aside.orders(Order.RESTORE, first, second, hold=hold)
    assert outcomes(aside, only=Order.RESTORE) == {Outcome.RESTORED: 2}
    assert aside.data() == {place: aside.before[place] for place in aside.before.keys() - aside.alone({*others})}
    assert aside.read_otherwise({*aside.read_before}) == {*others} & aside.read_before.keys()
    assert aside.statuses() == dict.fromkeys(others, "SWEPT") | dict.fromkeys([first, second], "RESTORED")
    assert (aside.why(first), counts(aside)["restored"]) == ("we need them", 2)
    assert (aside.marks(DUE), aside.verified()) == (0, ())
    aside.release("back")
    # a tag pins a snapshot that came back
    again = {} if aside.kept.pins_restored else {Outcome.SET_ASIDE: 2}
    assert aside.marks(DUE) == sum(again.values())
    assert outcomes(aside, UNTIL - DUE) == {**again, Outcome.DELETED: len(others)}
    assert (aside.data().keys() == aside.without_due().keys()) is (not aside.kept.pins_restored)
    assert aside.verified() == ()


@pytest.mark.parametrize(("aside", "keeper"), each(KEEPERS, KINDS[:4]), indirect=["aside"])
def test_a_keeper_stops_the_final_deletion_until_it_ends(aside: Cycle, keeper: str) -> None:
    begins, ends, _ = KEEPERS[keeper]
    begins(aside)
    # a rule that came later can't be asked about what the log has lost: it keeps all of its dataset
    kept = len(aside.due) if keeper == "retain rule" and one_of(aside) not in names_of(aside) else 1
    gone = len(aside.due) - kept
    assert outcomes(aside, UNTIL - DUE) == ({Outcome.DELETED: gone} if gone else {})
    assert aside.kept.trash()
    assert outcomes(aside, UNTIL - DUE + DAY) == {}
    ends(aside)
    assert outcomes(aside, UNTIL - DUE + DAY) == {Outcome.DELETED: kept}
    assert (aside.kept.trash(), aside.data(), aside.verified()) == (set(), aside.without_due(), ())


def test_what_goes_early_is_what_nothing_keeps_and_the_rest_can_come_back(aside: Cycle) -> None:
    first, second = aside.due[:2]
    aside.hold(aside.dataset, second)
    aside.orders(Order.DELETE_ASIDE, first, second)
    result = aside.sweeps(only=Order.DELETE_ASIDE)[aside.dataset]
    assert result.outcomes == {Outcome.DELETED: 1, Outcome.FAILED: 1}
    assert result.errors == ["It stays set aside. Hold 'legal' keeps it."]
    aside.orders(Order.RESTORE, second)
    assert outcomes(aside, only=Order.RESTORE) == {Outcome.RESTORED: 1}
    assert aside.data().keys() == aside.without_due().keys() | aside.reached[second]
    assert aside.verified() == ()


@pytest.mark.parametrize("aside", ["files", "objects", "delta"], indirect=True)
def test_what_somebody_took_out_of_the_trash_is_not_called_deleted(aside: Cycle, kinds: Kinds) -> None:
    """Nor is it once more: a person says `trash forget`."""
    for folder in kinds.root.rglob(".retention-trash"):
        shutil.rmtree(folder)
    for days in (14, 15):
        result = aside.sweeps(DUE + days * DAY)[aside.dataset]
        assert result.outcomes == {Outcome.FAILED: len(aside.due)}
        assert "retention trash forget" in result.errors[0]
    assert aside.ends(aside.dataset, *aside.due) == ["SET_ASIDE"] * len(aside.due)
    assert aside.verified() == ()


@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize("moved", [False, True])
def test_what_was_begun_to_be_set_aside_and_is_needed_again_comes_back(kinds: Kinds, kind: str, moved: bool) -> None:
    cycle = kinds.cycle(kind, "undo: 14d, ")
    cycle.dies_before(SETTLES if moved else ORDERS)
    assert (cycle.data() != cycle.before) is moved
    cycle.hold()
    cycle.sweeps()
    assert (cycle.data(), cycle.kept.trash(), set(cycle.statuses().values())) == (cycle.before, set(), {"SPARED"})
    assert (cycle.read_otherwise({*cycle.read_before}), cycle.verified()) == (set(), ())


@pytest.mark.parametrize("kind", KINDS[:4])
def test_what_was_begun_stays_begun_while_its_store_fails(kinds: Kinds, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set aside, and a new plan would look for it in another folder of the trash."""
    cycle = kinds.cycle(kind, "undo: 14d, ")
    cycle.dies_before(SETTLES)
    with monkeypatch.context() as patch:
        patch.setattr(type(cycle.kept.store()), "carry_out", lambda *_: [])
        swept = cycle.sweeps()[cycle.dataset]
    assert swept.outcomes == {}
    assert swept.refused == f"what was begun of {cycle.dataset} could not be finished: the store gave no result"
    assert outcomes(cycle) == {Outcome.SET_ASIDE: len(cycle.due)}
    cycle.orders(Order.RESTORE)
    assert outcomes(cycle, only=Order.RESTORE) == {Outcome.RESTORED: len(cycle.due)}
    assert (cycle.data(), cycle.verified()) == (cycle.before, ())
