"""The clocks of tests. Most environments live on days of their own: their settings say CLOCK, and their ledgers remember it.

Belongs here: a simulated clock for settings and ledgers, and a real one that stands where a test puts it. A server's clock can't
be put anywhere: for a ledger in PostgreSQL a test of the real clock hangs its times on the present.
"""

from datetime import datetime
from typing import Any

import pytest

from retention_assets import clock
from retention_assets.ledger import Ledger, open_ledger

# Of the settings, under `clock`. Days pass as `as_of` says.
CLOCK: dict[str, Any] = {"simulated": True}


def open_simulated(url: str) -> Ledger:
    return open_ledger(url, simulated=True)


def set_clock(patch: pytest.MonkeyPatch, at: datetime) -> None:
    patch.setattr(clock, "now", lambda: at)
