"""The clock of a ledger, real or simulated, and the guard that stops sweeps while the clock can't be right.

A person may vouch for the present (`accept`), or declare that marks later than now were made by a wrong clock (`reset`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, exists, func, or_, select, text

from retention_assets import clock
from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.leases import clear_paces
from retention_assets.ledger.schema import AUDIT, CLOCK, MARKS, OPEN
from retention_assets.ledger.unmarking import take_back
from retention_assets.policy.durations import Duration, minute_in_utc, text_of
from retention_assets.sql.columns import DatabaseTime

MAX_AHEAD = Duration(days=14)
MAX_SKEW = Duration(seconds=300)
# Actor of acts that no person ordered.
SYSTEM = "::system"
# least time between two recorded observations of the clock; runs look at every step
_OFTEN = Duration(seconds=60)


@dataclass(frozen=True)
class LedgerTimes:
    newest_mark_at: datetime | None = None
    newest_seen_at: datetime | None = None
    accepted_until: datetime | None = None

    def as_dict(self) -> dict[str, datetime | None]:
        return dict(vars(self))


class ClockReset(NamedTuple):
    at: datetime
    unmarked: int
    sweeping: int


class ClockGuard(LedgerPart):
    @property
    def simulated(self) -> bool:
        return bool(self.rows(select(CLOCK.c.simulated))[0][0])

    def settle(self, simulated: bool) -> None:
        """Refuse a ledger of the other kind of clock. A ledger without acts becomes simulated for ever if asked to."""
        with self.database.reading() as connection:
            is_simulated, used = connection.execute(select(CLOCK.c.simulated, exists(select(AUDIT.c.position)))).one()
        if is_simulated is None and simulated and not used:
            is_simulated = self.database.write(_simulate)
        if bool(is_simulated) != simulated:
            raise Refused(_ANOTHER_CLOCK[simulated])

    def present(self, as_of: datetime | None = None) -> datetime:
        """Present by the database server, or by this machine for a file; `as_of` if the clock is simulated."""
        with self.database.reading() as connection:
            return as_of if as_of and _is_simulated(connection) else present_by(connection)

    def server_time(self) -> datetime | None:
        with self.database.reading() as connection:
            return None if connection.dialect.name == "sqlite" else present_by(connection)

    def due_by(self, as_of: datetime | None) -> datetime:
        """Now, or `as_of` if that is earlier: up to when a sweep takes due marks."""
        present = self.present(as_of)
        return min(as_of, present) if as_of else present

    def times(self) -> LedgerTimes:
        query = select(CLOCK.c.newest_mark_at, CLOCK.c.newest_seen_at, CLOCK.c.accepted_until)
        return LedgerTimes(*self.rows(query)[0])

    def check(
        self,
        present: datetime,
        newest_in_logs: datetime | None,
        max_ahead: Duration = MAX_AHEAD,
        max_skew: Duration = MAX_SKEW,
        outside: Callable[[], Iterable[datetime]] = tuple,
    ) -> str | None:
        """Explain why nothing may be swept at this present, or return None and remember it as seen.

        Raises Refused if the present is before the newest mark: then nothing may be marked either. `outside` returns other
        clocks; they are asked only if everything else contradicts this one.
        """
        why = self.database.write(lambda tx: _check(tx, present, newest_in_logs, max_ahead, max_skew))
        if why is None:
            return None
        clocks = [*outside(), *(() if self.database.engine.dialect.name == "sqlite" else (clock.now(),))]
        # Only the newest witness counts. One that is ahead of this clock does not support it.
        if any(at <= max_skew.after(present) and present <= max_ahead.after(at) for at in clocks):
            self.database.write(lambda tx: _note_seen(tx, present))
            return None
        return why

    def see(self, present: datetime) -> None:
        """Remember a present at which something else than a sweep or an evaluation was done."""
        self.database.write(lambda tx: _note_seen(tx, present))

    @audited
    def accept(self, tx: WriteTransaction, present: datetime, actor: str, reason: str | None = None) -> None:
        act = Act(ActType.CLOCK, actor, reason, detail={"accepted_until": text_of(present)})
        _change(tx, act, newest_seen_at=present, accepted_until=present)

    @audited
    def reset(self, tx: WriteTransaction, present: datetime, actor: str, reason: str) -> ClockReset:
        """Take back the marks that are later than now and forget that it ever was later. Swept marks stay swept."""
        # Locked first, so that nobody marks in between.
        times = tx.connection.execute(select(CLOCK).with_for_update()).one()
        later = MARKS.c.marked_at > present
        unmarked = take_back(tx, Act(ActType.UNMARK, actor, reason), [later])
        sweeping = int(tx.connection.execute(select(func.count()).where(text(OPEN), later)).scalar_one())
        newest = tx.connection.execute(select(func.max(MARKS.c.marked_at)).where(~later)).scalar_one()
        seen = {name: min(time, present) for name in ("newest_seen_at", "accepted_until") if (time := getattr(times, name))}
        # After this act mark times are compared anew (ledger/invariants.py).
        detail = {"reset_to": text_of(present), "newest_mark_at": text_of(newest) if newest else None, "unmarked": unmarked}
        _change(tx, Act(ActType.CLOCK, actor, reason, detail=detail), newest_mark_at=newest, **seen)
        clear_paces(tx)
        return ClockReset(present, unmarked, sweeping)


_ANOTHER_CLOCK = {
    False: "The ledger was made with a simulated clock, but these settings have the real one. Its times never happened, so "
    "nothing may be deleted by them. Name another ledger under `ledger`, or use the settings that made it.",
    True: "These settings have `clock: {simulated: true}`, but the ledger is real: simulated days would use up the grace of "
    "its marks. Name a separate ledger under `ledger` for the simulation, or remove clock.simulated.",
}


def present_by(connection: Connection) -> datetime:
    if connection.dialect.name == "sqlite":
        return clock.now()
    return connection.execute(select(DatabaseTime())).scalar_one()


def has_come_by(instant: ColumnElement[datetime], present: ColumnElement[datetime]) -> ColumnElement[bool]:
    """Condition: the time has come by `present`, read from the ledger's clock. Always true if it is simulated."""
    return or_(instant <= present, exists().where(CLOCK.c.simulated.is_(True)))


