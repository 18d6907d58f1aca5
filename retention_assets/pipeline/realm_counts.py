"""Counts of what is left of realms: adds up what a stage wrote, and reads what was published."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from retention_assets.frames.statistics import REALM_COUNTS
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.pipeline.stage import read_output

REALMS = "realms"
_GROUPS = ["realm", "verdict", "code", "witness"]


@dataclass(frozen=True)
class LeftOfRealm:
    """Transactions of a realm that are not swept, all for one reason."""

    verdict: str
    code: str
    witness: str | None
    transactions: int
    bytes: int

    @property
    def why(self) -> str:
        """Reason as words that follow a name; empty for transactions on their way out."""
        if self.verdict == "mark":
            return ""
        if self.verdict == "open" or self.code == Reason.UNFINISHED.name:
            return "still open"
        return f"held by {self.witness}" if self.code == Reason.HOLD.name else f"kept ({self.witness or self.code})"

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def add_up(parts: Iterable[pa.Table]) -> dict[str, list[LeftOfRealm]]:
    """Add up what is left of each realm, by reason, largest first."""
    rows = pa.concat_tables([REALM_COUNTS.empty_table(), *(part.cast(REALM_COUNTS) for part in parts)])
    sums = rows.group_by(_GROUPS).aggregate([("transactions", "sum"), ("bytes", "sum")])
    found: dict[str, list[LeftOfRealm]] = {}
    for row in sums.sort_by([("realm", "ascending"), ("transactions_sum", "descending"), ("witness", "ascending")]).to_pylist():
        one = LeftOfRealm(row["verdict"], row["code"], row["witness"], row["transactions_sum"], int(row["bytes_sum"] or 0))
        found.setdefault(row["realm"], []).append(one)
    return found


def published_counts(folders: Mapping[str, str]) -> dict[str, list[LeftOfRealm]]:
    """Add up the counts published by each dataset's newest evaluation, from its folder in `folders`."""
    by_folder: dict[str, list[str]] = {}
    for dataset, folder in folders.items():
        by_folder.setdefault(folder, []).append(dataset)
    parts = []
    for folder, datasets in by_folder.items():
        # an earlier release counted no realms
        with suppress(FileNotFoundError):
            parts.append(read_output(folder, REALMS, datasets))
    return add_up(parts)
