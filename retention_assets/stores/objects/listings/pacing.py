"""Limits a listing to a rate in objects per second; each share has an equal part, as all may be read at once."""

from dataclasses import dataclass, field
from time import sleep

from retention_assets.clock import moment


@dataclass
class Pace:
    """Rate in objects per second since its creation; 0 is unlimited."""

    rate: float
    _began: float = field(default_factory=lambda: moment().running)
    _taken: int = 0

    @classmethod
    def of_share(cls, rate: int, shares: int) -> "Pace":
        return cls(rate / max(1, shares))

    def take(self, objects: int) -> None:
        if self.rate:
            self._taken += objects
            sleep(max(0.0, self._taken / self.rate - (moment().running - self._began)))
