"""Retries: the one loop that repeats work after transient failures. It imports no database library."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from time import sleep
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """Number of attempts, failures to retry, and seconds between attempts.

    Each pause is `growth` times the previous one, `longest` at most. A random share of up to `jitter` is left out, so that
    colliding programs don't meet again.
    """

    is_transient: Callable[[Exception], bool]
    attempts: float = math.inf
    pause: float = 0
    growth: float = 2
    longest: float = math.inf
    jitter: float = 0.5

    def pause_after(self, attempt: int) -> float:
        if not self.pause:
            return 0
        return min(self.pause * self.growth ** (attempt - 1), self.longest) * random.uniform(1 - self.jitter, 1)


def retry(work: Callable[[], T], policy: RetryPolicy) -> T:
    """Repeat work until it succeeds. Raises a failure that is not transient, or that of the last attempt."""
    attempt = 1
    while True:
        try:
            return work()
        except Exception as error:
            if attempt >= policy.attempts or not policy.is_transient(error):
                raise
        sleep(policy.pause_after(attempt))
        attempt += 1
