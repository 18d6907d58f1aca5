"""Holds that people place: nothing held is marked or swept until the hold ends or is released.

Belongs here: placing, releasing and listing them, each with who and why.
Does not belong here: what a hold is about (policy/model.py) and applying it (frames). Holds in policy files are not kept here.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import HOLDS
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Hold
from retention_assets.sql.columns import DatabaseTime


@dataclass(frozen=True)
class Holds:
    """The holds of a ledger."""

    database: LedgerDatabase

    def place(self, hold: Hold, actor: str) -> None:
        """Place a hold under its name; refused without a reason, or where a hold of that name is in force."""
        if not hold.name or not hold.reason.strip():
            raise Refused(
                "A hold is placed under a name, by which it is released, and with a reason. Say both: --name and --reason."
            )
        try:
            self.database.write(lambda doing: _place(doing, hold, actor))
        except IntegrityError:
            raise Refused(f"A hold named {hold.name} is in force. Release it first, or take another name.") from None

    def release(self, name: str, actor: str, reason: str) -> None:
        """End a hold; what it kept is judged by the policies alone from the next evaluation on."""
        if not actor.strip() or not reason.strip():
            raise Refused(
                "A hold is released by somebody and for a reason, which the record keeps. Say both: --actor and --reason."
            )
        self.database.write(lambda doing: _release(doing, name, actor, reason))

    def in_force(self, as_of: datetime) -> list[Hold]:
        """The holds that are in force at a time, by name."""
        query = select(HOLDS.c.content).where(
            HOLDS.c.released_at.is_(None), or_(HOLDS.c.until.is_(None), HOLDS.c.until > as_of)
        )
        with self.database.reading() as connection:
            return [Hold.model_validate_json(content) for content in connection.execute(query.order_by(HOLDS.c.name)).scalars()]


def _place(doing: WriteTransaction, hold: Hold, actor: str) -> None:
    # What ended by itself gives its name free; it is over, and says so.
    ended = update(HOLDS).where(HOLDS.c.name == hold.name, HOLDS.c.released_at.is_(None), HOLDS.c.until <= DatabaseTime())
    over = {"released_at": HOLDS.c.until, "released_by": "::until", "release_reason": "It ended by itself."}
    doing.connection.execute(ended.values(**over))
    content = hold.model_dump_json(by_alias=True, exclude_none=True)
    act = Act(
        ActType.HOLD, actor, hold.reason, detail={"name": hold.name, "until": text_of(hold.until) if hold.until else None}
    )
    row = {
        "id": new_id(),
        "name": hold.name,
        "content": content,
        "reason": hold.reason,
        "owner": hold.owner,
        "until": hold.until,
    }
    doing.connection.execute(insert(HOLDS).values(**row, placed_at=DatabaseTime(), placed_by=actor, act=act.id))
    doing.record(act)


def _release(doing: WriteTransaction, name: str, actor: str, reason: str) -> None:
    done = {"released_at": DatabaseTime(), "released_by": actor, "release_reason": reason}
    mine = update(HOLDS).where(HOLDS.c.name == name, HOLDS.c.released_at.is_(None))
    if not doing.connection.execute(mine.values(**done)).rowcount:
        raise Refused(f"No hold named {name} is in force. `retention hold --list` shows those that are.")
    doing.record(Act(ActType.RELEASE, actor, reason, detail={"name": name}))
