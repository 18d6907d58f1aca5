"""Objections that checks raise: a dataset with a standing objection is not swept, whoever launches the sweep."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select, update

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import OBJECTIONS
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.transactions import portions
from retention_assets.sql.upserts import insert_or_update


@dataclass(frozen=True)
class Objection:
    """A standing objection: the check, its run and its message."""

    dataset: str
    check: str
    sentence: str
    raised_by: str


class Objections(LedgerPart):
    """The objections of a ledger."""

    @audited
    def object(self, tx: WriteTransaction, sentences: Mapping[str, str], check: str, actor: str) -> None:
        detail = {"check": check, "datasets": dict(sorted(sentences.items()))}
        act = Act(ActType.OBJECT, actor, f"{check} failed.", detail=detail)
        for where in _rows_of(sentences, check):
            tx.seal(act, OBJECTIONS, where)
        row = {"raised_by": actor, "withdrawn_at": None, "withdrawn_by": None, "act": act.id}
        statement = insert_or_update(tx.connection, OBJECTIONS, ("dataset", "check_name"), ("sentence", "raised_at", *row))
        rows = [{"dataset": name, "check_name": check, "sentence": said, **row} for name, said in sorted(sentences.items())]
        tx.connection.execute(statement.values(raised_at=DatabaseTime()), rows)
        tx.record(act)

    def withdraw(self, datasets: Iterable[str], check: str, actor: str) -> None:
        """Withdraw a check's objections to datasets for which it now passes."""
        mine = sorted(set(datasets) & {one.dataset for one in self.standing() if one.check == check})
        if mine:
            self.database.write(lambda tx: _withdraw(tx, mine, check, actor))

    def standing(self, datasets: Collection[str] | None = None) -> list[Objection]:
        columns = (OBJECTIONS.c.dataset, OBJECTIONS.c.check_name, OBJECTIONS.c.sentence, OBJECTIONS.c.raised_by)
        query = select(*columns).where(OBJECTIONS.c.withdrawn_at.is_(None))
        rows = self.rows(query.order_by(OBJECTIONS.c.dataset, OBJECTIONS.c.check_name))
        return [Objection(*row) for row in rows if datasets is None or row.dataset in datasets]


def _withdraw(tx: WriteTransaction, datasets: Collection[str], check: str, actor: str) -> None:
    act = Act(ActType.WITHDRAW, actor, f"{check} passed.", detail={"check": check, "datasets": sorted(datasets)})
    for where in _rows_of(datasets, check):
        tx.seal(act, OBJECTIONS, where)
        over = {"withdrawn_at": DatabaseTime(), "withdrawn_by": actor, "act": act.id}
        tx.connection.execute(update(OBJECTIONS).where(where, OBJECTIONS.c.withdrawn_at.is_(None)).values(**over))
    tx.record(act)


def _rows_of(datasets: Iterable[str], check: str) -> Iterable[ColumnElement[bool]]:
    for some in portions(sorted(datasets)):
        yield (OBJECTIONS.c.check_name == check) & OBJECTIONS.c.dataset.in_(some)
