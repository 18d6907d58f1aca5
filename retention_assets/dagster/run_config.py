"""What a person sets when they launch a run, as forms that the launchpad shows."""

from datetime import datetime

import dagster as dg
from pydantic import Field

from retention_assets.policy.durations import parse_instant

_INSTANT = "An instant with a zone, such as 2026-01-01T00:00:00Z; empty is the present."


class AsOfConfig(dg.Config):
    """The instant at which to judge."""

    as_of: str = Field(default="", description=_INSTANT)

    def given(self) -> datetime | None:
        """The instant, if one was given."""
        return parse_instant(self.as_of) if self.as_of else None


class DatasetsConfig(dg.Config):
    """Which datasets are looked at, among those of the run's partitions."""

    datasets: list[str] = Field(default=["*"], description="Globs over store/name; any one matches.")


class JudgingConfig(AsOfConfig, DatasetsConfig):
    """Which datasets are looked at, and at which instant."""


class ListConfig(JudgingConfig):
    """What a job works through, and how much it says on the console."""

    log_level: str = Field(default="INFO", description="DEBUG, INFO, WARNING or ERROR.")
