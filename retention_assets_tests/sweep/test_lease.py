"""Leases, permits, and what they refuse: who loses a lease, a ledger or the time, or hears of a hold, deletes nothing more.

Hearts beat and clocks turn when the test says so. A store asks for its permit five times for each transaction of these lakes:
for the transaction, for each of its two files, and for its two folders.
"""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from retention_assets.clock import Moment, moment, now
from retention_assets.errors import Refused, Withheld
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import SECONDS, Lease, Ledger, Plan, open_ledger
from retention_assets.ledger.batches import Moved, Sweeps
from retention_assets.ledger.leases import PERMITTED, Leases, TakenLeases
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Hold
from retention_assets.sql.foreign import IDLE_SECONDS, STATEMENT_SECONDS
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import Permit, SweptTarget, Target, always
from retention_assets.sweep import Sweeper, SweepPermit, SweepResult
from retention_assets.sweep import permit as module
from retention_assets.sweep.execute import execute_order
from retention_assets.sweep.permit import LedgerFailed, ProtectionsChanged, hold_lease
from retention_assets_tests.ledger.states import change_leases, take_lease, write_past_ledger
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake

pytestmark = pytest.mark.dialect

# A life that is not the usual one, and longer than any test. Only a test that hangs would wait so long as the other.
LIFE, LONG = 10_000.0, 60.0


