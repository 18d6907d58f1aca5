"""The state of each dataset and of all together, by the ledger: one statement per table."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select

from retention_assets.ledger.database import LedgerPart
from retention_assets.ledger.evaluations import VerdictCount, counts_of
from retention_assets.ledger.findings import Objections
from retention_assets.ledger.marks.pending import PendingGroup, Waiting
from retention_assets.ledger.schema import EVALUATIONS, REPORTS
from retention_assets.sql.sums import ByteSum
from retention_assets.sql.transactions import portions

_DONE = ("deleted", "already_gone", "hidden", "failed", "spared", "bytes_freed")


@dataclass(frozen=True)
class LastSweep:
    """Results of the last day on which a sweep had work."""

    day: date
    counters: Mapping[str, int]


@dataclass(frozen=True)
class DatasetState:
    """The state of a dataset."""

    dataset: str
    judged_at: datetime | None = None
    counts: Sequence[VerdictCount] = ()
    fault: str | None = None
    waiting: Waiting = field(default_factory=Waiting)
    objections: Sequence[str] = ()
    last_sweep: LastSweep | None = None

    def transactions(self, verdict: str | None = None) -> int:
        return sum(one.transactions for one in self.counts if verdict in (None, one.verdict))

    def bytes(self, verdict: str | None = None) -> int:
        return sum(one.bytes for one in self.counts if verdict in (None, one.verdict))


@dataclass(frozen=True)
class Totals:
    """Newest evaluations, summed by verdict and policy."""

    datasets: int
    judged_at: datetime | None
    counts: Sequence[VerdictCount]
    refused: Mapping[str, str]

    @property
    def transactions(self) -> int:
        return sum(one.transactions for one in self.counts)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.counts)


class States(LedgerPart):
    """States by a ledger."""

    def totals(self, without: Collection[str] = ()) -> Totals:
        left_out = frozenset(without)
        transactions, size = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        refused: dict[str, str] = {}
        judged: list[datetime] = []
        query = select(EVALUATIONS.c.dataset, EVALUATIONS.c.looked_at, EVALUATIONS.c.counts, EVALUATIONS.c.fault)
        with self.database.reading() as connection:
            for row in connection.execute(query.order_by(EVALUATIONS.c.dataset)):
                if row.dataset in left_out:
                    continue
                judged.append(row.looked_at)
                if row.fault is not None:
                    refused[row.dataset] = row.fault
                for one in counts_of(row.counts):
                    transactions[one.verdict, one.policy] += one.transactions
                    size[one.verdict, one.policy] += one.bytes
        counts = [VerdictCount(*key, transactions[key], size[key]) for key in sorted(transactions)]
        return Totals(len(judged), max(judged, default=None), counts, refused)

    def faults(self, datasets: Collection[str]) -> dict[str, str]:
        query = select(EVALUATIONS.c.dataset, EVALUATIONS.c.fault).where(EVALUATIONS.c.fault.is_not(None))
        rows = self.rows(query.order_by(EVALUATIONS.c.dataset))
        return {row.dataset: row.fault for row in rows if row.dataset in datasets}

    def last_sweep(self) -> LastSweep | None:
        did = or_(*(REPORTS.c[name] > 0 for name in _DONE))
        sums = [ByteSum(REPORTS.c[name]).label(name) for name in _DONE]
        query = select(REPORTS.c.execution_date, *sums).where(did).group_by(REPORTS.c.execution_date)
        rows = self.rows(query.order_by(REPORTS.c.execution_date.desc()).limit(1))
        return _sweep_of(rows[0]) if rows else None

    def of(self, datasets: Iterable[str], as_of: datetime, pending: Iterable[PendingGroup]) -> dict[str, DatasetState]:
        names = sorted(set(datasets))
        objections: dict[str, list[str]] = {}
        groups: dict[str, list[PendingGroup]] = {}
        for group in pending:
            groups.setdefault(group.dataset, []).append(group)
        for one in Objections(self.database).standing(frozenset(names)):
            objections.setdefault(one.dataset, []).append(f"{one.check} failed in {one.raised_by}: {one.sentence}")
        found: dict[str, DatasetState] = {}
        query = select(*(EVALUATIONS.c[name] for name in ("dataset", "looked_at", "counts", "fault")))
        with self.database.reading() as connection:
            for some in portions(names):
                judged = {row.dataset: row for row in connection.execute(query.where(EVALUATIONS.c.dataset.in_(some)))}
                swept = {row.dataset: row for row in _last_sweeps(connection, some)}
                for name in some:
                    look, last = judged.get(name), swept.get(name)
                    found[name] = DatasetState(
                        dataset=name,
                        judged_at=look.looked_at if look else None,
                        counts=counts_of(look.counts) if look else (),
                        fault=look.fault if look else None,
                        waiting=Waiting.of(groups.get(name, ()), as_of),
                        objections=objections.get(name, ()),
                        last_sweep=_sweep_of(last) if last else None,
                    )
        return found


def _last_sweeps(connection: Connection, names: Sequence[str]) -> Iterator[Row[Any]]:
    did = or_(*(REPORTS.c[name] > 0 for name in _DONE)) & REPORTS.c.dataset.in_(names)
    newest = select(REPORTS.c.dataset, func.max(REPORTS.c.execution_date).label("day")).where(did)
    last = newest.group_by(REPORTS.c.dataset).subquery()
    is_last = and_(REPORTS.c.dataset == last.c.dataset, REPORTS.c.execution_date == last.c.day)
    columns = [REPORTS.c[name] for name in ("dataset", "execution_date", *_DONE)]
    yield from connection.execute(select(*columns).join(last, is_last))


def _sweep_of(row: Row[Any]) -> LastSweep:
    return LastSweep(row.execution_date, {name: int(getattr(row, name)) for name in _DONE})
