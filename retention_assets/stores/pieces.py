"""Asking many questions of a file system with a few threads, where threads help.

Belongs here: one function. A question about a file on a local disk takes less time than handing it to a thread, and threads
then only stand in each other's way; over a network they hide the waiting. Which of the two it is shows by asking.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_PIECES = 128
QUICK = 0.0005


def map_concurrently(
    threads: Executor, ask: Callable[[Asked], Answer], asked: Sequence[Asked], quick: float = QUICK
) -> list[Answer]:
    """The answers, in the order of the questions. What a question raises is raised here.

    As long as answers come within `quick` seconds each, they are asked for one after the other; then by all threads.
    """
    size = -(-len(asked) // _PIECES) or 1
    pieces = [asked[at : at + size] for at in range(0, len(asked), size)]
    found: list[Answer] = []
    for number, piece in enumerate(pieces, 1):
        began = perf_counter()
        found += [ask(one) for one in piece]
        if perf_counter() - began > quick * len(piece):
            rest = threads.map(lambda some: [ask(one) for one in some], pieces[number:])
            return found + [one for some in rest for one in some]
    return found