class Pulse(threading.Event):
    """What a heart waits with: its time is over when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.over = SimpleQueue[float | None](), SimpleQueue[bool]()

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.put(timeout)
        return self.over.get(timeout=LONG)

    def set(self) -> None:
        super().set()
        self.over.put(True)

    def waits(self) -> float | None:
        """For how long the heart waits now; comes back as soon as it does."""
        return self.asked.get(timeout=LONG)

    def beats(self) -> None:
        """The time is over, and the heart has beaten and waits again."""
        self.over.put(False)
        assert self.waits() is not None


@pytest.fixture
def pulses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Pulse]]:
    """What the hearts of this test wait with, in their order. In the end none of them beats."""
    made: list[Pulse] = []

    def pulse() -> Pulse:
        made.append(Pulse())
        return made[-1]

    monkeypatch.setattr(module, "threading", SimpleNamespace(Event=pulse, Thread=threading.Thread))
    yield made
    assert hearts() == []


def hearts() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("lease of ")]


@pytest.fixture
def on_file(lake: Lake) -> Iterator[Ledger]:
    with lake.opened() as opened:
        yield opened


def runs_out(on_file: Ledger) -> datetime:
    """Every lease has a minute less to live; when the one of lake/d ends."""
    change_leases(on_file, "UPDATE leases SET expires_at = expires_at - 60000000")
    return ends_at(on_file)


def ends_at(on_file: Ledger) -> datetime:
    lease = on_file.leases.holder_of("lake/d")
    assert lease is not None
    return lease.expires_at


def test_a_lease_that_is_held_lives_on_and_no_other_does(on_file: Ledger, pulses: list[Pulse]) -> None:
    other = take_lease(on_file, "lake/e", "ann", LIFE)
    with hold_lease(on_file, "lake/d", "ann", LIFE) as (lease, _):
        (pulse,) = pulses
        assert 0 < (pulse.waits() or 0) <= LIFE / 3
        for _ in range(2):
            assert runs_out(on_file) < lease.expires_at
            pulse.beats()
            assert ends_at(on_file) >= lease.expires_at
        late = on_file.leases.holder_of("lake/e")
        assert late is not None
        assert late.expires_at < other.expires_at


def test_a_beat_that_the_database_misses_is_made_up_for(
    on_file: Ledger, pulses: list[Pulse], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat, missed = Leases.beat, [OperationalError("UPDATE leases", {}, Exception("the other end is gone"))]

    def misses(self: Leases, leases: Collection[Lease], seconds: float) -> TakenLeases:
        if missed:
            raise missed.pop()
        return beat(self, leases, seconds)

    monkeypatch.setattr(Leases, "beat", misses)
    with hold_lease(on_file, "lake/d", "ann", LIFE) as (lease, _):
        (pulse,) = pulses
        pulse.waits()
        ends = runs_out(on_file)
        pulse.beats()
        assert ends_at(on_file) == ends
        pulse.beats()
        assert ends_at(on_file) >= lease.expires_at


def test_a_heart_ends_with_its_lease_and_leaves_the_next_one_alone(on_file: Ledger, pulses: list[Pulse]) -> None:
    with hold_lease(on_file, "lake/d", "ann", LIFE):
        change_leases(on_file, "UPDATE leases SET expires_at = taken_at")
        after = take_lease(on_file, "lake/d", "bob", LIFE)
        (pulse,) = pulses
        (heart,) = hearts()
        pulse.over.put(False)
        heart.join(LONG)
        assert not heart.is_alive()
        assert ends_at(on_file) == after.expires_at
    assert on_file.leases.holder_of("lake/d") == after


def test_a_lease_is_given_up_at_once_however_it_ends(on_file: Ledger, pulses: list[Pulse]) -> None:
    with pytest.raises(ZeroDivisionError), hold_lease(on_file, "lake/d", "ann", LIFE):
        raise ZeroDivisionError(*hearts())
    assert hearts() == []
    assert on_file.leases.holder_of("lake/d") is None
    with hold_lease(on_file, "lake/d", "bob", LIFE) as (lease, _):
        assert on_file.leases.holder_of("lake/d") == lease
    assert len(pulses) == 2


def test_a_lease_that_another_has_is_refused_and_no_heart_beats_for_it(on_file: Ledger, pulses: list[Pulse]) -> None:
    lease = take_lease(on_file, "lake/d", "bob", LIFE)
    with pytest.raises(Refused, match="is being swept by bob"), hold_lease(on_file, "lake/d", "ann", LIFE):
        pytest.fail("it was taken")
    assert pulses == []
    assert on_file.leases.holder_of("lake/d") == lease


SENT = Moment(1_000_000.0, 5_000.0)
HELD = Lease("lake/d", "ann", 1, datetime(2026, 1, 1, tzinfo=UTC), "none", "here")


class Clocks:
    """Two clocks that show what the test says, at first the moment at which the lease was asked for."""

    def __init__(self) -> None:
        self.wall, self.running = SENT.wall, SENT.running

    def __call__(self) -> Moment:
        return Moment(self.wall, self.running)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def permit(clocks: Clocks) -> SweepPermit:
    """Of a lease of a hundred seconds."""
    permit = SweepPermit(clocks)
    permit.confirm(HELD, SENT, 100)
    return permit


@pytest.mark.parametrize(
    ("wall", "running", "said"),
    [
        pytest.param(0, 0, None, id="at once"),
        pytest.param(50, 50, None, id="half of the lease later"),
        pytest.param(50.1, 50.1, "was last confirmed 50 s ago", id="a little later than that"),
        pytest.param(125, 125, "was last confirmed 125 s ago", id="the program was stopped"),
        pytest.param(0.5, 125, "was last confirmed 125 s ago", id="stopped, and the wall clock was set back meanwhile"),
        pytest.param(125, 0.5, "was last confirmed 125 s ago", id="slept, where the other clock stands still in sleep"),
        pytest.param(4000, 1, "was last confirmed 4000 s ago", id="the wall clock was set ahead"),
        pytest.param(-4000, 1, "went back by 4000 s", id="the wall clock was set back"),
        pytest.param(-1.5, 1, "went back by 2 s", id="set back by little"),
        pytest.param(-0.5, 1, None, id="set right by a server of time"),
        pytest.param(1, -1, "was last confirmed", id="the other clock went back, as after another start of the machine"),
    ],
)
def test_a_permit_counts_by_both_clocks_from_before_its_lease_was_asked_for(
    permit: SweepPermit, clocks: Clocks, wall: float, running: float, said: str | None
) -> None:
    clocks.wall, clocks.running = SENT.wall + wall, SENT.running + running
    if said is None:
        permit()
        return
    with pytest.raises(Withheld, match=said):
        permit()


def test_a_beat_counts_from_when_it_was_sent_and_not_from_when_it_was_answered(permit: SweepPermit, clocks: Clocks) -> None:
    clocks.wall, clocks.running = SENT.wall + 70, SENT.running + 70
    permit.confirm(HELD, Moment(SENT.wall + 10, SENT.running + 10), 100)
    with pytest.raises(Withheld, match="60 s ago"):
        permit()
    permit.confirm(HELD, Moment(SENT.wall + 69, SENT.running + 69), 100)
    permit()


def test_a_lease_that_is_lost_refuses_for_ever_with_the_first_reason(permit: SweepPermit, clocks: Clocks) -> None:
    permit.end("bob has it")
    permit.end("and another reason")
    permit.confirm(HELD, clocks(), 100)
    with pytest.raises(Withheld, match="bob has it"):
        permit()


def test_a_beat_that_brings_other_holds_refuses_until_it_is_checked_again(permit: SweepPermit, clocks: Clocks) -> None:
    other = Lease(HELD.dataset, HELD.holder, HELD.token, HELD.expires_at, "a hold", "here")
    # Nothing has been checked yet that it could change.
    permit.confirm(other, clocks(), 100)
    permit()
    permit.check_against("none")
    permit()
    permit.confirm(HELD, clocks(), 100)
    permit()
    permit.confirm(other, clocks(), 100)
    for _ in range(2):
        with pytest.raises(ProtectionsChanged):
            permit()
    # What was noticed is not forgotten by a hold that is gone again: what it kept may have been spared for nothing, no more.
    permit.confirm(HELD, clocks(), 100)
    with pytest.raises(ProtectionsChanged):
        permit()
    permit.check_against("none")
    permit()


def test_a_lost_lease_is_said_before_a_hold(permit: SweepPermit, clocks: Clocks) -> None:
    """A hold is a reason to check again; without the lease there is nothing to go on with."""
    permit.check_against("a hold")
    permit.confirm(HELD, clocks(), 100)
    permit.end("bob has it")
    with pytest.raises(Withheld, match="bob has it") as refusal:
        permit()
    assert not isinstance(refusal.value, ProtectionsChanged)


def test_a_beat_from_another_database_refuses(permit: SweepPermit, clocks: Clocks) -> None:
    """The server was replaced behind its name by one that was restored, lease and all."""
    permit.confirm(Lease(HELD.dataset, HELD.holder, 1, HELD.expires_at, "none", "there"), clocks(), 100)
    with pytest.raises(Withheld, match="the ledger is another database now: there; it was here"):
        permit()


def test_what_was_begun_under_a_permit_ends_before_the_lease() -> None:
    assert STATEMENT_SECONDS < IDLE_SECONDS < SECONDS * (1 - PERMITTED)


def test_the_clocks_of_a_permit_are_real_ones() -> None:
    first, second = moment(), moment()
    assert first.running <= second.running
    assert abs(first.wall - now().timestamp()) < 60


# --- with a ledger ---


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


def test_a_permit_is_good_as_long_as_its_lease_is_held(ledger: Ledger) -> None:
    with pytest.raises(Withheld, match="no lease is held"):
        SweepPermit()()
    with hold_lease(ledger, "lake/d", "ann") as (_, permit):
        permit()
    with pytest.raises(Withheld, match="the sweep is over"):
        permit()


def hold(name: str) -> Hold:
    return Hold.model_validate({"name": name, "datasets": ["*"], "reason": "case 7"})


CHANGES: dict[str, Callable[[Ledger], object]] = {
    "a hold is placed": lambda ledger: ledger.holds.place(hold("legal"), "ann"),
    "a hold is released": lambda ledger: ledger.holds.release("first", "ann", "over"),
    "a hold is made longer past the ledger": lambda ledger: write_past_ledger(
        ledger, "UPDATE holds SET content = content || ' '"
    ),
    "a realm changes": lambda ledger: ledger.realms.change("acme", "INACTIVE", "ann", "quiet"),
    "a realm changes back": lambda ledger: ledger.realms.change("beta", "ACTIVE", "ann", "loud"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_what_protects_is_told_by_the_next_beat(ledger: Ledger, change: str) -> None:
    ledger.holds.place(hold("first"), "ann")
    ledger.realms.change("beta", "INACTIVE", "ann", "quiet")
    lease = take_lease(ledger, "lake/d", "ann")
    assert lease.protections == ledger.leases.protections() == ledger.leases.beat([lease]).leases[lease.dataset].protections
    CHANGES[change](ledger)
    told = ledger.leases.beat([lease]).leases[lease.dataset]
    assert told.protections == ledger.leases.protections() != lease.protections
    assert told.database == lease.database


ASKS = 5
NOTHING = "A sweep had begun on it, but has deleted nothing of it. "
SOME = "A sweep had begun on it, and some of it is gone. "


@pytest.fixture
def pulse(monkeypatch: pytest.MonkeyPatch) -> Pulse:
    one = Pulse()
    monkeypatch.setattr(module, "threading", SimpleNamespace(Event=lambda: one, Thread=threading.Thread))
    return one


@pytest.fixture
def marked(lake: Lake) -> Lake:
    """Five marks that are due, in one batch."""
    lake.says(OLD.replace("batch: 2", "batch: 5"))
    assert lake.has(FIVE).marks() == 5
    return lake


def sweeps(lake: Lake, happens: Callable[[], object], before: int, files: int = 0) -> SweepResult:
    """Sweep; so many transactions, and files of the next one, are gone when something happens."""
    (result,) = lake.sweeps(store=lake.elsewhere(happens, "permit", before * ASKS + 1 + files)).values()
    return result


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
    result = sweeps(marked, noticed(pulse, lambda: marked.hold("lake/*", "S4")), before=2)
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
    result = sweeps(marked, noticed(pulse, marked.hold), before=2, files=2)
    assert result.outcomes == {Outcome.DELETED: 2, Outcome.SPARED: 3}
    assert marked.there() == {"S3", "S4", "S5", "S6"}
    assert len(list(marked.place("lake/d", "S3").rglob("*.parquet"))) == 1
    whys = [marked.why(name) for name in ("S3", "S4", "S5")]
    assert whys == [f"{left}Hold 'legal' keeps it." for left in (SOME, NOTHING, NOTHING)]


def test_a_change_that_keeps_nothing_ends_a_batch_and_not_the_sweep(marked: Lake, pulse: Pulse) -> None:
    result = sweeps(marked, noticed(pulse, lambda: marked.change_realm("beta", "PURGING")), before=1, files=1)
    assert (result.refused, result.planned, result.outcomes) == (None, 5, {Outcome.DELETED: 5})
    assert marked.there() == {"S6"}
    assert marked.report()["deleted"] == 5


def test_what_fails_before_a_hold_comes_is_not_tried_again_in_the_same_sweep(marked: Lake, pulse: Pulse) -> None:
    place = marked.place("lake/d", "S1")
    shutil.rmtree(place)
    place.write_text("no folder")
    happens = noticed(pulse, lambda: marked.hold("lake/*", "S4"))
    # S1 asks once and fails.
    (result,) = marked.sweeps(store=marked.elsewhere(happens, "permit", 1 + ASKS + 1)).values()
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
    assert "was removed or replaced since it was opened, so nothing could be recorded" in str(result.refused)
    assert "It has just deleted 2 transactions, which may not be recorded" in str(result.refused)


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
    "no room for a row": (("UPDATE marks",), 99, True),
    "once for the lease as well": (("UPDATE marks", "UPDATE leases"), 2, True),
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
        store = marked.elsewhere(happens, "permit", 2 * ASKS + 1)
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
    answers = execute_order(store, "lake/d", {1: Target("S1"), 2: Target("S2")}, Order.DELETE, 1, refused)
    assert [(one.mark, one.outcome) for one in answers] == [(1, Outcome.WITHHELD), (2, Outcome.WITHHELD)]
    assert {one.error for one in answers} == {"not any more"}


def test_what_is_withheld_for_good_stays_begun_and_is_counted(marked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = marked.left()
    store = marked.elsewhere(lambda: monkeypatch.setattr(SweepPermit, "_late", lambda _: "this machine slept"), "permit")
    (result,) = marked.sweeps(store=store).values()
    assert result.refused == "Nothing further is deleted: this machine slept."
    assert (result.planned, result.outcomes) == (5, {Outcome.WITHHELD: 5})
    assert marked.left() == before
    assert marked.statuses() == dict.fromkeys(["S1", "S2", "S3", "S4", "S5"], "SWEEPING")


def test_a_hold_between_the_last_check_and_the_beginning_of_a_batch_keeps_all_of_it(
    marked: Lake, monkeypatch: pytest.MonkeyPatch, pulse: Pulse
) -> None:
    """No heart beats here: what the ledger says once the batch has begun is enough."""
    begin, batches = Sweeps.begin, list[Moved]()

    def held_first(
        self: Sweeps, leases: Collection[Lease], plans: Collection[Plan], marks: Collection[int], until: datetime | None
    ) -> Moved:
        if not batches:
            marked.hold("lake/d", "S2")
        batches.append(begin(self, leases, plans, marks, until))
        return batches[-1]

    monkeypatch.setattr(Sweeps, "begin", held_first)
    (result,) = marked.sweeps().values()
    assert len(batches[0].marks) == 5
    assert result.outcomes == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert marked.there() == {"S2", "S6"}
    assert marked.why("S2") == NOTHING + "Hold 'legal' keeps it."
