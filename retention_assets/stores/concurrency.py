"""Cutting a batch into parts that are worked on at once.

Belongs here: one function, so that `parallelism` means the same in every store: 500 over 8 is 4 times 63 and 4 times 62.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


def equal_parts(items: Sequence[Item], parts: int) -> list[Sequence[Item]]:
    """The items in their order, in so many parts whose sizes differ by one at most; fewer parts where there are fewer items."""
    parts = min(parts, len(items))
    if not parts:
        return []
    size, longer = divmod(len(items), parts)
    ends = [size * number + min(number, longer) for number in range(parts + 1)]
    return [items[begin:end] for begin, end in pairwise(ends)]
