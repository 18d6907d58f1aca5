"""The clock of a ledger, on both databases: a wrong clock deletes nothing, a quiet lake is no wrong clock, and no mistake is for ever."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from retention_assets import clock
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, LedgerTimes, Settlement, ledger_time, open_ledger
from retention_assets.ledger.clock_guard import SYSTEM
from retention_assets.ledger.invariants import mark_times
from retention_assets.outcomes import Outcome
from retention_assets.policy import Duration
from retention_assets_tests.clocks import open_simulated, set_clock
from retention_assets_tests.ledger.states import (
    LATER,
    T0,
    WEEK,
    candidates,
    ids,
    plan_of,
    statuses,
    take_lease,
    write_past_ledger,
)

pytestmark = pytest.mark.dialect

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
QUIET = 400 * DAY
AHEAD = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_second_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a server's clock that of this machine is a witness; here it is far ahead, and speaks for nothing."""
    set_clock(monkeypatch, AHEAD)


def violations(ledger: Ledger) -> list[str]:
    with ledger.database.reading() as connection:
        return [one.what for one in mark_times(connection)]


TICK = timedelta(microseconds=1)
# Steps: when a run asks, the newest time in the logs by then, and whether it may sweep.
RUNS: dict[str, list[tuple[timedelta, timedelta | None, bool]]] = {
    "the first run": [(0 * DAY, None, True)],
    "the first run, in a quiet lake": [(0 * DAY, -QUIET, True)],
    # A run that was refused has seen nothing.
    "a jump ahead of everything that runs and logs have seen": [
        (0 * DAY, None, True), (14 * DAY, None, True), (0 * DAY, None, True), (28 * DAY + TICK, DAY, False),
        (28 * DAY + TICK, None, False), (28 * DAY + TICK, 14 * DAY + TICK, True),
    ],
    # Within the skew a log time that is still to come is another clock that is a little ahead.
    "a log time that is still to come neither freezes nor vouches": [
        (0 * DAY, None, True), (DAY, QUIET, True), (30 * DAY, QUIET, False), (30 * DAY, 30 * DAY + 5 * MINUTE, True),
    ],
    "a time that an earlier run saw and that is still to come vouches for nothing": [
        (QUIET, None, True), (0 * DAY, -15 * DAY, False),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", RUNS)
def test_a_run_may_sweep_as_long_as_its_clock_fits_what_runs_and_logs_have_seen(ledger: Ledger, case: str) -> None:
    for at, newest_in_logs, goes in RUNS[case]:
        before = ledger.clock.times().newest_seen_at
        why = ledger.clock.check(T0 + at, None if newest_in_logs is None else T0 + newest_in_logs)
        assert (why is None) is goes, (at, why)
        if why is not None:
            assert ledger.clock.times().newest_seen_at == before


def test_a_refusal_says_which_time_is_too_late_and_what_helps(ledger: Ledger) -> None:
    ledger.clock.check(T0 + 14 * DAY, None)
    why = str(ledger.clock.check(T0 + 28 * DAY + TICK, None))
    assert why.startswith("It is 2026-01-29 00:00 UTC, more than 14 days after the newest time")
    assert "2026-01-15 00:00 UTC" in why
    assert "`retention clock accept`" in why


def test_whoever_runs_once_a_month_says_so(ledger: Ledger) -> None:
    month = Duration(days=45)
    assert [ledger.clock.check(T0 + days * DAY, None, month) is None for days in (0, 45, 91)] == [True, True, False]


def test_marks_of_a_wrong_clock_do_not_vouch_for_it(ledger: Ledger) -> None:
    ledger.clock.check(T0, None)
    ledger.marks.mark(candidates(["T1"]), T0 + 40 * DAY, "evaluation")
    assert ledger.clock.check(T0 + 40 * DAY, None) is not None


@pytest.mark.parametrize(
    ("outside", "goes"),
    [
        ((QUIET,), True),
        ((QUIET + 5 * MINUTE,), True),
        ((QUIET - 14 * DAY,), True),
        ((QUIET - 14 * DAY - MINUTE,), False),
        ((QUIET + 6 * MINUTE,), False),
        ((DAY, QUIET), True),
        ((), False),
    ],
)
def test_where_an_outside_clock_agrees_no_pause_is_too_long(outside: Iterable[timedelta], goes: bool, ledger: Ledger) -> None:
    ledger.clock.check(T0, None)
    why = ledger.clock.check(T0 + QUIET, None, outside=lambda: [T0 + one for one in outside])
    assert (why is None) is goes
    assert (ledger.clock.times().newest_seen_at == T0 + QUIET) is goes


def test_nobody_outside_is_asked_where_the_time_can_be_right_anyway(ledger: Ledger) -> None:
    def asked() -> Iterable[datetime]:
        raise AssertionError("a request for nothing")

    ledger.clock.check(T0, None, outside=asked)
    assert ledger.clock.check(T0 + DAY, None, outside=asked) is None


def test_beside_a_servers_clock_that_of_this_machine_is_a_witness(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.clock.check(T0, None)
    set_clock(monkeypatch, T0 + QUIET)
    is_server = ledger.database.engine.dialect.name == "postgresql"
    assert (ledger.clock.check(T0 + QUIET, None) is None) is is_server


def test_what_a_person_vouches_for_goes_on_at_the_very_next_run(ledger: Ledger) -> None:
    ledger.clock.check(T0, None)
    assert ledger.clock.check(T0 + QUIET, None) is not None
    ledger.clock.accept(T0 + QUIET, "ann")
    assert ledger.clock.check(T0 + QUIET + MINUTE, None) is None
    assert ledger.clock.check(T0 + QUIET + 14 * DAY, None) is None
    assert ledger.clock.check(T0 + QUIET + 40 * DAY, None) is not None
    rows = [json.loads(line) for line in ledger.audit_lines()]
    # What was seen is in the record as well, and each act names the row that it wrote.
    assert [(row["deed"], row["actor"], row["detail"].get("accepted_until")) for row in rows] == [
        ("CLOCK", SYSTEM, None), ("CLOCK", "ann", "2027-02-05T00:00:00Z"), ("CLOCK", SYSTEM, None),
    ]  # fmt: skip


def test_a_clock_behind_the_newest_mark_is_refused_and_names_the_way_back(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.clock.check(T0 - 5 * MINUTE, None)
    with pytest.raises(Refused, match=r"earlier than the newest mark of the ledger, .* `retention clock reset --reason"):
        ledger.clock.check(T0 - 5 * MINUTE - timedelta(seconds=1), None)


def test_a_reset_takes_back_what_was_marked_later_than_now_and_nothing_else(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["before", "at"]), T0, "evaluation")
    ledger.marks.mark(candidates(["gone"], grace="0s"), T0 + WEEK, "evaluation")
    lease = take_lease(ledger)
    plan = plan_of(ledger, lease, ids(ledger, "gone"), T0 + WEEK)
    begun = ledger.sweeps.begin([lease], [plan], ids(ledger, "gone")).marks
    ledger.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED) for mark in begun])
    ledger.marks.mark(candidates(["later"]), T0 + 300 * DAY, "evaluation")
    ledger.marks.mark(candidates(["begun"], grace="0s"), T0 + 301 * DAY, "evaluation")
    ledger.clock.check(T0 + 301 * DAY, None)
    present = T0 + DAY
    with pytest.raises(Refused, match="clock reset"):
        ledger.clock.check(present, None)

    done = ledger.clock.reset(present, "ann", "the battery was flat")

    assert (done.unmarked, done.sweeping) == (2, 0)
    assert statuses(ledger) == {
        "before": "MARKED", "at": "MARKED", "gone": "SWEPT", "later": "UNMARKED", "begun": "UNMARKED",
    }  # fmt: skip
    assert ledger.clock.times() == LedgerTimes(T0, present, None)
    assert ledger.clock.check(present, None) is None
    assert violations(ledger) == []
    assert ledger.verify().faults == ()


