"""Number rows by their combination of facts.

Few combinations occur, however many rows there are, so that what follows from facts is worked out once for each
combination.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from retention_assets.frames.arrays import Bools, Counts, Small
from retention_assets.frames.verdicts.decisions import Facts
from retention_assets.frames.views.history import History

# Combinations are told apart by a table with a place for each that could occur; beyond this it is cut down to those that do.
_MOST_KEYS = 1 << 20
# boolean facts of a row, in the order of `Facts`
FLAGS = 9


def combinations(
    history: History, lines: Sequence[Small], over: Bools, flags: npt.NDArray[np.uint16]
) -> tuple[list[Facts], Counts]:
    """The combinations of facts that occur, and which of them each row has."""
    kinds_over, over_of = np.unique(over, axis=0, return_inverse=True)
    columns: list[npt.NDArray[np.integer]] = [flags, *lines]
    if len(kinds_over) > 1:
        columns.append(history.per_dataset(over_of.reshape(-1)))
    combination = np.zeros(len(history), dtype=np.int32)
    members: list[tuple[int, ...]] = [()]
    waiting: list[int] = []
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if waiting and len(members) * math.prod(waiting) * width > _MOST_KEYS:
            members, combination = _renumbered(members, waiting, combination)
            waiting = []
        combination = combination * np.int32(width) + column
        waiting.append(width)
    members, combination = _renumbered(members, waiting, combination)
    facts = []
    for flag, *rest in members:
        unmet_lines = tuple(rest[: len(lines)])
        over_here = kinds_over[rest[len(lines)] if len(kinds_over) > 1 else 0]
        facts.append(
            Facts(
                unmet_lines, tuple(bool(value) for value in over_here),
                *(bool(flag >> bit & 1) for bit in range(FLAGS)),
            )
        )  # fmt: skip
    return facts, combination


def _renumbered(members: list[tuple[int, ...]], widths: list[int], key: Counts) -> tuple[list[tuple[int, ...]], Counts]:
    """The combinations that occur, each with the values that its key stands for; and for each row the place of its own."""
    there = np.zeros(len(members) * math.prod(widths), dtype=bool)
    there[key] = True
    present = np.flatnonzero(there)
    place = np.zeros(len(there), dtype=np.int32)
    place[present] = np.arange(len(present), dtype=np.int32)
    found = []
    for at in present.tolist():
        values: list[int] = []
        for width in reversed(widths):
            at, value = divmod(at, width)
            values.append(value)
        found.append((*members[at], *reversed(values)))
    return found, place[key]
