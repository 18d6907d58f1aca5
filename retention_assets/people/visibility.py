"""Tells what of a history may be read, and raises the time before which it is not to be read.

evaluation/readable.py decides what readers see.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.evaluation import readable as evaluation
from retention_assets.evaluation.dataset_log import read_dataset
from retention_assets.evaluation.past_views import refuse_hidden, views_at
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.evaluation.visibility import ProposedRaise, VisibilityRules, propose_raises, raise_proposed
from retention_assets.frames.log import Log, is_in_log
from retention_assets.frames.soundness import sound_log
from retention_assets.frames.statistics import newest_closes
from retention_assets.ledger.book import raise_by
from retention_assets.ledger.mark_rows import MARK_ROWS
from retention_assets.people.command import command
from retention_assets.people.operation import (
    AsOf,
    DatasetName,
    Flags,
    Instant,
    Kind,
    LogFile,
    Only,
    RecordedRequest,
    Request,
    Result,
    Span,
    operation,
    what_is_missing,
)
from retention_assets.policy.durations import parse_duration, text_of
from retention_assets.policy.globs import is_literal, matches
from retention_assets.policy.language import rules_reaching
from retention_assets.render.page import Table
from retention_assets.render.tables import ADVANCED, as_of_tables, readable_tables
from retention_assets.stores.logs import read_lines
from retention_assets.stores.protocol import Store, call_store

_NO_RULES = "No entry under `visibility` of the policy files matches a dataset"
_Branch = Annotated[str | None, Flags("-b", "--branch"), Field(description="Only this branch.")]


class AdvanceRequest(RecordedRequest):
    """Datasets whose history is hidden further; by default those that `visibility` in the policy files names."""

    dataset: Annotated[str, Flags()] = Field(
        default="", description="A dataset, such as lake/raw.events; by default all that the policy files name."
    )
    datasets: Annotated[tuple[str, ...], Flags("-d", "--dataset"), Only.COMMAND] = Field(
        default=("*",), description="Only datasets of the policy files that match this glob."
    )
    retention: Span | None = Field(default=None, description="How long the history of the dataset stays readable, such as 30d.")
    log: LogFile = None
    as_of: AsOf = Field(
        default=None,
        description="Count back from this instant, such as 2026-03-01 or 7d (7 days ago); now by default.",
    )


@operation(Kind.ACT, "retention advance", "retention advance lake/raw.orders --retention 30d", progress="reading histories")
def advance_visibility(request: AdvanceRequest, environment: Environment) -> Result:
    """Raise the visibility mark of a dataset: the time before which its history must not be read.

    The mark is raised to as_of less the retention, but never past the newest transaction, so that a fast clock can't hide
    current data. It is never lowered. Without a dataset it raises the marks of all datasets that `visibility` in the policy
    files names, like each evaluation.
    """
    dataset, globs, retention = request.dataset, request.datasets, request.retention
    if retention is not None and not dataset and len(globs) == 1 and is_literal(globs[0]):
        dataset, globs = globs[0], ("*",)
    if not dataset and retention is None and request.log is None:
        return _advance_by_rules(request, environment)
    if not dataset or retention is None or globs != ("*",):
        expected = "DATASET and --retention together, or neither to use `visibility` of the policy files"
        raise BadInput(
            Problem("is missing" if retention is None else "is about one dataset", key="--retention", expected=expected)
        )
    rows = read_dataset(environment, dataset, request.log).transactions
    newest = pc.max(rows.filter(pc.equal(rows["status"].cast(pa.string()), "COMMITTED"))["closed_at"]).as_py()
    if newest is None:
        raise Refused(f"{dataset} has no committed transaction, so there is no view to keep visible.")
    with environment.ledger() as ledger:
        before = ledger.visibility.of(dataset)
        raised = raise_by(retention, request.as_of or now(), newest)
        after = ledger.visibility.raise_to({dataset: raised}, request.actor)[dataset]
    return Result(
        headline=f"The history of {dataset} is readable from {text_of(after)} on.",
        sentences=() if after != before else ("Nothing was changed: a visibility mark is never lowered.",),
        data=_advance(dataset, before, after),
    )


def _advance(dataset: str, before: datetime | None, after: datetime | None) -> dict[str, Any]:
    return {"dataset": dataset, "visible_from": after, "before": before, "raised": after != before}


def _advance_by_rules(request: AdvanceRequest, environment: Environment) -> Result:
    # a new entry waits here as in an evaluation
    refused, away = dict[str, str](), dict[str, str]()
    proposed: list[ProposedRaise] = []
    with environment.ledger() as ledger:
        at = ledger.clock.due_by(request.as_of)
        load_rulebook(ledger, environment.settings, request.actor, request.as_of)
        rules = VisibilityRules.of(ledger, at)
        for name, store in environment.stores().items():
            try:
                for log in _logs(store, rules, request.datasets):
                    proposed += propose_raises(rules, log.datasets, newest_closes(log.transactions))
                    unsound = log.datasets.filter(pc.is_valid(log.datasets["fault"])).to_pylist()
                    refused |= {row["dataset"]: row["fault"] for row in unsound}
            except Refused as fault:
                away[name] = str(fault)
        marks = raise_proposed(ledger, proposed, request.actor)
    rows = [
        {**_advance(row.dataset, *marks[row.dataset]), "waits_until": row.waits_until}
        for row in sorted(proposed, key=lambda row: row.dataset)
    ]
    waiting = sum(row["waits_until"] is not None for row in rows)
    return Result(
        headline=f"The visibility marks of {sum(row['raised'] for row in rows):,} of {len(rows):,} datasets were raised.",
        sentences=(f"{waiting:,} wait because their entry is less than a week old.",) if waiting else (),
        tables=lambda: [Table("Visibility marks", ADVANCED, rows, empty=_NO_RULES)],
        failures=tuple(away.values()),
        refusals=[f"{name} is refused: {why}" for name, why in refused.items()],
        data={"datasets": rows, "refused": refused, "away": away},
    )


def _logs(store: Store, rules: VisibilityRules, globs: Sequence[str]) -> Iterator[Log]:
    names = [name for name in call_store(store, store.datasets) if matches(name, globs)]
    wanted = sorted({name for version in rules.versions for name in rules_reaching(names, version.rule.datasets)})
    for share in call_store(store, lambda: store.shares(wanted)) if wanted else ():
        yield sound_log(call_store(store, partial(read_lines, store, share)))


advance = command(advance_visibility, "advance")


class ReadableRequest(Request):
    """Instant of a dataset's history to read."""

    dataset: DatasetName
    at: Instant | None = Field(default=None, description="The instant to read; now by default.")
    branch: _Branch = None
    lasting: Annotated[Span, Flags("--for")] = Field(default=parse_duration("10m"), description="How long the reader needs.")
    log: LogFile = None
    as_of: AsOf = None


