"""What a person sets when they launch a run, as forms that the launchpad shows."""

from datetime import datetime

import dagster as dg
from pydantic import Field

from retention_assets.clock import now
from retention_assets.policy.instants import parse_instant

EVERYTHING = ("*",)


class AsOf(dg.Config):
    """The instant at which to judge."""

    as_of: str = Field(default="", description="An instant with a zone, such as 2026-01-01T00:00:00Z; empty is the present.")

    def instant(self) -> datetime:
        """The instant, or the present."""
        return parse_instant(self.as_of) if self.as_of else now()


class Datasets(dg.Config):
    """Which datasets are looked at."""

    datasets: list[str] = Field(default=list(EVERYTHING), description="Globs over store/name; any one matches.")


class Sweeping(AsOf, Datasets):
    """What is swept: the marks of these datasets that are due by this instant."""
