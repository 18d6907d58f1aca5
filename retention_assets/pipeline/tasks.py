"""Runs steps with a number each in Spark's tasks, and deals out what they have to do.

A step travels to the tasks and sends small values back: no row comes to the driver, which needs as much memory for a billion of
them as for a thousand.
"""

import heapq
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkAttributeError

from retention_assets.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Starting a task costs more than judging a small part, so a task takes several; a few tasks per slot keep the slots busy to the
# end.
TASKS_PER_SLOT = 3

T = TypeVar("T")


@dataclass(frozen=True)
class SparkTasks:
    """Numbered tasks, placed by Spark."""

    spark: "SparkSession"

    @property
    def slots(self) -> int:
        """Number of tasks that run at a time. Spark Connect does not tell; there it is as many as suit a cluster of a good
        size.
        """
        try:
            return self.spark.sparkContext.defaultParallelism
        except PySparkAttributeError:
            return 64

    def collect(self, step: Callable[[int], Iterable[T]], count: int) -> list[T]:
        """Return what a step yields for each number below `count`, in any order. What it raises fails its task, and Spark tries
        that again. If Spark ran a task twice, the values are those of one run.
        """
        if not count:
            return []
        tasks = self.spark.range(0, count, 1, min(count, TASKS_PER_SLOT * self.slots))
        return [pickle.loads(row["value"]) for row in tasks.mapInArrow(_InTask(step), "value binary").collect()]

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        """Return the results in the order of the numbers. A fault is an answer: the first one is raised as Refused."""
        answers = sorted(self.collect(_Answering(step), count), key=lambda answer: answer[0])
        if fault := next((fault for _, _, fault in answers if fault), None):
            raise Refused(fault)
        return [answer for _, answer, _ in answers]


@dataclass(frozen=True)
class _InTask:
    step: Callable[[int], Iterable[Any]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for value in self.step(number):
                    yield pa.record_batch({"value": pa.array([pickle.dumps(value)], pa.binary())})


@dataclass(frozen=True)
class _Answering:
    step: Callable[[int], Any]

    def __call__(self, number: int) -> Iterator[tuple[int, Any, str | None]]:
        # not needed by a task that only reads and judges
        from retention_assets.stores.concurrency import set_aside_what_is_loaded

        pa.set_cpu_count(1)
        set_aside_what_is_loaded()
        answer, fault = None, None
        # Spark would try it again, and report it in a hundred lines
        try:
            answer = self.step(number)
        except Refused as refused:
            fault = str(refused)
        except Exception as broken:  # noqa: BLE001 - a listing and a source may be anybody's, and so may what they raise
            fault = f"{type(broken).__name__}: {' '.join(str(broken).split())}"
        yield number, answer, fault


def cut(names: Iterable[str], costs: Mapping[str, int], most: int, most_names: int | None = None) -> Iterator[tuple[str, ...]]:
    """Cut names, in their order, into groups that cost at most so much together. One that costs more is a group by itself."""
    group: list[str] = []
    cost = 0
    for name in names:
        if group and (len(group) == most_names or cost + costs[name] > most):
            yield tuple(group)
            group, cost = [], 0
        group.append(name)
        cost += costs[name]
    if group:
        yield tuple(group)


def deal(costs: Mapping[T, int], most: int, key: Callable[[T], Any]) -> list[list[T]]:
    """Deal out to at most so many hands: the largest first, each to the least busy, so that nobody waits long for a giant.
    `key` orders those that cost the same.
    """
    hands: list[list[T]] = [[] for _ in range(min(most, len(costs)))]
    load = [(0, number) for number in range(len(hands))]
    for item in sorted(costs, key=lambda item: (-costs[item], key(item))):
        least, number = heapq.heappop(load)
        hands[number].append(item)
        heapq.heappush(load, (least + costs[item], number))
    return hands


@contextmanager
def repeated(name: str, seconds: float, act: Callable[[], object]) -> Iterator[None]:
    """Act every so many seconds, in a thread of that name, until the block ends."""
    over = Event()

    def repeat() -> None:
        while not over.wait(seconds):
            act()

    thread = Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
