"""The floor: what it costs to read the columns that the stage reads and to write the columns that it writes, and nothing else.

Belongs here: bare pyarrow, as many Pythons as there are cores, with the stage's own way of writing a part. No stage that keeps
its rows in Parquet can be faster, so what is above the floor is what the project adds.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from retention_assets.pipeline.stage import write_part


@dataclass(frozen=True)
class _Part:
    """One part read and written. The tables to write are loaded first, and that does not count."""

    source: Path
    result: Path
    target: Path
    columns: tuple[str, ...]

    def __call__(self, name: str, outputs: Sequence[str]) -> float:
        pa.set_cpu_count(1)
        tables = {output: pq.read_table(self.result / output / f"from-000-{name}", use_threads=False) for output in outputs}
        begin = perf_counter()
        pq.read_table(self.source / "transactions" / name, columns=list(self.columns), use_threads=False)
        for output, table in tables.items():
            write_part(table, str(self.target / output / name), pafs.LocalFileSystem())
        return perf_counter() - begin


class Floor:
    """A pool of bare readers and writers, started once and warm."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        # Forked children of a Python that runs threads (Arrow's, Spark's gateway) may wait for a lock for ever.
        self._pool = ProcessPoolExecutor(cores, mp_context=get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown()

    def seconds(self, source: Path, result: Path, target: Path, outputs: Sequence[str], columns: tuple[str, ...]) -> float:
        """The time of all parts, shared evenly by the cores: even that is kinder to the floor than a real schedule."""
        for output in outputs:
            (target / output).mkdir(parents=True, exist_ok=True)
        names = sorted(part.name for part in (source / "transactions").iterdir())
        part = partial(_Part(source, result, target, columns), outputs=tuple(outputs))
        # With fewer parts than cores the rest of the cores has nothing to do.
        return sum(self._pool.map(part, names)) / min(self._cores, len(names))
