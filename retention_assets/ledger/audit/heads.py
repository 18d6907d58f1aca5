"""Heads: where a ledger's chain ends, noted outside the ledger.

A ledger that lacks a noted row is an older copy that was put back, or another ledger in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, select

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, NOTED_HEADS

REMEDY = (
    "If that is meant, say `retention audit accept --head --reason …`: the record keeps who vouches for it. If not, put the"
    " newest backup of the ledger back."
)


class NotedPlace(NamedTuple):
    """A file for heads; `fault` says why the newest could not be noted, `store` is None in a warehouse."""

    place: str
    store: str | None
    noted: bool
    fault: str | None = None


def noted_places(connection: Connection) -> dict[str, NotedPlace]:
    rows = connection.execute(select(*(NOTED_HEADS.c[name] for name in NotedPlace._fields)).order_by(NOTED_HEADS.c.place))
    return {row.place: NotedPlace(*row) for row in rows}


def remember_places(tx: WriteTransaction, places: Sequence[NotedPlace], actor: str) -> None:
    before = noted_places(tx.connection)
    for place in places:
        if before.get(place.place) != place:
            act = Act(ActType.HEAD, actor, place.fault, detail=place._asdict())
            tx.put(act, NOTED_HEADS, **place._asdict(), changed_at=tx.present())


@dataclass(frozen=True)
class LedgerHead:
    """A row of the chain: the ledger's id, its position and its hash."""

    ledger: str
    position: int
    hash: str


def head_of(connection: Connection) -> LedgerHead:
    return LedgerHead(*connection.execute(select(AUDIT_HEAD.c.ledger, AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash)).one())


def head_fault(connection: Connection, noted: LedgerHead, where: str) -> str | None:
    """Explain, with a remedy, why a ledger does not contain a noted head; None if it does."""
    present = head_of(connection)
    if noted.ledger != present.ledger:
        return (
            f"{where} belongs to ledger {noted.ledger}, and this is ledger {present.ledger}: another ledger writes there, or"
            f" this one is new in its place. Give each ledger a warehouse of its own (the key warehouse). {REMEDY}"
        )
    there = connection.execute(select(AUDIT.c.hash).where(AUDIT.c.position == noted.position)).scalar_one_or_none()
    if noted.position and there != noted.hash:
        has = "has another row there" if there else f"ends with row {present.position}"
        return (
            f"{where} knows row {noted.position} of the record of ledger {noted.ledger}, which {has}: an older copy of the"
            f" ledger was put back, so it does not know what was taken back or held since. {REMEDY}"
        )
    return None
