"""Visibility marks: per dataset, the time before which history must not be read. It only rises."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import bindparam, select, update

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction
from retention_assets.ledger.schema import VISIBILITY
from retention_assets.policy.durations import Duration, text_of
from retention_assets.sql.transactions import portions
from retention_assets.sql.upserts import insert_or_skip


class Raise(NamedTuple):
    """Proposed visibility mark, with its reason."""

    visible_from: datetime
    reason: str | None = None


class Visibility(LedgerPart):
    """The visibility marks of a ledger."""

    def raise_to(self, raises: Mapping[str, Raise], actor: str) -> dict[str, datetime]:
        """Raise many marks in one transaction, each with an act of its own; return them. Lower values change nothing."""
        before = self.of_all(raises)
        higher = {name: to for name, to in raises.items() if name not in before or before[name] < to.visible_from}
        return {**before, **self.database.write(lambda tx: _raise_to(tx, higher, actor))} if higher else before

    def of(self, dataset: str) -> datetime | None:
        return self.of_all([dataset]).get(dataset)

    def of_all(self, datasets: Iterable[str] | None = None) -> dict[str, datetime]:
        query = select(VISIBILITY.c.dataset, VISIBILITY.c.visible_from).order_by(VISIBILITY.c.dataset)
        rows = self.rows(query) if datasets is None else self.rows_among(query, VISIBILITY.c.dataset, datasets)
        return {row.dataset: row.visible_from for row in rows}


def raise_by(retention: Duration, as_of: datetime, newest_closed_at: datetime, why: str = "") -> Raise:
    """The instant less the retention, but never past the newest transaction: a fast clock can't hide the current view."""
    reason = f"retention of {retention.words()} as of {text_of(as_of)}{why}"
    return Raise(min(retention.before(as_of), newest_closed_at), reason)


def _raise_to(tx: WriteTransaction, raises: Mapping[str, Raise], actor: str) -> dict[str, datetime]:
    acts = {
        name: Act(ActType.ADVANCE, actor, to.reason, name, detail={"to": text_of(to.visible_from)})
        for name, to in raises.items()
    }
    # Sorted, so that concurrent writers of the same datasets can't deadlock.
    names = sorted(raises)
    rows = [
        {
            "dataset": name,
            "visible_from": raises[name].visible_from,
            "raised_at": tx.present(),
            "raised_by": actor,
            "act": acts[name].id,
        }
        for name in names
    ]
    lower = (VISIBILITY.c.dataset == bindparam("name")) & (VISIBILITY.c.visible_from < bindparam("visible_from"))
    columns = ("visible_from", "raised_at", "raised_by", "act")
    rise = update(VISIBILITY).where(lower).values({name: bindparam(name) for name in columns})
    for some in portions(names):
        tx.seal(VISIBILITY, VISIBILITY.c.dataset.in_(some), *acts.values())
    tx.connection.execute(insert_or_skip(tx.connection, VISIBILITY), rows)
    tx.connection.execute(rise, [{**{name: row[name] for name in columns}, "name": row["dataset"]} for row in rows])
    found: dict[str, datetime] = {}
    for some in portions(names):
        present = select(VISIBILITY.c.dataset, VISIBILITY.c.visible_from, VISIBILITY.c.act)
        for row in tx.connection.execute(present.where(VISIBILITY.c.dataset.in_(some))):
            found[row.dataset] = row.visible_from
            if row.act == acts[row.dataset].id:
                tx.record(acts[row.dataset])
    return found
