"""Judging and marking without Spark, as sweeps of tests begin; and a folder of settings whose ledger says what became of marks."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import candidate_marks, new_marks, sound_log
from retention_assets.ledger import CANDIDATES, Ledger, open_ledger
from retention_assets.pipeline.part_frames import write_already_marked
from retention_assets.policy import Hold
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.protocol import Store
from retention_assets.sweep import Sweeper, SweepResult
from retention_assets_tests.clocks import CLOCK
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import change_leases

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
    """A folder of settings, policies and a ledger: marking, what people do, sweeping what is due, and what the ledger says of it."""

    folder: Path
    # whose marks are meant where none are named; None: all
    usual: tuple[str, ...] | None = None
    marked_at: ClassVar[datetime] = AS_OF
    due_at: ClassVar[datetime] = AS_OF + timedelta(days=7)

    @property
    def settings_file(self) -> Path:
        return self.folder / "retention.yaml"

    def writes(self, *stores: Mapping[str, Any], **settings: Any) -> None:
        """Settings; realms are purged at once unless these say otherwise."""
        (self.folder / "policies").mkdir(parents=True, exist_ok=True)
        usual = {
            "ledger": f"sqlite:///{self.folder}/ledger.db", "clock": CLOCK, "realms": {"min_grace": "0s", "confirm": "no-grace"},
            **{name: str(self.folder / name) for name in ("warehouse", "policies")},
        }  # fmt: skip
        written = {**usual, **settings, "stores": stores}
        # JSON is YAML. In a password there may be a dollar.
        self.settings_file.write_text(json.dumps({**written, "ledger": str(written["ledger"]).replace("$", "$$")}))

    def says(self, policies: str, holds: str = "", retain: str = "") -> None:
        text = f"policies: [{policies}]\nholds: [{holds}]\nretain: [{retain}]\n"
        (self.folder / "policies" / "p.yaml").write_text(text)

    @property
    def settings(self) -> Settings:
        return settings_in(self.settings_file, self.settings_file.read_bytes())

    @property
    def environment(self) -> Environment:
        return Environment(self.settings)

    @property
    def stores(self) -> Mapping[str, Store]:
        return self.environment.stores()

    def opened(self) -> Ledger:
        return open_ledger(self.settings.ledger, simulated=self.settings.clock.simulated)

    def marks(self, as_of: datetime | None = None, *stores: Store) -> int:
        """Evaluate everything as the asset does, in one piece and without Spark; how many are new."""
        with self.opened() as ledger:
            return evaluate(
                ledger, stores or self.stores.values(), self.settings, as_of or self.marked_at, self.folder / "warehouse"
            )

    def hold(self, datasets: str = "*", *transactions: str, name: str = "legal", until: datetime | None = None) -> None:
        said = {"name": name, "datasets": datasets, "transactions": transactions or None, "reason": "case 7", "until": until}
        with self.opened() as ledger:
            ledger.holds.place(Hold.model_validate(said), "ann")

    def release(self, name: str = "legal") -> None:
        with self.opened() as ledger:
            ledger.holds.release(name, "ann", "over")

    def sweeps(self, as_of: datetime | None = None, **sweeper: Any) -> dict[str, SweepResult]:
        """Sweep what is due, and look at what is set aside; the result of each dataset where anything was due or done."""
        at = as_of or self.due_at
        with self.opened() as ledger:
            rulebook = load_rulebook(ledger, self.settings, "test")
            if store := sweeper.pop("store", None):
                sweeper["stores"] = {store.name: store}
            stores = sweeper.pop("stores", None)
            work = {row.dataset: row for row in ledger.marks.to_sweep(at)}
            done = Sweeper(ledger, self.stores if stores is None else stores, rulebook, at, "test", **sweeper).run([*work])
            return {result.dataset: result for result in done if work[result.dataset].is_due or result.is_touched}

    def dies_before(self, act: str, as_of: datetime | None = None, does: Callable[..., object] | None = None) -> None:
        """A sweep, or what else is done, is killed before an act, and its lease is over."""

        def dies(*_: Any) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"retention_assets.{act}", dies)
            with pytest.raises(KeyboardInterrupt):
                (does or self.sweeps)(as_of)
        with self.opened() as ledger:
            change_leases(ledger, "UPDATE leases SET expires_at = taken_at")

    def report(self, as_of: datetime | None = None, dataset: str = "") -> dict[str, Any]:
        with self.opened() as ledger:
            (found,) = ledger.reports.of((as_of or self.due_at).date(), dataset or (self.usual or ("",))[0])
        return dict(found)

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
