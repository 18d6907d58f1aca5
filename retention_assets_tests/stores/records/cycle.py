"""The whole cycle over units of work: policies and settings in a folder, marking without Spark, sweeping, the day's report."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol

from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.report import DayReport, day_report
from retention_assets.settings import Settings, load_settings
from retention_assets.sweep import Sweeper, SweepResult
from retention_assets_tests.clocks import CLOCK, open_simulated
from retention_assets_tests.sweep.datasets import evaluate


class UnitsDatabase(Protocol):
    url: str

    @property
    def settings(self) -> dict[str, Any]:
        """Of the store over it, as somebody writes them."""


@dataclass
class Cycle:
    """Everything below one folder but the databases of the stores."""

    folder: Path
    databases: Sequence[UnitsDatabase]

    def __post_init__(self) -> None:
        (self.folder / "policies").mkdir(parents=True)
        stores = [{**database.settings, "url": database.url.replace("$", "$$")} for database in self.databases]
        places = {name: str(self.folder / name) for name in ("policies", "warehouse")}
        settings = {"ledger": f"sqlite:///{self.folder}/ledger.db", **places, "clock": CLOCK, "stores": stores}
        # JSON is YAML. Above the folder, so that the databases are below the folder of the settings.
        self.settings_file.write_text(json.dumps(settings))

    @property
    def settings_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.yaml")

    def says(self, *policies: dict[str, Any]) -> "Cycle":
        """The policies from now on: marks are swept at once and without a pause, unless they say otherwise."""
        usual = {"grace": "0s", "confirm": "no-grace"}
        made = [{**usual, **one, "sweep": {"every": "0s", **one.get("sweep", {})}} for one in policies]
        (self.folder / "policies" / "p.yaml").write_text(json.dumps({"policies": made}))
        return self

    @property
    def settings(self) -> Settings:
        return load_settings(self.settings_file)

    def ledger(self) -> Ledger:
        return open_simulated(self.settings.ledger)

    def marks(self, as_of: datetime) -> int:
        with self.ledger() as ledger:
            return evaluate(ledger, Environment(self.settings).stores().values(), self.settings, as_of)

    def sweeps(self, as_of: datetime, **sweeper: Any) -> dict[str, SweepResult]:
        with self.ledger() as ledger:
            rulebook = load_rulebook(ledger, self.settings, "test")
            stores = sweeper.pop("stores", None) or Environment(self.settings).stores()
            done = Sweeper(ledger, stores, rulebook, as_of, "test", **sweeper).run(ledger.marks.datasets_to_sweep(as_of))
            return {result.dataset: result for result in done}

    def runs(self, as_of: datetime) -> dict[str, SweepResult]:
        self.marks(as_of)
        return self.sweeps(as_of)

    def report(self, day: date) -> DayReport:
        with self.ledger() as ledger:
            return day_report(ledger, day)

    def statuses(self, dataset: str) -> dict[str, str]:
        with self.ledger() as ledger:
            rows = ledger.marks.table([dataset]).to_pylist()
        return {row["transaction"]: row["status"] for row in rows}

    def why(self, dataset: str, transaction: str) -> str:
        with self.ledger() as ledger:
            rows = [row for row in ledger.marks.table([dataset]).to_pylist() if row["transaction"] == transaction]
        return str(rows[-1]["why"] or rows[-1]["last_error"])
