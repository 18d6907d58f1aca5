"""The clock of a ledger: what time it is for a run, and the guard that deletes nothing by a clock that can't be right.

Belongs here: the present, whether it is real or simulated, the times that the ledger has seen, and what a person may say of
them: that the present is right (`accept`), or that what was marked later than now was marked by a wrong clock (`reset`).
Does not belong here: the clock of this machine (retention_assets/clock.py), and asking stores for theirs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, exists, func, literal, or_, select, text, update

from retention_assets import clock
from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.marks.steps import open_marks
from retention_assets.ledger.marks.unmarking import take_back
from retention_assets.ledger.schema import AUDIT, CLOCK, MARKS, OPEN
from retention_assets.ledger.sweeps.paces import clear_paces
from retention_assets.policy.durations import Duration, text_of
from retention_assets.sql.columns import DatabaseTime, InstantColumn

MAX_AHEAD = Duration(days=14)
MAX_SKEW = Duration(seconds=300)
# Who the record names where no person has done anything: a run looked at its clock.
SYSTEM = "::system"
# What runs see of time is an act each; they see it at every step.
_OFTEN = Duration(seconds=60)


@dataclass(frozen=True)
class LedgerTimes:
    """What the present is compared with."""

    newest_mark_at: datetime | None = None
    newest_seen_at: datetime | None = None
    accepted_until: datetime | None = None

    def as_dict(self) -> dict[str, datetime | None]:
        """As `--format json` prints it."""
        return dict(vars(self))


class ClockReset(NamedTuple):
    """What came of a reset: marks taken back, and those that it is too late for."""

    at: datetime
    unmarked: int
    sweeping: int


@dataclass(frozen=True)
class ClockGuard:
    """The clock of a ledger, and its guard."""

    database: LedgerDatabase

    @property
    def simulated(self) -> bool:
        """Whether the times of this ledger are made up."""
        with self.database.reading() as connection:
            return _is_simulated(connection)

    def settle(self, simulated: bool) -> None:
        """Refuse a ledger of the other kind of clock. One in which nothing is recorded becomes a simulated one, for ever."""
        with self.database.reading() as connection:
            known, used = connection.execute(select(CLOCK.c.simulated, exists(select(AUDIT.c.position)))).one()
        if known is None and simulated and not used:
            known = self.database.write(_simulate)
        if bool(known) != simulated:
            raise Refused(_ANOTHER_CLOCK[simulated])

    def present(self, as_of: datetime | None = None) -> datetime:
        """What time it is: by the database where it is a server, else by this machine; `as_of` where the clock is simulated."""
        with self.database.reading() as connection:
            return as_of if as_of and _is_simulated(connection) else present_by(connection)

    def server_time(self) -> datetime | None:
        """What time it is by the database's server; none where the database is a file."""
        with self.database.reading() as connection:
            return None if connection.dialect.name == "sqlite" else present_by(connection)

    def due_by(self, as_of: datetime | None) -> datetime:
        """By when grace has to be over for a sweep of this moment: now, or earlier, where `as_of` says so. Never later."""
        present = self.present(as_of)
        return min(as_of, present) if as_of else present

    def times(self) -> LedgerTimes:
        """The newest mark, the newest time that a run has had, and up to when a person has said that the clock is right."""
        query = select(CLOCK.c.newest_mark_at, CLOCK.c.newest_seen_at, CLOCK.c.accepted_until)
        with self.database.reading() as connection:
            return LedgerTimes(**connection.execute(query).mappings().one())

    def check(
        self,
        present: datetime,
        newest_in_logs: datetime | None,
        max_ahead: Duration = MAX_AHEAD,
        max_skew: Duration = MAX_SKEW,
        outside: Callable[[], Iterable[datetime]] = tuple,
    ) -> str | None:
        """Why nothing may be swept at a present, if so; marking goes on. A present that can be right is remembered as seen.

        Refuses a present before the newest mark: by such a clock nothing is marked either. `outside` tells what other clocks
        say; they are asked only where everything else speaks against this one.
        """
        why = self.database.write(lambda tx: _check(tx, present, newest_in_logs, max_ahead, max_skew))
        if why is None:
            return None
        others = [*outside(), *self._own()]
        # Of witnesses, the newest counts. One that is ahead of this clock says nothing for it.
        if any(at <= max_skew.after(present) and present <= max_ahead.after(at) for at in others):
            self.database.write(lambda tx: _see(tx, present))
            return None
        return why

    def _own(self) -> tuple[datetime, ...]:
        """Where the present is the server's, this machine has another clock."""
        return () if self.database.engine.dialect.name == "sqlite" else (clock.now(),)

    def accept(self, present: datetime, actor: str, reason: str | None = None) -> None:
        """Record that a person vouches for the present: the next run compares with it."""

        def work(tx: WriteTransaction) -> None:
            act = Act(ActType.CLOCK, actor, reason, detail={"accepted_until": text_of(present)})
            _change(tx, act, newest_seen_at=present, accepted_until=present)

        self.database.write(work)

    def reset(self, present: datetime, actor: str, reason: str) -> ClockReset:
        """Take back the marks that were made later than now, and forget that it ever was later. What is swept stays swept."""
        return self.database.write(lambda tx: _reset(tx, present, actor, reason))


_ANOTHER_CLOCK = {
    False: "The ledger was made with a simulated clock, and these settings have the real one: what it says of time never"
    " happened, and nothing may be deleted by it. Name another ledger under `ledger`, or use the settings that made it.",
    True: "These settings have `clock: {simulated: true}`, and the ledger is a real one: made-up days would use up the grace of"
    " its marks. Name a ledger of its own under `ledger` for the simulation, or take clock.simulated out.",
}


