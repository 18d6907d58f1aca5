"""Batches: what of a plan is deleted together, and the pace between them.

Belongs here: cutting a plan into batches as the policies say (`sweep: {batch, every}`), and waiting. The parallelism within a
batch is the store's.
Does not belong here: deleting, and writing down.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Sweep
from retention_assets.stores.protocol import Target

_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Batch:
    """Marks of one dataset that are deleted together, by their ids, and how."""

    targets: Mapping[int, Target]
    sweep: Sweep


def cut_batches(rows: Sequence[Mapping[str, Any]], sweeps: Mapping[int, Sweep], latest: frozenset[int]) -> Iterator[Batch]:
    """The rows of a plan in their order, cut where another way of sweeping begins and where a batch is full."""
    waiting: dict[int, Target] = {}
    how: Sweep | None = None
    for row in rows:
        mark = row["id"]
        if how is not None and (sweeps[mark] != how or len(waiting) == how.batch):
            yield Batch(waiting, how)
            waiting = {}
        how = sweeps[mark]
        waiting[mark] = Target(row["transaction"], row["note"], mark in latest)
    if how is not None and waiting:
        yield Batch(waiting, how)


def pause(every: Duration, stop: threading.Event) -> None:
    """Wait as long as the policy says between two batches, or until somebody says stop."""
    seconds = (every.after(_SOME_DAY) - _SOME_DAY).total_seconds()
    stop.wait(min(seconds, threading.TIMEOUT_MAX))
