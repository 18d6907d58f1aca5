"""Parts of one dataset, swept by several tasks at once: together they do what one sweep does, whatever happens to any of them."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_assets.ledger import DatasetPart, JoinedPart, NameRange
from retention_assets.ledger.leases import Parts
from retention_assets.outcomes import Outcome
from retention_assets.policy import Hold
from retention_assets.sweep import PartBegunAnew, permit
from retention_assets_tests.databases import new_schema
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import change_leases, take_lease
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.stores.records.environments import Records
from retention_assets_tests.sweep.cycle import RUN, Cycle, sweep_until
from retention_assets_tests.sweep.lakes import Elsewhere

MARKS = 12
LONG = 60.0
# The life of a lease, in microseconds.
LEASE = 120_000_000


class ManyAspects(Aspects):
    """One aspect of four urns, each with three versions before its current one."""

    def write(self, dataset: str, drawing: str) -> dict[str, str]:  # noqa: ARG002 - it has a history of its own
        urns = [f"urn:li:dataset:{name}" for name in ("a", "b@c", "d", "e")]
        for urn in urns:
            self.table.chain(urn, dataset.partition(".")[2], {1: 90, 2: 80, 3: 70, 0: 60})
        return {name: name for urn in urns for name in (f"{urn}@{version}" for version in (1, 2, 3, 0))}


ENVIRONMENTS: dict[str, Callable[[Path, str], Environment]] = {
    "files": lambda folder, _: LocalFiles(folder),
    "objects": lambda folder, _: LocalObjects(folder),
    "records": lambda _, server: Records(new_schema(server)),
    "aspects": lambda _, server: ManyAspects(new_schema(server)),
}


@pytest.fixture
def parted(tmp_path: Path) -> Cycle:
    """Twelve folders, with a ledger in SQLite."""
    return made("files", tmp_path, f"sqlite:///{tmp_path}/ledger.db")


def made(kind: str, folder: Path, url: str, server: str = "") -> Cycle:
    (folder / "store").mkdir()
    return Cycle(ENVIRONMENTS[kind](folder / "store", server), url, folder / "settings")


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_parts_that_are_swept_at_once_do_what_one_sweep_does(kind: str, server: str, tmp_path: Path) -> None:
    parted = made(kind, tmp_path, new_schema(server), server)
    held = parted.due[4]
    with parted.opened() as ledger, parted.dealt(ledger, 3) as parts:
        assert len(parts) == 3
        hold = {"name": "legal", "datasets": "*", "transactions": [held], "reason": "case 7"}
        ledger.holds.place(Hold.model_validate(hold), "ann")
        results = parted.sweeps_at_once(parts)
        lease = ledger.leases.holder_of(parted.dataset)
    assert [(one.refused, one.errors) for one in results] == [(None, [])] * 3
    assert sum(one.planned for one in results) == MARKS - 1
    assert sum(one.outcomes[Outcome.DELETED] for one in results) == MARKS - 1
    assert sum(one.outcomes[Outcome.SPARED] for one in results) == 1
    assert parted.statuses() == {name: "SPARED" if name == held else "SWEPT" for name in parted.due}
    report = parted.report()
    assert [report[name] for name in ("to_delete", "deleted", "spared", "failed")] == [MARKS, MARKS - 1, 1, 0]
    assert report["finished_at"] is not None
    assert report["bytes_freed"] == sum(one.bytes_freed for one in results)
    with parted.opened() as ledger:
        assert ledger.verify().faults == ()
        assert (lease is not None, ledger.leases.holder_of(parted.dataset)) == (True, None)


@pytest.mark.parametrize("seed", range(2))
def test_however_it_is_cut_everything_goes_once(parted: Cycle, seed: int) -> None:
    """Also where parts have nothing, or one has it all."""
    dice = random.Random(seed)
    bounds: list[str | None] = [*sorted(dice.sample([*parted.due, "", "T05x", "~"], 4))]
    ranges = [NameRange(*ends) for ends in zip([None, *bounds], [*bounds, None], strict=True)]
    dice.shuffle(ranges)
    with parted.opened() as ledger, parted.dealt(ledger, ranges) as parts:
        results = parted.sweeps_at_once(parts)
    assert sum(one.outcomes[Outcome.DELETED] for one in results) == MARKS
    parted.is_done()


def test_versions_of_an_urn_go_with_each_other_whoever_is_faster(server: str, tmp_path: Path) -> None:
    """What is noted of the one counts on what stays of the others: in two parts, the slower one would spare what should go."""
    parted = made("aspects", tmp_path, f"sqlite:///{tmp_path}/ledger.db", server)
    with parted.opened() as ledger, parted.dealt(ledger, MARKS) as (first, *others):
        store = Elsewhere(parted.kept.store(), lambda: [parted.sweep(one) for one in others])
        parted.sweep(first, store)
        assert [one.names.first for one in others] == [f"urn:li:dataset:{name}@" for name in ("b", "d", "e")]
    parted.is_done()


@pytest.mark.parametrize("kind", ["files", "objects", "records"])
def test_a_part_that_is_swept_while_another_is_in_the_middle_of_a_batch_disturbs_it_in_nothing(
    kind: str, server: str, tmp_path: Path
) -> None:
    """Not with the last of its rows, nor with anything that it writes beside the data."""
    parted = made(kind, tmp_path, f"sqlite:///{tmp_path}/ledger.db", server)
    with parted.opened() as ledger, parted.dealt(ledger, 2) as (first, second):
        result = parted.sweep(first, Elsewhere(parted.kept.store(), lambda: parted.sweep(second)))
    assert result.outcomes[Outcome.DELETED] == MARKS // 2
    parted.is_done()


def test_a_part_that_is_begun_anew_is_finished_by_the_newer_attempt_alone(
    parted: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one has deleted a batch by then, and can't write down that it did."""
    monkeypatch.setattr(permit, "_LOOK", 0.01)
    newer, seen, waits, may_begin = list[Any](), list[Counter[str]](), threading.Event(), Parts.may_begin

    def asks(parts: Parts, joined: JoinedPart) -> bool:
        answer = may_begin(parts, joined)
        if not answer:
            waits.set()
        return answer

    monkeypatch.setattr(Parts, "may_begin", asks)
    with parted.opened() as ledger, parted.dealt(ledger, 2) as (first, second):
        thread = threading.Thread(target=lambda: newer.append(parted.sweep(first)))

        def begins_anew() -> None:
            thread.start()
            waits.wait(LONG)
            seen.append(Counter(parted.statuses().values()))

        with pytest.raises(PartBegunAnew, match="attempt 1"):
            parted.sweep(first, Elsewhere(parted.kept.store(), begins_anew))
        thread.join(LONG)
        parted.sweep(second)
    # Until the older one had ended, nothing of what it had begun was anybody else's.
    assert waits.is_set()
    assert seen == [{"MARKED": MARKS - 2, "SWEEPING": 2}]
    outcomes = newer[0].outcomes
    assert (outcomes[Outcome.ALREADY_GONE], outcomes[Outcome.DELETED]) == (2, MARKS // 2 - 2)
    parted.is_done()


def test_an_attempt_that_waits_and_is_not_the_newest_any_more_gives_no_answer_either(
    parted: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parted.opened() as ledger, parted.dealt(ledger, 2) as (first, _):

        def asks(parts: Parts, _: JoinedPart) -> bool:
            return bool(parts.join(first))

        monkeypatch.setattr(Parts, "may_begin", asks)
        with pytest.raises(PartBegunAnew, match="attempt 1"):
            parted.sweep(first)
    assert set(parted.statuses().values()) == {"MARKED"}


def test_a_task_that_has_to_stop_does_not_wait_for_an_older_attempt(parted: Cycle) -> None:
    with parted.opened() as ledger, parted.dealt(ledger, 2) as (first, _):
        ledger.parts.join(first)
        stop = threading.Event()
        stop.set()
        with permit.hold_part(ledger, first, stop) as held:
            assert held.leases == {}


@pytest.mark.parametrize("taken", [False, True], ids=["expired", "taken"])
def test_parts_whose_lease_is_lost_end_with_the_batch_in_flight(parted: Cycle, taken: bool) -> None:
    with parted.opened() as ledger, parted.dealt(ledger, 2) as (first, second):

        def loses() -> None:
            change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
            if taken:
                take_lease(ledger, parted.dataset, "bob")

        result = parted.sweep(first, Elsewhere(parted.kept.store(), loses))
        assert f"{'bob' if taken else 'nobody'} has taken it since" in str(result.refused)
        assert f"{'bob' if taken else 'nobody'} has taken it since" in str(parted.sweep(second).refused)
    assert sorted(parted.statuses().values()) == ["MARKED"] * (MARKS - 2) + ["SWEEPING"] * 2
    with parted.opened() as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
    parted.sweep()
    parted.is_done()


def test_a_part_deletes_nothing_once_whoever_dealt_it_out_is_silent_for_long(parted: Cycle) -> None:
    """The lease is not over yet, and nobody extends it: what is left of it is for what was begun."""
    with parted.opened() as ledger:
        take_lease(ledger, parted.dataset, RUN, 50)
        (part,) = [DatasetPart(lease, 0, NameRange(), MARKS) for lease in ledger.leases.held()]
        result = parted.sweep(part)
    assert "Nothing further is deleted" in str(result.refused)
    assert set(parted.statuses().values()) == {"MARKED"}


def killed(parted: Cycle, part: DatasetPart, last: int) -> None:
    """A task is killed at one of its acts; what it knew of the lease is over."""
    arguments = (last, parted.url, parted.kept.store(), parted.settings, part)
    task = forking().Process(target=sweep_until, args=arguments)
    task.start()
    task.join()
    assert task.exitcode == -signal.SIGKILL


# Before it has begun a batch, in the middle of it, and before it has settled it.
@pytest.mark.parametrize("last", [36, 45, 51])
def test_a_part_that_is_killed_is_finished_by_its_next_attempt(parted: Cycle, last: int) -> None:
    with parted.opened() as ledger, parted.dealt(ledger, 2) as (first, second):
        killed(parted, first, last)
        assert ledger.verify().faults == ()
        parted.sweep(second)
        change_leases(ledger, f"UPDATE lease_parts SET expires_at = expires_at - {LEASE} WHERE part = 0")
        result = parted.sweep(first)
    assert (result.refused, result.errors) == (None, [])
    parted.is_done()


def test_what_a_killed_part_had_begun_is_finished_by_the_next_run(parted: Cycle) -> None:
    with parted.opened() as ledger, parted.dealt(ledger, 2) as (first, second):
        killed(parted, first, 45)
        parted.sweep(second)
    with parted.opened() as ledger:
        # It may still be at work, so that the lease was not given up and ends by itself.
        assert [one.token for one in ledger.leases.held()] == [first.lease.token]
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        assert ledger.sweep_runs.abandoned(RUN) == [parted.dataset]
    assert "SWEEPING" in parted.statuses().values()
    parted.sweep()
    parted.is_done()
