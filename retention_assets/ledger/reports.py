"""Reports: what a day's execution was to delete of a dataset, and what became of it so far.

Belongs here: opening a day's report once, counting in the transaction that wrote what is counted, finishing, reading, summing.
Does not belong here: showing a report.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from sqlalchemy import func, select, update

from retention_assets.ledger.audit import Act, Deed
from retention_assets.ledger.columns import Present
from retention_assets.ledger.database import Database, Writing
from retention_assets.ledger.schema import REPORTS
from retention_assets.ledger.upserts import insert_or_skip, inserted
from retention_assets.problems import Refused

COUNTERS = ("to_delete", "deleted", "already_gone", "failed", "spared", "unmarked", "bytes_to_free", "bytes_freed")


@dataclass(frozen=True)
class Opening:
    """What is known, and from then on fixed, when a day's report of a dataset opens.

    `classes` says of every transaction of the log which one class it is in; together they are the log.
    """

    to_delete: int
    bytes_to_free: int
    policies: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, str] = field(default_factory=dict)
    terminal_only: bool | None = None
    archived_types: tuple[str, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Reports:
    """The reports of a ledger."""

    database: Database

    def open(self, execution_date: date, dataset: str, opening: Opening, actor: str, log: int | None = None) -> bool:
        """Open the report of a day; false if it is open already. Then nothing of it changes: what came later is tomorrow's."""
        if log is not None and sum(opening.classes.values()) != log:
            raise Refused(
                f"The classes of {dataset} sum to {sum(opening.classes.values())}, and its log has {log} transactions."
            )
        return self.database.write(lambda doing: _open(doing, execution_date, dataset, opening, actor))

    def finish(self, execution_date: date, dataset: str, actor: str) -> datetime:
        """Everything of the day is done. The second time says when the first one was."""
        return self.database.write(lambda doing: _finish(doing, execution_date, dataset, actor))

    def of(self, execution_date: date, dataset: str | None = None) -> list[Mapping[str, Any]]:
        """The reports of a day, by dataset."""
        query = select(REPORTS).where(REPORTS.c.execution_date == execution_date).order_by(REPORTS.c.dataset)
        with self.database.reading() as connection:
            found = connection.execute(query if dataset is None else query.where(REPORTS.c.dataset == dataset)).mappings()
            return [{**row, **{name: json.loads(row[name]) for name in _JSON}} for row in found]

    def sum_of(self, first: date, last: date) -> Mapping[str, int]:
        """The counters of some days added up."""
        totals = [func.coalesce(func.sum(REPORTS.c[name]), 0).label(name) for name in COUNTERS]
        query = select(*totals).where(REPORTS.c.execution_date.between(first, last))
        with self.database.reading() as connection:
            return {name: int(value) for name, value in connection.execute(query).mappings().one().items()}


_JSON = ("policies", "bounds", "archived_types", "classes")


def _open(doing: Writing, execution_date: date, dataset: str, opening: Opening, actor: str) -> bool:
    act = Act(Deed.REPORT, actor, dataset=dataset, detail={"date": execution_date.isoformat(), "to_delete": opening.to_delete})
    values = {
        **{name: json.dumps(getattr(opening, name), sort_keys=True) for name in _JSON},
        **{name: getattr(opening, name) for name in ("to_delete", "bytes_to_free", "terminal_only")},
    }
    row = insert_or_skip(doing.connection, REPORTS).values(
        execution_date=execution_date, dataset=dataset, started_at=Present(), act=act.id, **values
    )
    if not inserted(doing.connection, row):
        return False
    doing.record(act)
    return True


def count(doing: Writing, execution_date: date, dataset: str, **amounts: int) -> None:
    """Add to the counters of a report, in the transaction that wrote what is counted."""
    this = (REPORTS.c.execution_date == execution_date) & (REPORTS.c.dataset == dataset)
    added = {name: REPORTS.c[name] + amount for name, amount in amounts.items()}
    if not doing.connection.execute(update(REPORTS).where(this).values(**added)).rowcount:
        raise ValueError(f"no report of {dataset} is open for {execution_date}")


def _finish(doing: Writing, execution_date: date, dataset: str, actor: str) -> datetime:
    this = (REPORTS.c.execution_date == execution_date) & (REPORTS.c.dataset == dataset)
    done = update(REPORTS).where(this, REPORTS.c.finished_at.is_(None)).values(finished_at=Present())
    if doing.connection.execute(done).rowcount:
        detail = {"date": execution_date.isoformat(), "finished": True}
        doing.record(Act(Deed.REPORT, actor, dataset=dataset, detail=detail))
    row = doing.connection.execute(select(REPORTS.c.finished_at).where(this)).one_or_none()
    if row is None:
        raise Refused(f"There is no report of {dataset} for {execution_date}, so none can be finished.")
    finished: datetime = row.finished_at
    return finished
