"""What ticks need: an instance, a lake of two datasets, a store that is away, other settings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.settings.model import Settings
from retention_assets_tests.sweep.lakes import Lake

# S2 leaves the latest view with S3.
SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
AWAY = {"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """In memory: one on disk takes longer to make than a tick."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def changed(lake: Lake, **settings: Any) -> Settings:
    """The settings of a lake with other values."""
    file = lake.folder / "retention.yaml"
    data = json.loads(file.read_text())
    extra = settings.pop("store", None)
    file.write_text(json.dumps({**data, **settings, "stores": [*data["stores"], *([extra] if extra else [])]}))
    return lake.settings
