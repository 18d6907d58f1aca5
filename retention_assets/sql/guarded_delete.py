"""Guarded deletion: rows go in parts of a batch, each in one transaction, and only as long as they are what was planned.

A transaction locks rows, compares them with their notes, deletes them and looks whether they are gone. A part that fails is
repeated in halves until what can't go is alone. Rows that somebody holds are not waited for long; they are tried once more when
all parts are done, since parts of one batch get in each other's way as well, where a database locks gaps between rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from threading import Event
from time import sleep
from typing import ClassVar, Generic, TypeVar

from sqlalchemy import Connection, Delete, Table
from sqlalchemy.exc import DBAPIError

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome, SweptTarget
from retention_assets.sql.engines import LOCK_SECONDS
from retention_assets.sql.errors import WriteFailed, is_lock_timeout, is_referenced
from retention_assets.sql.foreign import ForeignDatabase, has_rows
from retention_assets.sql.foreign_keys import Cascades

LOCKED = "Another program holds a lock on it; the next sweep tries again."
SEVERAL = "Several rows have its key now, so it is unknown which one was planned."
# seconds that a statement waits for a lock; after a whole one PostgreSQL may end the transaction that waits for ours
_LOCK_WAIT, _PIECE_LOCK_WAIT = 0.5, 0.1
# seconds until blocked rows are tried again
_PAUSE = 0.1

Item = TypeVar("Item")
State = TypeVar("State")


class Attempt(Enum):
    """Attempt at a part: at all of its rows, at all except locked ones, or at a piece of it."""

    FIRST = "FIRST"
    SKIPPING = "SKIPPING"
    PIECE = "PIECE"

    @property
    def lock_wait(self) -> float:
        return _PIECE_LOCK_WAIT if self is Attempt.PIECE else _LOCK_WAIT


class RowsLocked(WriteFailed):
    """A statement that waited in vain for another's lock. Retrying after such a wait is useless."""

    def __init__(self) -> None:
        super().__init__(LOCKED, is_lost=False, is_transient=False)


@contextmanager
def short_lock_wait(connection: Connection, seconds: float = _LOCK_WAIT) -> Iterator[None]:
    """Shorten the lock wait of statements. Raises RowsLocked if one waits in vain."""
    dialect = connection.dialect
    if dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{int(seconds * 1000)}ms'")
    elif dialect.name != "sqlite":
        # whole seconds; MySQL waits for at least one, and both look for deadlocks at once
        without_wait = getattr(dialect, "is_mariadb", False) and seconds < _LOCK_WAIT
        connection.exec_driver_sql(f"SET innodb_lock_wait_timeout = {0 if without_wait else 1}")
    try:
        yield
    except DBAPIError as fault:
        if is_lock_timeout(fault):
            raise RowsLocked from fault
        raise
    finally:
        if dialect.name not in ("postgresql", "sqlite"):
            # A lost connection has nothing to reset, and its error is already on the way.
            with suppress(DBAPIError):
                connection.exec_driver_sql(f"SET innodb_lock_wait_timeout = {LOCK_SECONDS}")


