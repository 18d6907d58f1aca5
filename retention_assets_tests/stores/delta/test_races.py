"""Races at the store: others commit, sweep or make the table anew at any moment of a sweep. No row of the newest version is lost."""

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.places.own_files import add_file
from retention_assets.stores.protocol import Permit, SweptTarget, Target, always
from retention_assets_tests.stores.delta.environments import open_tables
from retention_assets_tests.stores.delta.tables import Table, Unreadable, file_uris, files, rows, versions
from retention_assets_tests.stores.delta.test_cases import DELETED, GONE, SPARED, commit, overwritten
from retention_assets_tests.stores.delta.test_exact import data
from retention_assets_tests.stores.delta.test_refusals import log_file

FAILED, START, END = Outcome.FAILED, "VACUUM START", "VACUUM END"
Acts = list[Callable[[], object]]
# outcomes by version, and all errors
Answers = tuple[dict[int, Outcome], str]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Each of its versions 0 to 3 has one file."""
    return overwritten(tmp_path / "t", 4)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is looked at before each file."""
    monkeypatch.setattr("retention_assets.stores.delta.sweep._FILES", 1)


@pytest.fixture
def announcing(monkeypatch: pytest.MonkeyPatch) -> Acts:
    """What happens before the first announcement, the second, and so on, once it is decided that it is to be added."""
    acts: Acts = []

    def act_and_add(place: str, content: bytes) -> bool:
        if acts:
            acts.pop(0)()
        return add_file(place, content)

    monkeypatch.setattr("retention_assets.stores.delta.announcements.add_file", act_and_add)
    return acts


def plan(folder: Path, *numbers: int, swept: str = "", aside: str = "", order: Order = Order.DELETE) -> Callable[..., Answers]:
    """A sweep of some versions as planned now, to be carried out later."""
    store, names = open_tables(folder.parent), [str(number) for number in numbers]
    store.know_swept("lh/t", [*swept], [*aside], [])
    targets = [Target(one.transaction, one.note, aside=f"7/{one.transaction}") for one in store.prepare("lh/t", names)]

    def sweep(permit: Permit = always) -> Answers:
        answers = store.carry_out(order, "lh/t", targets, 1, permit)
        return {int(answer.transaction): answer.outcome for answer in answers}, " ".join(
            str(answer.error) for answer in answers
        )

    return sweep


def at_permit(number: int, act: Callable[[], Any]) -> Callable[[], Any]:
    """The first permit is asked for before the start is announced, the others before a file each, and the last before the end."""
    asked = iter(range(1, 1_000))
    return lambda: act() if next(asked) == number else None


def commits(folder: Path) -> list[str]:
    return [commit(folder, number)["operation"] for number in versions(folder)[4:]]


def restore(table: Table, version: int = 0, blindly: bool = True) -> None:
    Table.open(table.folder).opened.restore(version, ignore_missing_files=blindly)


def test_a_restore_between_judgement_and_start_keeps_its_file(table: Table, announcing: Acts) -> None:
    announcing.append(partial(restore, table))
    outcomes, errors = plan(table.folder, 0, 1, 2)()
    assert (outcomes, "version 4 needs" in errors) == ({0: SPARED, 1: DELETED, 2: DELETED}, True)
    assert commits(table.folder) == ["RESTORE", START, END]
    assert rows(table.folder, 4) == rows(table.folder, 0)


def test_a_writer_who_always_commits_first_is_left_alone(table: Table, announcing: Acts) -> None:
    announcing.extend(partial(table.append, number) for number in range(4, 9))
    outcomes, errors = plan(table.folder, 0, 1)()
    assert (outcomes, "committed during each of 5 attempts" in errors) == ({0: FAILED, 1: FAILED}, True)
    assert (len(rows(table.folder, 8)), len(rows(table.folder, 0))) == (6, 1)
    assert plan(table.folder, 0, 1)()[0] == {0: DELETED, 1: DELETED}


def test_who_had_read_the_table_before_the_start_can_not_restore(table: Table) -> None:
    def restore_late() -> None:
        with pytest.raises(DeltaError):
            table.restore(1)

    assert plan(table.folder, 0, 1)(at_permit(2, restore_late))[0] == {0: DELETED, 1: DELETED}
    assert commits(table.folder) == [START, END]


@pytest.mark.usefixtures("one_by_one")
def test_a_file_that_comes_back_between_two_batches_stays_and_is_named(table: Table) -> None:
    *_, (_, last) = sorted((Path(file_uris(table.folder, number)[0]).name, number) for number in range(3))
    # after the look before the second file, in time for the third
    outcomes, errors = plan(table.folder, 0, 1, 2)(at_permit(3, partial(restore, table, last, False)))
    assert outcomes == dict.fromkeys(range(3), DELETED) | {last: SPARED}
    assert "version 5 needs all of its files" in errors
    assert rows(table.folder, 5) == rows(table.folder, last)
    assert commits(table.folder) == [START, "RESTORE", END]


