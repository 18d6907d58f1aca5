"""The clock guard: accepting a time that it would refuse as too far ahead.

Belongs here: the acceptance. What the guard refuses the ledger says, and what time it is retention_assets/clock.py.
"""

from dataclasses import dataclass
from datetime import datetime

from retention_assets.environment import Environment
from retention_assets.ledger.clock_guard import LedgerTimes
from retention_assets.operations.request import ReasonedRequest


@dataclass(frozen=True, kw_only=True)
class ClockRequest(ReasonedRequest):
    """Until when it is right to mark and sweep."""

    as_of: datetime


def accept_clock(request: ClockRequest, environment: Environment) -> LedgerTimes:
    """Accept every time up to that one; an earlier one changes nothing. What the guard goes by from now on."""
    with environment.ledger() as ledger:
        ledger.clock.accept(request.as_of, request.actor, request.reason)
        return ledger.clock.times()
