"""Candidates on their way to become marks: into a staging table, from this program or from many tasks at once.

Belongs here: the columns that marking asks for, what a staged row has, and which of the rows that tasks left count.
Does not belong here: what becomes of them there (marking.py), and how rows get into a table (sql/staging.py).
"""

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

# What is to be marked: transactions that policies select and nothing spares. `grace` is a duration as policies have it;
# `reason` is the code of the reason why the policy may (SELECTED, or LATEST_VIEW_ALLOWED).
CANDIDATES = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("transaction", pa.string(), nullable=False),
        pa.field("policy", pa.string(), nullable=False),
        pa.field("policy_version", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("grace", pa.string(), nullable=False),
        pa.field("bytes", pa.int64()),
        # Of the transaction as it is when it is marked: one of other times under its id is another one.
        pa.field("opened_at", _INSTANT),
        pa.field("closed_at", _INSTANT),
    ]
)
_COMMON = ("policy", "policy_version", "reason", "grace")
# A row by the load that it came with and its place in it, and by what it has in common with others.
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
# Staged at a time: what is computed over more of them at once would only take more memory.
_PORTION = 100_000


class MarkGroup(NamedTuple):
    """What many new marks have in common."""

    policy: str
    policy_version: int
    reason: str
    grace: str

    @property
    def number(self) -> int:
        """By what staged rows name it: the same number in every task that has never heard of the others."""
        text = json.dumps(self, ensure_ascii=False)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2


class Load(NamedTuple):
    """So many rows that one writer staged, under a number of their own."""

    number: int
    rows: int


@dataclass
class OwnCandidates:
    """Candidates of this program, staged part by part in one load. What is said of them is so once they went through."""

    parts: Iterable[pa.Table]
    number: int = 0
    rows: int = 0
    groups: dict[int, MarkGroup] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """Where they are staged."""
        return STAGED

    @property
    def loads(self) -> list[Load]:
        """The one load that they are."""
        return [Load(self.number, self.rows)]

    def __iter__(self) -> Iterator[pa.Table]:
        """The rows as they are staged, anew each time."""
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
    """Candidates that tasks have staged: of the rows in a table, those of the loads that are named, in that order.

    A task that was run twice, or died half way, left a load that nobody names: it counts for nothing.
    """

    table: str
    loads: Sequence[Load]
    groups: Mapping[int, MarkGroup]

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(load.rows for load in self.loads)


@dataclass(frozen=True)
class CandidateTable:
    """A table that tasks stage candidates in, as a value that travels to them."""

    shared: SharedTable

    def __call__(self, candidates: pa.Table) -> str:
        """Stage some. What it says is to be told to `staged`, by who knows which task counts."""
        own = OwnCandidates([candidates], secrets.randbits(62))
        for rows in own:
            if len(rows):
                self.shared.append(rows)
        return json.dumps([own.number, own.rows, list(own.groups.values())])

    def staged(self, told: Iterable[str]) -> StagedCandidates:
        """What counts of the table, in the order in which it is to be numbered."""
        loads: list[Load] = []
        groups: dict[int, MarkGroup] = {}
        for number, rows, common in map(json.loads, told):
            loads += [Load(number, rows)] if rows else []
            merge_groups(groups, ((one.number, one) for one in (MarkGroup(*values) for values in common)))
        return StagedCandidates(self.shared.name, loads, groups)


@contextmanager
def candidate_table(database: LedgerDatabase) -> Iterator[CandidateTable | None]:
    """A table for the candidates of one run, where the database is a server that tasks can reach; none elsewhere."""
    if database.engine.dialect.name != "postgresql":
        yield None
        return
    with shared_table(database.engine, "marks", STAGED_ROWS) as shared:
        yield CandidateTable(shared)


def merge_groups(groups: dict[int, MarkGroup], more: Iterable[tuple[int, MarkGroup]]) -> None:
    """Add groups by their numbers. Two of one number would make marks of a policy that did not select them."""
    for number, group in more:
        if groups.setdefault(number, group) != group:
            raise ValueError(f"{groups[number]} and {group} have one number")


def _checked(candidates: pa.Table) -> pa.Table:
    """The candidates in the types that the ledger writes. What is missing is a fault of the program that made them."""
    if missing := set(CANDIDATES.names) - set(candidates.column_names):
        raise ValueError(f"candidates lack the columns {', '.join(sorted(missing))}")
    # Casting refuses null where the schema does.
    return candidates.select(CANDIDATES.names).cast(CANDIDATES)
