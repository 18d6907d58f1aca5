"""A sweep of an objects store as the engine does it, without an engine."""

from dataclasses import replace

from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.protocol import Permit, SweptTarget, Target, always


def planned(store: ObjectsStore, *keys: str, dataset: str = "blobs/a") -> list[Target]:
    return [Target(one.transaction, one.note, place_known=True) for one in store.prepare(dataset, keys)]


def begun(targets: list[Target]) -> list[Target]:
    return [replace(one, begun_earlier=True) for one in targets]


def swept(
    store: ObjectsStore, targets: list[Target], dataset: str = "blobs/a", parallelism: int = 2, permit: Permit = always
) -> dict[str, SweptTarget]:
    results = store.sweep(dataset, targets, parallelism, permit)
    assert len(results) == len(targets)
    return {result.transaction: result for result in results}
