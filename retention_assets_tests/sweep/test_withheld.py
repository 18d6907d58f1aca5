"""What happens elsewhere in the middle of a batch: a hold, another sweeper, a ledger that is removed, a disk that is full.

A store asks for its permit five times for each transaction of these lakes: for the transaction, for each of its two files, and
for its two folders.
"""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event

from retention_assets.environment import Environment
from retention_assets.errors import Withheld
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import open_ledger
from retention_assets.ledger.batches import Moved, Plan, Sweeps
from retention_assets.ledger.leases import Lease
from retention_assets.outcomes import Outcome
from retention_assets.policy.model import Hold
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import LocatedStore, Permit, Store, SweptTarget, Target, always
from retention_assets.sweep import lease as lease_module
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper
from retention_assets.sweep.execute import execute_deletion
from retention_assets.sweep.lease import LedgerFailed
from retention_assets.sweep.permit import SweepPermit
from retention_assets_tests.ledger.states import change_leases, take_lease
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake
from retention_assets_tests.sweep.test_engine import FIVE
from retention_assets_tests.sweep.test_lease import Pulse, hearts

ASKS = 5
NOTHING = "A sweep had begun on it, and it has deleted nothing of it. "
SOME = "A sweep had begun on it, and some of it is gone. "


class Interrupted(RecordingStore):
    """A store that really deletes. When it asks for its permit for the so-manyth time, something happens elsewhere."""

    def __init__(self, store: Store, happens: Callable[[], object], ask: int) -> None:
        super().__init__(store)
        self.happens, self.ask, self.asked = happens, ask, 0

    def place(self, dataset: str, claim: bool = False) -> str | None:
        assert isinstance(self.store, LocatedStore)
        return self.store.place(dataset, claim)

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:  # noqa: ARG002 - one after the other, so that the test knows which
        def asks() -> None:
            self.asked += 1
            if self.asked == self.ask:
                self.happens()
            permit()

        return self.store.sweep(dataset, targets, 1, asks)


@pytest.fixture
def pulse(monkeypatch: pytest.MonkeyPatch) -> Pulse:
    """What the heart of the lease waits with, so that it beats when the test says so."""
    one = Pulse()
    monkeypatch.setattr(lease_module, "threading", SimpleNamespace(Event=lambda: one, Thread=threading.Thread))
    return one


@pytest.fixture
def marked(lake: Lake) -> Lake:
    """Five marks that are due, in one batch."""
    lake.says(OLD.replace("batch: 2", "batch: 5"))
    assert lake.has(FIVE).marks() == 5
    return lake


def sweeps(lake: Lake, happens: Callable[[], object], before: int, files: int = 0) -> SweepResult:
    """Sweep; so many transactions, and files of the next one, are gone when something happens."""
    (result,) = lake.sweeps(stores={"lake": Interrupted(lake.stores["lake"], happens, before * ASKS + 1 + files)}).values()
    return result


def held(lake: Lake, *transactions: str) -> None:
    hold = {"name": "legal", "datasets": ["lake/*"], "transactions": list(transactions) or None, "reason": "case 7"}
    with lake.opened() as ledger:
        ledger.holds.place(Hold.model_validate({key: value for key, value in hold.items() if value}), "ann")


def noticed(pulse: Pulse, happens: Callable[[], object]) -> Callable[[], None]:
    """It happens, and the next beat brings it."""

    def both() -> None:
        pulse.waits()
        happens()
        pulse.beats()

    return both


def test_a_hold_that_comes_in_the_middle_of_a_batch_keeps_what_has_not_gone_and_the_rest_goes(
    marked: Lake, pulse: Pulse
) -> None:
    result = sweeps(marked, noticed(pulse, lambda: held(marked, "S4")), before=2)
    assert (result.refused, result.errors) == (None, [])
    assert (result.planned, result.outcomes) == (4, {Outcome.DELETED: 4, Outcome.SPARED: 1})
    assert marked.there() == {"S4", "S6"}
    assert marked.why("S4") == f"{NOTHING}Hold 'legal' keeps it."
    report = marked.report()
    assert (report["deleted"], report["spared"], report["finished_at"] is None) == (4, 1, False)
    with marked.opened() as ledger, ledger.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*), count(finished_at) FROM plans").one() == (1, 1)
    assert marked.verified() == ()


