"""The ledger's database: consistent reads, and transactions that append to the audit.

A transaction does its work, seals the rows that it wrote and appends its acts last; if the database undoes it, all of it is
repeated.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from sqlalchemy import ColumnElement, CompoundSelect, Connection, Engine, Select, Table, select, update
from sqlalchemy.exc import DBAPIError, OperationalError

from retention_assets.ledger.audit.chain import Act, ActType, append_acts
from retention_assets.ledger.audit.rows import WRITERS, RowKey, SealedRow, changed_past_ledger, sealed_rows
from retention_assets.ledger.schema import AUDIT_HEAD
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.errors import RETRY_CONFLICTS, driver_message
from retention_assets.sql.retry import retry
from retention_assets.sql.staging import stage
from retention_assets.sql.transactions import portions, reading, writing

T = TypeVar("T")
P = ParamSpec("P")
Part = TypeVar("Part", bound="LedgerPart")

# An older copy of the ledger without these acts would delete or mark wrongly: a witness outside the ledger is told the head
# of the chain after each.
WITNESSED = frozenset({ActType.HOLD, ActType.RELEASE, ActType.UNMARK, ActType.REALM, ActType.PUBLISH, ActType.OBJECT})

_PRESENT = select(DatabaseTime())


def unwritable(fault: OperationalError) -> str:
    return (
        f"The ledger can't be written: {driver_message(fault)}. What was begun stays begun, and the next run finishes it. Make"
        " room on the ledger's disk, or mend what else keeps it from being written, and run again."
    )


@dataclass
class WriteTransaction:
    """A transaction that writes, with the acts that it appends to the audit."""

    connection: Connection
    acts: list[Act] = field(default_factory=list)
    _to_seal: list[tuple[Act, Table, ColumnElement[bool]]] = field(default_factory=list)
    _to_seal_each: list[tuple[Table, ColumnElement[bool]]] = field(default_factory=list)
    # Rows that did not match the record before this transaction changed them.
    _strange: set[RowKey] = field(default_factory=set)
    _present: datetime | None = None

    def lock_chain(self) -> None:
        """Let every other transaction that records an act wait for the end of this one."""
        self.connection.execute(select(AUDIT_HEAD.c.position).with_for_update())

    def record(self, act: Act) -> Act:
        """Append an act to the audit at the end of the transaction, with its values at that time."""
        self.acts.append(act)
        return act

    def seal(self, act: Act, table: Table, where: ColumnElement[bool]) -> None:
        """Let an act hold the seals of the rows that it is about to write, as they are at the end of the transaction.

        Call it before each write to a table of SEALED, and put the act into the row: nobody can vouch for a row without its
        seal, and a row that was changed past the ledger must not get a valid seal from its next writer.
        """
        if act.deed not in WRITERS[table.name]:
            raise ValueError(f"{act.deed} is no act that writes to {table.name}")
        self._strange |= changed_past_ledger(self.connection, table, where, act.id)
        self._to_seal.append((act, table, where))

    def change(self, act: Act, table: Table, where: ColumnElement[bool], **values: Any) -> None:
        """Update rows and seal them in an act."""
        self.seal(act, table, where)
        self.connection.execute(update(table).where(where).values(**values, act=act.id))

    def seal_each(self, deed: ActType, table: Table, where: ColumnElement[bool]) -> None:
        """Like `seal`, for many rows that each name their own act; one query for all of them."""
        if deed not in WRITERS[table.name]:
            raise ValueError(f"{deed} is no act that writes to {table.name}")
        self._strange |= changed_past_ledger(self.connection, table, where)
        self._to_seal_each.append((table, where))

    def present(self) -> datetime:
        """The database's time, constant within a transaction."""
        if self._present is None:
            self._present = self.connection.execute(_PRESENT).scalar_one()
        return self._present

    def append(self) -> None:
        """Seal what was written and append the acts. Nothing may be written after this."""
        sealed: dict[int, list[SealedRow]] = {}
        for act, table, where in self._to_seal:
            rows = [self._marked(row) for _, row in sealed_rows(self.connection, table, where)]
            sealed.setdefault(act.id, []).extend(rows)
        mine = {act.id for act in self.acts}
        for table, where in self._to_seal_each:
            for name, row in sealed_rows(self.connection, table, where):
                if name in mine:
                    sealed.setdefault(name, []).append(self._marked(row))
        for act in self.acts:
            if act.id in sealed:
                act.detail = {**act.detail, "rows": sealed[act.id]}
        append_acts(self.connection, self.acts)

    def _marked(self, row: SealedRow) -> SealedRow:
        """Give a strange row an impossible seal: it stays a fault until a person vouches for it."""
        table, key, seal = row
        return (table, key, f"!{seal}") if (table, tuple(key)) in self._strange else row


@dataclass(frozen=True)
class LedgerDatabase:
    """The database of a ledger. `tell_witness` is called after the commit of WITNESSED acts."""

    engine: Engine
    tell_witness: "Callable[[LedgerDatabase, Sequence[Act]], None] | None" = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with reading(self.engine) as connection:
            yield connection

    def write(self, work: Callable[[WriteTransaction], T], staged: Iterable[pa.Table] | None = None) -> T:
        """Do work in one audited transaction, repeated after conflicts. It finds `staged` rows in the table STAGED."""
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
        """Update PostgreSQL's statistics after a load: without them it may scan a whole table. If not allowed, autovacuum does
        it.
        """
        if self.engine.dialect.name == "postgresql":
            with suppress(DBAPIError), self.engine.begin() as connection:
                connection.exec_driver_sql(f"ANALYZE {table.name}")


class LedgerPart:
    """Part of a ledger, such as its holds."""

    def __init__(self, database: LedgerDatabase) -> None:
        self.database = database

    def rows(self, query: Select[Any] | CompoundSelect[Any]) -> Sequence[Any]:
        with self.database.reading() as connection:
            return connection.execute(query).all()

    def rows_among(self, query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]) -> list[Any]:
        """Rows whose column has one of these values, however many they are."""
        with self.database.reading() as connection:
            parts = portions(sorted(set(values)))
            return [row for part in parts for row in connection.execute(query.where(column.in_(part)))]


def audited(work: Callable[Concatenate[Part, WriteTransaction, P], T]) -> Callable[Concatenate[Part, P], T]:
    """Make a method of a part do its work in an audited transaction, which it gets as `tx`.

    It is repeated after conflicts, so its arguments must be iterable more than once.
    """

    @wraps(work)
    def write(part: Part, /, *args: P.args, **options: P.kwargs) -> T:
        return part.database.write(lambda tx: work(part, tx, *args, **options))

    return write
