"""The ledger's database: consistent reads, and transactions that append to the audit.

A transaction does its work, seals the rows that it wrote and appends its acts last; if the database undoes it, all of it is
repeated.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from sqlalchemy import ColumnElement, CompoundSelect, Connection, Engine, Insert, Select, Table, and_, insert, select, update
from sqlalchemy.exc import DBAPIError, OperationalError

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType, append_acts
from retention_assets.ledger.audit.rows import SEALED, RowKey, changed_past_ledger, sealed_rows
from retention_assets.ledger.schema import AUDIT_HEAD, LEDGER_REVISION, REVISION
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.errors import RETRY_CONFLICTS, driver_message
from retention_assets.sql.retry import retry
from retention_assets.sql.staging import stage
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import insert_or_update, portions, reading, writing

T = TypeVar("T")
P = ParamSpec("P")
Part = TypeVar("Part", bound="LedgerPart")

# An older copy of the ledger without these acts would delete or mark wrongly: a witness outside the ledger is told the head
# of the chain after each.
WITNESSED = frozenset({ActType.HOLD, ActType.RELEASE, ActType.UNMARK, ActType.REALM, ActType.PUBLISH, ActType.OBJECT})

_PRESENT = select(DatabaseTime())
_REVISION = select(LEDGER_REVISION.c.revision)


def unwritable(fault: OperationalError) -> str:
    return (
        f"The ledger can't be written: {driver_message(fault)}. The next run finishes what was begun. Make room on the "
        "ledger's disk, or mend what else prevents writing. Then run again."
    )


def _check_revision(connection: Connection) -> None:
    if (revision := connection.execute(_REVISION).scalar_one()) != REVISION:
        raise Refused(
            f"The ledger was upgraded to revision {revision} while this program ran. Nothing further is written. Start it "
            "again with the version of retention-assets that upgraded it."
        )


@dataclass
class WriteTransaction:
    """A transaction that writes, with the acts that it appends to the audit."""

    connection: Connection
    acts: dict[int, Act] = field(default_factory=dict)
    _to_seal: list[tuple[Table, ColumnElement[bool]]] = field(default_factory=list)
    # Acts that name rows of this transaction, which are sealed at its end.
    _own: set[int] = field(default_factory=set)
    # Rows that did not match the record before this transaction changed them.
    _strange: set[RowKey] = field(default_factory=set)
    _present: datetime | None = None

    def lock_chain(self) -> None:
        """Let every other transaction that records an act wait for the end of this one."""
        self.connection.execute(select(AUDIT_HEAD.c.position).with_for_update())

    def record(self, act: Act) -> Act:
        """Append an act to the audit at the end of the transaction, once, with its values at that time."""
        return self.acts.setdefault(act.id, act)

    def seal(self, table: Table, where: ColumnElement[bool], *acts: Act) -> None:
        """Let acts hold the seals of the rows that name them, as these are at the end of the transaction.

        Call it before each write to a table of SEALED: nobody can vouch for a row without its seal, and a row that was changed
        past the ledger must not get a valid seal from its next writer.
        """
        for act in acts:
            if act.deed not in SEALED[table].writers:
                raise ValueError(f"{act.deed} is no act that writes to {table.name}")
            self._own.add(act.id)
        self._strange |= changed_past_ledger(self.connection, table, where, self._own)
        self._to_seal.append((table, where))

    def change(self, act: Act, table: Table, where: ColumnElement[bool], **values: Any) -> None:
        self.seal(table, where, act)
        self.connection.execute(update(table).where(where).values(**values, act=act.id))
        self.record(act)

    def add(self, act: Act, table: Table, **values: Any) -> None:
        self._write(act, table, insert(table), values)

    def put(self, act: Act, table: Table, **values: Any) -> None:
        """Insert a row or replace the one with its key, seal it in an act and record it."""
        keys = [column.name for column in table.primary_key]
        changed = [*(name for name in values if name not in keys), "act"]
        self._write(act, table, insert_or_update(self.connection, table, keys, changed), values)

    def _write(self, act: Act, table: Table, statement: Insert, values: Mapping[str, Any]) -> None:
        self.seal(table, and_(*(column == values[column.name] for column in table.primary_key)), act)
        self.connection.execute(statement.values(**values, act=act.id))
        self.record(act)

    def present(self) -> datetime:
        """The database's time, constant within a transaction."""
        if self._present is None:
            self._present = self.connection.execute(_PRESENT).scalar_one()
        return self._present

    def note_present(self, present: datetime) -> None:
        """Take the database's time from the answer to another question."""
        self._present = self._present or present

    def append(self) -> None:
        """Seal what was written and append the acts. Nothing may be written after this."""
        sealed: dict[int, dict[RowKey, str]] = {act: {} for act in self.acts}
        for table, where in self._to_seal:
            for act, key, seal in sealed_rows(self.connection, table, where):
                if act in sealed:
                    # An impossible seal: a strange row stays a fault until a person vouches for it.
                    sealed[act][key] = f"!{seal}" if key in self._strange else seal
        for recorded in self.acts.values():
            if rows := sealed[recorded.id]:
                recorded.detail = {**recorded.detail, "rows": [[*key, seal] for key, seal in rows.items()]}
        append_acts(self.connection, [*self.acts.values()])


