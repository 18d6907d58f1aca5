"""Places outside the ledger: where each store's data is, and where the end of the ledger's chain was noted.

Mark ids rise, so the newest place of a store when a mark was made says where its data was. A ledger that lacks a noted head is
an older copy that was put back, or another ledger in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, CLOCK, NOTED_HEADS, PLACES

REMEDY = (
    "If that is meant, say `retention audit accept --head --reason …`: the record keeps who vouches for it. If not, put the"
    " newest backup of the ledger back."
)


class StorePlace(NamedTuple):
    """The place of a store from a mark on."""

    id: int
    store: str
    place: str
    first_mark: int


_PLACES = select(*(PLACES.c[name] for name in StorePlace._fields)).order_by(PLACES.c.id)


class StorePlaces(LedgerPart):
    """The places of the stores of a ledger."""

    def all(self) -> list[StorePlace]:
        return [StorePlace(*row) for row in self.rows(_PLACES)]

    def newest(self) -> dict[str, StorePlace]:
        return {one.store: one for one in self.all()}

    @audited
    def note(
        self, tx: WriteTransaction, places: Mapping[str, str], actor: str, reason: str, known: Mapping[str, StorePlace]
    ) -> None:
        """Note the places of stores, except of those for which another program noted one since they were `known`."""
        # Markers wait for this row: each mark is made entirely before or after a place is noted.
        following = tx.connection.execute(select(CLOCK.c.next_mark).with_for_update()).scalar_one()
        present = newest_places(tx.connection)
        last = tx.connection.execute(select(func.max(PLACES.c.id))).scalar_one() or 0
        unchanged = {name: place for name, place in places.items() if present.get(name) == known.get(name)}
        for number, (name, place) in enumerate(sorted(unchanged.items()), last + 1):
            row = {"store": name, "place": place, "id": number}
            act = Act(ActType.PLACE, actor, reason, detail=row)
            tx.add(act, PLACES, **row, first_mark=following, noted_at=tx.present())


def newest_places(connection: Connection) -> dict[str, StorePlace]:
    return {row.store: StorePlace(*row) for row in connection.execute(_PLACES)}


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