@pytest.mark.parametrize("late", [False, True], ids=["before the last look", "before the end"])
@pytest.mark.parametrize("newer", [False, True], ids=["the newest", "followed by another"])
def test_a_version_that_needs_what_is_gone_is_named(table: Table, announcing: Acts, late: bool, newer: bool) -> None:
    [lost] = file_uris(table.folder, 0)

    def restore_and_go_on() -> None:
        restore(table)
        if newer:
            Table.open(table.folder).overwrite(9)

    announcing.extend([lambda: None, restore_and_go_on] if late else [])
    # the fourth permit is asked for once both files are gone
    sweep = plan(table.folder, 0, 1)
    outcomes, errors = sweep(at_permit(0 if late else 4, restore_and_go_on))
    assert [*outcomes.values()].count(FAILED) == 1
    assert f"version 5, committed meanwhile, needs '{Path(lost).name}'" in errors
    if newer:
        return
    before = data(table.folder)
    assert "the newest, lacks 1 of its files" in plan(table.folder, 2)()[1]
    assert data(table.folder) == before


@pytest.mark.usefixtures("one_by_one")
def test_a_version_that_came_between_files_and_needs_the_first_is_named(table: Table) -> None:
    places = [Path(file_uris(table.folder, number)[0]) for number in range(3)]

    def restore_what_is_gone() -> None:
        restore(table, next(number for number, place in enumerate(places) if not place.exists()))
        Table.open(table.folder).overwrite(9)

    outcomes, errors = plan(table.folder, 0, 1, 2)(at_permit(3, restore_what_is_gone))
    assert (sorted(outcomes.values()), "version 5, committed meanwhile, needs" in errors) == ([DELETED, DELETED, FAILED], True)


def test_what_is_set_aside_and_needed_meanwhile_is_brought_back(table: Table) -> None:
    outcomes, errors = plan(table.folder, 0, 1, order=Order.SET_ASIDE)(at_permit(4, partial(restore, table)))
    assert outcomes == {0: SPARED, 1: Outcome.SET_ASIDE}
    assert "version 5, committed meanwhile, needs" in errors
    assert rows(table.folder, 5) == rows(table.folder, 0)


def test_what_a_retained_version_needs_does_not_go_from_the_trash(table: Table) -> None:
    plan(table.folder, 0, 1, order=Order.SET_ASIDE)()
    restore(table)
    Table.open(table.folder).overwrite(9)
    before = data(table.folder)
    outcomes, errors = plan(table.folder, 0, 1, order=Order.DELETE_ASIDE)()
    assert (outcomes, "version 6 needs all of its files" in errors) == ({0: SPARED, 1: DELETED}, True)
    assert len({name for name in before - data(table.folder) if not name.endswith(".json")}) == 2
    assert len(rows(table.folder, 6)) == 1


def test_what_is_set_aside_for_several_goes_with_the_last(tmp_path: Path) -> None:
    """Its undo may end on another day for each."""
    table = Table(tmp_path / "t", 0)
    table.append(1)
    table.overwrite(2)
    plan(table.folder, 0, 1, order=Order.SET_ASIDE)()
    trash = {name for name in files(table.folder) if "trash" in name and not name.endswith(".json")}
    assert plan(table.folder, 0, aside="1", order=Order.DELETE_ASIDE)()[0] == {0: SPARED}
    assert trash <= files(table.folder).keys()
    assert plan(table.folder, 1, order=Order.DELETE_ASIDE)()[0] == {1: DELETED}
    assert (len(trash), trash & files(table.folder).keys()) == (2, set())


def test_what_is_set_aside_goes_though_another_file_of_it_was_lost(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 0)
    table.append(1)
    restore(table, 0, blindly=False)
    Table.open(table.folder).overwrite(2)
    [shared] = file_uris(table.folder, 0)
    assert plan(table.folder, 1, order=Order.SET_ASIDE)()[0] == {1: Outcome.SET_ASIDE}
    Path(shared).unlink()
    assert plan(table.folder, 1, order=Order.DELETE_ASIDE)()[0] == {1: DELETED}


def test_a_version_of_which_a_file_was_lost_is_never_said_to_be_readable(table: Table) -> None:
    table.append(4)
    table.overwrite(5)
    Path(file_uris(table.folder, 3)[0]).unlink()
    assert plan(table.folder, 3)()[0] == {3: GONE}


def test_a_commit_that_gives_the_table_another_id_makes_no_other_table_of_it(table: Table) -> None:
    sweep = plan(table.folder, 0, 1)
    metadata = next(line for line in log_file(table, 0).read_text().splitlines() if "metaData" in line)
    log_file(table, 4).write_text(metadata.replace(str(table.opened.metadata().id), "another"))
    assert sweep()[0] == {0: DELETED, 1: DELETED}


