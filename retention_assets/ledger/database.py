"""The ledger's database: one state to read, and transactions that leave an audit.

Belongs here: the shape of a transaction: the work first, the acts appended to the audit last, all of it again if it was undone.
Does not belong here: what differs between databases (sql), and any table but the audit's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError, OperationalError

from retention_assets.ledger.audit.chain import Act, append_acts
from retention_assets.sql.errors import RETRY_CONFLICTS, driver_message
from retention_assets.sql.retry import retry
from retention_assets.sql.staging import stage
from retention_assets.sql.transactions import reading, writing

T = TypeVar("T")


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

    def record(self, act: Act) -> Act:
        """Append an act to the audit when the work is done, as the act is then."""
        self.acts.append(act)
        return act


@dataclass(frozen=True)
class LedgerDatabase:
    """One ledger's database."""

    engine: Engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent state, however long it is read."""
        with reading(self.engine) as connection:
            yield connection

    def write(self, work: Callable[[WriteTransaction], T], staged: pa.Table | None = None) -> T:
        """Do work in one transaction, with its audit; and all of it again if the database undid it for another one.

        `staged` is a table that the work finds under the name STAGED.
        """
        with stage(self.engine, staged) as (attach, load):

            def attempt() -> T:
                with writing(self.engine, attach) as connection:
                    load(connection)
                    tx = WriteTransaction(connection)
                    done = work(tx)
                    append_acts(connection, tx.acts)
                    return done

            return retry(attempt, RETRY_CONFLICTS)

    def analyze(self, table: Table) -> None:
        """Count what a load has added. Until somebody does, PostgreSQL may read all of a table for a few of its rows.

        SQLite plans by its indexes. Who may not, or has to wait for another, leaves it to the server's autovacuum.
        """
        if self.engine.dialect.name == "postgresql":
            with suppress(DBAPIError), self.engine.begin() as connection:
                connection.exec_driver_sql(f"ANALYZE {table.name}")
