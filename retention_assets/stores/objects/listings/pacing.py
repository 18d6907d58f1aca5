"""The pace of a listing: no more objects a second than the settings allow the whole store.

Belongs here: waiting. The shares of a listing may all be read at once, so each has its part of the rate.
"""

from dataclasses import dataclass, field
from time import sleep

from retention_assets.clock import moment


@dataclass
class Pace:
    """So many objects a second, or as many as there are where the rate is 0; counted from when it is made."""

    rate: float
    _began: float = field(default_factory=lambda: moment().running)
    _taken: int = 0

    @classmethod
    def of_share(cls, rate: int, shares: int) -> "Pace":
        """The pace of one of some shares."""
        return cls(rate / max(1, shares))

    def take(self, objects: int) -> None:
        """Wait until so many more may have been listed."""
        if self.rate:
            self._taken += objects
            sleep(max(0.0, self._taken / self.rate - (moment().running - self._began)))
