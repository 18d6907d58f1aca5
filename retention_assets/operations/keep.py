"""Take marks back and place a hold in one transaction, so that no policy marks or sweeps these transactions again."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.evaluation.dataset_log import UnsoundLog, no_dataset, read_if_any
from retention_assets.evaluation.transaction_lives import TransactionLives
from retention_assets.frames.log import Log
from retention_assets.ledger import Ledger
from retention_assets.ledger.marks.keeping import KeptMarks
from retention_assets.operations.holds import HoldRequest
from retention_assets.operations.request import ReasonedRequest
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Hold
from retention_assets.policy.sentences import count
from retention_assets.stores.protocol import StoreFailed


@dataclass(frozen=True, kw_only=True)
class KeepRequest(ReasonedRequest):
    """Transactions of a dataset, or all of it, to be kept; by whom and why."""

    dataset: str
    transactions: tuple[str, ...] = ()
    # name of the hold; found if left out
    name: str | None = None
    until: datetime | None = None
    at: datetime

    def __post_init__(self) -> None:
        super().__post_init__()
        self._strip("dataset", "a dataset, as store/name")
        if not all(one.strip() for one in self.transactions):
            raise BadInput(Problem("is empty", key="transactions", expected="the ids of transactions"))

    def hold(self) -> Hold:
        """Hold on just these transactions."""
        return HoldRequest(
            actor=self.actor,
            reason=self.reason,
            name=self.name or self._name(),
            datasets=(escape_glob(self.dataset),),
            transactions=tuple(escape_glob(one) for one in self.transactions),
            until=self.until,
            at=self.at,
        ).hold()

    def _name(self) -> str:
        some = [self.dataset, *self.transactions[:1]]
        more = len(self.transactions) - 1
        words = "-".join(["keep", *some, *([f"and-{more}-more"] if more > 0 else [])])
        return "".join(sign if sign.isprintable() else "?" for sign in words)[:200].strip()


@dataclass(frozen=True)
class KeepResult:
    """Kept transactions. Without any it is the whole dataset, of which `known` are in the log, if it could be read."""

    dataset: str
    transactions: tuple[str, ...]
    known: int | None
    until: datetime | None
    kept: KeptMarks
    warnings: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """Command that ends the hold."""
        return f"retention release {shlex.quote(self.kept.hold)} --reason …"

    @property
    def headline(self) -> str:
        if self.transactions:
            what = f"{count(len(self.transactions), 'transaction')} of {self.dataset}"
        elif self.known is None:
            what = f"Everything of {self.dataset}"
        else:
            what = f"Everything of {self.dataset}, {count(self.known, 'transaction')},"
        is_one = len(self.transactions) == 1
        until = f"until {text_of(self.until)}" if self.until else "until the hold is released"
        return f"{what} {'is' if is_one or not self.transactions else 'are'} kept {until}."

    def words(self) -> tuple[str, ...]:
        kept = self.kept
        were = "was" if kept.unmarked == 1 else "were"
        taken = f"{count(kept.unmarked, 'mark')} {were} taken back." if kept.unmarked else "None of it was marked."
        placed = "was placed" if kept.placed else "was in force already"
        lines = [taken, f"The hold {kept.hold} {placed}: no policy marks or sweeps what it holds."]
        if kept.sweeping or kept.swept:
            lines.append(f"Too late for {kept.sweeping:,} that are being swept and {kept.swept:,} that were swept.")
        return (*lines, f"To end it: `{self.release}`, or the job `release`. From then on policies alone decide.")

    def as_dict(self) -> dict[str, Any]:
        own = {"dataset": self.dataset, "transactions": list(self.transactions), "known": self.known, "until": self.until}
        return {**own, **vars(self.kept), "release": self.release, "warnings": list(self.warnings)}


def keep(request: KeepRequest, environment: Environment) -> KeepResult:
    """Take the marks back and place the hold, in one transaction; refused where one of the transactions is too late."""
    warnings, log, is_read = list[str](), None, True
    try:
        log = read_if_any(environment, request.dataset)
    except (StoreFailed, UnsoundLog) as fault:
        # Keep them all the same: a hold can be released, and what is deleted can't be brought back.
        warnings.append(f"The log can't be read, so nobody has looked whether the names are right. {fault}")
        is_read = False
    with environment.ledger_if_any() as known:
        again = _again(request, environment, log, known) if is_read else ()
    hold = request.hold()
    with environment.ledger() as ledger:
        if request.transactions:
            kept = ledger.keep.transactions(
                request.dataset, request.transactions, hold, request.actor, named=bool(request.name), again=again
            )
        else:
            kept = ledger.keep.dataset(request.dataset, hold, request.actor, named=bool(request.name))
    names = tuple(dict.fromkeys(request.transactions))
    return KeepResult(request.dataset, names, len(log.transactions) if log else None, request.until, kept, tuple(warnings))


def _again(request: KeepRequest, environment: Environment, log: Log | None, ledger: Ledger | None) -> Collection[str]:
    """Transactions that the log has anew, under the id of something swept. Raises BadInput for one that is nowhere."""
    if log is None and not (ledger and len(ledger.histories.transactions(request.dataset))):
        raise no_dataset(environment, request.dataset)
    lives = TransactionLives(request.dataset, log, ledger, (), request.at).named(request.transactions)
    return {life.transaction for life in lives if life.mark is None and life.earlier}
