"""Edges followed to the end, on graphs of every shape.

Belongs here: the closure by itself. What it means for objects is test_scans.py's.
"""

import random

import numpy as np
import pytest

from retention_assets.stores.objects.scan.edges import Walk


@pytest.mark.parametrize(("nodes", "links"), [(1, 0), (5, 4), (400, 300), (400, 900), (3_000, 20_000)])
def test_what_is_reached_is_what_a_walk_finds(nodes: int, links: int) -> None:
    chance = random.Random(nodes + links)
    pairs = [(chance.randrange(nodes), chance.randrange(nodes)) for _ in range(links)]
    begin = {chance.randrange(nodes) for _ in range(max(1, nodes // 50))}
    seen, front = set(begin), list(begin)
    while front:
        node = front.pop()
        for source, target in pairs if links < 1_000 else [pair for pair in pairs if pair[0] == node]:
            if source == node and target not in seen:
                seen.add(target)
                front.append(target)
    assert _reached(pairs, nodes, begin) == seen


def test_a_chain_is_followed_to_its_end_and_a_cycle_once() -> None:
    length = 20_000
    chain = [(node, node + 1) for node in range(length - 1)]
    assert _reached(chain, length, {0}) == set(range(length))
    assert _reached([*chain, (length - 1, 0)], length, {length // 2}) == set(range(length))
    assert _reached(chain, length, {length - 1}) == {length - 1}


def _reached(pairs: list[tuple[int, int]], nodes: int, begin: set[int]) -> set[int]:
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    walk = Walk.of(ends[:, 0], ends[:, 1], np.full(len(pairs), -1), nodes)
    return begin | set(walk.reached(np.array(sorted(begin), dtype=np.int64))[0].tolist())