def test_a_hold_on_everything_in_the_middle_of_a_batch_says_of_each_what_is_left(marked: Lake, pulse: Pulse) -> None:
    result = sweeps(marked, noticed(pulse, lambda: held(marked)), before=2, files=2)
    assert result.outcomes == {Outcome.DELETED: 2, Outcome.SPARED: 3}
    assert marked.there() == {"S3", "S4", "S5", "S6"}
    assert len(list(marked.place("lake/d", "S3").rglob("*.parquet"))) == 1
    assert {name: marked.why(name) for name in ("S3", "S4", "S5")} == {
        "S3": f"{SOME}Hold 'legal' keeps it.",
        "S4": f"{NOTHING}Hold 'legal' keeps it.",
        "S5": f"{NOTHING}Hold 'legal' keeps it.",
    }


def test_a_change_that_keeps_nothing_ends_a_batch_and_not_the_sweep(marked: Lake, pulse: Pulse) -> None:
    def happens() -> None:
        with marked.opened() as ledger:
            ledger.realms.change("beta", "PURGING", "ann", "contract over")

    result = sweeps(marked, noticed(pulse, happens), before=1, files=1)
    assert (result.refused, result.planned, result.outcomes) == (None, 5, {Outcome.DELETED: 5})
    assert marked.there() == {"S6"}
    assert marked.report()["deleted"] == 5


def test_what_fails_before_a_hold_comes_is_not_tried_again_in_the_same_sweep(marked: Lake, pulse: Pulse) -> None:
    place = marked.place("lake/d", "S1")
    shutil.rmtree(place)
    place.write_text("no folder")
    happens = noticed(pulse, lambda: held(marked, "S4"))
    # S1 asks once and fails.
    (result,) = marked.sweeps(stores={"lake": Interrupted(marked.stores["lake"], happens, 1 + ASKS + 1)}).values()
    assert result.outcomes == {Outcome.FAILED: 1, Outcome.DELETED: 3, Outcome.SPARED: 1}
    with marked.opened() as ledger:
        (failed,) = ledger.marks.table(["lake/d"], ["MARKED"]).to_pylist()
    assert (failed["transaction"], failed["attempts"]) == ("S1", 1)


def test_a_lease_that_is_lost_in_the_middle_of_a_batch_ends_it_there(marked: Lake, pulse: Pulse) -> None:
    def happens() -> None:
        pulse.waits()
        with marked.opened() as ledger:
            change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
            take_lease(ledger, "lake/d", "bob")
        (heart,) = hearts()
        pulse.over.put(False)
        heart.join(60)

    result = sweeps(marked, happens, before=2)
    assert "has lost the lease of lake/d" in str(result.refused)
    assert "bob has taken it since" in str(result.refused)
    assert marked.there() == {"S3", "S4", "S5", "S6"}
    assert marked.statuses() == dict.fromkeys(["S1", "S2", "S3", "S4", "S5"], "SWEEPING")


