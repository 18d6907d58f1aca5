"""What ticks need: a lake of two datasets, a store that is away, other settings, and a clock of the test's."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.dagster import automation, stores
from retention_assets_tests.dagster.launch import tick, typed
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import Lake

# S2 leaves the latest view with S3.
SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
AWAY = {"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b")


class Clock:
    """Time of ticks."""

    def __init__(self) -> None:
        self.time = AS_OF

    def __call__(self) -> datetime:
        return self.time

    def goes_on(self, by: timedelta) -> None:
        self.time += by


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (automation, stores):
        monkeypatch.setattr(module, "now", made)
    return made


class Ticks:
    """The sensors of a lake, as Dagster's daemon turns them."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance

    def __call__(self, sensor: str, cursor: str | None = None) -> Any:
        return tick(self.lake.settings, self.instance, sensor, cursor)

    def asks_for(self, sensor: str, cursor: str | None = None) -> list[str]:
        """Datasets of the run that a tick asks for; none if it asks for none."""
        ticked = self(sensor, cursor)
        assert bool(ticked.run_requests) != bool(ticked.skip_message)
        return [name for request in ticked.run_requests for name in typed(request)["datasets"]]


@pytest.fixture
def ticks(lake: Lake, instance: dg.DagsterInstance) -> Ticks:
    return Ticks(lake, instance)
