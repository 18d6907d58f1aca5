"""A lake for tests of the sweep: drawn histories, a file for each transaction's bytes, policies, settings, a ledger.

Belongs here: building it, marking without Spark, sweeping, and looking at what is left with the eyes of the file system.
Does not belong here: what should be left.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.settings.model import Settings
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import Capabilities, Only, Permit, PreparedTarget, Store, SweptTarget, always
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper
from retention_assets_tests.clocks import CLOCK
from retention_assets_tests.histories import AS_OF, History, history, to_lines
from retention_assets_tests.sweep.datasets import evaluate, settings_in

OLD = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}, sweep: {every: 0s, batch: 2}}"
MARKED = AS_OF
DUE = AS_OF + timedelta(days=7)

T = TypeVar("T")


@dataclass
class Lake:
    """Everything below one folder."""

    folder: Path
    ledger_url: str = ""
    policies: str = OLD
    drawn: list[History] = field(default_factory=list)
    # Real where it is empty.
    clock: dict[str, Any] = field(default_factory=lambda: dict(CLOCK))

    def __post_init__(self) -> None:
        for name in ("log", "data", "policies"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.ledger_url = self.ledger_url or f"sqlite:///{self.folder}/ledger.db"
        self.says(self.policies)
        store = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
        settings = {
            "ledger": self.ledger_url.replace("$", "$$"),
            "clock": self.clock,
            "realms": {"min_grace": "0s", "confirm": "no-grace"},
            "warehouse": "warehouse",
            "policies": "policies",
            "stores": [store],
        }
        # JSON is YAML.
        self.settings_file.write_text(json.dumps(settings))

    @property
    def settings_file(self) -> Path:
        """Where the settings are written."""
        return self.folder / "retention.yaml"

    def says(self, policies: str, holds: str = "") -> None:
        """The policies from now on."""
        (self.folder / "policies" / "p.yaml").write_text(f"policies: [{policies}]\nholds: [{holds}]\n")

    def has(self, drawing: str, dataset: str = "lake/d") -> "Lake":
        """A dataset with a history, and two files for each transaction that has bytes."""
        drawn = history(drawing, dataset=dataset)
        self.drawn.append(drawn)
        for row in drawn.transactions:
            self._fill(dataset, row["transaction"])
        self._log(dataset, to_lines([drawn]))
        return self

    def _fill(self, dataset: str, transaction: str) -> None:
        place = self.place(dataset, transaction)
        (place / "deep").mkdir(parents=True)
        (place / "a.parquet").write_text(f"{dataset} {transaction}" * 3)
        (place / "deep" / "b.parquet").write_text(transaction)

    def _log(self, dataset: str, lines: Sequence[str]) -> None:
        file = self.folder / "log" / f"{dataset.replace('/', '-')}.jsonl"
        with file.open("a") as stream:
            stream.write("".join(f"{line}\n" for line in lines))

    def comes_again(self, transaction: str, dataset: str = "lake/d", **changes: Any) -> None:
        """Somebody makes a transaction anew under its old id: its bytes are there, and its line in the log says other things."""
        file = self.folder / "log" / f"{dataset.replace('/', '-')}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        anew = [{**row, **changes} if row.get("transaction") == transaction else row for row in rows]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in anew))
        if not self.place(dataset, transaction).exists():
            self._fill(dataset, transaction)

    def branches(self, name: str, head: str, dataset: str = "lake/d") -> None:
        """Somebody makes a branch."""
        self._log(dataset, [json.dumps({"dataset": dataset, "branch": name, "head": head})])

    def place(self, dataset: str, transaction: str) -> Path:
        """Where the bytes of a transaction are."""
        return self.folder / "data" / dataset.removeprefix("lake/") / transaction

    def left(self) -> dict[str, str]:
        """Every file below the data, with what is in it; not the one by which the root is known."""
        root = self.folder / "data"
        files = [file for file in sorted(root.rglob("*")) if file.is_file() and file != root / ".retention-store"]
        return {str(file.relative_to(root)): file.read_text() for file in files}

    def there(self, dataset: str = "lake/d") -> set[str]:
        """The transactions of a dataset that have bytes."""
        begin = f"{dataset.removeprefix('lake/')}/"
        return {name.removeprefix(begin).partition("/")[0] for name in self.left() if name.startswith(begin)}

    @property
    def settings(self) -> Settings:
        """As a run reads them."""
        return settings_in(self.settings_file, self.settings_file.read_bytes())

    @property
    def environment(self) -> Environment:
        """What the settings describe."""
        return Environment(self.settings)

    @property
    def stores(self) -> dict[str, Store]:
        """Opened."""
        return self.environment.stores()

    def opened(self) -> Ledger:
        """The ledger."""
        return open_ledger(self.settings.ledger, simulated=self.settings.clock.simulated)

    def marks(self, as_of: datetime = MARKED) -> int:
        """Evaluate everything as the asset does, in one piece and without Spark; how many are new."""
        with self.opened() as ledger:
            return evaluate(ledger, self.stores.values(), self.settings, as_of, self.folder / "warehouse")

    def sweeps(self, as_of: datetime = DUE, **sweeper: Any) -> dict[str, SweepResult]:
        """Sweep what is due; the result of each dataset."""
        with self.opened() as ledger:
            rulebook = load_rulebook(ledger, self.settings, "test")
            stores = sweeper.pop("stores", self.stores)
            done = Sweeper(ledger, stores, rulebook, as_of, "test", **sweeper).run(ledger.marks.datasets_to_sweep(as_of))
            return {result.dataset: result for result in done}

    def statuses(self, dataset: str = "lake/d") -> dict[str, str]:
        """Where the newest mark of each transaction is."""
        with self.opened() as ledger:
            rows = ledger.marks.table([dataset]).to_pylist()
        return {row["transaction"]: row["status"] for row in rows}

    def why(self, transaction: str, dataset: str = "lake/d") -> str:
        """Why the newest mark of a transaction is where it is, or what its last error was."""
        with self.opened() as ledger:
            rows = [row for row in ledger.marks.table([dataset]).to_pylist() if row["transaction"] == transaction]
        return str(rows[-1]["why"] or rows[-1]["last_error"])

    def report(self, as_of: datetime = DUE, dataset: str = "lake/d") -> dict[str, Any]:
        """The day's report of a dataset."""
        with self.opened() as ledger:
            (found,) = ledger.reports.of(as_of.date(), dataset)
        return dict(found)

    def verified(self) -> tuple[str, ...]:
        """The faults of the audit."""
        with self.opened() as ledger:
            return ledger.verify().faults


class Elsewhere(RecordingStore):
    """A store that really deletes, and at one moment of whose work something happens elsewhere: after so many calls of one kind."""

    def __init__(self, store: Store, guards: bool, happens: Callable[[], object], during: str = "sweep", call: int = 1) -> None:
        super().__init__(store)
        self.guards, self.happens, self.at = guards, happens, (during, call)
        self.calls = dict.fromkeys(("read", "tokens", "prepare", "sweep"), 0)

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.store.capabilities, guards=self.guards)

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        return self._then("read", super().read(datasets, only))

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        return self._then("tokens", self.store.tokens(datasets))

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        # Before the notes are taken: they say what is there then, so that nothing has changed by them.
        self._then("prepare", None)
        return self.store.prepare(dataset, transactions)

    def sweep(self, dataset: str, targets: Any, parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        swept = self.store.sweep(dataset, targets, parallelism, permit)
        self._then("sweep", None)
        return swept

    def _then(self, kind: str, answer: T) -> T:
        self.calls[kind] += 1
        if (kind, self.calls[kind]) == self.at:
            self.happens()
        return answer
