"""The whole cycle over objects: policies and settings in a folder, marking without Spark, sweeping, and what is left."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.protocol import Permit, SweptTarget, Target, always
from retention_assets.sweep import Sweeper, SweepResult
from retention_assets_tests.clocks import CLOCK, open_simulated
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.objects.environments import Objects, read_some
from retention_assets_tests.sweep.datasets import evaluate

UNREFERENCED = {
    "name": "orphans", "datasets": {"include": ["blobs/*"]}, "select": {"unreferenced": True, "older_than": "30d"},
    "sweep": {"every": "0s"},
}  # fmt: skip
DUE = AS_OF + timedelta(days=7)


class ObjectsCycle:
    """An environment of objects, with a ledger and policies beside it."""

    def __init__(self, objects: Objects, *policies: Mapping[str, Any], **changes: Any) -> None:
        self.objects, self.changes = objects, changes
        self.folder = objects.folder
        (self.folder / "policies").mkdir()
        written = {"policies": [*(policies or (UNREFERENCED,))], "holds": []}
        (self.folder / "policies" / "p.yaml").write_text(json.dumps(written))
        self.file = self.folder / "retention.yaml"
        self.url = f"sqlite:///{self.folder}/ledger.db"
        # JSON is YAML.
        stores = [objects.settings(**changes)]
        settings = {"ledger": self.url, "clock": CLOCK, "policies": "policies", "stores": stores}
        # Realms are purged at once.
        self.file.write_text(json.dumps({**settings, "realms": {"min_grace": "0s", "confirm": "no-grace"}}))

    @property
    def settings(self) -> Settings:
        return load_settings(self.file)

    @property
    def environment(self) -> Environment:
        return Environment(self.settings)

    def ledger(self) -> Ledger:
        return open_simulated(self.url)

    def marks(self, as_of: datetime = AS_OF, **store: Any) -> int:
        with self.ledger() as ledger:
            stores = store or self.environment.stores()
            return evaluate(ledger, stores.values(), self.settings, as_of)

    def sweeps(self, store: ObjectsStore | None = None, as_of: datetime = DUE, **sweeper: Any) -> dict[str, SweepResult]:
        with self.ledger() as ledger:
            rulebook = load_rulebook(ledger, self.settings, "test")
            stores = {"blobs": store or self.objects.store(**self.changes)}
            done = Sweeper(ledger, stores, rulebook, as_of, "test", **sweeper).run(ledger.marks.datasets_to_sweep(as_of))
            return {result.dataset: result for result in done}

    def statuses(self) -> dict[str, str]:
        with self.ledger() as ledger:
            rows = ledger.marks.table(self.objects.datasets).to_pylist()
        return {row["transaction"]: row["status"] for row in rows}

    def why(self, key: str, dataset: str = "blobs/a") -> str:
        """Why the newest mark of an object is where it is, or what its last error was."""
        with self.ledger() as ledger:
            rows = [row for row in ledger.marks.table([dataset]).to_pylist() if row["transaction"] == key]
        return str(rows[-1]["why"] or rows[-1]["last_error"])


class Meanwhile(ObjectsStore):
    """A store at which something happens right before, or right after, it deletes."""

    before: Callable[[], object] = staticmethod(lambda: None)
    after: Callable[[], object] = staticmethod(lambda: None)

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        self.before()
        swept = super().sweep(dataset, targets, parallelism, permit)
        self.after()
        return swept


class Scanned:
    """A store whose log is what a second look finds at all of its objects, with realms that are being purged."""

    def __init__(self, store: ObjectsStore, *purging: str) -> None:
        self.store, self.purging = store, purging

    def datasets(self) -> list[str]:
        return self.store.datasets()

    def read(self, datasets: Sequence[str]) -> pa.Table:
        found = pa.concat_tables([self.store.read([one]) for one in datasets])
        names = {one: found.filter(pa.compute.equal(found["dataset"], one))["transaction"] for one in datasets}
        wanted = {one: [name for name in names[one].to_pylist() if name is not None] for one in datasets}
        return read_some(self.store, wanted, self.purging)