def _is_simulated(connection: Connection) -> bool:
    return bool(connection.execute(select(CLOCK.c.simulated)).scalar_one())


def _simulate(tx: WriteTransaction) -> bool:
    # of two programs that open a new ledger at once, the first to record an act decides
    unused = CLOCK.c.simulated.is_(None) & ~exists(select(AUDIT.c.position))
    if tx.connection.execute(select(CLOCK.c.id).where(unused).with_for_update()).one_or_none():
        _change(tx, Act(ActType.CLOCK, SYSTEM, detail={"simulated": True}), simulated=True)
    return _is_simulated(tx.connection)


def _check(
    tx: WriteTransaction, present: datetime, newest_in_logs: datetime | None, max_ahead: Duration, max_skew: Duration
) -> str | None:
    times = tx.connection.execute(select(CLOCK).with_for_update()).one()
    refuse_before(times, present, max_skew, times.simulated)
    # Before the first run there is nothing to compare with, however old the logs are: a lake may be quiet. A future time
    # supports nothing, and in a simulated ledger no time is real.
    seen = () if times.simulated or times.newest_seen_at is None else (times.newest_seen_at, newest_in_logs)
    newest = max((time for time in seen if time and time <= max_skew.after(present)), default=None)
    if newest is not None and present > max_ahead.after(newest):
        return (
            f"It is {minute_in_utc(present)}, more than {max_ahead.words()} after the newest time that a run of this ledger "
            f"or a log has seen, {minute_in_utc(newest)}, and no other clock confirms it. Nothing is swept; marking goes "
            "on. If the time is right, run `retention clock accept`, and the next run sweeps."
        )
    _note_seen(tx, present)
    return None


def refuse_before(times: LedgerTimes | Row[Any], present: datetime, max_skew: Duration, simulated: bool) -> None:
    """Refuse to mark or sweep at a present that is before the newest mark, or before what a simulated clock has shown."""
    # days that were simulated have happened, though nothing was marked in them
    shown = (times.newest_mark_at, times.newest_seen_at if simulated else None)
    newest = max((at for at in shown if at), default=None)
    if newest is None or present >= max_skew.before(newest):
        return
    if simulated:
        # up to the next minute, for the command has no seconds
        clock_at = minute_in_utc(newest + timedelta(seconds=59, microseconds=999_999))
        at = f"{clock_at[:10]}T{clock_at[11:16]}Z"
        raise Refused(
            f"The clock of this environment is simulated and stands at {clock_at}. Nothing is marked or swept at "
            f"{minute_in_utc(present)}, which is earlier. Repeat the command with `--as-of {at}` or a later time. To go "
            "back, `retention clock reset --as-of … --reason …` takes back the later marks."
        )
    raise Refused(
        f"It is {minute_in_utc(present)}, earlier than the newest mark of the ledger, {minute_in_utc(newest)}, by more "
        f"than {max_skew.words()}. Either this clock is slow or an earlier one was fast. Nothing is marked or swept. If "
        "this clock is right, run `retention clock reset --reason …`: it takes back the marks with a later time."
    )


def _note_seen(tx: WriteTransaction, present: datetime) -> None:
    older = or_(CLOCK.c.newest_seen_at.is_(None), CLOCK.c.newest_seen_at < _OFTEN.before(present))
    if tx.connection.execute(select(CLOCK.c.id).where(older).with_for_update()).one_or_none():
        _change(tx, Act(ActType.CLOCK, SYSTEM, detail={"seen": text_of(present)}), newest_seen_at=present)


def _change(tx: WriteTransaction, act: Act, **values: Any) -> None:
    tx.change(act, CLOCK, CLOCK.c.id == 1, **values)
