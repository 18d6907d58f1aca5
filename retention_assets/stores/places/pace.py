"""Limits deletions per second, and slows down when the place complains. All threads of a store share one pace."""

from threading import Lock
from time import sleep

from retention_assets.clock import moment

# rate after the first complaint if there was no limit: half of S3's rate for a prefix
_USUAL = 1750.0
# lower bound; lasting failures are reported by the requests themselves
_SLOWEST = 1.0


class DeletionPace:
    """Rate per second; 0 is unlimited."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._next = 0.0
        self._lock = Lock()

    def wait(self, amount: int) -> None:
        if not self.rate:
            return
        with self._lock:
            present = moment().running
            begin = max(present, self._next)
            self._next = begin + amount / self.rate
        if begin > present:
            sleep(begin - present)

    def halve(self) -> None:
        with self._lock:
            self.rate = max(_SLOWEST, self.rate / 2 if self.rate else _USUAL)
