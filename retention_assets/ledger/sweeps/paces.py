"""Paces: earliest start of a policy's next batch across datasets, programs and tasks. They decide nothing else."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, true, update

from retention_assets.ledger.audit.state import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import PACES

# Later paces would exceed the largest instant.
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


class Paces(LedgerPart):
    """The paces of a ledger."""

    @audited
    def reserve(self, tx: WriteTransaction, takes: Mapping[str, timedelta]) -> timedelta:
        """Reserve the time of a batch for each of its policies; return how long to wait before it starts."""
        names = sorted(takes)
        put_rows(tx.connection, PACES, [{"policy": name, "next_at": tx.present()} for name in names])
        query = select(PACES).where(PACES.c.policy.in_(names)).order_by(PACES.c.policy).with_for_update()
        known: dict[str, datetime] = {row.policy: row.next_at for row in tx.connection.execute(query)}
        begins = {name: max(known[name], tx.present()) for name in names}
        ends = [{"policy": name, "next_at": begins[name] + min(takes[name], _LATEST - begins[name])} for name in names]
        put_rows(tx.connection, PACES, ends, ["next_at"])
        return max(begins.values()) - tx.present()


def clear_paces(tx: WriteTransaction, policy: str | None = None) -> None:
    """Drop the reservations of a changed policy, or of all: the next batch may start at once."""
    mine = true() if policy is None else PACES.c.policy == policy
    cleared = update(PACES).where(mine, PACES.c.next_at > tx.present())
    change_rows(tx.connection, cleared.values(next_at=tx.present()), mine & (PACES.c.next_at == tx.present()))