@dataclass(frozen=True)
class LedgerDatabase:
    """The database of a ledger. `tell_witness` is called after the commit of WITNESSED acts."""

    engine: Engine
    tell_witness: "Callable[[LedgerDatabase, Sequence[Act]], None] | None" = None
    _thread: threading.local = field(default_factory=threading.local, init=False, repr=False, compare=False)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        if (connection := self._shared) is not None:
            yield connection
            return
        with reading(self.engine) as connection:
            yield connection

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Answer all questions of this thread from one consistent state. Nothing can be written meanwhile, and what is
        streamed is to be read to its end.
        """
        with self.reading() as connection:
            before, self._thread.shared = self._shared, connection
            try:
                yield
            finally:
                self._thread.shared = before

    @property
    def _shared(self) -> Connection | None:
        return getattr(self._thread, "shared", None)

    def write(self, work: Callable[[WriteTransaction], T], staged: Iterable[pa.Table] | None = None) -> T:
        """Do work in one audited transaction, repeated after conflicts. It finds `staged` rows in the table STAGED."""
        if self._shared is not None:
            raise ValueError("nothing can be written while questions are answered from an earlier state")
        with stage(self.engine, staged) as (attach, load):

            def attempt() -> tuple[T, list[Act]]:
                with writing(self.engine, attach) as connection:
                    load(connection)
                    _check_revision(connection)
                    tx = WriteTransaction(connection)
                    done = work(tx)
                    tx.append()
                    return done, [act for act in tx.acts.values() if act.deed in WITNESSED]

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

    def streamed(
        self, queries: Sequence[Select[Any]], column: ColumnElement[Any], values: Iterable[Any] | None, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Stream rows whose column has one of these values, or all rows, in one consistent state."""
        with self.database.reading() as connection:
            for part in [None] if values is None else portions(sorted(set(values))):
                for query in queries:
                    yield from stream(connection, query if part is None else query.where(column.in_(part)), schema)

    def rows_among(self, query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]) -> list[Any]:
        if not (wanted := sorted(set(values))):
            return []
        with self.database.reading() as connection:
            return [row for part in portions(wanted) for row in connection.execute(query.where(column.in_(part)))]


def audited(work: Callable[Concatenate[Part, WriteTransaction, P], T]) -> Callable[Concatenate[Part, P], T]:
    """Make a method of a part do its work in an audited transaction, which it gets as `tx`.

    It is repeated after conflicts, so its arguments must be iterable more than once.
    """

    @wraps(work)
    def write(part: Part, /, *args: P.args, **options: P.kwargs) -> T:
        return part.database.write(lambda tx: work(part, tx, *args, **options))

    return write
