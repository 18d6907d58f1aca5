"""Candidates on their way to become marks, staged in a table by this program or by many tasks at once."""

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from retention_assets.ledger.audit.seals import groups_of
from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.schema import TIMES
from retention_assets.sql.staging import STAGED, SharedTable, shared_table

_INSTANT = pa.timestamp("us", tz="UTC")

# Transactions that policies select and nothing spares. `grace` is a policy's duration, `reason` SELECTED or
# LATEST_VIEW_ALLOWED.
CANDIDATES = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("transaction", pa.string(), nullable=False),
        pa.field("policy", pa.string(), nullable=False),
        pa.field("policy_version", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("grace", pa.string(), nullable=False),
        pa.field("bytes", pa.int64()),
        # Times at marking: with other times, the same id is another transaction.
        pa.field("opened_at", _INSTANT),
        pa.field("closed_at", _INSTANT),
    ]
)
_COMMON = ("policy", "policy_version", "reason", "grace")
# A row by its load, its place in the load, and its group of common values.
STAGED_ROWS = pa.schema(
    [
        pa.field("load", pa.int64()),
        pa.field("place", pa.int64()),
        pa.field("common", pa.int64()),
        pa.field("dataset", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("bytes", pa.int64()),
        *(pa.field(name, pa.int64()) for name in TIMES),
    ]
)
# rows staged per batch; larger batches only need more memory
_PORTION = 100_000


class MarkGroup(NamedTuple):
    """Values that many new marks share."""

    policy: str
    policy_version: int
    reason: str
    grace: str

    @property
    def number(self) -> int:
        """Hash of the group: equal in every task without coordination."""
        text = json.dumps(self, ensure_ascii=False)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2


class Load(NamedTuple):
    """A number of rows staged by one writer."""

    number: int
    rows: int


@dataclass
class OwnCandidates:
    """Candidates of this program, staged in one load. `rows` and `groups` are complete after iteration."""

    parts: Iterable[pa.Table]
    number: int = 0
    rows: int = 0
    groups: dict[int, MarkGroup] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return STAGED

    @property
    def loads(self) -> list[Load]:
        return [Load(self.number, self.rows)]

    def __iter__(self) -> Iterator[pa.Table]:
        self.rows, self.groups = 0, {}
        for part in self.parts:
            for at in range(0, len(part) or 1, _PORTION):
                yield self._staged(part.slice(at, _PORTION))

    def _staged(self, part: pa.Table) -> pa.Table:
        table = _checked(part)
        combinations, group = groups_of(table, _COMMON)
        groups = [
            MarkGroup(str(policy), int(str(version)), str(reason), str(grace))
            for policy, version, reason, grace in combinations
        ]
        numbers = np.array([one.number for one in groups], dtype=np.int64)
        merge_groups(self.groups, zip(numbers.tolist(), groups, strict=True))
        columns = {
            "load": pa.array(np.full(len(table), self.number, dtype=np.int64)),
            "place": pa.array(np.arange(self.rows, self.rows + len(table), dtype=np.int64)),
            "common": pa.array(numbers[group] if len(table) else numbers),
            **{name: table[name] for name in ("dataset", "transaction", "bytes")},
            **{name: table[name].cast(pa.int64()) for name in TIMES},
        }
        self.rows += len(table)
        return pa.table(columns, schema=STAGED_ROWS)


@dataclass(frozen=True)
class StagedCandidates:
    """Candidates that tasks staged, in the order of `loads`. Other loads don't count: their task died or ran twice."""

    table: str
    loads: Sequence[Load]
    groups: Mapping[int, MarkGroup]

    @property
    def rows(self) -> int:
        return sum(load.rows for load in self.loads)


@dataclass(frozen=True)
class CandidateTable:
    """A shared staging table; it can be sent to tasks."""

    shared: SharedTable

    def __call__(self, candidates: pa.Table) -> str:
        """Stage candidates; whoever knows that this task counts passes the returned text to `staged`."""
        own = OwnCandidates([candidates], secrets.randbits(62))
        for rows in own:
            if len(rows):
                self.shared.append(rows)
        return json.dumps([own.number, own.rows, list(own.groups.values())])

    def staged(self, told: Iterable[str]) -> StagedCandidates:
        loads: list[Load] = []
        groups: dict[int, MarkGroup] = {}
        for number, rows, common in map(json.loads, told):
            loads += [Load(number, rows)] if rows else []
            merge_groups(groups, ((one.number, one) for one in (MarkGroup(*values) for values in common)))
        return StagedCandidates(self.shared.name, loads, groups)


@contextmanager
def candidate_table(database: LedgerDatabase) -> Iterator[CandidateTable | None]:
    """Staging table for one run on PostgreSQL, which tasks can reach; None on SQLite."""
    if database.engine.dialect.name != "postgresql":
        yield None
        return
    with shared_table(database.engine, "marks", STAGED_ROWS) as shared:
        yield CandidateTable(shared)


def merge_groups(groups: dict[int, MarkGroup], more: Iterable[tuple[int, MarkGroup]]) -> None:
    """Add groups by number. Raises ValueError on a collision, which would give marks the wrong policy."""
    for number, group in more:
        if groups.setdefault(number, group) != group:
            raise ValueError(f"{groups[number]} and {group} have one number")


def _checked(candidates: pa.Table) -> pa.Table:
    if missing := set(CANDIDATES.names) - set(candidates.column_names):
        raise ValueError(f"candidates lack the columns {', '.join(sorted(missing))}")
    # The cast refuses null where the schema does.
    return candidates.select(CANDIDATES.names).cast(CANDIDATES)
