"""Splits work into parts, and runs it on threads or as numbered tasks of a pool."""

import atexit
import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import cache
from itertools import pairwise
from time import perf_counter
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

Item = TypeVar("Item")
Result = TypeVar("Result")

_PIECES = 128  # after each piece of the questions threads may take over
QUICK = 0.0005  # seconds, as an answer of a local disk takes


def equal_parts(items: Sequence[Item], parts: int) -> list[Sequence[Item]]:
    """Split items, in order, into at most `parts` parts whose sizes differ by at most one.

    500 over 8 gives 4 parts of 63 and 4 of 62.
    """
    parts = min(parts, len(items))
    if not parts:
        return []
    size, longer = divmod(len(items), parts)
    ends = [size * number + min(number, longer) for number in range(parts + 1)]
    return [items[begin:end] for begin, end in pairwise(ends)]


def map_concurrently(
    threads: Executor, question: Callable[[Item], Result], items: Sequence[Item], quick: float = QUICK
) -> list[Result]:
    """Return the answers in the order of the items; an exception of `question` is raised here.

    Threads hide waiting on a network, but cost more than a question to a local disk. So as long as answers take less than
    `quick` seconds each, questions run one after the other; then on all threads.
    """
    size = -(-len(items) // _PIECES) or 1
    pieces = [items[begin : begin + size] for begin in range(0, len(items), size)]
    results: list[Result] = []
    for number, piece in enumerate(pieces, 1):
        began = perf_counter()
        results += [question(one) for one in piece]
        if perf_counter() - began > quick * len(piece):
            rest = threads.map(lambda piece: [question(one) for one in piece], pieces[number:])
            return results + [result for part in rest for result in part]
    return results


# opens a path or URI where a task runs; travels with the task
OpenPlace = Callable[[str], tuple[pafs.FileSystem, str]]


class Tasks(Protocol):
    @property
    def slots(self) -> int:
        """Number of tasks that run at a time."""

    def run(self, step: Callable[[int], Result], count: int) -> list[Result]:
        """Return the step's result for each number below `count`. Raises Refused if a task can't finish."""


class DueTransactions(Protocol):
    """Due transactions of a store. They travel to tasks, where each part is read as it is needed: there may be millions."""

    @property
    def parts(self) -> int:
        """Number of parts."""

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the transactions of a part, in a column of that name. One may come twice."""


class TasksHere:
    """Tasks in this process, one at a time."""

    slots = 1

    def run(self, step: Callable[[int], Result], count: int) -> list[Result]:
        return [step(number) for number in range(count)]


@cache
def set_aside_what_is_loaded() -> None:
    """Hide loaded objects from the garbage collector, once per process: it would walk them again and again while Python makes
    millions of rows. `@cache` remembers the call, because gc.get_freeze_count() walks the frozen objects.
    """
    gc.freeze()
    # otherwise DuckDB reports uncollected objects at exit, in fifty lines
    atexit.register(gc.unfreeze)


def open_local(place: str) -> tuple[pafs.FileSystem, str]:
    return pafs.LocalFileSystem(), place
