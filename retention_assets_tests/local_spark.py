"""A session that is no Spark: what stages ask of one is done here, in this Python, one task after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest


@dataclass(frozen=True)
class Tasks:
    numbers: range
    work: Any = None

    def mapInArrow(self, work: Any, schema: str) -> "Tasks":
        assert schema
        return Tasks(self.numbers, work)

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self.work(self._batches()) for row in batch.to_pylist()]

    def _batches(self) -> Iterable[pa.RecordBatch]:
        return (pa.record_batch({"id": pa.array([number], pa.int64())}) for number in self.numbers)


@dataclass(frozen=True)
class Session:
    sparkContext: Any = field(default_factory=lambda: SimpleNamespace(defaultParallelism=2))

    def range(self, start: int, end: int, step: int, parts: int) -> Tasks:
        assert parts > 0
        return Tasks(range(start, end, step))


@dataclass(frozen=True)
class LocalSpark:
    """In the place of what Dagster's resource makes."""

    spark_session: Session = field(default_factory=Session)


def place_here(patch: pytest.MonkeyPatch) -> None:
    import dagster as dg

    from retention_assets.dagster import build
    from retention_assets.dagster.build import resources

    spark = dg.ResourceDefinition.hardcoded_resource(LocalSpark())
    patch.setattr(build, "resources", partial(resources, pyspark=spark))
