"""Numbered tasks: how a store has work done by whoever can do much of it at once.

Belongs here: what a step may expect of those who run it, running steps in this process, and what keeps a program that runs
many of them quick.
Does not belong here: any step (the stores), and placing them on a cluster (pipeline/).
"""

import atexit
import gc
from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeVar

import pyarrow.fs as pafs

T = TypeVar("T")

# How a path or URI is opened where a task runs. It travels with the task.
OpenPlace = Callable[[str], tuple[pafs.FileSystem, str]]


class Tasks(Protocol):
    """Who runs numbered tasks."""

    @property
    def slots(self) -> int:
        """How many run at a time."""

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        """What a step says of each number below `count`. Whatever keeps a task from its end raises Refused."""


class TasksHere:
    """Tasks in this process, one at a time."""

    slots = 1

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        """What a step says of each number."""
        return [step(number) for number in range(count)]


@cache
def set_aside_what_is_loaded() -> None:
    """Once in a program: Python, as it makes millions of rows, looks time and again through all that it ever loaded, and Spark
    has it do so after each task. Asking Python whether it was done would count all of that anew each time.
    """
    gc.freeze()
    # DuckDB says at the end of the program, in fifty lines, what Python had not cleared away.
    atexit.register(gc.unfreeze)


def open_local(place: str) -> tuple[pafs.FileSystem, str]:
    """A path on this machine."""
    return pafs.LocalFileSystem(), place
