"""Candidates on their way to become marks: numbered, with the end of their grace, and sealed.

Belongs here: the columns that marking asks for, and everything about new marks that can be computed before the transaction.
Does not belong here: the database.
"""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from retention_assets.ledger.audit.seals import groups_of, seals_of
from retention_assets.ledger.schema import TIMES
from retention_assets.policy.durations import parse_duration

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


@dataclass(frozen=True)
class MarkGroup:
    """What many new marks have in common."""

    number: int
    policy: str
    policy_version: int
    reason: str
    grace: str
    due_at: datetime


@dataclass(frozen=True)
class PreparedMarks:
    """New marks, as rows with the number of their group, valid for one `marked_at`."""

    rows: pa.Table
    groups: tuple[MarkGroup, ...]
    marked_at: datetime


def prepare_marks(candidates: pa.Table, first: int, marked_at: datetime) -> PreparedMarks:
    """Marks numbered from `first`, in the order of the candidates."""
    table = _checked(candidates)
    combinations, group = groups_of(table, _COMMON)
    groups = tuple(
        MarkGroup(number, str(policy), int(str(version)), str(reason), str(grace), parse_duration(str(grace)).after(marked_at))
        for number, (policy, version, reason, grace) in enumerate(combinations)
    )
    common = [(one.policy, one.policy_version, one.reason, one.grace, marked_at, one.due_at) for one in groups]
    rows = pa.table(
        {
            "id": pa.array(np.arange(first, first + len(table), dtype=np.int64)),
            "dataset": table["dataset"],
            "transaction": table["transaction"],
            "bytes": table["bytes"],
            **{name: table[name].cast(pa.int64()) for name in TIMES},
            "group_number": pa.array(group.astype(np.int64)),
        }
    )
    return PreparedMarks(rows.append_column("seal", pa.array(seals_of(rows, common, group), pa.string())), groups, marked_at)


def _checked(candidates: pa.Table) -> pa.Table:
    """The candidates in the types that the ledger writes. What is missing is a fault of the program that made them."""
    if missing := set(CANDIDATES.names) - set(candidates.column_names):
        raise ValueError(f"candidates lack the columns {', '.join(sorted(missing))}")
    # Casting refuses null where the schema does.
    return candidates.select(CANDIDATES.names).cast(CANDIDATES)
