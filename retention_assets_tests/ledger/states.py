"""Ledgers in the states that tests need: with candidates, with a plan, swept, changed past the ledger, of an earlier release."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Update, create_engine, event, insert, select, text, update

from retention_assets.ledger import CANDIDATES, SECONDS, Lease, Ledger, Plan, Planned, Raise, Settlement, open_ledger
from retention_assets.ledger.audit.rows import seal_rows, seal_state
from retention_assets.ledger.schema import LEASE_PARTS, LEASES, LEDGER_REVISION, MARKS, METADATA, PLANNED
from retention_assets.outcomes import Outcome

T0 = datetime(2026, 1, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
LATER = T0 + WEEK
_INSTANT = pa.timestamp("us", tz="UTC")


Times = tuple[datetime | None, datetime | None]
NO_TIMES: Times = (None, None)
# A life of an id, and others that differ from it in one time, by as little as can be.
FIRST_LIFE = (datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, 1, tzinfo=UTC))
OPENED_LATER = (FIRST_LIFE[0] + timedelta(microseconds=1), FIRST_LIFE[1])
CLOSED_LATER = (FIRST_LIFE[0], FIRST_LIFE[1] + timedelta(microseconds=1))


def candidates(
    names: Sequence[str], dataset: str = "lake/d", policy: str = "p", grace: str = "7d", size: int = 10, life: Times = NO_TIMES
) -> pa.Table:
    """Candidates of one dataset and policy, opened and closed at the times of `life`."""
    row = {"dataset": dataset, "policy": policy, "policy_version": 1, "reason": "SELECTED", "grace": grace, "bytes": size}
    row |= dict(zip(("opened_at", "closed_at"), life, strict=True))
    return pa.Table.from_pylist([{**row, "transaction": name} for name in names], schema=CANDIDATES)


def many(amount: int, per_dataset: int = 1000) -> pa.Table:
    """Candidates T0, T1, … in datasets lake/d0, lake/d1, …"""
    rows = range(amount)
    return pa.table(
        {
            "dataset": [f"lake/d{row // per_dataset}" for row in rows],
            "transaction": [f"T{row}" for row in rows],
            "policy": ["p"] * amount,
            "policy_version": pa.array([1] * amount, pa.int32()),
            "reason": ["SELECTED"] * amount,
            "grace": ["7d"] * amount,
            "bytes": [10] * amount,
            "opened_at": pa.repeat(pa.scalar(FIRST_LIFE[0], _INSTANT), amount),
            "closed_at": pa.repeat(pa.scalar(FIRST_LIFE[1], _INSTANT), amount),
        }
    )


def statuses(ledger: Ledger, dataset: str = "lake/d") -> dict[str, str]:
    table = ledger.marks.table([dataset])
    return dict(zip(table["transaction"].to_pylist(), table["status"].to_pylist(), strict=True))


def ids(ledger: Ledger, *names: str, dataset: str = "lake/d") -> list[int]:
    """The ids of the newest marks of some transactions, or of all of a dataset."""
    table = ledger.marks.table([dataset])
    newest = dict(zip(table["transaction"].to_pylist(), table["id"].to_pylist(), strict=True))
    return [newest[name] for name in names or newest]


def take_lease(ledger: Ledger, dataset: str = "lake/d", holder: str = "sweeper", seconds: float = SECONDS) -> Lease:
    return ledger.leases.take([dataset], holder, seconds).leases[dataset]


def plan_of(ledger: Ledger, lease: Lease, marks: Mapping[int, Planned] | Iterable[int], as_of: datetime = LATER) -> Plan:
    wanted = marks if isinstance(marks, Mapping) else dict.fromkeys(marks, Planned())
    return ledger.sweeps.plan([lease], wanted, as_of, {lease.dataset: None}).plans[lease.dataset]


def marks_of(ledger: Ledger, plan: Plan) -> list[Mapping[str, Any]]:
    """The marks of a plan that are MARKED and not begun."""
    query = select(MARKS.c.id, MARKS.c.transaction, PLANNED.c.bytes, PLANNED.c.note).join(PLANNED, PLANNED.c.mark == MARKS.c.id)
    query = query.where(PLANNED.c.plan == plan.id, MARKS.c.status == "MARKED").order_by(MARKS.c.id)
    begun = set(ledger.marks.table(statuses=["SWEEPING"])["id"].to_pylist())
    return [row._mapping for row in ledger.sweeps.rows(query) if row.id not in begun]


def planned(
    ledger: Ledger, dataset: str = "lake/d", holder: str = "sweeper", as_of: datetime = LATER
) -> tuple[Lease, Plan, list[int]]:
    lease = take_lease(ledger, dataset, holder)
    plan = plan_of(ledger, lease, ids(ledger, dataset=dataset), as_of)
    return lease, plan, [row["id"] for row in marks_of(ledger, plan)]


def swept(
    ledger: Ledger,
    dataset: str = "lake/d",
    outcomes: Mapping[str, Outcome] | None = None,
    day: date | None = None,
    as_of: datetime = LATER,
) -> Lease:
    lease, plan, marks = planned(ledger, dataset, as_of=as_of)
    begun = ledger.sweeps.begin([lease], [plan], marks).marks
    rows = ledger.marks.table([dataset], ["SWEEPING"])
    names = dict(zip(rows["id"].to_pylist(), rows["transaction"].to_pylist(), strict=True))
    settlements = []
    for mark in begun:
        outcome = (outcomes or {}).get(names[mark], Outcome.DELETED)
        is_hidden, failed = outcome is Outcome.HIDDEN, outcome is Outcome.FAILED
        size = 0 if outcome in (Outcome.HIDDEN, Outcome.SPARED) else 10
        settlements.append(Settlement(mark, outcome, size, "no" * failed or None, bytes_hidden=10 * is_hidden))
    assert ledger.sweeps.settle([lease], settlements, day).marks == begun
    ledger.sweeps.finish([lease], [plan])
    return lease


def raise_visibility(
    ledger: Ledger, dataset: str, visible_from: datetime, actor: str = "ann", reason: str | None = "r"
) -> datetime:
    return ledger.visibility.raise_to({dataset: Raise(visible_from, reason)}, actor)[dataset]


def write_past_ledger(ledger: Ledger, statement: str | Update) -> int:
    """What somebody does to the database past the ledger; the rows that it changed."""
    with ledger.database.engine.execution_options(ledger_writes=True).begin() as connection:
        return connection.execute(text(statement) if isinstance(statement, str) else statement).rowcount


EXPIRED = "UPDATE leases SET expires_at = taken_at"


def change_leases(ledger: Ledger, statement: str | Update) -> int:
    """Leases as they would be later, or somebody else's: changed and sealed, so that the record is as it was written."""
    with ledger.database.engine.execution_options(ledger_writes=True).begin() as connection:
        rows = connection.execute(text(statement) if isinstance(statement, str) else statement).rowcount
        seal_rows(connection, LEASE_PARTS if "lease_parts" in str(statement) else LEASES)
        return rows


