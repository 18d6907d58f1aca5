"""Vouch for the present, and take back what a wrong clock marked."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.ledger import Ledger
from retention_assets.ledger.clock_guard import ClockReset, LedgerTimes
from retention_assets.operations.request import ReasonedRequest, Request
from retention_assets.policy.durations import text_of


@dataclass(frozen=True, kw_only=True)
class ClockRequest(Request):
    """Actor who vouches for the present, with an optional reason. Where the clock is simulated, `as_of` is the present."""

    reason: str | None = None
    as_of: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ClockResetRequest(ReasonedRequest):
    """Actor who says that an earlier clock was fast, and why."""

    as_of: datetime | None = None


@dataclass(frozen=True)
class ClockResetResult:
    """Marks that were taken back, and the times that the guard compares with from now on."""

    reset: ClockReset
    times: LedgerTimes

    def as_dict(self) -> dict[str, Any]:
        return {"reset_to": self.reset.at, "unmarked": self.reset.unmarked, "sweeping": self.reset.sweeping, **vars(self.times)}


def accept_clock(request: ClockRequest, environment: Environment) -> LedgerTimes:
    """Vouch for the present: the next run compares with it. What the guard goes by from now on."""
    with environment.ledger() as ledger:
        ledger.clock.accept(_present(request.as_of, ledger), request.actor, (request.reason or "").strip() or None)
        return ledger.clock.times()


def reset_clock(request: ClockResetRequest, environment: Environment) -> ClockResetResult:
    """Take back the marks that were made later than now; what is swept stays swept."""
    with environment.existing_ledger() as ledger:
        reset = ledger.clock.reset(_present(request.as_of, ledger), request.actor, request.reason)
        return ClockResetResult(reset, ledger.clock.times())


def _present(as_of: datetime | None, ledger: Ledger) -> datetime:
    if as_of is not None and not ledger.clock.simulated:
        raise BadInput(
            Problem(
                "is for simulated clocks alone", key="as_of", value=text_of(as_of), expected="nothing: the present is meant",
                remedy="Set the clock of this machine right, and leave it out.",
            )
        )  # fmt: skip
    return ledger.clock.present(as_of)
