"""The clock guard: no marking and no sweeping by a clock that can't be right.

Belongs here: the times that the ledger knows, the refusal of an `as_of` too far from them, and accepting one.
Does not belong here: what time it is (retention_assets/clock.py).
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import or_, select, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import CLOCK
from retention_assets.policy.durations import Duration, text_of

MAX_AHEAD = Duration(days=14)
MAX_SKEW = Duration(seconds=300)
# Who the record names where no person has done anything: a run looked at its clock.
SYSTEM = "::system"


@dataclass(frozen=True)
class LedgerTimes:
    """What an `as_of` is compared with."""

    newest_mark_at: datetime | None = None
    newest_seen_at: datetime | None = None
    accepted_until: datetime | None = None

    def as_dict(self) -> dict[str, datetime | None]:
        """As `--format json` prints it."""
        return dict(vars(self))


@dataclass(frozen=True)
class ClockGuard:
    """The clock guard of a ledger."""

    database: LedgerDatabase

    def times(self) -> LedgerTimes:
        """The newest mark, the newest time seen, and until when a person has accepted what the clock says."""
        query = select(CLOCK.c.newest_mark_at, CLOCK.c.newest_seen_at, CLOCK.c.accepted_until)
        with self.database.reading() as connection:
            return LedgerTimes(**connection.execute(query).mappings().one())

    def check(
        self, as_of: datetime, newest_in_logs: datetime | None, max_ahead: Duration = MAX_AHEAD, max_skew: Duration = MAX_SKEW
    ) -> None:
        """Refuse an `as_of` that can't be right; remember one that can as seen. To be called before marking and sweeping."""
        self.database.write(lambda tx: _check(tx, as_of, newest_in_logs, max_ahead, max_skew))

    def accept(self, as_of: datetime, actor: str, reason: str) -> None:
        """Record that a person vouches for a time: up to there no `as_of` is too far ahead."""
        later = or_(CLOCK.c.accepted_until.is_(None), CLOCK.c.accepted_until < as_of)

        def work(tx: WriteTransaction) -> None:
            act = Act(ActType.CLOCK, actor, reason, detail={"accepted_until": text_of(as_of)})
            tx.seal(act, CLOCK, CLOCK.c.id == 1)
            tx.connection.execute(update(CLOCK).where(later).values(accepted_until=as_of, act=act.id))
            tx.record(act)

        self.database.write(work)


def _check(
    tx: WriteTransaction, as_of: datetime, newest_in_logs: datetime | None, max_ahead: Duration, max_skew: Duration
) -> None:
    known = tx.connection.execute(select(CLOCK).with_for_update()).one()
    if known.newest_mark_at and as_of < max_skew.before(known.newest_mark_at):
        raise Refused(
            f"As of {text_of(as_of)} it is earlier than the newest mark of the ledger, {text_of(known.newest_mark_at)}, by more"
            f" than {max_skew.words()}. Either this clock is slow or an earlier one was fast; nothing is marked or swept."
        )
    newest = max((time for time in (known.newest_mark_at, known.newest_seen_at, newest_in_logs) if time), default=None)
    accepted = known.accepted_until is not None and as_of <= known.accepted_until
    if newest is not None and as_of > max_ahead.after(newest) and not accepted:
        raise Refused(
            f"As of {text_of(as_of)} it is more than {max_ahead.words()} after the newest time that the ledger or a log has"
            f" seen, {text_of(newest)}. If that is right, say `retention clock accept --as-of {text_of(as_of)}`; until then"
            " nothing is marked or swept."
        )
    if known.newest_seen_at is None or known.newest_seen_at < as_of:
        act = Act(ActType.CLOCK, SYSTEM, detail={"seen": text_of(as_of)})
        tx.seal(act, CLOCK, CLOCK.c.id == 1)
        tx.connection.execute(update(CLOCK).values(newest_seen_at=as_of, act=act.id))
        tx.record(act)
