"""Answers from the record and the logs: what happened, why something is kept or marked, what goes next. Creates no ledger."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.dataset_log import (
    UnsoundLog,
    find_data,
    is_asked_alone,
    needs_of,
    read_dataset,
    read_if_any,
    refuse_unknown,
)
from retention_assets.evaluation.explain import DatasetSummary, ExplainedTransaction, explain_with_ledger, summarize_dataset
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.keepers import Keepers, files_of, read_policies
from retention_assets.evaluation.lives import TransactionLives
from retention_assets.evaluation.rules_in_force import RulesInForce, foreseen_rulebook, rules_for
from retention_assets.frames.log import Log, keepers_about
from retention_assets.ledger import Ledger
from retention_assets.ledger.histories import TransactionLife
from retention_assets.people.command import command
from retention_assets.people.operation import (
    AsOf,
    DatasetName,
    Flags,
    Kind,
    LogFile,
    Only,
    PolicyFiles,
    Request,
    Result,
    operation,
    what_is_missing,
)
from retention_assets.people.policy_files import policies_of, rules_of
from retention_assets.policy.durations import text_of
from retention_assets.policy.globs import matches
from retention_assets.policy.model import Hold
from retention_assets.render.markdown import Answer, plain
from retention_assets.render.page import MOST_SHOWN, Table
from retention_assets.render.summaries import dataset_answer, history_answer, transaction_answer
from retention_assets.render.tables import HISTORY, explained_transaction
from retention_assets.render.text import json_rows
from retention_assets.stores.protocol import Only as OnlySome

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


# --- why it is kept or marked ---


class ExplainRequest(Request):
    """Transaction to explain; without one its dataset, in a summary."""

    dataset: DatasetName
    transaction: Annotated[str, Flags(required=True)] = Field(
        default="", description="An id, such as T1. Without it, a summary of the dataset."
    )
    log: LogFile = None
    policies: PolicyFiles = ()
    as_of: AsOf = None


@operation(
    Kind.LOOK,
    "retention explain lake/raw.orders T1",
    "retention explain lake/raw.orders T1 -t 'in 30d'",
    progress="reading {dataset}",
    name="explain",
)
def make_explanation(request: ExplainRequest, environment: Environment) -> Result:
    """Explain the verdict of one TRANSACTION of DATASET, line by line, and say whether it is scheduled for deletion.

    The rules are those of the next run, holds included; with --policies, those files alone.
    """
    dataset, transaction = request.dataset, request.transaction.strip()
    if request.policies:
        log = read_dataset(environment, dataset, request.log)
        rules, notes = rules_of(policies_of(request.policies, environment.settings), log, environment.settings)
        explained = explain_with_ledger(log, rules, None, dataset, transaction, request.as_of or now())
        return replace(_explained(explained), notes=notes)
    try:
        if transaction:
            return _explained(explain_transaction(environment, dataset, transaction, request.as_of, request.log))
        summary = explain_dataset(environment, dataset, request.as_of)
        states = {name: number for name, (number, _) in summary.states.items()}
        numbers = {"dataset": dataset, "as_of": summary.as_of, "states": states}
        return Result(page=lambda: (dataset_answer(summary), numbers))
    except UnsoundLog as fault:
        # The refusal explains why nothing of the dataset goes.
        answer = Answer(str(fault), ("Until then, no run judges, marks or sweeps it.",))
        return Result(failures=(str(fault),), pieces=tuple, page=lambda: (answer, {"dataset": dataset}))


def _explained(explained: ExplainedTransaction) -> Result:
    fields = explained.as_dict()
    shown = ("dataset", "transaction", "as_of", "verdict", "policy", "message", "mark")
    return Result(
        tables=lambda: [explained_transaction(explained)],
        data=fields,
        page=lambda: (transaction_answer(explained), {name: fields[name] for name in shown}),
    )


explain = command(make_explanation, "explain")


def explain_transaction(
    environment: Environment, dataset: str, transaction: str, as_of: datetime | None = None, log: Path | None = None
) -> ExplainedTransaction:
    alone = log is None and is_asked_alone(environment, dataset)
    with _opened(environment, dataset, as_of, log, transaction if alone else None) as (lines, ledger, at):
        rules = _rules(environment, ledger, dataset, at)
        if alone:
            rules = replace(rules, policies=tuple(one.model_copy(update={"limits": None}) for one in rules.policies))
        fates = fates_of(environment, ledger, at) if ledger else None
        find = find_data(environment, dataset) if log is None else None
        explained = explain_with_ledger(lines, rules, ledger, dataset, transaction, at, fates, find)
        if log is not None or lines is None or explained.explanation is None:
            return explained
        needs = needs_of(environment, lines, ledger, dataset, transaction, at)
        return replace(explained, explanation=replace(explained.explanation, needs=needs))


def explain_dataset(environment: Environment, dataset: str, as_of: datetime | None = None) -> DatasetSummary:
    with _opened(environment, dataset, as_of) as (lines, ledger, at):
        fates = fates_of(environment, ledger, at) if ledger else Fates((), (), at)
        return summarize_dataset(dataset, lines, _rules(environment, ledger, dataset, at), ledger, fates, at)


# --- what happened ---


class HistoryRequest(Request):
    """Dataset, and some of its transactions if not all."""

    dataset: DatasetName
    transactions: Annotated[tuple[str, ...], Flags()] = Field(
        default=(), description="Ids, such as ['T1']: only these. By default all."
    )
    log: LogFile = None
    as_of: AsOf = None
    everything: Annotated[bool, Flags("--all"), Only.COMMAND] = Field(
        default=False, description="Also list transactions older than the visibility mark."
    )
    most: Annotated[int, Flags("-n", "--most"), Only.COMMAND] = Field(
        default=50, ge=0, description="How many transactions the table lists."
    )


@operation(
    Kind.LOOK,
    "retention history lake/raw.orders",
    "retention history lake/raw.orders T1 -f json",
    progress="reading {dataset}",
    name="history",
)
@contextmanager
def open_history(request: HistoryRequest, environment: Environment) -> Iterator[Result]:
    """Show the life of each transaction of DATASET: marked, due, held, taken back, spared, swept.

    If the log is away it shows what the ledger knows. With a visibility mark it leaves out transactions that no reader can see
    any more; --all lists them.
    """
    dataset, names = request.dataset, tuple(name.strip() for name in request.transactions)
    failures: list[str] = []
    with environment.ledger_if_any() as ledger:
        at = request.as_of or last_seen(environment, ledger)
        try:
            log = read_dataset(environment, dataset, request.log) if request.log else read_if_any(environment, dataset)
        except UnsoundLog:
            raise
        except Refused as fault:
            log, failures = None, [f"{fault} This is what the ledger knows."]
        notes = what_is_missing(environment, ledger, policies=True)
        if log is None and not failures:
            refuse_unknown(environment, dataset, None, ledger)
            notes += (f"no store of the settings has a log of {dataset}: this is what the ledger knows",)
        visible_from = ledger.visibility.of(dataset) if ledger else None
        keepers = Keepers.of_settings(ledger, environment.settings).in_force(at)
        holds = keepers_about(keepers, dataset, log.attributes if log else {}, at).holds
        notes += tuple(
            f"the hold {hold.name} selects by attributes of datasets, which only a log has: name one with --log"
            for hold in (keepers if log is None else ())
            if isinstance(hold, Hold) and hold.datasets.with_
        )
        fates = fates_of(environment, ledger, at) if ledger else None
        find = find_data(environment, dataset) if request.log is None else None
        source = TransactionLives(dataset, log, ledger, holds, at, fates, find)
        lives = source.named(names) if names else source.all(None if request.everything else visible_from)
        from_ = text_of(visible_from) if visible_from else ""
        hidden = f"more are hidden, because readers see only views from {from_} on; --all lists them."
        head = {"dataset": dataset, "as_of": at, "visible_from": visible_from}
        yield Result(
            tables=lambda: _tables(dataset, lives, request.most),
            pieces=lambda: json_rows((life.as_dict() for life in lives), head, "transactions"),
            notes=notes,
            closing=lambda: [f"{source.hidden:,} {hidden}"] if source.hidden and from_ else [],
            failures=failures,
            page=lambda: _history_page(source, lives, (*notes, *failures)),
        )


history = command(open_history, "history")


def _tables(dataset: str, lives: Iterator[TransactionLife], most: int) -> list[Table]:
    first = [life.as_dict() for life in islice(lives, most)]
    total = len(first) + sum(1 for _ in lives)
    return [Table(f"{dataset}: {len(first):,} of {total:,} transactions", HISTORY, first)]


def _history_page(
    source: TransactionLives, lives: Iterable[TransactionLife], warnings: Sequence[str]
) -> tuple[Answer, Mapping[str, Any]]:
    counts = Counter[str]()

    def counted() -> Iterator[TransactionLife]:
        for life in lives:
            mark = life.mark
            counts[mark.state if mark else ""] += 1
            yield life

    newest = [life.as_dict() for life in nlargest(MOST_SHOWN, counted(), key=_changed_at)]
    table = Table(source.dataset, HISTORY, newest)
    answer = history_answer(table, dict(sorted(counts.items())), source.hidden)
    numbers = {
        "dataset": source.dataset,
        "as_of": source.as_of,
        "transactions": counts.total(),
        "hidden": source.hidden,
        "history": table,
    }
    return Answer(answer.headline, (*map(plain, warnings), *answer.paragraphs)), numbers


def _changed_at(life: TransactionLife) -> datetime:
    times = (life.closed_at, life.opened_at) if life.mark is None else (life.mark.changed_at, life.mark.marked_at)
    return next((at for at in times if at), _LONG_AGO)


@contextmanager
def _opened(
    environment: Environment, dataset: str, as_of: datetime | None, path: Path | None = None, only: str | None = None
) -> Iterator[tuple[Log | None, Ledger | None, datetime]]:
    with environment.ledger_if_any() as ledger:
        at = as_of or last_seen(environment, ledger)
        if path:
            log: Log | None = read_dataset(environment, dataset, path)
        elif only is None:
            log = read_if_any(environment, dataset)
        else:
            rules = _rules(environment, ledger, dataset, at)
            counting = (rule for rule in (*rules.policies, *rules.holds) if rule.looks_along_lines)
            counts = matches(dataset, [glob for rule in counting for glob in rule.datasets.include])
            holds = Keepers.of_settings(ledger, environment.settings).in_force(at)
            asked = OnlySome({dataset: [only]}, ledger.realms.purging() if ledger else (), holds)
            log = read_if_any(environment, dataset, asked, whole_lines=counts)
        refuse_unknown(environment, dataset, log, ledger)
        yield log, ledger, at


def last_seen(environment: Environment, ledger: Ledger | None) -> datetime:
    """Present, or where the clock is simulated the newest instant that was lived through."""
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
    return Fates(list(book.values()), Keepers.of_settings(ledger, environment.settings).in_force(as_of), as_of)


def _rules(environment: Environment, ledger: Ledger | None, dataset: str, as_of: datetime) -> RulesInForce:
    settings = environment.settings
    if ledger is None:
        return rules_for(read_policies(settings), [dataset], settings)
    return foreseen_rulebook(ledger, settings, as_of).rules([dataset], as_of)
