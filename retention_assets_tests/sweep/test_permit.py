"""The permit: refused as soon as the lease may be lost, the ledger is another one, or a hold came; by clocks that the test turns."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from retention_assets.clock import Moment, moment, now
from retention_assets.errors import Refused, Withheld
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.leases import PERMITTED, SECONDS, Lease
from retention_assets.policy.model import Hold
from retention_assets.sql.foreign import IDLE_SECONDS, STATEMENT_SECONDS
from retention_assets.sweep.lease import hold_lease
from retention_assets.sweep.permit import ProtectionsChanged, SweepPermit
from retention_assets_tests.ledger.states import change_leases, take_lease, write_past_ledger

SENT = Moment(1_000_000.0, 5_000.0)
LEASE = Lease("lake/d", "ann", 1, datetime(2026, 1, 1, tzinfo=UTC), "none", "here")


class Clocks:
    """Two clocks that show what the test says."""

    def __init__(self) -> None:
        self.wall, self.running = SENT.wall, SENT.running

    def __call__(self) -> Moment:
        return Moment(self.wall, self.running)


@pytest.fixture
def clocks() -> Clocks:
    """Both at the moment at which the lease was asked for."""
    return Clocks()


@pytest.fixture
def permit(clocks: Clocks) -> SweepPermit:
    """Of a lease of a hundred seconds."""
    permit = SweepPermit(clocks)
    permit.confirm(LEASE, SENT, 100)
    return permit


def test_a_permit_without_a_lease_is_refused() -> None:
    with pytest.raises(Withheld, match="no lease is held"):
        SweepPermit()()


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
    permit.confirm(LEASE, Moment(SENT.wall + 10, SENT.running + 10), 100)
    with pytest.raises(Withheld, match="60 s ago"):
        permit()
    permit.confirm(LEASE, Moment(SENT.wall + 69, SENT.running + 69), 100)
    permit()


def test_a_lease_that_is_lost_refuses_for_ever_with_the_first_reason(permit: SweepPermit, clocks: Clocks) -> None:
    permit.end("bob has it")
    permit.end("and another reason")
    permit.confirm(LEASE, clocks(), 100)
    with pytest.raises(Withheld, match="bob has it"):
        permit()


def test_a_beat_that_brings_other_holds_refuses_until_it_is_checked_again(permit: SweepPermit, clocks: Clocks) -> None:
    other = Lease(LEASE.dataset, LEASE.holder, LEASE.token, LEASE.expires_at, "a hold", "here")
    # Nothing has been checked yet that it could change.
    permit.confirm(other, clocks(), 100)
    permit()
    permit.check_against("none")
    permit()
    permit.confirm(LEASE, clocks(), 100)
    permit()
    permit.confirm(other, clocks(), 100)
    for _ in range(2):
        with pytest.raises(ProtectionsChanged):
            permit()
    # What was noticed is not forgotten by a hold that is gone again: what it kept may have been spared for nothing, no more.
    permit.confirm(LEASE, clocks(), 100)
    with pytest.raises(ProtectionsChanged):
        permit()
    permit.check_against("none")
    permit()


def test_a_lost_lease_is_said_before_a_hold(permit: SweepPermit, clocks: Clocks) -> None:
    """A hold is a reason to check again; without the lease there is nothing to go on with."""
    permit.check_against("a hold")
    permit.confirm(LEASE, clocks(), 100)
    permit.end("bob has it")
    with pytest.raises(Withheld, match="bob has it") as refusal:
        permit()
    assert not isinstance(refusal.value, ProtectionsChanged)


def test_a_beat_from_another_database_refuses(permit: SweepPermit, clocks: Clocks) -> None:
    """The server was replaced behind its name by one that was restored, lease and all."""
    permit.confirm(Lease(LEASE.dataset, LEASE.holder, 1, LEASE.expires_at, "none", "there"), clocks(), 100)
    with pytest.raises(Withheld, match="the ledger is another database than before: there, and it was here"):
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
    """An empty ledger, on either database."""
    with open_ledger(url) as opened:
        yield opened


def test_a_permit_is_good_as_long_as_its_lease_is_held(ledger: Ledger) -> None:
    with hold_lease(ledger, "lake/d", "ann") as (_, permit):
        permit()
    with pytest.raises(Withheld, match="the sweep is over"):
        permit()


def test_a_permit_of_a_lease_that_another_has_is_refused(ledger: Ledger) -> None:
    take_lease(ledger, "lake/d", "bob")
    with pytest.raises(Refused, match="is being swept by bob"), hold_lease(ledger, "lake/d", "ann"):
        pytest.fail("it was taken")


def placed(ledger: Ledger) -> None:
    ledger.holds.place(Hold.model_validate({"name": "legal", "datasets": ["*"], "reason": "case 7"}), "ann")


CHANGES: dict[str, Callable[[Ledger], object]] = {
    "a hold is placed": placed,
    "a hold is released": lambda ledger: ledger.holds.release("first", "ann", "over"),
    "a hold is made longer past the ledger": lambda ledger: write_past_ledger(
        ledger, "UPDATE holds SET content = content || ' '"
    ),
    "a realm changes": lambda ledger: ledger.realms.change("acme", "INACTIVE", "ann", "quiet"),
    "a realm changes back": lambda ledger: ledger.realms.change("beta", "ACTIVE", "ann", "loud"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_what_protects_is_told_by_the_next_beat(ledger: Ledger, change: str) -> None:
    ledger.holds.place(Hold.model_validate({"name": "first", "datasets": ["*"], "reason": "case 6"}), "ann")
    ledger.realms.change("beta", "INACTIVE", "ann", "quiet")
    lease = take_lease(ledger, "lake/d", "ann")
    assert lease.protections == ledger.leases.protections() == ledger.leases.beat([lease]).leases[lease.dataset].protections
    CHANGES[change](ledger)
    told = ledger.leases.beat([lease]).leases[lease.dataset]
    assert told.protections == ledger.leases.protections() != lease.protections
    assert told.database == lease.database


def test_who_sweeps_what_at_the_moment_is_told(ledger: Ledger) -> None:
    assert ledger.leases.held() == []
    lost, over, held = (take_lease(ledger, f"lake/{name}", name) for name in ("a", "b", "c"))
    ledger.leases.give_up([over])
    change_leases(ledger, "UPDATE leases SET expires_at = taken_at WHERE dataset = 'lake/a'")
    assert ledger.leases.held() == [held]
    assert (ledger.leases.holder_of("lake/c"), ledger.leases.holder_of(lost.dataset)) == (held, None)


@pytest.mark.parametrize(
    ("name", "happens"),
    [
        pytest.param("ledger.db", Path.unlink, id="removed"),
        pytest.param("ledger.db", lambda file: file.rename(file.with_name("elsewhere.db")), id="moved away"),
        pytest.param("ledger.db", lambda file: file.with_name("new").rename(file), id="replaced"),
        pytest.param("ledger.db-wal", Path.unlink, id="the second file removed"),
    ],
)
def test_a_ledger_whose_file_is_gone_refuses_though_it_still_can_be_written(
    tmp_path: Path, name: str, happens: Callable[[Path], object]
) -> None:
    (tmp_path / "new").write_bytes(b"")
    with (
        open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger,
        hold_lease(ledger, "lake/d", "ann") as (lease, permit),
    ):
        permit()
        happens(tmp_path / name)
        assert ledger.leases.beat([lease]).leases[lease.dataset]
        with pytest.raises(Withheld, match=rf"the ledger's file {tmp_path / name} was removed or replaced"):
            permit()


def test_a_ledger_that_was_replaced_before_the_lease_was_taken_refuses(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        (tmp_path / "ledger.db").rename(tmp_path / "old.db")
        with hold_lease(ledger, "lake/d", "ann") as (_, permit), pytest.raises(Withheld, match="was removed or replaced"):
            permit()
