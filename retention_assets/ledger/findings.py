"""Findings of asset checks: objections, under which a dataset is not swept, and violations that stand until they are mended.

Both are in the ledger, so that a run on other datasets makes no check pass, and whoever launches a sweep is stopped.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Table, select, text, update

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.rows import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.invariants import Violation
from retention_assets.ledger.schema import OBJECTIONS, STANDING, VIOLATIONS, WHOLE_CHECKS
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.transactions import insert_or_update, portions


@dataclass(frozen=True)
class Objection:
    """A standing objection: the check, its run and its message."""

    dataset: str
    check: str
    sentence: str
    raised_by: str


@dataclass(frozen=True)
class StandingViolation:
    """A standing violation: check, dataset, problem, number of cases, and since when."""

    check: str
    dataset: str
    what: str
    times: int
    since: datetime


class Objections(LedgerPart):
    """The objections of a ledger."""

    @audited
    def object(self, tx: WriteTransaction, sentences: Mapping[str, str], check: str, actor: str) -> None:
        detail = {"check": check, "datasets": dict(sorted(sentences.items()))}
        act = Act(ActType.OBJECT, actor, f"{check} failed.", detail=detail)
        for where in _rows_of(OBJECTIONS, check, sentences):
            tx.seal(OBJECTIONS, where, act)
        row = {"raised_by": actor, "withdrawn_at": None, "withdrawn_by": None, "act": act.id}
        statement = insert_or_update(tx.connection, OBJECTIONS, ("dataset", "check_name"), ("sentence", "raised_at", *row))
        rows = [{"dataset": name, "check_name": check, "sentence": words, **row} for name, words in sorted(sentences.items())]
        tx.connection.execute(statement.values(raised_at=DatabaseTime()), rows)
        tx.record(act)

    def withdraw(self, datasets: Iterable[str], check: str, actor: str) -> None:
        """Withdraw a check's objections to datasets for which it now passes."""
        standing = sorted(set(datasets) & {one.dataset for one in self.standing() if one.check == check})
        if standing:
            self._withdraw(standing, check, actor)

    @audited
    def _withdraw(self, tx: WriteTransaction, datasets: Collection[str], check: str, actor: str) -> None:
        act = Act(ActType.WITHDRAW, actor, f"{check} passed.", detail={"check": check, "datasets": datasets})
        over = {"withdrawn_at": DatabaseTime(), "withdrawn_by": actor, "act": act.id}
        for where in _rows_of(OBJECTIONS, check, datasets):
            tx.seal(OBJECTIONS, where, act)
            tx.connection.execute(update(OBJECTIONS).where(where, OBJECTIONS.c.withdrawn_at.is_(None)).values(**over))
        tx.record(act)

    def standing(self, datasets: Collection[str] | None = None) -> list[Objection]:
        columns = [OBJECTIONS.c[name] for name in ("dataset", "check_name", "sentence", "raised_by")]
        rows = self.rows(select(*columns).where(OBJECTIONS.c.withdrawn_at.is_(None)).order_by(*columns[:2]))
        return [Objection(*row) for row in rows if datasets is None or row.dataset in datasets]


class Violations(LedgerPart):
    """The violations of a ledger."""

    def standing(self, check: str | None = None) -> list[StandingViolation]:
        columns = [VIOLATIONS.c[name] for name in ("check_name", "dataset", "what", "times", "since")]
        query = select(*columns).where(text(STANDING)).order_by(*columns[:2])
        rows = self.rows(query if check is None else query.where(VIOLATIONS.c.check_name == check))
        return [StandingViolation(*row) for row in rows]

    def update(
        self, check: str, violations: Mapping[str, Violation], looked_at: Collection[str] | None, at: datetime, actor: str
    ) -> list[StandingViolation]:
        """Record the violations of a check in `looked_at` (None: all); return what stands. Other datasets stay unchanged."""
        before = {one.dataset: one for one in self.standing(check)}
        new = [one for name, one in violations.items() if name not in before]
        changed = [
            one
            for name, one in violations.items()
            if name in before and (one.what, one.times) != (before[name].what, before[name].times)
        ]
        # Violations without a dataset are checked each time.
        over = [name for name in before if name not in violations and (looked_at is None or not name or name in looked_at)]
        if not (new or changed or over):
            return list(before.values())
        row = {"check_name": check, "since": at, "found_by": actor, "over_at": None}

        def write(tx: WriteTransaction) -> None:
            words = ("what", "times", "found_by")
            for rows, columns in ((new, (*words, "since", "over_at")), (changed, words)):
                put_rows(tx.connection, VIOLATIONS, [{**row, **asdict(one)} for one in rows], columns)
            _end(tx, check, over, at)

        self.database.write(write)
        return self.standing(check)

    def end(self, check: str, datasets: Iterable[str], at: datetime) -> None:
        names = sorted(datasets)
        if names:
            self.database.write(lambda tx: _end(tx, check, names, at))

    def whole_look(self, check: str) -> datetime | None:
        query = select(WHOLE_CHECKS.c.looked_at).where(WHOLE_CHECKS.c.check_name == check)
        return next((at for (at,) in self.rows(query)), None)

    @audited
    def note_whole_look(self, tx: WriteTransaction, check: str, at: datetime) -> None:
        put_rows(tx.connection, WHOLE_CHECKS, [{"check_name": check, "looked_at": at}], ("looked_at",))


def _end(tx: WriteTransaction, check: str, datasets: Iterable[str], at: datetime) -> None:
    for here in _rows_of(VIOLATIONS, check, datasets):
        change_rows(tx.connection, update(VIOLATIONS).where(here, text(STANDING)).values(over_at=at), here)


def _rows_of(table: Table, check: str, datasets: Iterable[str]) -> Iterator[ColumnElement[bool]]:
    for some in portions(sorted(datasets)):
        yield (table.c.check_name == check) & table.c.dataset.in_(some)
