"""Keeping: takes marks back and places a hold in one transaction, so that nothing is marked again in between."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.holds import contents_in_force, place_in
from retention_assets.ledger.marks.steps import by_id, newest_of, open_marks
from retention_assets.ledger.marks.unmarking import count_marks, take_back, too_late_words
from retention_assets.ledger.schema import AUDIT_HEAD, FILE_HOLDS, MARKS, OPEN, SWEPT
from retention_assets.policy.model import Hold
from retention_assets.sql.columns import DatabaseTime

_LATE = ("SWEEPING", "SWEPT")
_LONGEST_NAME = 200


@dataclass(frozen=True)
class KeptMarks:
    """Marks taken back, the hold's name, `placed` now or in force already, and what was too late."""

    hold: str
    placed: bool
    unmarked: int
    sweeping: int = 0
    swept: int = 0


class Keeping(LedgerPart):
    """Keeping in a ledger."""

    @audited
    def transactions(
        self,
        tx: WriteTransaction,
        dataset: str,
        transactions: Sequence[str],
        hold: Hold,
        actor: str,
        *,
        named: bool,
        again: Collection[str] = (),
    ) -> KeptMarks:
        """Keep all of these transactions, or none if one is being swept or was swept.

        `hold` covers just these. If not `named`, it gets a free name like its own. `again` are ids of swept transactions that
        the log has anew.
        """
        names = sorted(set(transactions))
        newest = newest_of(tx.connection, dataset, names, locked=True)
        late = [
            name
            for name in names
            if name in newest and newest[name].status in _LATE and not (newest[name].status == "SWEPT" and name in again)
        ]
        if late:
            raise Refused(too_late_words(dataset, late, newest, "Nothing was changed."))
        marked = [row.id for row in newest.values() if row.status == "MARKED"]
        act = Act(ActType.UNMARK, actor, hold.reason, dataset)
        unmarked = take_back(tx, act, by_id(tx.connection, marked)) if marked else 0
        return KeptMarks(*_place_once(tx, hold, actor, named), unmarked)

    @audited
    def dataset(self, tx: WriteTransaction, dataset: str, hold: Hold, actor: str, *, named: bool) -> KeptMarks:
        here = MARKS.c.dataset == dataset
        unmarked = take_back(tx, Act(ActType.UNMARK, actor, hold.reason, dataset), [open_marks(here)])
        sweeping = count_marks(tx, here, "SWEEPING", OPEN)
        swept = count_marks(tx, here, "SWEPT", SWEPT)
        return KeptMarks(*_place_once(tx, hold, actor, named), unmarked, sweeping, swept)


def _place_once(tx: WriteTransaction, hold: Hold, actor: str, named: bool) -> tuple[str, bool]:
    """Place a hold unless an equal one is in force; return its name, and True if it was placed."""
    # Locks all holds: no name is taken and no hold released in between.
    tx.connection.execute(select(AUDIT_HEAD.c.position).with_for_update())
    live = [Hold.model_validate_json(content) for content in tx.connection.execute(contents_in_force(DatabaseTime())).scalars()]
    for other in live:
        if _is_about(other) == _is_about(hold) and (not named or other.name == hold.name):
            return other.name or "", False
    if named and any(other.name == hold.name for other in live):
        raise Refused(
            f"A hold named {hold.name} is in force, and is about something else. Release it first, or take another name."
        )
    placed = hold if named else hold.model_copy(update={"name": _free_name(tx, hold.name or "", live)})
    place_in(tx, placed, actor)
    return placed.name or "", True


def _is_about(hold: Hold) -> tuple[object, ...]:
    transactions = None if hold.transactions is None else tuple(sorted(hold.transactions))
    return hold.datasets, transactions, hold.until


def _free_name(tx: WriteTransaction, name: str, live: Iterable[Hold]) -> str:
    of_files = select(FILE_HOLDS.c.name).where(FILE_HOLDS.c.gone_at.is_(None))
    taken = {*(hold.name for hold in live), *tx.connection.execute(of_files).scalars()}
    endings = ("", *(f"-{number}" for number in range(2, len(taken) + 2)))
    return next(one for one in (name[: _LONGEST_NAME - len(ending)] + ending for ending in endings) if one not in taken)
