"""Lists marks, takes them back while there is time, and keeps transactions for good.

Keeping takes marks back and places a hold in one transaction, so that no policy marks or sweeps these transactions again.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import Annotated, Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, InvalidValue, Problem
from retention_assets.evaluation.dataset_log import UnsoundLog, read_if_any, refuse_unknown
from retention_assets.evaluation.lives import TransactionLives
from retention_assets.ledger import Ledger
from retention_assets.ledger.histories import UNDELETED
from retention_assets.people.command import FORMAT, ask_and_show, command, examples, options
from retention_assets.people.history import fates_of
from retention_assets.people.holds import HoldRequest, with_wildcards
from retention_assets.people.operation import (
    AsOf,
    DatasetGlobs,
    Flags,
    Instant,
    Kind,
    Only,
    ReasonedRequest,
    Request,
    Result,
    Text,
    operation,
    what_is_missing,
)
from retention_assets.people.output import ExitCode
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import text_of
from retention_assets.policy.globs import is_literal, matching
from retention_assets.policy.model import Hold
from retention_assets.policy.sentences import count
from retention_assets.render.page import Table
from retention_assets.render.tables import mark_tables
from retention_assets.render.text import json_rows
from retention_assets.stores.protocol import StoreFailed

_SHOWN = (
    "dataset", "transaction", "policy", "policy_version", "reason", "marked_at", "due_at", "status", "bytes", "attempts",
    "last_error", "opened_at", "closed_at",
)  # fmt: skip


def stripped_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    if not all(ids := tuple(transaction.strip() for transaction in ids)):
        raise InvalidValue("is empty", "the ids of transactions")
    return ids


class KeepRequest(ReasonedRequest):
    """Transactions of a dataset, or all of it, to be kept."""

    dataset: Annotated[Text, Flags()] = Field(description="A dataset, as store/name, such as lake/raw.events.")
    transactions: Annotated[tuple[str, ...], AfterValidator(stripped_ids), Flags()] = Field(
        default=(), description="Ids, such as ['T1', 'T2']: only these transactions. By default the whole dataset."
    )
    until: Instant | None = Field(
        default=None, description="When the hold ends by itself, such as 2027-01-01 or 'in 90d'; by default never."
    )
    name: Text | None = Field(default=None, description="The name of the hold; by default a new one.")

    def hold(self, verb: str = "keep") -> Hold:
        more = len(self.transactions) - 1
        name = "-".join([verb, self.dataset, *self.transactions[:1], *([f"and-{more}-more"] if more > 0 else [])])
        return HoldRequest(
            actor=self.actor,
            reason=self.reason,
            name=self.name or with_wildcards(name)[:200].strip(),
            datasets=(escape_glob(self.dataset),),
            transactions=tuple(escape_glob(each) for each in self.transactions),
            until=self.until,
        ).hold()


@operation(
    Kind.ACT,
    "retention keep lake/raw.orders T17 -r 'the audit of 2026 needs it'",
    "retention keep lake/raw.orders -r 'a dispute' --until 'in 90d'",
)
def keep(request: KeepRequest, environment: Environment) -> Result:
    """Keep transactions, or a whole dataset: take their marks back and place a hold.

    It changes everything or nothing: it refuses if one of the transactions is being swept or was swept. Repeating it is
    harmless.
    """
    warnings, log, again = list[str](), None, set[str]()
    try:
        log = read_if_any(environment, request.dataset)
    except (StoreFailed, UnsoundLog) as fault:
        # Keep them all the same: a hold can be released, and what is deleted can't be brought back.
        warnings.append(f"The names are not checked, because the log can't be read. {fault}")
    with environment.ledger_if_any() as existing:
        if not warnings:
            refuse_unknown(environment, request.dataset, log, existing)
            lives = TransactionLives(request.dataset, log, existing, (), now()).named(request.transactions)
            again = {life.transaction for life in lives if life.mark is None and life.earlier}
    hold = request.hold()
    with environment.ledger() as ledger:
        if request.transactions:
            kept = ledger.keep.transactions(
                request.dataset, request.transactions, hold, request.actor, named=bool(request.name), again=again
            )
        else:
            kept = ledger.keep.dataset(request.dataset, hold, request.actor, named=bool(request.name))
    names, known_rows = list(dict.fromkeys(request.transactions)), len(log.transactions) if log else None
    release = f"retention release {shlex.quote(kept.hold)} --reason …"
    placed = "was placed" if kept.placed else "was in force already"
    return Result(
        headline=_kept_sentence(request, names, known_rows),
        sentences=(
            f"{count(kept.unmarked, 'mark was', 'marks were')} taken back." if kept.unmarked else "None of it was marked.",
            f"The hold {kept.hold} {placed}: no policy marks or sweeps what it holds.",
            *_too_late(kept.sweeping, kept.swept),
            f"To end it: `{release}`, or the job `act_release`. After that, the policies decide.",
        ),
        notes=warnings,
        data={
            "dataset": request.dataset,
            "transactions": names,
            "known": known_rows,
            "until": request.until,
            **vars(kept),
            "release": release,
            "warnings": warnings,
        },
    )


def _kept_sentence(request: KeepRequest, names: Sequence[str], known_rows: int | None) -> str:
    subject = f"Everything of {request.dataset}"
    if names:
        subject = f"{count(len(names), 'transaction')} of {request.dataset}"
    elif known_rows is not None:
        subject += f", {count(known_rows, 'transaction')},"
    until = f"until {text_of(request.until)}" if request.until else "until the hold is released"
    return f"{subject} {'are' if len(names) > 1 else 'is'} kept {until}."


def _too_late(sweeping: int, swept: int) -> Sequence[str]:
    return [f"Too late for {sweeping:,} being swept and {swept:,} swept."] if sweeping or swept else []


class UnmarkRequest(ReasonedRequest):
    """Marks of named transactions (all of them or none), of a dataset, of a policy, or of both."""

    dataset: Annotated[str | None, Flags("-d", "--dataset", metavar="NAME")] = Field(
        default=None, description="Take back every mark of this dataset, such as lake/raw.events."
    )
    transactions: Annotated[tuple[str, ...], Only.FORM] = Field(
        default=(), description="Ids, such as ['T1', 'T2']: only these of the dataset, all of them or none."
    )
    policy: Annotated[str | None, Flags("-p", "--policy", metavar="NAME")] = Field(
        default=None, description="Take back every mark of this policy; with a dataset, only its marks there."
    )


@operation(
    Kind.ACT,
    "retention unmark lake/raw.orders T1 T2 -r 'the audit needs them'",
    "retention unmark -d lake/raw.orders -p raw-30-days -r 'the policy was wrong'",
)
def unmark(request: UnmarkRequest, environment: Environment) -> Result:
    """Take marks back: of named transactions (all of them or none), of a dataset, of a policy, or of both.

    A mark that a sweep has begun can't be taken back. If a policy still selects the transaction, it is marked again: use `keep`
    instead.
    """
    if request.transactions and (request.policy or not request.dataset):
        expected = "a dataset and no policy beside them"
        raise BadInput(Problem("are named by their dataset", key="transactions", expected=expected))
    with environment.existing_ledger() as ledger:
        if request.dataset and request.transactions:
            result = ledger.unmark.transactions(request.dataset, request.transactions, request.actor, request.reason)
        else:
            result = ledger.unmark.all_of(request.actor, request.reason, request.dataset, request.policy)
    return Result(
        headline=f"{count(result.unmarked, 'mark')} taken back.",
        sentences=_too_late(result.sweeping, result.swept),
        next=result.note[:1].lower() + result.note[1:],
        data=result.as_dict(),
    )


keep_command = command(keep, "keep")


@examples(*unmark.examples)
@click.command("unmark", help=unmark.help)
@click.argument("names", nargs=-1, metavar="[DATASET TRANSACTION...]")
@options(UnmarkRequest)
@FORMAT
def unmark_command(names: tuple[str, ...], dataset: str | None, format_: str, **given: Any) -> ExitCode:
    if bool(names) == bool(dataset or given["policy"]):
        raise click.UsageError("Say which marks: DATASET TRANSACTION..., or --dataset NAME, --policy NAME or both.")
    if len(names) == 1:
        raise click.UsageError(f"Name transactions of {names[0]}, or take all its marks back by --dataset {names[0]}.")
    return ask_and_show(unmark, format_, dataset=names[0] if names else dataset, transactions=names[1:], **given)


class MarkStatus(Enum):
    MARKED = "MARKED"
    UNMARKED = "UNMARKED"
    SPARED = "SPARED"
    SWEEPING = "SWEEPING"
    SWEPT = "SWEPT"
    RESTORED = "RESTORED"


class MarksRequest(Request):
    """Marks to list."""

    datasets: DatasetGlobs = ()
    policy: Annotated[str | None, Flags("-p", "--policy", metavar="NAME")] = Field(
        default=None, description="Only marks of this policy."
    )
    status: Annotated[tuple[MarkStatus, ...], Flags("-s", "--status")] = Field(
        default=(), description="Only marks of this status; may be repeated."
    )
    due: bool = Field(default=False, description="Only marks whose grace is over, which the next sweep takes up.")
    as_of: AsOf = None
    most: Annotated[int, Flags("-n", "--most")] = Field(default=20, ge=0, description="How many marks the table lists.")


@operation(
    Kind.LOOK, "retention marks", "retention marks --due", "retention marks -d 'lake/raw.*' -s SWEPT -f json", name="marks"
)
@contextmanager
def list_marks(request: MarksRequest, environment: Environment) -> Iterator[Result]:
    """List marks with policy, due date and outcome."""
    statuses = [status.value for status in request.status]
    if request.due and statuses not in ([], ["MARKED"]):
        raise BadInput(Problem("Only MARKED marks are due: give --due without another --status"))
    if request.as_of and not request.due:
        raise BadInput(Problem("--as-of says when marks are due: it goes with --due"))
    due_by = (request.as_of or now()) if request.due else None
    with environment.ledger_if_any() as ledger:
        rows: Iterator[dict[str, Any]] = iter(())
        if ledger:
            tables = _read_marks(ledger, request.datasets, request.policy, ["MARKED"] if request.due else statuses, due_by)
            rows = _with_fates(environment, ledger, tables, due_by)
        at = None if environment.settings.clock.simulated else now()
        yield Result(
            tables=lambda: _tables(rows, request.most, at),
            pieces=lambda: json_rows(
                {name: value for name, value in row.items() if name not in ("held_by", "spared")} for row in rows
            ),
            notes=what_is_missing(environment, ledger),
        )


marks = command(list_marks, "marks")


def _tables(rows: Iterable[dict[str, Any]], most: int, at: datetime | None) -> Iterable[Table]:
    sums, first = dict[str, tuple[int, int]](), list[dict[str, Any]]()
    for row in rows:
        state = "MARKED, held" if row["held_by"] is not None and row["status"] == "MARKED" else row["status"]
        if row["until"]:
            state = row["status"] = "SWEPT, set aside"
        number, size = sums.get(state, (0, 0))
        sums[state] = (number + 1, size + (row["bytes"] or 0))
        first += [row] if len(first) < most else []
    return mark_tables(sums, first, at)


def _with_fates(
    environment: Environment, ledger: Ledger, tables: Iterator[pa.Table], due_by: datetime | None
) -> Iterator[dict[str, Any]]:
    at = due_by or now()
    fates = fates_of(environment, ledger, at)
    for rows in (table.to_pylist() for table in tables):
        for row in rows:
            outcome, until = row.pop("outcome"), row.pop("until")
            fate = fates.of(row, outcome, until) if outcome in UNDELETED else fates.of(row)
            if due_by is None or (fate.goes and fate.at <= due_by):
                facts = {"due_at": fate.at, "until": fate.until, "message": fate.message}
                yield {**row, **facts, "held_by": fate.hold, "spared": fate.spared}


def _read_marks(
    ledger: Ledger, globs: Sequence[str], policy: str | None, statuses: Sequence[str], due_by: datetime | None
) -> Iterator[pa.Table]:
    exact = bool(globs) and all(is_literal(glob) for glob in globs)
    columns = (*_SHOWN, "outcome", "until")
    for batch in ledger.marks.read(globs if exact else None, statuses or None, due_by, columns=columns):
        table = pa.Table.from_batches([batch])
        if globs and not exact:
            names = table["dataset"].combine_chunks().dictionary_encode()
            is_chosen = pa.array(matching(names.dictionary.to_pylist(), globs), pa.bool_())
            table = table.filter(is_chosen.take(names.indices))
        yield table.filter(pc.equal(table["policy"], policy)) if policy else table
