"""Numbered tasks, by which a store runs work on a pool, and a pool in this process."""

import atexit
import gc
from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeVar

import pyarrow.fs as pafs

T = TypeVar("T")

# opens a path or URI where a task runs; travels with the task
OpenPlace = Callable[[str], tuple[pafs.FileSystem, str]]


class Tasks(Protocol):
    """A pool that runs numbered tasks."""

    @property
    def slots(self) -> int:
        """Number of tasks that run at a time."""

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        """Return the step's result for each number below `count`. Raises Refused if a task can't finish."""


class TasksHere:
    """Tasks in this process, one at a time."""

    slots = 1

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        return [step(number) for number in range(count)]


@cache
def set_aside_what_is_loaded() -> None:
    """Freeze loaded objects for the garbage collector, once per process: otherwise it walks all of them again as Python makes
    millions of rows, and Spark collects after each task. `@cache` remembers the call, because gc.get_freeze_count() walks the
    frozen objects.
    """
    gc.freeze()
    # otherwise DuckDB reports uncollected objects at exit, in fifty lines
    atexit.register(gc.unfreeze)


def open_local(place: str) -> tuple[pafs.FileSystem, str]:
    return pafs.LocalFileSystem(), place
