"""Names of datasets: `store/name`, the store that a name belongs to, and filters of names."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from retention_assets.policy.globs import matching


def store_of(dataset: str) -> str:
    return dataset.partition("/")[0]


def by_store(datasets: Iterable[str]) -> dict[str, list[str]]:
    """Group datasets by store, keeping the order."""
    groups: dict[str, list[str]] = {}
    for dataset in datasets:
        groups.setdefault(store_of(dataset), []).append(dataset)
    return groups


@dataclass(frozen=True)
class DatasetFilter:
    """Choice of datasets for a run: by globs, and by the partition keys of an asset run."""

    globs: Sequence[str] = ("*",)
    # partition keys; None where the run has no partitions
    keys: frozenset[str] | None = None
    # a key is a store instead of a dataset
    keys_are_stores: bool = False

    @property
    def selects_all(self) -> bool:
        return self.keys is None and "*" in self.globs

    def select(self, names: Iterable[str]) -> list[str]:
        candidates = [name for name in names if self.keys is None or self._key(name) in self.keys]
        return [name for name, is_matched in zip(candidates, matching(candidates, self.globs), strict=True) if is_matched]

    def may_select_of(self, store: str) -> bool:
        """Tell by its name alone whether a store may have a chosen dataset."""
        begin = f"{store}/"
        if self.keys is not None and not any(store_of(key) == store for key in self.keys):
            return False
        heads = ((glob, re.split(r"[*?[]", glob, maxsplit=1)[0]) for glob in self.globs)
        return any(head.startswith(begin) or (head != glob and begin.startswith(head)) for glob, head in heads)

    def unknown_keys(self, names: Iterable[str]) -> list[str]:
        """Partition keys of which no store has anything."""
        existing = {self._key(name) for name in names}
        return sorted((self.keys or frozenset()) - existing)

    def _key(self, name: str) -> str:
        return store_of(name) if self.keys_are_stores else name