def present_by(connection: Connection) -> datetime:
    """What time it is by a server's clock, or by this machine's where the database is a file."""
    if connection.dialect.name == "sqlite":
        return clock.now()
    at: datetime = connection.execute(select(DatabaseTime())).scalar_one()
    return at


def has_come(instant: ColumnElement[datetime], connection: Connection) -> ColumnElement[bool]:
    """Whether the time in a column has come by the ledger's own clock, whatever a caller believes. A simulated one says yes."""
    is_file = connection.dialect.name == "sqlite"
    return has_come_by(instant, literal(clock.now(), InstantColumn()) if is_file else DatabaseTime())


def has_come_by(instant: ColumnElement[datetime], present: ColumnElement[datetime]) -> ColumnElement[bool]:
    """The same by a clock of the ledger that is asked elsewhere."""
    return or_(instant <= present, exists().where(CLOCK.c.simulated.is_(True)))


def _is_simulated(connection: Connection) -> bool:
    return bool(connection.execute(select(CLOCK.c.simulated)).scalar_one())


def _simulate(tx: WriteTransaction) -> bool:
    """Whether the ledger is simulated now. Of two who open a new one at once, the first to record anything decides."""
    unused = CLOCK.c.simulated.is_(None) & ~exists(select(AUDIT.c.position))
    if tx.connection.execute(select(CLOCK.c.id).where(unused).with_for_update()).one_or_none():
        _change(tx, Act(ActType.CLOCK, SYSTEM, detail={"simulated": True}), simulated=True)
    return _is_simulated(tx.connection)


def _check(
    tx: WriteTransaction, present: datetime, newest_in_logs: datetime | None, max_ahead: Duration, max_skew: Duration
) -> str | None:
    known = tx.connection.execute(select(CLOCK).with_for_update()).one()
    if known.newest_mark_at and present < max_skew.before(known.newest_mark_at):
        raise Refused(
            f"It is {text_of(present)}, earlier than the newest mark of the ledger, {text_of(known.newest_mark_at)}, by more"
            f" than {max_skew.words()}. {_SIMULATED_BACK if known.simulated else _BACK} `retention clock reset --reason …`: it"
            " takes back the marks that were made later than now."
        )
    newest = _newest_witness(known, max_skew.after(present), newest_in_logs)
    if newest is not None and present > max_ahead.after(newest):
        return (
            f"It is {text_of(present)}, more than {max_ahead.words()} after the newest time that a run of this ledger or a log"
            f" has seen, {text_of(newest)}, and no other clock was found to agree. Nothing is swept; marking goes on. If the"
            " time is right, say `retention clock accept`, and the next run sweeps."
        )
    _see(tx, present)
    return None


_BACK = "Either this clock is slow or an earlier one was fast; nothing is marked or swept. If this one is right, say"
_SIMULATED_BACK = "Nothing is marked or swept. Go on from a later as_of, or say, with --as-of,"


def _newest_witness(known: Row[Any], latest: datetime, newest_in_logs: datetime | None) -> datetime | None:
    """The newest time that speaks for a clock; none where nothing is to be compared with.

    Before the first run there is nothing, however old the logs are: a lake may be quiet. A time that is still to come is no
    witness of anything. In a simulated ledger no time was ever real.
    """
    if known.simulated or known.newest_seen_at is None:
        return None
    return max((time for time in (known.newest_seen_at, newest_in_logs) if time and time <= latest), default=None)


def _see(tx: WriteTransaction, present: datetime) -> None:
    older = or_(CLOCK.c.newest_seen_at.is_(None), CLOCK.c.newest_seen_at < _OFTEN.before(present))
    if tx.connection.execute(select(CLOCK.c.id).where(older).with_for_update()).one_or_none():
        _change(tx, Act(ActType.CLOCK, SYSTEM, detail={"seen": text_of(present)}), newest_seen_at=present)


def _change(tx: WriteTransaction, act: Act, **values: Any) -> None:
    """Change what the ledger knows of time, by an act that says so."""
    tx.seal(act, CLOCK, CLOCK.c.id == 1)
    tx.connection.execute(update(CLOCK).values(**values, act=act.id))
    tx.record(act)


def _reset(tx: WriteTransaction, present: datetime, actor: str, reason: str) -> ClockReset:
    # First, so that nobody marks in between.
    known = tx.connection.execute(select(CLOCK).with_for_update()).one()
    later = MARKS.c.marked_at > present
    unmarked = take_back(tx, Act(ActType.UNMARK, actor, reason), [open_marks(later)])
    sweeping = int(tx.connection.execute(select(func.count()).where(text(OPEN), later)).scalar_one())
    newest = tx.connection.execute(select(func.max(MARKS.c.marked_at)).where(~later)).scalar_one()
    values = {
        "newest_mark_at": newest,
        **{name: min(time, present) for name in ("newest_seen_at", "accepted_until") if (time := getattr(known, name))},
    }
    # From this row on mark times are compared anew (ledger/invariants.py).
    detail = {"reset_to": text_of(present), "newest_mark_at": text_of(newest) if newest else None, "unmarked": unmarked}
    _change(tx, Act(ActType.CLOCK, actor, reason, detail=detail), **values)
    clear_paces(tx)
    return ClockReset(present, unmarked, sweeping)
