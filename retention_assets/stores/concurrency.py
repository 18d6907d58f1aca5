"""Splits a store's work into equal parts and asks many small questions on threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from time import perf_counter
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_PIECES = 128
QUICK = 0.0005


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
    pieces = [items[at : at + size] for at in range(0, len(items), size)]
    found: list[Result] = []
    for number, piece in enumerate(pieces, 1):
        began = perf_counter()
        found += [question(one) for one in piece]
        if perf_counter() - began > quick * len(piece):
            rest = threads.map(lambda some: [question(one) for one in some], pieces[number:])
            return found + [one for some in rest for one in some]
    return found
