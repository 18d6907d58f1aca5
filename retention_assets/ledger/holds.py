"""Holds that people place: nothing held is marked or swept until the hold ends or is released.

Belongs here: placing, releasing and listing them, each with who and why.
Does not belong here: what a hold covers (policy/model.py), applying it (frames), and holds in policy files.
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
            self.database.write(lambda tx: _place(tx, hold, actor))
        except IntegrityError:
            raise Refused(f"A hold named {hold.name} is in force. Release it first, or take another name.") from None

    def release(self, name: str, actor: str, reason: str) -> None:
        """End a hold; what it kept is judged by the policies alone from the next evaluation on."""
        if not actor.strip() or not reason.strip():
            raise Refused(
                "A hold is released by somebody and for a reason, which the record keeps. Say both: --actor and --reason."
            )
        self.database.write(lambda tx: _release(tx, name, actor, reason))

    def in_force(self, as_of: datetime) -> list[Hold]:
        """The holds that are in force at a time, by name."""
        query = select(HOLDS.c.content).where(
            HOLDS.c.released_at.is_(None), or_(HOLDS.c.until.is_(None), HOLDS.c.until > as_of)
        )
        with self.database.reading() as connection:
            return [Hold.model_validate_json(content) for content in connection.execute(query.order_by(HOLDS.c.name)).scalars()]


def _place(tx: WriteTransaction, hold: Hold, actor: str) -> None:
    # A hold that ended by itself frees its name, and its row says that it is over.
    ended = update(HOLDS).where(HOLDS.c.name == hold.name, HOLDS.c.released_at.is_(None), HOLDS.c.until <= DatabaseTime())
    over = {"released_at": HOLDS.c.until, "released_by": "::until", "release_reason": "It ended by itself."}
    tx.connection.execute(ended.values(**over))
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
    tx.connection.execute(insert(HOLDS).values(**row, placed_at=DatabaseTime(), placed_by=actor, act=act.id))
    tx.record(act)


def _release(tx: WriteTransaction, name: str, actor: str, reason: str) -> None:
    values = {"released_at": DatabaseTime(), "released_by": actor, "release_reason": reason}
    mine = update(HOLDS).where(HOLDS.c.name == name, HOLDS.c.released_at.is_(None))
    if not tx.connection.execute(mine.values(**values)).rowcount:
        raise Refused(f"No hold named {name} is in force. `retention hold --list` shows those that are.")
    tx.record(Act(ActType.RELEASE, actor, reason, detail={"name": name}))
