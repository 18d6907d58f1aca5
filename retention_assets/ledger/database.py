"""The ledger's database: one state to read, and transactions that leave an audit.

Belongs here: the shape of a transaction: the work first, then the seals of the rows that it wrote, the acts appended to the
audit last, all of it again if it was undone; and who is told where the chain ends after an act that must not be forgotten.
Does not belong here: what differs between databases (sql), and any table but the audit's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Engine, Table, select
from sqlalchemy.exc import DBAPIError, OperationalError

from retention_assets.ledger.audit.chain import Act, ActType, append_acts
from retention_assets.ledger.audit.rows import (
    WRITERS,
    RowKey,
    SealedRow,
    changed_past_ledger,
    key_in,
    sealed_rows,
    sealed_rows_by_act,
    strange_row,
)
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.errors import RETRY_CONFLICTS, driver_message
from retention_assets.sql.retry import retry
from retention_assets.sql.staging import stage
from retention_assets.sql.transactions import reading, writing

T = TypeVar("T")

# Acts that an older copy of the ledger would not know of, and would delete or mark against: after each of them somebody outside
# the ledger is told where the chain ends.
WITNESSED = frozenset({ActType.HOLD, ActType.RELEASE, ActType.UNMARK, ActType.REALM, ActType.PUBLISH, ActType.OBJECT})

_PRESENT = select(DatabaseTime())


def unwritable(fault: OperationalError) -> str:
    """What a ledger that can't be written means for a sweep, and what can be done."""
    return (
        f"The ledger can't be written: {driver_message(fault)}. What was begun stays begun, and the next run finishes it. Make"
        " room on the ledger's disk, or mend what else keeps it from being written, and run again."
    )


@dataclass
class WriteTransaction:
    """A transaction that writes, with the acts that it leaves in the audit."""

    connection: Connection
    acts: list[Act] = field(default_factory=list)
    _to_seal: list[tuple[Act, Table, ColumnElement[bool]]] = field(default_factory=list)
    _to_seal_each: list[tuple[Table, ColumnElement[bool]]] = field(default_factory=list)
    # Rows that were not what the record says when this transaction came to change them.
    _strange: set[RowKey] = field(default_factory=set)
    _present: datetime | None = None

    def record(self, act: Act) -> Act:
        """Append an act to the audit when the work is done, as the act is then."""
        self.acts.append(act)
        return act

    def seal(self, act: Act, table: Table, where: ColumnElement[bool]) -> None:
        """Have an act hold the seals of the rows that it is about to write, as they are when the work is done.

        Whoever writes to a table of SEALED says so, before it writes, and puts the act into the row: a row without its seal is
        one that nobody can vouch for, and a row that was changed past the ledger must not be sealed by whoever changes it next.
        """
        if act.deed not in WRITERS[table.name]:
            raise ValueError(f"{act.deed} is no act that writes to {table.name}")
        self._strange |= changed_past_ledger(self.connection, table, where, act.id)
        self._to_seal.append((act, table, where))

    def seal_each(self, deed: ActType, table: Table, where: ColumnElement[bool]) -> None:
        """The same for many rows, each written by an act of its own that it names: one question about all of them."""
        if deed not in WRITERS[table.name]:
            raise ValueError(f"{deed} is no act that writes to {table.name}")
        self._strange |= changed_past_ledger(self.connection, table, where)
        self._to_seal_each.append((table, where))

    def present(self) -> datetime:
        """The database's clock, the same in all of a transaction."""
        if self._present is None:
            self._present = self.connection.execute(_PRESENT).scalar_one()
        return self._present

    def append(self) -> None:
        """Seal what was written, and append the acts. Nothing is written after this."""
        sealed: dict[int, list[SealedRow]] = {}
        for act, table, where in self._to_seal:
            rows = sealed_rows(self.connection, table, where)
            sealed.setdefault(act.id, []).extend(strange_row(row) if key_in(row) in self._strange else row for row in rows)
        mine = {act.id for act in self.acts}
        for table, where in self._to_seal_each:
            for name, row in sealed_rows_by_act(self.connection, table, where):
                if name in mine:
                    sealed.setdefault(name, []).append(strange_row(row) if key_in(row) in self._strange else row)
        for act in self.acts:
            if act.id in sealed:
                act.detail = {**act.detail, "rows": sealed[act.id]}
        append_acts(self.connection, self.acts)


@dataclass(frozen=True)
class LedgerDatabase:
    """One ledger's database. `tell_witness` is called after the commit of acts that must not be forgotten."""

    engine: Engine
    tell_witness: "Callable[[LedgerDatabase, Sequence[Act]], None] | None" = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent state, however long it is read."""
        with reading(self.engine) as connection:
            yield connection

    def write(self, work: Callable[[WriteTransaction], T], staged: Iterable[pa.Table] | None = None) -> T:
        """Do work in one transaction, with its audit; and all of it again if the database undid it for another one.

        `staged` are rows, part by part, that the work finds in a table of the name STAGED.
        """
        with stage(self.engine, staged) as (attach, load):

            def attempt() -> tuple[T, list[Act]]:
                with writing(self.engine, attach) as connection:
                    load(connection)
                    tx = WriteTransaction(connection)
                    done = work(tx)
                    tx.append()
                    return done, [act for act in tx.acts if act.deed in WITNESSED]

            done, witnessed = retry(attempt, RETRY_CONFLICTS)
        if witnessed and self.tell_witness is not None:
            self.tell_witness(self, witnessed)
        return done

    def analyze(self, table: Table) -> None:
        """Count what a load has added. Until somebody does, PostgreSQL may read all of a table for a few of its rows.

        SQLite plans by its indexes. Who may not, or has to wait for another, leaves it to the server's autovacuum.
        """
        if self.engine.dialect.name == "postgresql":
            with suppress(DBAPIError), self.engine.begin() as connection:
                connection.exec_driver_sql(f"ANALYZE {table.name}")
