"""Retries: the one loop in which anything that failed for a passing reason is done again.

Belongs here: the loop, and the policy that says how often, after which pause and for which failures.
Does not belong here: which failures of a database pass (errors.py), and what is done again. It loads no database library,
because stores that are no databases retry as well.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from time import sleep
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """How often something is done at most, which failures it is done again after, and the seconds in between.

    Each pause is `growth` times the one before, and `longest` at most. Up to `jitter`, a share of it, is left out at random, so
    that two who got in each other's way do not meet again.
    """

    is_transient: Callable[[Exception], bool]
    attempts: float = math.inf
    pause: float = 0
    growth: float = 2
    longest: float = math.inf
    jitter: float = 0.5

    def pause_after(self, attempt: int) -> float:
        """The seconds between an attempt, counted from 1, and the next."""
        if not self.pause:
            return 0
        return min(self.pause * self.growth ** (attempt - 1), self.longest) * random.uniform(1 - self.jitter, 1)


def retry(work: Callable[[], T], policy: RetryPolicy) -> T:
    """Do work until it succeeds. Raises its last failure: one that does not pass, or that of the last attempt."""
    attempt = 1
    while True:
        try:
            return work()
        except Exception as error:
            if attempt >= policy.attempts or not policy.is_transient(error):
                raise
        sleep(policy.pause_after(attempt))
        attempt += 1
