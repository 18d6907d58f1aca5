"""Unmarking: takes marks back while they are MARKED. What a policy still selects is marked again with a new grace.

Keeping places a hold in the same transaction, so that nothing is marked again in between.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Row, and_, func, select, text, true

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.book import hold_in, place_in, placed_holds
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.evaluations import request_evaluations
from retention_assets.ledger.reports import count_unmarked
from retention_assets.ledger.schema import FILE_HOLDS, MARKS, OPEN, SWEPT
from retention_assets.ledger.steps import IS_BEGUN, SHOWN_MARKS, by_id, end_marks, lock_newest
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Hold
from retention_assets.sql.columns import DatabaseTime

AGAIN = "The next evaluation marks again what a policy still selects, with a new grace. To keep it, place a hold."
_NOTHING = "Nothing was taken back."
_SHOWN = 5
_LONGEST_NAME = 200


@dataclass(frozen=True)
class UnmarkResult:
    unmarked: int
    sweeping: int = 0
    swept: int = 0
    note: str = AGAIN

    def as_dict(self) -> dict[str, int | str]:
        return dict(vars(self))


@dataclass(frozen=True)
class KeptMarks:
    """Marks taken back, the hold's name, `placed` now or in force already, and what was too late."""

    hold: str
    placed: bool
    unmarked: int
    sweeping: int = 0
    swept: int = 0


class Unmarking(LedgerPart):
    @audited
    def transactions(
        self, tx: WriteTransaction, dataset: str, transactions: Sequence[str], actor: str, reason: str
    ) -> UnmarkResult:
        """Take back the marks of all these transactions, or of none if one is not MARKED."""
        _check_reason(actor, reason)
        names, act = sorted(set(transactions)), Act(ActType.UNMARK, actor, reason, dataset)
        newest = lock_newest(tx.connection, dataset, names)
        if late := [name for name in names if name not in newest or newest[name].status != "MARKED"]:
            raise Refused(_too_late_words(dataset, late, newest, _NOTHING))
        return UnmarkResult(take_back(tx, act, by_id(tx.connection, (row.id for row in newest.values()))))

    @audited
    def all_of(
        self, tx: WriteTransaction, actor: str, reason: str, dataset: str | None = None, policy: str | None = None
    ) -> UnmarkResult:
        _check_reason(actor, reason)
        if dataset is None and policy is None:
            raise Refused("Name the marks to take back: transactions of a dataset, a dataset or a policy.")
        here: ColumnElement[bool] = and_(
            true() if dataset is None else MARKS.c.dataset == dataset, true() if policy is None else MARKS.c.policy == policy
        )
        unmarked = take_back(tx, Act(ActType.UNMARK, actor, reason, dataset, policy), [here])
        sweeping, swept = _too_late_amounts(tx, here)
        if not unmarked:
            whose = " ".join(part for part in (policy and f"of policy {policy}", dataset and f"in {dataset}") if part)
            gone = f" {sweeping} are being swept, {swept} were swept." if sweeping or swept else ""
            raise Refused(f"No mark {whose} can be taken back.{gone} {_NOTHING}")
        return UnmarkResult(unmarked, sweeping, swept)


class Keeping(LedgerPart):
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
        newest = lock_newest(tx.connection, dataset, names)
        gone = {name for name, row in newest.items() if row.status == "SWEPT"}.difference(again)
        if late := [name for name in names if name in gone or (name in newest and newest[name].status == "SWEEPING")]:
            raise Refused(_too_late_words(dataset, late, newest, "Nothing was changed."))
        marked = by_id(tx.connection, (row.id for row in newest.values() if row.status == "MARKED"))
        unmarked = take_back(tx, Act(ActType.UNMARK, actor, hold.reason, dataset), marked)
        return KeptMarks(*place_once(tx, hold, actor, named), unmarked)

    @audited
    def dataset(self, tx: WriteTransaction, dataset: str, hold: Hold, actor: str, *, named: bool) -> KeptMarks:
        here = MARKS.c.dataset == dataset
        unmarked = take_back(tx, Act(ActType.UNMARK, actor, hold.reason, dataset), [here])
        too_late = _too_late_amounts(tx, here)
        return KeptMarks(*place_once(tx, hold, actor, named), unmarked, *too_late)


