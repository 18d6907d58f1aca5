"""The whole cycle over units of work: policies and settings in a folder, marking without Spark, sweeping, the day's report."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol

from retention_assets.render import DayReport, day_report
from retention_assets.sweep import SweepResult
from retention_assets_tests.sweep.datasets import SettingsFolder


class UnitsDatabase(Protocol):
    url: str

    @property
    def settings(self) -> dict[str, Any]:
        """Of the store over it, as somebody writes them."""


@dataclass
class UnitsCycle(SettingsFolder):
    """Everything below one folder but the databases of the stores."""

    folder: Path
    databases: Sequence[UnitsDatabase]

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.writes(*({**database.settings, "url": database.url.replace("$", "$$")} for database in self.databases))

    @property
    def settings_file(self) -> Path:
        """Above the folder, so that the databases are below the folder of the settings."""
        return self.folder.with_name(f"{self.folder.name}.yaml")

    def purges(self, *policies: dict[str, Any]) -> "UnitsCycle":
        """The policies from now on: marks are swept at once and without a pause, unless they say otherwise."""
        usual = {"grace": "0s", "confirm": "no-grace"}
        made = [{**usual, **one, "sweep": {"every": "0s", **one.get("sweep", {})}} for one in policies]
        self.says(", ".join(map(json.dumps, made)))
        return self

    def runs(self, as_of: datetime) -> dict[str, SweepResult]:
        self.marks(as_of)
        return self.sweeps(as_of)

    def day(self, day: date) -> DayReport:
        with self.opened() as ledger:
            return day_report(ledger, day)
