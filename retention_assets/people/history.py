"""Read-only questions: what goes next, why something is kept or marked, and what happened. None creates a ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.evaluation.dataset_log import AskedAlone, find_data, is_asked_alone, no_dataset, read_dataset, read_if_any
from retention_assets.evaluation.dataset_summary import DatasetSummary, summarize_dataset
from retention_assets.evaluation.explain import ExplainedTransaction, explain_with_ledger
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.rules_in_force import (
    RulesInForce,
    files_of,
    foreseen_rulebook,
    holds_about,
    holds_in_force,
    read_policies,
    rules_for,
)
from retention_assets.evaluation.transaction_lives import TransactionLives
from retention_assets.evaluation.upcoming import Upcoming, upcoming
from retention_assets.frames.log import Log
from retention_assets.ledger import Ledger
from retention_assets.policy.globs import matches

_LONGEST_DAYS = 3650


@dataclass(frozen=True, kw_only=True)
class UpcomingRequest:
    """Number of days, start (default: now), and datasets: globs over store/name."""

    days: int = 7
    datasets: tuple[str, ...] = ("*",)
    as_of: datetime | None = None
    # most transactions in the list
    most: int = 1_000

    def __post_init__(self) -> None:
        if not 0 <= self.days <= _LONGEST_DAYS:
            raise BadInput(Problem("is out of range", key="days", value=str(self.days), expected=f"0 to {_LONGEST_DAYS}"))


def show_upcoming(request: UpcomingRequest, environment: Environment) -> Upcoming:
    """List what goes in the coming days, and what a hold keeps of it."""
    with environment.ledger_if_any() as ledger:
        as_of = request.as_of or _present(environment, ledger)
        if ledger is None:
            return Upcoming(as_of, as_of, note=environment.no_ledger)
        return upcoming(
            ledger, fates_of(environment, ledger, as_of), as_of, request.days, DatasetFilter(request.datasets), request.most
        )


def explain_transaction(
    environment: Environment, dataset: str, transaction: str, as_of: datetime | None = None, log: Path | None = None
) -> ExplainedTransaction:
    """Explain why a transaction is kept or marked, by the rules of the next run, with what the ledger knows of it."""
    with _opened(environment, dataset, as_of, log, transaction) as (lines, ledger, at):
        rules = _rules(environment, ledger, dataset, at)
        if log is None and is_asked_alone(environment, dataset):
            rules = replace(rules, policies=tuple(one.model_copy(update={"limits": None}) for one in rules.policies))
        fates = fates_of(environment, ledger, at) if ledger else None
        find = find_data(environment, dataset) if log is None else None
        return explain_with_ledger(lines, rules, ledger, dataset, transaction, at, fates, find)


def explain_dataset(environment: Environment, dataset: str, as_of: datetime | None = None) -> DatasetSummary:
    """Summarise why the transactions of a dataset are kept or marked."""
    with _opened(environment, dataset, as_of) as (lines, ledger, at):
        fates = fates_of(environment, ledger, at) if ledger else Fates((), (), at)
        return summarize_dataset(dataset, lines, _rules(environment, ledger, dataset, at), ledger, fates, at)


@dataclass(frozen=True)
class OpenedHistory:
    """Lives of a dataset's transactions while its ledger is open, and the start of their visible history."""

    lives: TransactionLives
    visible_from: datetime | None
    note: str | None


@contextmanager
def open_history(environment: Environment, dataset: str, as_of: datetime | None = None) -> Iterator[OpenedHistory]:
    """Open the history of a dataset's transactions, by its store's log and the ledger."""
    with _opened(environment, dataset, as_of) as (lines, ledger, at):
        visible_from = ledger.visibility.of(dataset) if ledger else None
        holds, _ = holds_about(dataset, lines, holds_in_force(ledger, environment.settings, at), at)
        note = None if ledger else environment.no_ledger
        fates = fates_of(environment, ledger, at) if ledger else None
        yield OpenedHistory(
            TransactionLives(dataset, lines, ledger, holds, at, fates, find_data(environment, dataset)), visible_from, note
        )


@contextmanager
def _opened(
    environment: Environment,
    dataset: str,
    as_of: datetime | None,
    path: Path | None = None,
    transaction: str | None = None,
) -> Iterator[tuple[Log | None, Ledger | None, datetime]]:
    """Refused where neither log nor ledger has the dataset. A store that need not be read whole is asked about
    `transaction` alone, if given.
    """
    with environment.ledger_if_any() as ledger:
        at, about = as_of or _present(environment, ledger), None
        if transaction is not None and path is None and is_asked_alone(environment, dataset):
            policies = _rules(environment, ledger, dataset, at).policies
            counts = any(one.looks_along_lines and matches(dataset, one.datasets.include) for one in policies)
            holds = tuple(one for one in holds_in_force(ledger, environment.settings, at) if one.is_live(at))
            about = AskedAlone(transaction, ledger.realms.purging() if ledger else frozenset(), counts, holds)
        lines = read_dataset(environment, dataset, path) if path else read_if_any(environment, dataset, about)
        if lines is None and not (ledger and len(ledger.histories.transactions(dataset))):
            raise no_dataset(environment, dataset)
        yield lines, ledger, at


def _present(environment: Environment, ledger: Ledger | None) -> datetime:
    """Where the clock is simulated, the newest day that was lived through."""
    if environment.settings.clock.simulated and ledger is not None:
        times = ledger.clock.times()
        seen = [at for at in (times.newest_seen_at, times.newest_mark_at) if at]
        if seen:
            return max(seen)
    return environment.present()


def fates_of(environment: Environment, ledger: Ledger, as_of: datetime) -> Fates:
    """Fates of marks, by the policies of the next run."""
    foreseen = foreseen_rulebook(ledger, environment.settings, as_of) if files_of(environment.settings) else None
    book = {entry.name: entry for entry in ledger.policy_book.newest()}
    if foreseen:
        revoked = (decision.stored for decision in foreseen.decisions if decision.revokes)
        book |= {entry.name: entry for entry in foreseen.book or ()}
        book |= {entry.name: replace(entry, revoked=True) for entry in revoked if entry}
    return Fates(list(book.values()), holds_in_force(ledger, environment.settings, as_of), as_of)


def _rules(environment: Environment, ledger: Ledger | None, dataset: str, as_of: datetime) -> RulesInForce:
    """Rules of the next run: the files as they will be in the book, and every hold."""
    settings = environment.settings
    if ledger is None:
        return rules_for(read_policies(settings), [dataset], settings)
    return foreseen_rulebook(ledger, settings, as_of).rules([dataset], as_of)
