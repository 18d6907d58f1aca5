"""Paces: from when on the next batch of a policy may begin, whoever sweeps it.

Belongs here: reserving the time of a batch. A policy's `sweep.every` is between its batches wherever they are deleted: in
one dataset or many, in one program or in many tasks. A new version of the policy begins anew. Nothing is decided by it, so
no act is about it.
Does not belong here: waiting (sweep/execute.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, true, update

from retention_assets.ledger.audit.state import change_rows, put_rows
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import PACES

# A pace of years is for ever; an instant has an end.
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Paces:
    """The paces of a ledger."""

    database: LedgerDatabase

    def reserve(self, takes: Mapping[str, timedelta]) -> timedelta:
        """Reserve the time that a batch takes of each of its policies; how long to wait before it may begin."""
        return self.database.write(lambda tx: _reserve(tx, takes)) if takes else timedelta()


def clear_paces(tx: WriteTransaction, policy: str | None = None) -> None:
    """Forget what was reserved for a policy that was changed, or for all: the next batch begins at once."""
    mine = true() if policy is None else PACES.c.policy == policy
    cleared = update(PACES).where(mine, PACES.c.next_at > tx.present())
    change_rows(tx.connection, cleared.values(next_at=tx.present()), mine & (PACES.c.next_at == tx.present()))


def _reserve(tx: WriteTransaction, takes: Mapping[str, timedelta]) -> timedelta:
    names = sorted(takes)
    put_rows(tx.connection, PACES, [{"policy": name, "next_at": tx.present()} for name in names])
    query = select(PACES).where(PACES.c.policy.in_(names)).order_by(PACES.c.policy).with_for_update()
    known: dict[str, datetime] = {row.policy: row.next_at for row in tx.connection.execute(query)}
    begins = {name: max(known[name], tx.present()) for name in names}
    ends = [{"policy": name, "next_at": begins[name] + min(takes[name], _LATEST - begins[name])} for name in names]
    put_rows(tx.connection, PACES, ends, ["next_at"])
    return max(begins.values()) - tx.present()