def test_where_every_target_is_needed_again_nothing_goes(table: Table) -> None:
    sweep = plan(table.folder, 0, swept="1")
    restore(table)
    before = files(table.folder)
    assert (sweep()[0], files(table.folder)) == ({0: SPARED}, before)


@pytest.mark.usefixtures("one_by_one")
def test_a_log_that_is_cut_in_the_middle_of_a_sweep_ends_it(table: Table) -> None:
    outcomes, errors = plan(table.folder, 0, 1, 2)(at_permit(3, lambda: Table.open(table.folder).clean_log()))
    assert {*outcomes.values()} == {FAILED}
    assert "rewritten meanwhile" in errors
    assert len(data(table.folder)) == 2
    assert len(rows(table.folder, Table.open(table.folder).version)) == 1


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("permit", range(5))
def test_a_table_that_is_made_anew_in_the_middle_is_not_touched(table: Table, permit: int) -> None:
    def make_anew() -> None:
        shutil.rmtree(table.folder)
        Table(table.folder, 7).overwrite(8)
        made.update(files(table.folder))

    made, sweep = dict[str, str](), plan(table.folder, 0, 1)
    if not permit:
        make_anew()
    outcomes, _ = sweep(at_permit(permit, make_anew))
    assert files(table.folder) == made
    assert {*outcomes.values()} <= ({DELETED, GONE, FAILED} if permit else {GONE})
    assert plan(table.folder, 0)()[0] == {0: DELETED}


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("permit", range(6))
def test_two_sweepers_delete_each_file_once(table: Table, announcing: Acts, permit: int) -> None:
    first, second, both = plan(table.folder, 0, 1, 2), plan(table.folder, 0, 1, 2), list[Answers]()
    announcing.extend([] if permit else [lambda: both.append(second())])
    both.append(first(at_permit(permit, lambda: both.append(second()))))
    assert Counter(outcome for outcomes, _ in both for outcome in outcomes.values()) == {DELETED: 3, GONE: 3}
    assert len(rows(table.folder, 3)) == 1
    operations = commits(table.folder)
    assert (operations[0], operations[-1], {*operations}) == (START, END, {START, END})


class Writer(threading.Thread):
    """Appends, overwrites and restores in a loop, one commit a turn, and knows the rows of its versions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.table, self.turn, self.is_over = Table(folder, 0), threading.Lock(), threading.Event()
        self.ids, self.logs = {0: [0]}, dict[int, bytes]()
        self.dice, self.tally = random.Random(7), Counter[str]()

    def run(self) -> None:
        while not self.is_over.is_set():
            # it may be too late, or the version swept already
            with self.turn, suppress(DeltaError):
                self.commit(*self.dice.choices(("append", "overwrite", "restore"), (5, 2, 4)))

    def commit(self, act: str) -> None:
        table, new, then = Table.open(self.table.folder), self.dice.randrange(10**9), self.dice.choice(sorted(self.ids)[-4:])
        ids = {"append": [*self.ids[max(self.ids)], new], "overwrite": [new], "restore": self.ids[then]}[act]
        number = getattr(table, act)(then if act == "restore" else new)
        self.ids[number], self.logs[number] = ids, log_file(table, number).read_bytes()
        self.tally[act] += 1

    def check(self, answers: list[SweptTarget]) -> None:
        """The newest version has all of its rows, or the sweep says that it was restored while its files went."""
        with self.turn:
            try:
                newest = max(self.ids)
                assert sorted(row[0] for row in rows(self.table.folder, newest)) == sorted(self.ids[newest])
            except Unreadable:
                assert any("committed meanwhile, needs" in str(answer.error) for answer in answers), answers
                self.commit("overwrite")
            assert all(log_file(self.table, number).read_bytes() == log for number, log in self.logs.items())


def test_27_no_row_of_the_newest_version_is_lost_beside_a_writer(tmp_path: Path) -> None:
    writer, store, swept, seen = Writer(tmp_path / "t"), open_tables(tmp_path), set[str](), Counter[Outcome]()
    writer.start()
    for _ in range(50):
        going = [name for name in map(str, versions(tmp_path / "t")[:-2]) if name not in swept]
        store.know_swept("lh/t", sorted(swept), [], [])
        answers = store.sweep("lh/t", [Target(one.transaction, one.note) for one in store.prepare("lh/t", going)], 2)
        assert [answer.transaction for answer in answers] == going
        seen.update(answer.outcome for answer in answers)
        swept |= {answer.transaction for answer in answers if answer.outcome in (DELETED, GONE)}
        writer.check(answers)
    writer.is_over.set()
    writer.join()
    assert (seen[DELETED] > 10, len(writer.tally)) == (True, 3)