@dataclass(kw_only=True)
class GuardedDelete(ABC, Generic[Item, State]):
    """A batch of items, known by their names: rows of one table, with whatever goes with each."""

    empty: ClassVar[str] = (
        "The table has no row at all. Is it the right database? The sweep records nothing as gone without a sign of the data."
    )

    # waits for locks per part: with the whole table locked, each of its pieces would wait
    most_waits: ClassVar[int] = 50

    database: ForeignDatabase
    table: Table
    cascades: Cascades
    permit: Callable[[], None]
    items: Mapping[str, Item]
    # items that are gone if they are not there, even from an empty table
    known: Collection[str] = ()
    # of items done
    outcome: Outcome = Outcome.DELETED
    # bytes of items that may be deleted already, by a commit without an answer
    _sent: dict[str, int] = field(default_factory=dict, init=False)
    # items that failed because of concurrent transactions
    _blocked: set[str] = field(default_factory=set, init=False)
    # set once any part has seen a row: another part may have deleted the last one since
    _seen: Event = field(default_factory=Event, init=False)

    @abstractmethod
    def lock(
        self, connection: Connection, names: Sequence[str], attempt: Attempt
    ) -> tuple[Mapping[str, State], Collection[str]]:
        """Lock the rows that are there and read them; also return the names of those that somebody holds."""

    @abstractmethod
    def reason_to_spare(self, item: Item, state: State) -> str | None:
        """Compare an item with its row; None if it may go."""

    @abstractmethod
    def delete(self, connection: Connection, going: Sequence[str], gone: Sequence[str], attempt: Attempt) -> None:
        """Delete the rows of `going`, and leftovers of what is `gone`; check that all are gone. Raises WriteFailed."""

    def size(self, item: Item) -> int:  # noqa: ARG002 - many tables don't tell
        """Bytes that become free."""
        return 0

    def freed_before(self, item: Item) -> int:  # noqa: ARG002 - see above
        """Bytes that an earlier sweep has freed if the item is gone."""
        return 0

    @property
    def why_kept(self) -> str:
        return self.cascades.about_kept()

    def run(self, parts: Sequence[Sequence[str]], at_once: int) -> list[SweptTarget]:
        """Delete parts, several at once, then retry what concurrent transactions blocked. One outcome for each name."""
        with ThreadPoolExecutor(max(1, at_once)) as threads:
            swept = {target.transaction: target for done in threads.map(self._part, parts) for target in done}
        if blocked := [name for part in parts for name in part if name in self._blocked]:
            sleep(_PAUSE)
            # among them may be one that fails for good, which must not keep the others
            again = self._once_more(blocked) or self._by_halves(blocked, self._try(blocked, Attempt.PIECE))
            swept |= {target.transaction: target for target in again}
        return [*swept.values()]

    def _part(self, names: Sequence[str]) -> list[SweptTarget]:
        done = self._try(names, Attempt.FIRST)
        # skipping locked rows may need a right that the user lacks: then go on in pieces
        if isinstance(done, RowsLocked) and (again := self._once_more(names)):
            return again
        return self._by_halves(names, done)

    def _once_more(self, names: Sequence[str]) -> list[SweptTarget]:
        # empty if it fails for another reason than concurrent transactions
        done = self._try(names, Attempt.SKIPPING)
        return [] if isinstance(done, WriteFailed) and not _is_contention(done) else self._by_halves(names, done)

    def _by_halves(self, names: Sequence[str], done: list[SweptTarget] | WriteFailed) -> list[SweptTarget]:
        return self._halve(names, done, _LockWaits(self.most_waits)) if isinstance(done, WriteFailed) else done

    def _halve(self, names: Sequence[str], fault: WriteFailed, waits: "_LockWaits") -> list[SweptTarget]:
        waits.left = max(0, waits.left - isinstance(fault, RowsLocked))
        # pieces would fail too if the database is lost, or a SQLite file has another writer
        is_hopeless = fault.is_lost or (fault.is_transient and self.database.dialect == "sqlite")
        if is_hopeless or len(names) == 1:
            if not is_hopeless and waits.left and _is_contention(fault):
                self._blocked.update(names)
            remedy = self.cascades.about_keepers if is_referenced(fault.__cause__) else None
            error = f"{str(fault).rstrip('.')}. {remedy}" if remedy else str(fault)
            return [SweptTarget(name, Outcome.FAILED, error=error) for name in names]
        swept: list[SweptTarget] = []
        for piece in (names[: len(names) // 2], names[len(names) // 2 :]):
            done = self._try(piece, Attempt.PIECE) if waits.left else RowsLocked()
            swept += self._halve(piece, done, waits) if isinstance(done, WriteFailed) else done
        return swept

    def _try(self, names: Sequence[str], attempt: Attempt) -> list[SweptTarget] | WriteFailed:
        def work(connection: Connection) -> list[SweptTarget]:
            swept = self.act(connection, names, attempt)
            # only the commit is left: what fails before it deletes nothing
            self._sent.update({target.transaction: target.bytes for target in swept if target.outcome is Outcome.DELETED})
            return swept

        try:
            swept = self.database.write(work, self.permit)
        except Withheld as fault:
            return [SweptTarget(name, Outcome.WITHHELD, error=str(fault)) for name in names]
        except WriteFailed as fault:
            return fault
        self._blocked.update(target.transaction for target in swept if target.error == LOCKED)
        return swept

    def act(self, connection: Connection, names: Sequence[str], attempt: Attempt) -> list[SweptTarget]:
        """One transaction, which may be repeated."""
        present, held = self.lock(connection, names, attempt)
        reasons = {name: self.reason_to_spare(self.items[name], state) for name, state in present.items()}
        going = [name for name in names if name in reasons and reasons[name] is None]
        missing = [name for name in names if name not in present and name not in held]
        gone = self.surely_gone(connection, missing, bool(present))
        if going or gone:
            self.delete(connection, going, gone, attempt)
        spared = {name: SweptTarget(name, Outcome.SPARED, error=why) for name, why in reasons.items() if why}
        return self.outcomes(names, going, gone, spared, held)

    def surely_gone(self, connection: Connection, missing: Sequence[str], has_seen: bool) -> list[str]:
        """Names that are certainly gone. An empty table may be the wrong one, where only known items count as gone."""
        if has_seen:
            self._seen.set()
        known = self._sent.keys() | set(self.known) if missing else set[str]()
        # rows first: a part that deletes the last one has already set the event
        if known.issuperset(missing) or has_rows(connection, self.table) or self._seen.is_set():
            return [*missing]
        return [name for name in missing if name in known]

    def outcomes(
        self,
        names: Sequence[str],
        done: Collection[str],
        gone: Collection[str],
        others: Mapping[str, SweptTarget],
        held: Collection[str],
    ) -> list[SweptTarget]:
        swept = {name: SweptTarget(name, self.outcome, self.size(self.items[name])) for name in done}
        swept |= {name: SweptTarget(name, Outcome.FAILED, error=LOCKED) for name in held} | {**others}
        for name in gone:
            if name in self._sent:
                swept[name] = SweptTarget(name, Outcome.DELETED, self._sent[name])
            else:
                swept[name] = SweptTarget(name, Outcome.ALREADY_GONE, self.freed_before(self.items[name]))
        return [swept.get(name) or SweptTarget(name, Outcome.FAILED, error=self.empty) for name in names]

    def delete_exactly(self, connection: Connection, statement: Delete, count: int, attempt: Attempt) -> None:
        """Raise WriteFailed if a statement deletes fewer rows than were locked and compared, or more."""
        with short_lock_wait(connection, attempt.lock_wait):
            deleted = connection.execute(statement).rowcount
        if deleted != count:
            raise WriteFailed(self.why_kept if deleted < count else SEVERAL, is_lost=False, is_transient=False)


def _is_contention(fault: WriteFailed) -> bool:
    return fault.is_transient or isinstance(fault, RowsLocked)


@dataclass
class _LockWaits:
    """Number of lock waits that a part may still make."""

    left: int
