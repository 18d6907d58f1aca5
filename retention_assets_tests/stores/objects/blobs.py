"""Objects for tests of whole cycles: a folder of blobs, lines that refer to them, settings, policies and a ledger."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.dagster.headless import run_job
from retention_assets.dagster.step import QuietSparkResource
from retention_assets.people.operation import JobResult
from retention_assets.settings import Settings
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.local_spark import Session
from retention_assets_tests.stores.objects.environments import write_lines
from retention_assets_tests.sweep.datasets import SettingsFolder

MARKED = AS_OF
DUE = AS_OF + timedelta(days=7)
UNREFERENCED = (
    "{name: unreferenced, datasets: {include: ['blobs/*']}, select: {unreferenced: true, older_than: 30d}, sweep: {every: 0s}}"
)


def run_here(settings: Settings, as_of: datetime, job: str = "cycle") -> JobResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuietSparkResource, "spark_session", property(lambda _: Session()))
        patch.setattr(QuietSparkResource, "is_started", property(lambda _: True))
        return run_job(settings, job, as_of, log_level="critical")


@dataclass
class Blobs(SettingsFolder):
    folder: Path
    # What is said of the store beyond its name and kind; listing and references are these unless it says others.
    more: Mapping[str, Any] = field(default_factory=dict)
    policies: str = UNREFERENCED
    others: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for name in ("blobs", "refs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.has_settings(**self.more)
        self.says(self.policies)

    def has_settings(self, **more: Any) -> None:
        about = {"listing": {"path": "blobs"}, "references": [{"lines": "refs/*.jsonl"}], **more}
        self.writes(*self.others, {"name": "blobs", "kind": "objects", **about}, warehouse="warehouse", policies="policies")

    def has(self, *keys: str, days: float = 60, size: int = 10) -> "Blobs":
        at = (AS_OF - timedelta(days=days)).timestamp()
        for key in keys:
            place = self.folder / "blobs" / key
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"x" * size)
            os.utime(place, (at, at))
        return self

    def refers(self, *keys: str | Mapping[str, str], file: str = "a", count: int | None = None, whole: bool = True) -> "Blobs":
        lines = [{"object": key} if isinstance(key, str) else key for key in keys]
        written = write_lines(self.folder / "refs" / f"{file}.jsonl", *lines, count=count)
        if not whole:
            written.write_text("".join(written.read_text().splitlines(keepends=True)[:-1]))
        return self

    def runs(self, as_of: datetime = MARKED, job: str = "cycle") -> JobResult:
        return run_here(self.settings, as_of, job)

    def left(self) -> set[str]:
        root = self.folder / "blobs"
        found = (str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())
        return {name for name in found if not name.startswith(".retention-")}
