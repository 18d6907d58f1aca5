"""The whole cycle over objects: policies and settings in a folder, marking without Spark, sweeping, and what is left."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.protocol import Only, Permit, Store, SweptTarget, Target, always
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.objects.environments import Objects, read_some
from retention_assets_tests.sweep.datasets import SettingsFolder

UNREFERENCED = {
    "name": "orphans", "datasets": {"include": ["blobs/*"]}, "select": {"unreferenced": True, "older_than": "30d"},
    "sweep": {"every": "0s"},
}  # fmt: skip
DUE = AS_OF + timedelta(days=7)


class ObjectsCycle(SettingsFolder):
    """An environment of objects, with a ledger and policies beside it."""

    def __init__(self, objects: Objects, *policies: Mapping[str, Any], **changes: Any) -> None:
        self.objects, self.changes = objects, changes
        self.folder = objects.folder
        self.writes(objects.settings(**changes))
        self.says(", ".join(map(json.dumps, policies or (UNREFERENCED,))))

    @property
    def stores(self) -> dict[str, Store]:
        return {"blobs": self.objects.store(**self.changes)}

    def marks(self, as_of: datetime | None = None, *stores: Store) -> int:
        """Of all stores of the settings, unless some are given."""
        return super().marks(as_of, *(stores or self.environment.stores().values()))


class Meanwhile(ObjectsStore):
    """A store at which something happens right before it deletes."""

    before: Callable[[], object] = staticmethod(lambda: None)

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        self.before()
        return super().sweep(dataset, targets, parallelism, permit)


class Scanned(RecordingStore):
    """A store whose log is what a second look finds at all of its objects, with realms that are being purged."""

    def __init__(self, store: ObjectsStore, *purging: str) -> None:
        super().__init__(store)
        self.purging = purging

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        assert only is None
        found = pa.concat_tables([self.store.read([one]) for one in datasets])
        names = {one: found.filter(pa.compute.equal(found["dataset"], one))["transaction"] for one in datasets}
        wanted = {one: [name for name in names[one].to_pylist() if name is not None] for one in datasets}
        return read_some(self.store, wanted, self.purging)
