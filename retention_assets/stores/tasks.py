"""Numbered tasks: how a store has work done by whoever can do much of it at once.

Belongs here: what a step may expect of those who run it, and running steps in this process.
Does not belong here: any step (the stores), and placing them on a cluster (pipeline/).
"""

from collections.abc import Callable
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


def open_local(place: str) -> tuple[pafs.FileSystem, str]:
    """A path on this machine."""
    return pafs.LocalFileSystem(), place
