"""Names of an environment's assets, jobs, sensors and schedules in Dagster.

A prefix keeps them apart from the names of another project, or of another environment in one code location.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import dagster as dg

from retention_assets.errors import BadInput, Problem
from retention_assets.settings.sections import WORD, WORDS

# Dagster's own separator where it joins the parts of a key
_JOINT = "__"
_NO_LETTER = re.compile(r"\W", re.ASCII)
# value of the setting `partition_by` where a partition is a store
BY_STORE = "store"
# resources of a run: the environment, Spark, and the place of assets
RESOURCES = ("retention", "pyspark", "warehouse")


@dataclass(frozen=True)
class Names:
    """Names below a prefix."""

    prefix: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in self.prefix:
            if not WORD.fullmatch(part):
                raise BadInput(Problem("can't be part of a name", key="key_prefix", value=f"'{part}'", expected=WORDS))

    @classmethod
    def below(cls, prefix: str | Sequence[str]) -> "Names":
        """Take a prefix as people write it: `team/retention`, or its parts."""
        return cls(tuple(prefix.split("/") if isinstance(prefix, str) and prefix else prefix))

    def key(self, asset: str) -> dg.AssetKey:
        return dg.AssetKey([*self.prefix, asset])

    def stores(self, stores: Iterable[str]) -> dict[str, dg.AssetKey]:
        """Return keys by the names of stores. Dagster takes fewer characters; names that would become equal get a digest."""
        segments = {name: _NO_LETTER.sub("_", name) for name in stores}
        times = Counter(segments.values())
        return {
            name: dg.AssetKey(
                [
                    *self.prefix,
                    "store",
                    segment if segment == name or times[segment] == 1 else f"{segment}_{sha256(name.encode()).hexdigest()[:8]}",
                ]
            )
            for name, segment in segments.items()
        }

    def of(self, word: str) -> str:
        """Name anything else: a job, an op, a sensor, a schedule, a pool, a resource, the partitions."""
        return _JOINT.join((*self.prefix, word))

    @property
    def resources(self) -> set[str]:
        return {self.of(word) for word in RESOURCES}

    @property
    def datasets(self) -> str:
        """Name of the dynamic partitions, whose keys are datasets, or stores, by the setting."""
        return self.of("datasets")

    @property
    def sweeps(self) -> str:
        """Pool of whatever sweeps. A courtesy to people who look at Dagster; the lock is the lease in the ledger."""
        return self.of("sweeps")
