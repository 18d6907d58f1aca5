"""`clock` and `clock accept`: the way on where the guard refuses."""

import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.policy.durations import parse_instant
from retention_assets_tests.commands.conftest import Json, Run
from retention_assets_tests.ledger.acts import LATER, T0, candidates

FAR = "2027-01-01T00:00:00Z"


def test_the_clock_shows_what_the_guard_goes_by(ledger: Ledger, found: Json, run: Run) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.clock.check(LATER, None)
    times = {"newest_mark_at": "2026-01-01T00:00:00Z", "newest_seen_at": "2026-01-08T00:00:00Z", "accepted_until": None}
    assert found("clock") == times
    _, out, _ = run("clock")
    assert "2026-01-08T00:00:00Z" in out
    assert "none" in out


def test_an_accepted_time_lets_the_guard_pass(ledger: Ledger, found: Json) -> None:
    ledger.clock.check(T0, None)
    far = parse_instant(FAR)
    with pytest.raises(Refused, match="retention clock accept"):
        ledger.clock.check(far, None)
    assert found("clock", "accept", "--as-of", FAR, "--reason", "back from a long pause")["accepted_until"] == FAR
    ledger.clock.check(far, None)
    # It only rises.
    assert found("clock", "accept", "--as-of", "2026-06-01", "--reason", "r")["accepted_until"] == FAR


def test_an_acceptance_is_on_the_record(ledger: Ledger, run: Run) -> None:
    assert FAR in run("clock", "accept", "--as-of", FAR, "--reason", "back from a long pause")[1]
    [line] = ledger.audit_lines()
    assert '"actor": "ann"' in line
    assert "back from a long pause" in line


@pytest.mark.parametrize(
    "arguments",
    [("--reason", "r"), ("--as-of", FAR), ("--as-of", FAR, "--reason", ""), ("--as-of", "later", "--reason", "r")],
    ids=["no time", "no reason", "a blank reason", "no instant"],
)
def test_accepting_without_what_or_why_is_bad_input(arguments: tuple[str, ...], ledger: Ledger, run: Run) -> None:
    assert run("clock", "accept", *arguments)[:2] == (2, "")
    assert list(ledger.audit_lines()) == []
