"""Visibility marks: per dataset the time before which history is not to be read. It only rises.

Belongs here: raising it and reading it. Does not belong here: what a reader sees of a history (frames).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import VISIBILITY
from retention_assets.policy.durations import Duration, text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.upserts import insert_counted, insert_or_skip


@dataclass(frozen=True)
class Visibility:
    """The visibility marks of a ledger."""

    database: LedgerDatabase

    def raise_to(self, dataset: str, visible_from: datetime, actor: str, reason: str | None = None) -> datetime:
        """Raise the mark, and return it as it is then; a lower value changes nothing."""
        return self.database.write(lambda tx: _raise_to(tx, dataset, visible_from, actor, reason))

    def advance(self, dataset: str, as_of: datetime, retention: Duration, newest_closed_at: datetime, actor: str) -> datetime:
        """Raise it by a retention, but never past the newest transaction: a fast clock can't hide the current view."""
        proposed = min(retention.before(as_of), newest_closed_at)
        return self.raise_to(dataset, proposed, actor, f"retention of {retention.words()} as of {text_of(as_of)}")

    def of(self, dataset: str) -> datetime | None:
        """The time before which the history of a dataset is not to be read, if there is one."""
        return self.of_all([dataset]).get(dataset)

    def of_all(self, datasets: Iterable[str] | None = None) -> dict[str, datetime]:
        """The same for many datasets, or all that have one."""
        wanted = None if datasets is None else set(datasets)
        query = select(VISIBILITY.c.dataset, VISIBILITY.c.visible_from).order_by(VISIBILITY.c.dataset)
        if wanted is not None and len(wanted) == 1:
            query = query.where(VISIBILITY.c.dataset.in_(wanted))
        with self.database.reading() as connection:
            return {
                row.dataset: row.visible_from for row in connection.execute(query) if wanted is None or row.dataset in wanted
            }


def _raise_to(tx: WriteTransaction, dataset: str, visible_from: datetime, actor: str, reason: str | None) -> datetime:
    act = Act(ActType.ADVANCE, actor, reason, dataset, detail={"to": text_of(visible_from)})
    values = {"visible_from": visible_from, "raised_at": DatabaseTime(), "raised_by": actor, "act": act.id}
    new = insert_or_skip(tx.connection, VISIBILITY).values(dataset=dataset, **values)
    tx.seal(act, VISIBILITY, VISIBILITY.c.dataset == dataset)
    lower = (VISIBILITY.c.dataset == dataset) & (VISIBILITY.c.visible_from < visible_from)
    if insert_counted(tx.connection, new) or tx.connection.execute(update(VISIBILITY).where(lower).values(**values)).rowcount:
        tx.record(act)
    current = select(VISIBILITY.c.visible_from).where(VISIBILITY.c.dataset == dataset)
    effective: datetime = tx.connection.execute(current).scalar_one()
    return effective
