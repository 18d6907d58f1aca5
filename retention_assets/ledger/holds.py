"""Holds that people place: nothing held is marked or swept until the hold ends or is released. Also a record of file holds."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, or_, select
from sqlalchemy.exc import IntegrityError

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.realms import kept_realms
from retention_assets.ledger.schema import AUDIT, FILE_HOLDS, HOLDS
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Hold
from retention_assets.policy.realms import purged_hold
from retention_assets.sql.columns import DatabaseTime


class Holds(LedgerPart):
    """The holds of a ledger."""

    def place(self, hold: Hold, actor: str) -> None:
        """Place a hold. Raises Refused without a reason, or if a hold of that name is in force."""
        if not hold.name or not hold.reason.strip():
            raise Refused(
                "A hold is placed under a name, by which it is released, and with a reason. Say both: --name and --reason."
            )
        try:
            self.database.write(lambda tx: place_in(tx, hold, actor))
        except IntegrityError:
            raise Refused(f"A hold named {hold.name} is in force. Release it first, or take another name.") from None

    @audited
    def release(self, tx: WriteTransaction, name: str, actor: str, reason: str) -> None:
        if not actor.strip() or not reason.strip():
            raise Refused(
                "A hold is released by somebody and for a reason, which the record keeps. Say both: --actor and --reason."
            )
        mine = select(HOLDS.c.id).where(HOLDS.c.name == name, HOLDS.c.released_at.is_(None)).with_for_update()
        number = tx.connection.execute(mine).scalar_one_or_none()
        if number is None:
            raise Refused(f"No hold named {name} is in force. `retention hold --list` shows those that are.")
        act = Act(ActType.RELEASE, actor, reason, detail={"name": name, "source": "ledger"})
        over = {"released_at": DatabaseTime(), "released_by": actor, "release_reason": reason}
        tx.change(act, HOLDS, HOLDS.c.id == number, **over)

    def note_files(
        self, holds: Iterable[Hold], actor: str, folders: Sequence[str] = (), *, ends: bool = True, takes_over: bool = False
    ) -> None:
        """Record which holds of policy files appeared and which are gone, also for tasks that have no files.

        A hold ends only if all folders that brought it are read without it and `ends` is true. With `takes_over` the present
        holds count as brought by these folders.
        """
        present = {hashlib.sha256(_content_of(hold).encode()).hexdigest(): hold for hold in holds}
        known = {row.digest: folders_of(row) for row in self.rows(_live())}
        gone = {digest for digest in known.keys() - present.keys() if ends and known[digest] <= set(folders)}
        come = {digest for digest in present if digest not in known or (takes_over and known[digest] != set(folders))}
        if come or gone:
            self.database.write(lambda tx: _note_files(tx, {digest: present[digest] for digest in come}, gone, actor, folders))

    def of_other_folders(self, folders: Sequence[str]) -> tuple[Hold, ...]:
        rows = [row for row in self.rows(_live()) if not folders_of(row) <= set(folders)]
        return tuple(Hold.model_validate_json(row.content) for row in rows)

    def of_files(self) -> tuple[Hold, ...]:
        query = select(FILE_HOLDS.c.content).where(FILE_HOLDS.c.gone_at.is_(None)).order_by(FILE_HOLDS.c.digest)
        return tuple(Hold.model_validate_json(content) for (content,) in self.rows(query))

    def in_force(self, as_of: datetime) -> list[Hold]:
        """Holds in force at a time, by name, followed by those that protect PURGED realms."""
        with self.database.reading() as connection:
            placed = [Hold.model_validate_json(content) for content in connection.execute(contents_in_force(as_of)).scalars()]
            return [*placed, *map(purged_hold, kept_realms(connection))]

    def known(self, as_of: datetime, of_files: Iterable[Hold] = ()) -> tuple[Hold, ...]:
        """All holds in force at a time: placed ones, file holds as last recorded, and `of_files`."""
        files = (hold for hold in (*of_files, *self.of_files()) if hold.is_live(as_of))
        return (*files, *self.in_force(as_of))


def contents_in_force(as_of: datetime | ColumnElement[datetime]) -> Select[str]:
    later = or_(HOLDS.c.until.is_(None), HOLDS.c.until > as_of)
    return select(HOLDS.c.content).where(HOLDS.c.released_at.is_(None), later).order_by(HOLDS.c.name)


def place_in(tx: WriteTransaction, hold: Hold, actor: str) -> None:
    act = Act(ActType.HOLD, actor, hold.reason, detail=_detail_of(hold, "ledger"))
    # A hold that has ended frees its name; its row is closed.
    ended = (HOLDS.c.name == hold.name) & HOLDS.c.released_at.is_(None) & (HOLDS.c.until <= DatabaseTime())
    over = {"released_at": HOLDS.c.until, "released_by": "::until", "release_reason": "It ended by itself."}
    for number in tx.connection.execute(select(HOLDS.c.id).where(ended)).scalars().all():
        tx.change(act, HOLDS, HOLDS.c.id == number, **over)
    placed = {"placed_at": DatabaseTime(), "placed_by": actor}
    row = {"name": hold.name, "content": _content_of(hold), "reason": hold.reason, "owner": hold.owner, "until": hold.until}
    tx.add(act, HOLDS, id=new_id(), **row, **placed)


def _detail_of(hold: Hold, source: str) -> dict[str, Any]:
    return {
        "name": hold.name,
        "source": source,
        "datasets": hold.datasets.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "transactions": hold.transactions,
        "owner": hold.owner,
        "until": text_of(hold.until) if hold.until else None,
    }


def _live() -> Select[Any]:
    query = select(FILE_HOLDS, AUDIT.c.detail).join(AUDIT, AUDIT.c.act == FILE_HOLDS.c.act)
    return query.where(FILE_HOLDS.c.gone_at.is_(None)).order_by(FILE_HOLDS.c.digest)


def folders_of(row: Row[Any]) -> frozenset[str]:
    return frozenset(json.loads(row.detail or "{}").get("folders", ()))


def _note_files(
    tx: WriteTransaction, holds: Mapping[str, Hold], ended: Collection[str], actor: str, folders: Sequence[str]
) -> None:
    tx.lock_chain()
    known = {row.digest: row for row in tx.connection.execute(select(FILE_HOLDS).order_by(FILE_HOLDS.c.digest))}
    for digest, hold in holds.items():
        detail = {**_detail_of(hold, "file"), "folders": sorted(folders)}
        values = {"name": hold.name or "", "content": _content_of(hold), "came_at": DatabaseTime(), "gone_at": None}
        tx.put(Act(ActType.HOLD, actor, hold.reason, detail=detail), FILE_HOLDS, digest=digest, **values)
    for digest, row in known.items():
        if digest in ended and row.gone_at is None:
            act = Act(ActType.RELEASE, actor, "No policy file has it any more.", detail={"name": row.name, "source": "file"})
            tx.change(act, FILE_HOLDS, FILE_HOLDS.c.digest == digest, gone_at=DatabaseTime())


def _content_of(hold: Hold) -> str:
    return hold.model_dump_json(by_alias=True, exclude_none=True)
