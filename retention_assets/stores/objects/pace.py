"""Pace: so many objects a second, and fewer when the place says that it is too much.

Belongs here: waiting for one's turn. One pace is shared by all threads of a program that work on a store.
Does not belong here: how many that are (settings.py), and what is done in a turn.
"""

from threading import Lock
from time import sleep

from retention_assets.clock import moment

# Who is told to slow down and had no limit goes on at this rate: half of what S3 takes of one prefix.
_USUAL = 1750.0
# No slower than this, however often a place complains: a request that fails for good says so itself.
_SLOWEST = 1.0


class DeletionPace:
    """Turns at a rate a second; 0 is no limit."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._next = 0.0
        self._lock = Lock()

    def wait(self, amount: int) -> None:
        """Come back when so many may go."""
        if not self.rate:
            return
        with self._lock:
            present = moment().running
            begin = max(present, self._next)
            self._next = begin + amount / self.rate
        if begin > present:
            sleep(begin - present)

    def halve(self) -> None:
        """Half as many from now on."""
        with self._lock:
            self.rate = max(_SLOWEST, self.rate / 2 if self.rate else _USUAL)