LOST: dict[str, Callable[[Path], object]] = {
    "removed": lambda file: file.unlink(),
    "moved": lambda file: file.rename(file.with_name("moved.db")),
    "replaced by a copy": lambda file: shutil.copy(file, file.with_name("copy.db")) and file.with_name("copy.db").replace(file),
    "its second file removed": lambda file: file.with_name(f"{file.name}-wal").unlink(),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_ledger_that_is_lost_in_the_middle_of_a_batch_ends_the_sweep_and_it_says_so(marked: Lake, lost: str) -> None:
    result = sweeps(marked, lambda: LOST[lost](marked.folder / "ledger.db"), before=2)
    assert marked.there() == {"S3", "S4", "S5", "S6"}
    assert "was removed or replaced since it was opened, so that nothing could be recorded" in str(result.refused)
    assert "It has just deleted 2 transactions, of which there may be no record" in str(result.refused)


@pytest.mark.parametrize("lost", [name for name in LOST if "second" not in name])
def test_a_ledger_that_is_lost_before_the_first_batch_deletes_nothing(marked: Lake, lost: str) -> None:
    with marked.opened() as ledger:
        rulebook = load_rulebook(ledger, marked.settings, "test")
        LOST[lost](marked.folder / "ledger.db")
        (result,) = Sweeper(ledger, marked.stores, rulebook, DUE, "test").run(["lake/d"])
    assert "was removed or replaced since it was opened" in str(result.refused)
    assert marked.there() == {"S1", "S2", "S3", "S4", "S5", "S6"}


# Which writes fail from the moment at which the disk is full: an insert needs room, an update of one row may find it.
FULL = {
    "no room for a row": (("INSERT INTO steps",), 99, True),
    "once for the lease as well": (("INSERT INTO steps", "UPDATE leases"), 2, True),
    "no room at all": (("INSERT", "UPDATE"), 99, False),
}


@pytest.mark.parametrize("full", FULL)
def test_a_full_disk_ends_the_sweep_with_a_remedy_and_leaves_no_lease_behind(marked: Lake, full: str) -> None:
    statements, times, given_up = FULL[full]
    is_full = False

    def fails(_: Any, statement: str, *__: Any) -> None:
        nonlocal times
        if is_full and times and statement.startswith(statements):
            times -= 1
            raise sqlite3.OperationalError("database or disk is full")

    def happens() -> None:
        nonlocal is_full
        is_full = True

    with open_ledger(marked.settings.ledger) as ledger:
        for kind in ("do_execute", "do_executemany"):
            event.listen(ledger.database.engine, kind, fails)
        store = Interrupted(marked.stores["lake"], happens, 2 * ASKS + 1)
        sweeper = Sweeper(ledger, {"lake": store}, load_rulebook(ledger, marked.settings, "test"), DUE, "test")
        with pytest.raises(LedgerFailed, match=r"database or disk is full.*Make room on the ledger's disk") as refusal:
            list(sweeper.run(["lake/d", "lake/e"]))
        is_full = False
        assert (ledger.leases.held() == []) == given_up
        assert ("it ends by itself in 120 s" in str(refusal.value)) != given_up
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
    (result,) = marked.sweeps().values()
    assert result.outcomes == {Outcome.ALREADY_GONE: 5}
    assert marked.verified() == ()


class Raising(RecordingStore):
    """A store that lets the refusal of a permit through."""

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        del dataset, targets, parallelism
        permit()
        raise AssertionError("it was permitted")


def test_what_a_store_raises_because_of_its_permit_settles_nothing(lake: Lake) -> None:
    def refused() -> None:
        raise Withheld("not any more")

    store = Raising(lake.stores["lake"])
    answers = execute_deletion(store, "lake/d", {1: Target("S1"), 2: Target("S2")}, 1, refused)
    assert [(one.mark, one.outcome, one.error) for one in answers] == [
        (1, Outcome.WITHHELD, "not any more"),
        (2, Outcome.WITHHELD, "not any more"),
    ]


def test_what_is_withheld_for_good_stays_begun_and_is_counted(marked: Lake) -> None:
    before = marked.left()

    with marked.opened() as ledger:
        store = Environment(marked.settings).stores()["lake"]
        asks = Interrupted(store, lambda: None, 1)
        real = asks.sweep

        def sweep(dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
            assert isinstance(permit, SweepPermit)
            permit.end("this machine slept")
            return real(dataset, targets, parallelism, permit)

        asks.sweep = sweep  # type: ignore[method-assign]
        (result,) = Sweeper(ledger, {"lake": asks}, load_rulebook(ledger, marked.settings, "test"), DUE, "test").run(["lake/d"])
    assert result.refused == "Nothing further is deleted: this machine slept."
    assert (result.planned, result.outcomes) == (5, {Outcome.WITHHELD: 5})
    assert marked.left() == before
    assert marked.statuses() == dict.fromkeys(["S1", "S2", "S3", "S4", "S5"], "SWEEPING")


def test_a_hold_between_the_last_check_and_the_beginning_of_a_batch_keeps_all_of_it(
    marked: Lake, monkeypatch: pytest.MonkeyPatch, pulse: Pulse
) -> None:
    """No heart beats here: what the ledger says once the batch has begun is enough."""
    begin, batches = Sweeps.begin, list[Moved]()

    def held_first(self: Sweeps, leases: Collection[Lease], plans: Collection[Plan], marks: Collection[int]) -> Moved:
        if not batches:
            with marked.opened() as ledger:
                hold = {"name": "legal", "datasets": ["lake/d"], "transactions": ["S2"], "reason": "case 7"}
                ledger.holds.place(Hold.model_validate(hold), "ann")
        batches.append(begin(self, leases, plans, marks))
        return batches[-1]

    monkeypatch.setattr(Sweeps, "begin", held_first)
    (result,) = marked.sweeps().values()
    assert len(batches[0].marks) == 5
    assert result.outcomes == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert marked.there() == {"S2", "S6"}
    assert marked.why("S2") == NOTHING + "Hold 'legal' keeps it."