def test_after_a_reset_marks_are_made_anew_and_their_times_rise_from_there(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0 + 300 * DAY, "evaluation")
    ledger.clock.reset(T0, "ann", "the battery was flat")
    assert ledger.clock.times() == LedgerTimes(None, None, None)
    made = ledger.marks.mark(candidates(["T1", "T2"]), T0 + DAY, "evaluation")
    assert (made.new, made.marked_at) == (2, T0 + DAY)
    assert violations(ledger) == []
    assert ledger.verify().faults == ()
    write_past_ledger(ledger, "UPDATE clock SET newest_mark_at = NULL")
    ledger.marks.mark(candidates(["T3"]), T0, "evaluation")
    assert any("was marked as of 2026-01-01T00:00:00Z, after a mark of 2026-01-02" in what for what in violations(ledger))


def test_a_mark_that_a_sweep_has_begun_on_is_too_late_for_a_reset(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"], grace="0s"), LATER, "evaluation")
    lease = take_lease(ledger)
    plan = plan_of(ledger, lease, ids(ledger))
    ledger.sweeps.begin([lease], [plan], ids(ledger))
    assert ledger.clock.reset(T0, "ann", "r")[1:] == (0, 1)
    assert statuses(ledger) == {"T1": "SWEEPING"}


def test_a_reset_by_a_clock_that_is_right_takes_nothing_back(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.clock.check(T0, None)
    assert ledger.clock.reset(T0, "ann", "to be sure").unmarked == 0
    assert (statuses(ledger), ledger.clock.times()) == ({"T1": "MARKED"}, LedgerTimes(T0, T0, None))
    assert violations(ledger) == []


def future(ledger: Ledger) -> datetime:
    present = ledger.clock.present()
    ledger.marks.mark(candidates(["T1"]), present, "evaluation")
    return present + WEEK + DAY


def test_whatever_a_caller_says_nothing_is_planned_before_its_grace_is_over(ledger: Ledger) -> None:
    due = future(ledger)
    lease = take_lease(ledger)
    assert plan_of(ledger, lease, ids(ledger), due).marks == 0


@pytest.mark.parametrize("is_due_by_now", [False, True])
def test_what_is_in_a_plan_does_not_begin_before_it_is_due(ledger: Ledger, is_due_by_now: bool) -> None:
    """Neither by the clock nor by its plan: somebody put the row there past the ledger, or the clock went back in between."""
    if is_due_by_now:
        ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    lease = take_lease(ledger)
    plan = plan_of(ledger, lease, [], LATER - MINUTE if is_due_by_now else future(ledger))
    write_past_ledger(ledger, f"INSERT INTO planned (plan, mark, seal) VALUES ({plan.id}, {ids(ledger)[0]}, 'x')")
    assert not ledger.sweeps.begin([lease], [plan], ids(ledger)).marks
    assert statuses(ledger) == {"T1": "MARKED"}


def test_a_bound_is_never_ahead_of_the_present(ledger: Ledger) -> None:
    present = ledger.clock.present()
    assert present <= ledger.clock.due_by(None) < present + MINUTE
    assert present <= ledger.clock.due_by(present + QUIET) < present + MINUTE
    assert ledger.clock.due_by(present - QUIET) == present - QUIET


def test_the_present_is_the_servers_where_there_is_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_file = url.startswith("sqlite")
    assert (ledger_time(url) == AHEAD) is is_file
    with open_ledger(url) as ledger:
        assert (ledger.clock.present() == AHEAD) is is_file
        monkeypatch.undo()
        assert abs(ledger.clock.present() - clock.now()) < 5 * MINUTE
        assert abs(ledger_time(url) - clock.now()) < 5 * MINUTE


def test_in_a_simulated_ledger_the_present_is_what_a_run_says(url: str) -> None:
    with open_simulated(url) as ledger:
        far = T0 + 10_000 * DAY
        assert ledger.clock.present(far) == ledger.clock.due_by(far) == far
        assert abs(ledger.clock.present() - ledger_time(url)) < MINUTE
        assert [ledger.clock.check(at, None) for at in (T0, far)] == [None, None]
        ledger.marks.mark(candidates(["T1"]), far, "evaluation")
        with pytest.raises(Refused, match="clock reset"):
            ledger.clock.check(T0, None)


@pytest.mark.parametrize("simulated", [True, False])
def test_a_simulated_clock_stands_at_the_newest_instant_that_was_seen_and_a_real_one_at_the_newest_mark(
    url: str, simulated: bool
) -> None:
    with open_ledger(url, simulated=simulated) as ledger:
        ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
        # nothing was marked then
        ledger.clock.check(T0 + WEEK, None)
        ledger.clock.see(T0 + 8 * DAY)
        ledger.clock.see(T0 + DAY)
        assert ledger.clock.times().newest_seen_at == T0 + 8 * DAY
        assert ledger.clock.check(T0 + 8 * DAY - 5 * MINUTE, None) is None
        for before in (T0 + 8 * DAY - 5 * MINUTE - timedelta(seconds=1), T0):
            if simulated:
                with pytest.raises(Refused, match="simulated and stands at 2026-01-09 00:00 UTC"):
                    ledger.clock.check(before, None)
            else:
                assert ledger.clock.check(before, None) is None
        ledger.clock.reset(T0 + DAY, "ann", "back to then")
        assert ledger.clock.check(T0 + DAY, None) is None


def test_a_simulated_ledger_is_refused_to_a_real_clock_and_one_without_a_record_may_become_either(url: str) -> None:
    open_ledger(url, simulated=False).close()
    open_ledger(url).close()
    open_simulated(url).close()
    with pytest.raises(Refused, match="made with a simulated clock"):
        open_ledger(url, simulated=False)
    open_simulated(url).close()
    with open_ledger(url) as ledger:
        assert ledger.clock.simulated
        assert ledger.verify().rows == 1