def lose_lease(ledger: Ledger, lease: Lease, loss: str) -> str:
    """Give up a lease, let it expire, or let another take it then. Returns what is said of who has it."""
    if loss == "given up":
        ledger.leases.give_up([lease])
    else:
        change_leases(ledger, EXPIRED)
    if loss != "taken":
        return "nobody has taken it since"
    take_lease(ledger, lease.dataset, "second")
    return "second has taken it since"


# What nothing is other after.
_READS = ("SELECT", "BEGIN", "PRAGMA", "SET", "SHOW")


def count_changes(ledger: Ledger, counts: Callable[[], None]) -> None:
    """Call this before each statement that changes something, and before the commit of what it changed."""
    changed: set[Connection] = set()

    def before_statement(connection: Connection, _: Any, statement: str, *__: Any) -> None:
        if not statement.lstrip().startswith(_READS):
            changed.add(connection)
            counts()

    def before_commit(connection: Connection) -> None:
        if connection in changed:
            changed.remove(connection)
            counts()

    event.listen(ledger.database.engine, "before_cursor_execute", before_statement)
    event.listen(ledger.database.engine, "commit", before_commit)


# A stored ledger of release 0.2.0: marks in every state, holds, reports, and an audit of it all. Programs of 0.2.0 wrote it, and it
# is never written again. lake/d, lake/u and lake/m are sweeps of stores. lake/k, lake/l and lake/a were settled in the ledger
# itself, for what 0.2.0 called kept readable: before and between others of one act and of two datasets, after a failure, behind a
# verification, and once it was set aside.
STORED = Path(__file__).with_name("release_0_2_0.sql")
RELEASE = "0024"


def store(url: str, folder: Path) -> str:
    """Put the stored ledger where a URL leads to: as it is, or its rows into the tables of another kind of database."""
    file = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else folder / "stored.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(STORED.read_text())
    if url.startswith("sqlite"):
        return url
    source = create_engine(f"sqlite:///{file}").connect()
    with open_ledger(url) as ledger, source, ledger.database.engine.execution_options(ledger_writes=True).begin() as target:
        source.execute(text("ALTER TABLE reports ADD COLUMN replayed BIGINT"))
        target.execute(text("ALTER TABLE marks DROP CONSTRAINT ck_marks_outcome"))
        for table in METADATA.sorted_tables:
            target.execute(table.delete())
            if rows := [dict(row) for row in source.execute(select(table)).mappings()]:
                target.execute(insert(table), rows)
        target.execute(update(LEDGER_REVISION).values(revision=RELEASE))
        seal_state(target)
        target.execute(text("ALTER TABLE reports DROP COLUMN replayed"))
    return url


def set_aside_in(ledger: Ledger, dataset: str, transactions: Collection[str] | None = None) -> dict[str, int]:
    """By transaction, the newest set aside mark of a dataset that nobody has begun."""
    return {mark.transaction: mark.id for mark in ledger.trash.marks([dataset], transactions) if mark.order is None}
