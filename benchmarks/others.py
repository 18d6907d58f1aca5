"""Others in a database that a store reads: who makes its tables, and what those who write meanwhile wait for.

Belongs here: statements of somebody else, and waits as a line of the report. Not what is written, and by how many.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import psycopg

from benchmarks.measures import Times

if TYPE_CHECKING:
    from benchmarks.sections import Bench

_SHARES = (50, 95, 99)


def do(url: str, *statements: str) -> None:
    """Statements of somebody else, each for itself."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def tell_waits(bench: "Bench", section: str, waits: Mapping[str, Sequence[float]]) -> None:
    """Seconds that each transaction of the writers took, by what went on meanwhile."""
    seconds = {name: Times((sum(some),), (1.0,), (0.0,)) for name, some in waits.items()}
    notes = {
        name: ", ".join(f"p{share} {1_000 * sorted(some)[len(some) * share // 100]:.2f} ms" for share in _SHARES)
        for name, some in waits.items()
    }
    bench.report.add(section, "writers' transactions", seconds, {name: len(some) for name, some in waits.items()}, notes=notes)
    for name, note in notes.items():
        bench.say(f"{section}: {name}: {note}")