@operation(
    Kind.LOOK,
    "retention readable lake/raw.orders",
    "retention readable lake/raw.orders --at 7d -f json",
    progress="reading {dataset}",
)
def show_readable(request: ReadableRequest, environment: Environment) -> Result:
    """Say whether the state of DATASET at an instant may be read, and until when the answer holds.

    For query engines and catalogs: ask before reading. The answer holds until `until`. If a policy has no grace, ask again
    after reading.
    """
    dataset, branch = request.dataset, request.branch
    readable = evaluation.readable(
        environment, dataset, request.at, branch=branch, lasting=request.lasting, log=request.log, as_of=request.as_of
    )
    if branch is not None and not readable.branches:
        raise _unknown(branch, dataset, read_dataset(environment, dataset, request.log).transactions)
    rows = readable.as_dict()
    reasons = dict.fromkeys(f"Reason: {view.why}" for view in readable.branches if view.why)
    return Result(data=rows, tables=lambda: [*readable_tables(rows), *reasons])


readable = command(show_readable, "readable")


class ViewRequest(Request):
    """Instant at which readers see a dataset."""

    dataset: DatasetName
    at: Annotated[Instant, Flags(metavar="T")] = Field(description="An instant, such as 2026-03-01 or 7d (7 days ago).")
    branch: _Branch = None
    log: LogFile = None


@operation(
    Kind.LOOK,
    "retention as-of lake/raw.orders 7d",
    "retention as-of lake/raw.orders 2026-03-01 -b main",
    progress="reading {dataset}",
)
def show_views(request: ViewRequest, environment: Environment) -> Result:
    """Show what a reader of DATASET sees at the instant T: on each live branch, the view that was current then.

    A view has the transactions of the branch today that were committed by T. Transactions swept since are flagged. Before the
    visibility mark only a current view is shown.
    """
    dataset, at, branch = request.dataset, request.at, request.branch
    rows = read_dataset(environment, dataset, request.log).transactions
    views = views_at(rows, at, branch)
    if branch is not None and not views:
        raise _unknown(branch, dataset, rows)
    with environment.ledger_if_any() as ledger:
        visible_from = ledger.visibility.of(dataset) if ledger else None
        marks = ledger.marks.table([dataset], ["SWEPT"]) if ledger else MARK_ROWS.empty_table()
        notes = what_is_missing(environment, ledger)
    refuse_hidden(dataset, at, visible_from, views)
    names, listed = marks["transaction"].to_pylist(), is_in_log(marks, rows).tolist()
    swept = {name for name, still in zip(names, listed, strict=True) if still}
    gone = len(set(names) - set(rows["transaction"].to_pylist()))
    branches = [
        {
            "branch": view.branch,
            "current": view.current,
            "transactions": [{**asdict(row), "swept": row.transaction in swept} for row in view.rows],
        }
        for view in views
    ]
    unlisted = f"{gone:,} swept transactions of {dataset} are not in its log any more. Some may have been part of a view."
    return Result(
        tables=lambda: as_of_tables(dataset, at, branches),
        notes=notes,
        closing=lambda: [unlisted] if gone else [],
        data={"dataset": dataset, "at": at, "visible_from": visible_from, "swept_and_unlisted": gone, "branches": branches},
    )


as_of = command(show_views, "as-of")


def _unknown(branch: str, dataset: str, rows: pa.Table) -> BadInput:
    remedy = suggest(branch, pc.unique(pc.list_flatten(rows["heads"])).to_pylist())
    return BadInput(Problem(f"branch '{branch}' is not a live branch of {dataset}", remedy=remedy))
