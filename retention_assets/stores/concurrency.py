"""Work of a store on several threads: cutting it into equal parts, and asking many small questions at once.

Belongs here: what `parallelism` means, the same in every store, and when threads are worth their price.
"""

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
    """The items in their order, in so many parts whose sizes differ by one at most; fewer parts where there are fewer items.

    500 over 8 is 4 times 63 and 4 times 62.
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
    """The answer for each item, in their order. What a question raises is raised here.

    A question about a file on a local disk takes less time than handing it to a thread, and threads then only stand in each
    other's way; over a network they hide the waiting. So as long as answers come within `quick` seconds each, they are asked
    for one after the other; then by all threads.
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
