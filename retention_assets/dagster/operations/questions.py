"""Jobs that answer questions: what goes next, why something is kept or marked, what happened. None of them changes anything."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from heapq import nlargest

import dagster as dg
from pydantic import Field

from retention_assets.dagster.operations.operation_job import (
    MOST_SHOWN,
    OperationContext,
    metadata_table,
    operation_job,
    typed_instant,
    typed_name,
)
from retention_assets.dagster.step import Metadata
from retention_assets.evaluation.dataset_log import UnsoundLog
from retention_assets.ledger.marks.history import TransactionLife
from retention_assets.people.history import (
    UpcomingRequest,
    explain_dataset,
    explain_transaction,
    open_history,
    show_upcoming,
)
from retention_assets.people.operation import Kind
from retention_assets.policy.durations import text_of
from retention_assets.render.answers import dataset_answer, history_answer, transaction_answer, upcoming_answer
from retention_assets.render.markdown import Answer

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_DATASET = "A dataset, as store/name, such as lake/raw.events. A name that is not there is answered with those that are near."
_AS_OF = "As of this instant, such as 2026-01-01T00:00:00Z; the present when left out."


class UpcomingForm(dg.Config):
    """How far ahead, and which datasets. All of it may be left out."""

    days: int = Field(default=7, description="So many days ahead, such as 7 for a week.")
    datasets: list[str] = Field(default=["*"], description="Globs over store/name, such as ['lake/raw.*']; any one matches.")
    as_of: str = Field(default="", description=_AS_OF)


@operation_job(UpcomingForm, Kind.LOOK)
def upcoming(context: OperationContext, form: UpcomingForm) -> Metadata:
    """What goes next week? Whatever is marked and falls due in some days, by name and size, without what a hold keeps."""
    at = typed_instant(form.as_of)
    request = UpcomingRequest(days=form.days, datasets=tuple(form.datasets), as_of=at, most=MOST_SHOWN)
    found = show_upcoming(request, context.environment)
    columns = {"due": "string", "dataset": "string", "transaction": "string", "bytes": "int", "policy": "string"}
    rows = [
        (text_of(row["due_at"]), row["dataset"], row["transaction"], row["bytes"] or 0, row["policy"]) for row in found.first
    ]
    return context.answer(
        upcoming_answer(found),
        {
            "as_of": text_of(found.as_of),
            "until": text_of(found.until),
            "datasets": len(found.datasets),
            "transactions": found.transactions,
            "bytes": found.bytes or 0,
            "held": sum(found.held.values()),
            "first": metadata_table(columns, rows),
        },
    )


class ExplainForm(dg.Config):
    """What is asked about."""

    dataset: str = Field(default="", description=_DATASET)
    transaction: str = Field(default="", description="An id, such as T1. The dataset in a summary when left out.")
    as_of: str = Field(default="", description=_AS_OF)


@operation_job(ExplainForm, Kind.LOOK)
def explain(context: OperationContext, form: ExplainForm) -> Metadata:
    """Why is it kept or marked? One transaction with each branch and each policy; or a dataset in a summary."""
    dataset, transaction, at = typed_name(form.dataset), form.transaction.strip(), typed_instant(form.as_of)
    try:
        return _explained(context, dataset, transaction, at)
    except UnsoundLog as fault:
        # The refusal explains why nothing of the dataset goes.
        return context.answer(
            Answer(str(fault), ("Until then nothing of it is judged, marked or swept.",)), {"dataset": dataset}
        )


def _explained(context: OperationContext, dataset: str, transaction: str, at: datetime | None) -> Metadata:
    if not transaction:
        summary = explain_dataset(context.environment, dataset, at)
        counts = {name: count for name, (count, _) in summary.states.items()}
        return context.answer(dataset_answer(summary), {"dataset": dataset, "as_of": text_of(summary.as_of), "states": counts})
    found = explain_transaction(context.environment, dataset, transaction, at)
    fields = found.as_dict()
    shown = {name: fields[name] for name in ("dataset", "transaction", "as_of", "verdict", "policy", "message", "mark")}
    return context.answer(transaction_answer(found), {name: value for name, value in shown.items() if value is not None})


class HistoryForm(dg.Config):
    """Whose history is told."""

    dataset: str = Field(default="", description=_DATASET)
    transactions: list[str] = Field(default=[], description="Ids, such as ['T1']: only these. All when left out.")
    as_of: str = Field(default="", description=_AS_OF)


@operation_job(HistoryForm, Kind.LOOK)
def history(context: OperationContext, form: HistoryForm) -> Metadata:
    """What happened? Each transaction of a dataset, or some: marked and due, taken back, spared, deleted, held."""
    dataset, names = typed_name(form.dataset), [one.strip() for one in form.transactions]
    counts: Counter[str] = Counter()
    with open_history(context.environment, dataset, typed_instant(form.as_of)) as opened:
        found = opened.lives
        lives = found.named(names) if names else found.all(opened.visible_from)
        first = nlargest(MOST_SHOWN, _counted(lives, counts), key=_changed_at)
    columns = {"transaction": "string", "bytes": "int", "mark": "string", "message": "string", "what happened": "string"}
    rows = [
        (one.transaction, one.bytes or 0, one.mark.status if one.mark else "", one.said.message if one.said else "", one.words)
        for one in first
    ]
    by_status = dict(sorted(counts.items()))
    return context.answer(
        history_answer(dataset, first, by_status, found.hidden, opened.note),
        {
            "dataset": dataset,
            "as_of": text_of(found.as_of),
            "transactions": counts.total(),
            "hidden": found.hidden,
            "history": metadata_table(columns, rows),
        },
    )


def _counted(lives: Iterable[TransactionLife], counts: Counter[str]) -> Iterator[TransactionLife]:
    for life in lives:
        counts[life.mark.status if life.mark else ""] += 1
        yield life


def _changed_at(life: TransactionLife) -> datetime:
    """Time of the newest event."""
    times = (life.closed_at, life.opened_at) if life.mark is None else (life.mark.changed_at, life.mark.marked_at)
    return next((at for at in times if at), _LONG_AGO)
