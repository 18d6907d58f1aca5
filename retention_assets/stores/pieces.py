"""Asking many small questions with a few threads.

Belongs here: one function. A question about a local file takes less time than handing it to a thread, so threads are handed
pieces; there are enough of them that a slow store still keeps all threads busy.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_PIECES = 128


def answers(threads: Executor, ask: Callable[[Asked], Answer], asked: Sequence[Asked]) -> list[Answer]:
    """The answers, in the order of the questions. What a question raises is raised here."""
    size = -(-len(asked) // _PIECES)
    pieces = [asked[at : at + size] for at in range(0, len(asked), size or 1)]
    return [one for answered in threads.map(lambda piece: [ask(one) for one in piece], pieces) for one in answered]
