"""A lake for tests of the sweep: drawn histories, a file for each transaction's bytes, policies, settings, a ledger.

Belongs here: building it, marking without Spark, sweeping, and looking at what is left with the eyes of the file system.
Does not belong here: what should be left.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from retention_assets.outcomes import Order
from retention_assets.policy import Duration
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import (
    Only,
    Permit,
    PreparedTarget,
    Store,
    SweptTarget,
    Target,
    always,
)
from retention_assets_tests.clocks import CLOCK
from retention_assets_tests.histories import AS_OF, History, history, to_lines
from retention_assets_tests.ledger.states import plan_of, take_lease
from retention_assets_tests.sweep.datasets import SettingsFolder

# Five old views; S6 is the latest one.
FIVE = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@70d=10 - S4:SNAPSHOT@60d=10 - S5:SNAPSHOT@50d=10 - S6:SNAPSHOT@1d=10"
ALL = {"S1", "S2", "S3", "S4", "S5", "S6"}
DAY = timedelta(days=1)
OLD = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}, sweep: {every: 0s, batch: 2}}"
MARKED = AS_OF
DUE = AS_OF + timedelta(days=7)

T = TypeVar("T")


@dataclass
class Lake(SettingsFolder):
    """Everything below one folder."""

    usual = ("lake/d",)
    folder: Path
    ledger_url: str = ""
    policies: str = OLD
    drawn: list[History] = field(default_factory=list)
    # Real where it is empty.
    clock: dict[str, Any] = field(default_factory=lambda: dict(CLOCK))

    def __post_init__(self) -> None:
        for name in ("log", "data"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.ledger_url = self.ledger_url or f"sqlite:///{self.folder}/ledger.db"
        store = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
        places = {"warehouse": "warehouse", "policies": "policies"}
        self.writes(store, ledger=self.ledger_url, clock=self.clock, **places)
        self.says(self.policies)

    def configures(self, *stores: Mapping[str, Any], **settings: Any) -> "Lake":
        """More stores, and other settings, from now on."""
        written = json.loads(self.settings_file.read_text())
        self.settings_file.write_text(json.dumps({**written, "stores": [*written["stores"], *stores], **settings}))
        return self

    def change_realm(self, name: str, status: str, grace: Duration | None = None) -> None:
        with self.opened() as ledger:
            ledger.realms.change(name, status, "ann", "contract over", grace)

    def has(self, drawing: str, *datasets: str) -> "Lake":
        """Datasets with a history, and two files for each transaction that has bytes."""
        for dataset in datasets or ("lake/d",):
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

    def forgets(self, transaction: str) -> None:
        """The log of lake/d loses a transaction that begins it."""
        log = self.folder / "log" / "lake-d.jsonl"
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        kept = [{**row, **({"parent": None} if row.get("parent") == transaction else {})} for row in rows]
        log.write_text("".join(f"{json.dumps(row)}\n" for row in kept if row.get("transaction") != transaction))

    def branches(self, name: str, head: str, dataset: str = "lake/d") -> None:
        self._log(dataset, [json.dumps({"dataset": dataset, "branch": name, "head": head})])

    def tags(self, name: str, head: str, dataset: str = "lake/d") -> None:
        self._log(dataset, [json.dumps({"dataset": dataset, "tag": name, "head": head})])

    def belongs(self, realm: str, dataset: str = "lake/d") -> None:
        """The log says to which realm a dataset belongs, instead of what it said before."""
        file = self.folder / "log" / f"{dataset.replace('/', '-')}.jsonl"
        lines = [line for line in file.read_text().splitlines() if "realm" not in json.loads(line)]
        file.write_text("".join(f"{line}\n" for line in lines))
        self._log(dataset, [json.dumps({"dataset": dataset, "realm": realm})])

    def place(self, dataset: str, transaction: str) -> Path:
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

    def begins(self, *transactions: str, as_of: datetime = DUE, dataset: str = "lake/d") -> None:
        """A sweep is killed after it has written down what it begins with, before it deletes."""
        with self.opened() as ledger:
            lease = take_lease(ledger, dataset, "killed")
            marks = [row["id"] for row in ledger.marks.table([dataset]).to_pylist() if row["transaction"] in transactions]
            plan = plan_of(ledger, lease, marks, as_of)
            assert sorted(ledger.sweeps.begin([lease], [plan], marks).marks) == marks
            ledger.leases.give_up([lease])

    def elsewhere(self, happens: Callable[[], object], during: str = "swept", call: int = 1, **more: Any) -> "Elsewhere":
        return Elsewhere(self.stores["lake"], happens, during, call, **more)


class Told(RecordingStore):
    """A store that really deletes, and tells the test of each call: after `read`, `tokens` and what was "swept", before all else."""

    def __init__(self, store: Store, tell: Callable[[str, str], object], guards: bool | None = None) -> None:
        super().__init__(store)
        self.tell, self.guarding = tell, guards

    @property
    def guards(self) -> bool:
        return self.store.guards if self.guarding is None else self.guarding

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        rows = super().read(datasets, only)
        self.tell("read", "")
        return rows

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        tokens = self.store.tokens(datasets)
        self.tell("tokens", "")
        return tokens

    def place(self, dataset: str, claim: bool = False) -> str | None:
        self.tell("place", dataset)
        return self.store.place(dataset, claim)

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        self.tell("prepare", dataset)
        return self.store.prepare(dataset, transactions)

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:  # noqa: ARG002 - one after the other, so that the test knows which
        def asks() -> None:
            self.tell("permit", dataset)
            permit()

        self.tell("sweep", dataset)
        swept = self.store.sweep(dataset, targets, 1, asks)
        self.tell("swept", dataset)
        return swept

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        swept = self.store.carry_out(order, dataset, targets, parallelism, permit)
        self.tell("swept", dataset)
        return swept


class Elsewhere(Told):
    """At one moment of such a store's work something happens elsewhere: at so many calls of one kind."""

    def __init__(
        self, store: Store, happens: Callable[[], object], during: str = "swept", call: int = 1, guards: bool | None = None
    ) -> None:
        super().__init__(store, self._count, guards)
        self.happens, self.at, self.calls = happens, (during, call), Counter[str]()

    def _count(self, kind: str, _: str) -> None:
        self.calls[kind] += 1
        if (kind, self.calls[kind]) == self.at:
            self.happens()
