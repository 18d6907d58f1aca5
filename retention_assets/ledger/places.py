"""Where each store's data is, by mark: the newest row at the time a mark was made says where its data was.

Mark ids rise, so marks need no column for it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import CLOCK, PLACES


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
