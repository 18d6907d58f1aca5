"""Judging and marking without Spark, as sweeps of tests begin; and a folder of settings whose ledger says what became of marks."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import candidate_marks, new_marks, sound_log
from retention_assets.ledger import CANDIDATES, Ledger, open_ledger
from retention_assets.pipeline.part_frames import write_already_marked
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.protocol import Store
from retention_assets.sweep import Sweeper, SweepResult
from retention_assets_tests.histories import AS_OF

MARKED = AS_OF + timedelta(days=3 * 365)
DUE = MARKED + timedelta(days=7)


def evaluate(
    ledger: Ledger, stores: Iterable[Store], settings: Settings, as_of: datetime, warehouse: Path | None = None
) -> int:
    """Judge and mark all datasets of some stores, in one piece and without Spark; how many marks are new.

    As the asset does it, with what is marked already written to a warehouse, if one is given.
    """
    log = sound_log(pa.concat_tables([store.read(store.datasets()) for store in stores]))
    rules = load_rulebook(ledger, settings, "test").rules(log.datasets["dataset"].to_pylist(), as_of)
    again, judged = settings.hidden_again, (rules.policies, rules.holds, as_of)
    with TemporaryDirectory() as folder:
        known = write_already_marked(ledger, rules.policies, log.datasets, str(warehouse or folder), again).of(log.datasets)
    verdicts = candidate_marks(log.transactions, log.datasets, *judged, known)
    marks: pa.Table = new_marks(verdicts, log.transactions, rules.policies, rules.versions)
    return ledger.marks.mark(marks.cast(CANDIDATES), as_of, "test", hidden_again=again).new


@lru_cache(64)
def settings_in(file: Path, text: bytes) -> Settings:
    """The settings of a file with this text, read once: most tests ask ten times."""
    assert file.read_bytes() == text
    return load_settings(file)


class SettingsFolder:
    """A folder of settings: sweeping what is due, and what the ledger says of it."""

    folder: Path
    # whose marks are meant where none are named; None: all
    usual: ClassVar[tuple[str, ...] | None] = None

    @property
    def settings_file(self) -> Path:
        return self.folder / "retention.yaml"

    @property
    def settings(self) -> Settings:
        return settings_in(self.settings_file, self.settings_file.read_bytes())

    @property
    def environment(self) -> Environment:
        return Environment(self.settings)

    @property
    def stores(self) -> dict[str, Store]:
        return self.environment.stores()

    def opened(self) -> Ledger:
        return open_ledger(self.settings.ledger, simulated=self.settings.clock.simulated)

    def sweeps(self, as_of: datetime = AS_OF + timedelta(days=7), **sweeper: Any) -> dict[str, SweepResult]:
        """Sweep what is due, and look at what is set aside; the result of each dataset where anything was due or done."""
        with self.opened() as ledger:
            rulebook = load_rulebook(ledger, self.settings, "test")
            if store := sweeper.pop("store", None):
                sweeper["stores"] = {store.name: store}
            stores = sweeper.pop("stores", self.stores)
            work = {row.dataset: row for row in ledger.marks.to_sweep(as_of)}
            done = Sweeper(ledger, stores, rulebook, as_of, "test", **sweeper).run([*work])
            return {result.dataset: result for result in done if work[result.dataset].is_due or result.is_touched}

    def statuses(self, *datasets: str) -> dict[str, str]:
        with self.opened() as ledger:
            rows = ledger.marks.table(datasets or self.usual).to_pylist()
        return {row["transaction"]: row["status"] for row in rows}

    def why(self, transaction: str, *datasets: str) -> str:
        """Why the newest mark of a transaction is where it is, or what its last error was."""
        with self.opened() as ledger:
            rows = [row for row in ledger.marks.table(datasets or self.usual).to_pylist() if row["transaction"] == transaction]
        return str(rows[-1]["why"] or rows[-1]["last_error"])

    def ends(self, dataset: str, *transactions: str) -> list[str]:
        """Outcome of the first mark of each transaction."""
        with self.opened() as ledger:
            histories = ledger.histories.of(dataset, transactions)
            return [str(histories[name][0].outcome) for name in transactions]

    def verified(self) -> tuple[str, ...]:
        with self.opened() as ledger:
            return ledger.verify().faults
