"""A lease lives as long as its sweeper: the heart beats several times in the life of a lease, by a clock that the test turns."""

import threading
from collections.abc import Collection, Iterator
from datetime import datetime
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import SECONDS, Lease, Leases, TakenLeases
from retention_assets.sweep import lease as module
from retention_assets.sweep.lease import hold_lease
from retention_assets_tests.ledger.states import change_leases, take_lease
from retention_assets_tests.sweep.lakes import Elsewhere, Lake
from retention_assets_tests.sweep.test_engine import FIVE

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
    """Those that beat."""
    return [one for one in threading.enumerate() if one.name.startswith("lease of ")]


@pytest.fixture
def ledger(lake: Lake) -> Iterator[Ledger]:
    """A ledger in SQLite."""
    with lake.opened() as opened:
        yield opened


def runs_out(ledger: Ledger) -> datetime:
    """Every lease has a minute less to live; when the one of lake/d ends."""
    change_leases(ledger, "UPDATE leases SET expires_at = expires_at - 60000000")
    return ends_at(ledger)


def ends_at(ledger: Ledger) -> datetime:
    """When the lease of lake/d ends."""
    lease = ledger.leases.holder_of("lake/d")
    assert lease is not None
    return lease.expires_at


def test_a_lease_that_is_held_lives_on_and_no_other_does(ledger: Ledger, pulses: list[Pulse]) -> None:
    other = take_lease(ledger, "lake/e", "ann", LIFE)
    with hold_lease(ledger, "lake/d", "ann", LIFE) as (lease, _):
        (pulse,) = pulses
        assert 0 < (pulse.waits() or 0) <= LIFE / 3
        for _ in range(2):
            assert runs_out(ledger) < lease.expires_at
            pulse.beats()
            assert ends_at(ledger) >= lease.expires_at
        late = ledger.leases.holder_of("lake/e")
        assert late is not None
        assert late.expires_at < other.expires_at


def test_a_beat_that_the_database_misses_is_made_up_for(
    ledger: Ledger, pulses: list[Pulse], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat, missed = Leases.beat, [OperationalError("UPDATE leases", {}, Exception("the other end is gone"))]

    def misses(self: Leases, leases: Collection[Lease], seconds: float) -> TakenLeases:
        if missed:
            raise missed.pop()
        return beat(self, leases, seconds)

    monkeypatch.setattr(Leases, "beat", misses)
    with hold_lease(ledger, "lake/d", "ann", LIFE) as (lease, _):
        (pulse,) = pulses
        pulse.waits()
        ends = runs_out(ledger)
        pulse.beats()
        assert ends_at(ledger) == ends
        pulse.beats()
        assert ends_at(ledger) >= lease.expires_at


def test_a_heart_ends_with_its_lease_and_leaves_the_next_one_alone(ledger: Ledger, pulses: list[Pulse]) -> None:
    with hold_lease(ledger, "lake/d", "ann", LIFE):
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        after = take_lease(ledger, "lake/d", "bob", LIFE)
        (pulse,) = pulses
        (heart,) = hearts()
        pulse.over.put(False)
        heart.join(LONG)
        assert not heart.is_alive()
        assert ends_at(ledger) == after.expires_at
    assert ledger.leases.holder_of("lake/d") == after


def test_a_lease_is_given_up_at_once_however_it_ends(ledger: Ledger, pulses: list[Pulse]) -> None:
    with pytest.raises(ZeroDivisionError), hold_lease(ledger, "lake/d", "ann", LIFE):
        raise ZeroDivisionError(*hearts())
    assert hearts() == []
    assert ledger.leases.holder_of("lake/d") is None
    with hold_lease(ledger, "lake/d", "bob", LIFE) as (lease, _):
        assert ledger.leases.holder_of("lake/d") == lease
    assert len(pulses) == 2


def test_a_lease_that_another_has_is_refused_and_no_heart_beats_for_it(ledger: Ledger, pulses: list[Pulse]) -> None:
    lease = take_lease(ledger, "lake/d", "bob", LIFE)
    with pytest.raises(Refused, match="is being swept by bob"), hold_lease(ledger, "lake/d", "ann", LIFE):
        pytest.fail("it was taken")
    assert pulses == []
    assert ledger.leases.holder_of("lake/d") == lease


def test_the_lease_of_a_dataset_lives_on_while_a_batch_takes_its_time(lake: Lake, ledger: Ledger, pulses: list[Pulse]) -> None:
    lake.has(FIVE).marks()
    ends: list[datetime] = []

    def happens() -> None:
        (pulse,) = pulses
        assert (pulse.waits() or 0) <= SECONDS / 3
        ends.append(runs_out(ledger))
        pulse.beats()
        ends.append(ends_at(ledger))

    lake.sweeps(stores={"lake": Elsewhere(lake.stores["lake"], False, happens)})
    assert ends[0] < ends[1]
    assert lake.there() == {"S6"}
