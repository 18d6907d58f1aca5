"""Partitions: one key per dataset, or one per store where an environment has more datasets than people can look at.

Belongs here: the definition, and which datasets a run is about: those of its partitions, or those that its configuration names.
Does not belong here: finding datasets (stores) and adding keys (sensors).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.policy.globs import is_literal, matching

BY_STORE = "store"


def partitions_of(names: Names) -> dg.DynamicPartitionsDefinition:
    """The partitions of an environment's assets."""
    return dg.DynamicPartitionsDefinition(name=names.datasets)


def is_valid_key(name: str) -> bool:
    """Whether Dagster takes a name as a partition's: three dots stand for a range there."""
    return "..." not in name and name.isprintable()


@dataclass(frozen=True)
class Choice:
    """Which datasets a run looks at."""

    globs: tuple[str, ...] = ("*",)
    # Partition keys; none where the run has no partitions.
    keys: frozenset[str] | None = None
    by_store: bool = False

    @property
    def all(self) -> bool:
        """Whether nothing is left out."""
        return self.keys is None and "*" in self.globs

    def of(self, names: Iterable[str]) -> list[str]:
        """Those of some names, in their order."""
        mine = [name for name in names if self._has_key(name)]
        if "*" in self.globs:
            return mine
        literal = {glob for glob in self.globs if is_literal(glob)}
        patterns = [glob for glob in self.globs if glob not in literal]
        matched = matching(mine, patterns) if patterns else [False] * len(mine)
        return [name for name, is_matched in zip(mine, matched, strict=True) if is_matched or name in literal]

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Partition keys of which no store knows anything."""
        there = {self._key(name) for name in names}
        return sorted((self.keys or frozenset()) - there)

    def _has_key(self, name: str) -> bool:
        return self.keys is None or self._key(name) in self.keys

    def _key(self, name: str) -> str:
        return name.partition("/")[0] if self.by_store else name


def choice_of(context: dg.AssetExecutionContext, globs: Sequence[str], partition_by: str) -> Choice:
    """What a run is about: a single key, a range, or no partition at all."""
    has_keys = context.has_partition_key or context.op_execution_context.has_partition_key_range
    keys = frozenset(context.partition_keys) if has_keys else None
    return Choice(tuple(globs), keys, partition_by == BY_STORE)