def _check_reason(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise Refused("The record needs who takes marks back and why. Give --actor and --reason.")


def _too_late_words(dataset: str, late: Sequence[str], newest: Mapping[str, Row[tuple[object, ...]]], ending: str) -> str:
    more = [f"… and {len(late) - _SHOWN} more."] if len(late) > _SHOWN else []
    return "\n".join([*(_too_late(dataset, name, newest.get(name)) for name in late[:_SHOWN]), *more, ending])


def _too_late(dataset: str, transaction: str, row: Row[tuple[object, ...]] | None) -> str:
    name = f"{transaction} of {dataset}"
    if row is None:
        return f"{name} is not marked and never was. `retention marks --dataset {dataset}` lists what is."
    since = f"{text_of(row.changed_at)} ({row.changed_by})"
    if row.outcome == "SET_ASIDE":
        restore = f"`retention restore {shlex.join((dataset, transaction))} --reason …` brings it back and holds it"
        return f"{name} was set aside at {since}. Until {text_of(row.until)}, {restore}."
    if row.status == "SWEPT":
        return f"{name} was swept at {since}: its bytes are gone and can't be restored."
    if row.status == "SWEEPING":
        return f"{name} is being swept since {since}: its bytes may be gone. To protect others, place a hold."
    if row.status in ("UNMARKED", "RESTORED"):
        return f"{name} was {'taken back' if row.status == 'UNMARKED' else 'restored'} already, at {since}: {row.why}"
    return f"{name} is not marked any more: the sweep spared it at {since}. The reason then: {row.why}"


def _too_late_amounts(tx: WriteTransaction, here: ColumnElement[bool]) -> tuple[int, int]:
    begun = select(func.count()).select_from(SHOWN_MARKS).where(here, text(OPEN), IS_BEGUN)
    swept = select(func.count()).where(here, text(SWEPT))
    return tx.connection.execute(begun).scalar_one(), tx.connection.execute(swept).scalar_one()


def take_back(tx: WriteTransaction, act: Act, conditions: Iterable[ColumnElement[bool]]) -> int:
    if taken := end_marks(tx, act, "UNMARKED", act.reason or "", conditions):
        count_unmarked(tx, act, taken)
        request_evaluations(tx, set(taken.values()))
    return len(taken)


def place_once(tx: WriteTransaction, hold: Hold, actor: str, named: bool) -> tuple[str, bool]:
    # Returns the name, and whether the hold was placed or an equal one is in force. The lock covers all holds.
    tx.lock_chain()
    live = [hold_in(row) for row in tx.connection.execute(placed_holds(DatabaseTime()))]
    for other in live:
        if _is_about(other) == _is_about(hold) and (not named or other.name == hold.name):
            return other.name or "", False
    if named and any(other.name == hold.name for other in live):
        raise Refused(f"A hold named {hold.name} is in force for something else. Release it first, or take another name.")
    if not named:
        of_files = select(FILE_HOLDS.c.name).where(FILE_HOLDS.c.gone_at.is_(None))
        taken = {*(other.name for other in live), *tx.connection.execute(of_files).scalars()}
        endings = ("", *(f"-{number}" for number in range(2, len(taken) + 2)))
        names = ((hold.name or "")[: _LONGEST_NAME - len(ending)] + ending for ending in endings)
        hold = hold.model_copy(update={"name": next(name for name in names if name not in taken)})
    place_in(tx, hold, actor)
    return hold.name or "", True


def _is_about(hold: Hold) -> tuple[object, ...]:
    transactions = None if hold.transactions is None else tuple(sorted(hold.transactions))
    return hold.datasets, transactions, hold.until
