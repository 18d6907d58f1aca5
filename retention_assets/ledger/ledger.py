"""The open ledger: every part of the record under its name.

Belongs here: opening by URL (and bringing an older ledger up to date), and what an open ledger consists of.
Does not belong here: what any part does.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Self

from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from retention_assets import clock
from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import as_line, rows
from retention_assets.ledger.audit.verify import AuditResult, ChainHead, verify
from retention_assets.ledger.clock_guard import ClockGuard, present_by
from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.evaluations import Evaluations
from retention_assets.ledger.holds import Holds
from retention_assets.ledger.leases import Leases
from retention_assets.ledger.marks.history import MarkHistories
from retention_assets.ledger.marks.marking import Marks
from retention_assets.ledger.marks.pending import PendingMarks
from retention_assets.ledger.marks.unmarking import Unmarking
from retention_assets.ledger.policy_book import PolicyBook
from retention_assets.ledger.postponements import Postponements
from retention_assets.ledger.publications import Publications
from retention_assets.ledger.realms import Realms
from retention_assets.ledger.reports import Reports
from retention_assets.ledger.schema import REVISION
from retention_assets.ledger.sweeps import Sweeps
from retention_assets.ledger.visibility import Visibility
from retention_assets.settings.urls import Url
from retention_assets.sql.engines import ledger_engine, sqlite_file
from retention_assets.sql.errors import RETRY_CONFLICTS, driver_message
from retention_assets.sql.retry import retry
from retention_assets.sql.transactions import reading, writing


class Ledger:
    """An open ledger. Safe to share between threads; each forked or spawned program opens its own."""

    def __init__(self, database: LedgerDatabase) -> None:
        self.database = database
        self.marks = Marks(database)
        self.unmark = Unmarking(database)
        self.sweeps = Sweeps(database)
        self.leases = Leases(database)
        self.reports = Reports(database)
        self.publications = Publications(database)
        self.postponements = Postponements(database)
        self.evaluations = Evaluations(database)
        self.policy_book = PolicyBook(database)
        self.holds = Holds(database)
        self.realms = Realms(database)
        self.visibility = Visibility(database)
        self.clock = ClockGuard(database)
        self.histories = MarkHistories(database)
        self.pending = PendingMarks(database)

    def verify(self, known: ChainHead | None = None) -> AuditResult:
        """Whether the record still says what was written; `known` is a head that was noted earlier."""
        with self.database.reading() as connection:
            return verify(connection, known)

    def audit_lines(self, after: int = 0) -> Iterator[str]:
        """The audit as lines of JSON, from the beginning or after a position."""
        with self.database.reading() as connection:
            for row in rows(connection, after):
                yield as_line(row)

    def close(self) -> None:
        """Give the connections back."""
        self.database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_ledger(url: Url | str, migrations: Path | None = None, simulated: bool | None = None) -> Ledger:
    """Open a ledger, made or brought up to date if need be; refused if a newer release has opened it.

    Settings say whether their clock is `simulated`: a ledger of the other kind is refused as well.
    """
    engine = ledger_engine(url)
    try:
        if migrations is not None or not _is_up_to_date(engine):
            retry(lambda: _migrate(engine, migrations), RETRY_CONFLICTS)
        if simulated is not None:
            ClockGuard(LedgerDatabase(engine)).settle(simulated)
    except DBAPIError as error:
        engine.dispose()
        raise _unreachable(engine, error) from error
    except BaseException:
        engine.dispose()
        raise
    return Ledger(LedgerDatabase(engine))


def ledger_is_there(url: Url | str) -> bool:
    """Whether there is a ledger to open. Asking makes none."""
    file = sqlite_file(url)
    if file is not None:
        return file.is_file()
    engine = ledger_engine(url)
    try:
        with reading(engine) as connection:
            return inspect(connection).has_table("alembic_version")
    except DBAPIError as error:
        raise _unreachable(engine, error) from error
    finally:
        engine.dispose()


def ledger_time(url: Url | str) -> datetime:
    """What time it is by the database of a ledger, whether there is a ledger in it or not."""
    if sqlite_file(url) is not None:
        return clock.now()
    engine = ledger_engine(url)
    try:
        with reading(engine) as connection:
            return present_by(connection)
    except DBAPIError as error:
        raise _unreachable(engine, error) from error
    finally:
        engine.dispose()


def _unreachable(engine: Engine, error: DBAPIError) -> Refused:
    shown = engine.url.render_as_string(hide_password=True)
    return Refused(
        f"The ledger {shown} cannot be opened: {driver_message(error)}. Check the key ledger in the settings, and that it is"
        " reachable."
    )


def _is_up_to_date(engine: Engine) -> bool:
    with reading(engine) as connection:
        if not inspect(connection).has_table("alembic_version"):
            return False
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [REVISION]


def _migrate(engine: Engine, folder: Path | None) -> None:
    # Loaded only when there is something to do: most openings find a ledger that is up to date.
    from retention_assets.ledger.migrations import FOLDER, migrate

    with writing(engine) as connection:
        migrate(connection, folder or FOLDER)
