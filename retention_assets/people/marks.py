"""Lists marks, takes them back while there is time, and keeps transactions for good.

Keeping takes marks back and places a hold in one transaction, so that no policy marks or sweeps these transactions again.
"""

import shlex
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, InvalidValue, Problem
from retention_assets.evaluation.dataset_log import UnsoundLog, no_dataset, read_if_any
from retention_assets.evaluation.transaction_lives import TransactionLives
from retention_assets.frames.log import Log
from retention_assets.ledger import Ledger
from retention_assets.ledger.marks.unmarking import KeptMarks, UnmarkResult
from retention_assets.people.command import ask, command, options, show
from retention_assets.people.common.options import AS_OF, DATASETS, FORMAT, examples
from retention_assets.people.common.output import ExitCode, print_rows, print_tables
from retention_assets.people.common.sources import find_environment, instant, ledger_to_read
from retention_assets.people.history import fates_of
from retention_assets.people.holds import HoldRequest
from retention_assets.people.operation import Flags, Instant, Kind, Only, ReasonedRequest, Result, Text, operation
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import text_of
from retention_assets.policy.globs import is_literal, matching
from retention_assets.policy.model import Hold
from retention_assets.policy.sentences import count
from retention_assets.render.ledger_tables import mark_tables
from retention_assets.stores.protocol import StoreFailed

STATUSES = ("MARKED", "UNMARKED", "SPARED", "SWEEPING", "SWEPT")
_SHOWN = (
    "dataset", "transaction", "policy", "policy_version", "reason", "marked_at", "due_at", "status", "bytes", "attempts",
    "last_error", "opened_at", "closed_at",
)  # fmt: skip


def _transactions(ids: tuple[str, ...]) -> tuple[str, ...]:
    if not all(ids := tuple(each.strip() for each in ids)):
        raise InvalidValue("is empty", "the ids of transactions")
    return ids


class KeepRequest(ReasonedRequest):
    """Transactions of a dataset, or all of it, to be kept."""

    dataset: Annotated[Text, Flags()] = Field(description="A dataset, as store/name, such as lake/raw.events.")
    transactions: Annotated[tuple[str, ...], AfterValidator(_transactions), Flags()] = Field(
        default=(), description="Ids, such as ['T1', 'T2']: just these of the dataset. All of it when left out."
    )
    until: Instant | None = Field(
        default=None, description="When the hold ends by itself, such as 2027-01-01 or 'in 90d'; never when left out."
    )
    name: Text | None = Field(default=None, description="The name of the hold; one is made up when left out.")
    at: Annotated[datetime, Only.PROGRAM] = Field(default_factory=now)

    def hold(self) -> Hold:
        """Hold on just these transactions."""
        return HoldRequest(
            actor=self.actor,
            reason=self.reason,
            name=self.name or self._name(),
            datasets=(escape_glob(self.dataset),),
            transactions=tuple(escape_glob(each) for each in self.transactions),
            until=self.until,
            at=self.at,
        ).hold()

    def _name(self) -> str:
        more = len(self.transactions) - 1
        words = "-".join(["keep", self.dataset, *self.transactions[:1], *([f"and-{more}-more"] if more > 0 else [])])
        return "".join(sign if sign.isprintable() else "?" for sign in words)[:200].strip()


class KeepResult(Result):
    """Kept transactions. Without any it is the whole dataset, of which `known` are in the log, if it could be read."""

    dataset: str
    transactions: tuple[str, ...]
    known: int | None
    until: datetime | None
    kept: KeptMarks
    warnings: tuple[str, ...] = ()

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

    def sentences(self) -> Sequence[str]:
        kept = self.kept
        were = "was" if kept.unmarked == 1 else "were"
        taken = f"{count(kept.unmarked, 'mark')} {were} taken back." if kept.unmarked else "None of it was marked."
        placed = "was placed" if kept.placed else "was in force already"
        lines = [taken, f"The hold {kept.hold} {placed}: no policy marks or sweeps what it holds."]
        if kept.sweeping or kept.swept:
            lines.append(f"Too late for {kept.sweeping:,} that are being swept and {kept.swept:,} that were swept.")
        return (*lines, f"To end it: `{self._release}`, or the job `release`. From then on policies alone decide.")

    @property
    def _release(self) -> str:
        return f"retention release {shlex.quote(self.kept.hold)} --reason …"

    def remarks(self) -> Sequence[str]:
        return self.warnings

    def as_dict(self) -> dict[str, Any]:
        about = {"dataset": self.dataset, "transactions": list(self.transactions), "known": self.known, "until": self.until}
        return {**about, **vars(self.kept), "release": self._release, "warnings": list(self.warnings)}


@operation(
    Kind.ACT,
    "retention keep lake/raw.orders T17 -r 'the audit of 2026 needs it'",
    "retention keep lake/raw.orders -r 'a dispute' --until 'in 90d'",
)
def keep(request: KeepRequest, environment: Environment) -> KeepResult:
    """Keep transactions for good, or a dataset: their marks are taken back, and a hold keeps them from being marked again.

    Both at once. Refused, and nothing is changed, where one of the transactions is being swept or was swept. Once more is no
    harm: what is kept already stays as it is.
    """
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
    return KeepResult(
        dataset=request.dataset,
        transactions=names,
        known=len(log.transactions) if log else None,
        until=request.until,
        kept=kept,
        warnings=tuple(warnings),
    )


def _again(request: KeepRequest, environment: Environment, log: Log | None, ledger: Ledger | None) -> Collection[str]:
    """Transactions that the log has anew, under the id of something swept. Raises BadInput for one that is nowhere."""
    if log is None and not (ledger and len(ledger.histories.transactions(request.dataset))):
        raise no_dataset(environment, request.dataset)
    lives = TransactionLives(request.dataset, log, ledger, (), request.at).named(request.transactions)
    return {life.transaction for life in lives if life.mark is None and life.earlier}


class UnmarkRequest(ReasonedRequest):
    """Marks of some transactions of a dataset (all of them or none), or all of a dataset, of a policy, or of both."""

    dataset: Annotated[str | None, Flags("-d", "--dataset", metavar="NAME")] = Field(
        default=None, description="Take back every mark of this dataset, such as lake/raw.events."
    )
    transactions: Annotated[tuple[str, ...], Only.FORM] = Field(
        default=(), description="Ids, such as ['T1', 'T2']: only these of the dataset, all of them or none."
    )
    policy: Annotated[str | None, Flags("-p", "--policy", metavar="NAME")] = Field(
        default=None, description="Take back every mark of this policy; with a dataset, only its marks there."
    )


class Unmarked(Result):
    """Marks taken back, and those for which it was too late."""

    result: UnmarkResult

    @property
    def headline(self) -> str:
        return f"{count(self.result.unmarked, 'mark')} taken back."

    def sentences(self) -> Sequence[str]:
        sweeping, swept = self.result.sweeping, self.result.swept
        if not (sweeping or swept):
            return ()
        return (f"Too late for {sweeping:,} that are being swept and {swept:,} that were swept.",)

    @property
    def next(self) -> str:
        return self.result.note[:1].lower() + self.result.note[1:]

    def as_dict(self) -> dict[str, Any]:
        return self.result.as_dict()


@operation(
    Kind.ACT,
    "retention unmark lake/raw.orders T1 T2 -r 'the audit needs them'",
    "retention unmark -d lake/raw.orders -p raw-30-days -r 'the policy was wrong'",
)
def unmark(request: UnmarkRequest, environment: Environment) -> Unmarked:
    """Take marks back: of transactions of a dataset (all of them or none), or all of a dataset, of a policy, or of both.

    What is being swept or was swept can't be taken back. What a policy still selects is marked again; `keep` keeps it for good.
    """
    if request.transactions and (request.policy or not request.dataset):
        expected = "a dataset and no policy beside them"
        raise BadInput(Problem("are named by their dataset", key="transactions", expected=expected))
    with environment.existing_ledger() as ledger:
        if request.dataset and request.transactions:
            result = ledger.unmark.transactions(request.dataset, request.transactions, request.actor, request.reason)
        else:
            result = ledger.unmark.all_of(request.actor, request.reason, request.dataset, request.policy)
    return Unmarked(result=result)


keep_command = command(keep, "keep")


@examples(*unmark.examples)
@click.command("unmark", help=unmark.help)
@click.argument("names", nargs=-1, metavar="[DATASET TRANSACTION...]")
@options(unmark)
@FORMAT
def unmark_command(names: tuple[str, ...], dataset: str | None, format_: str, **given: Any) -> ExitCode:
    if bool(names) == bool(dataset or given["policy"]):
        raise click.UsageError("Say which marks: DATASET TRANSACTION..., or --dataset NAME, --policy NAME or both.")
    if len(names) == 1:
        raise click.UsageError(f"Name transactions of {names[0]}, or take all its marks back by --dataset {names[0]}.")
    return show(ask(unmark, dataset=names[0] if names else dataset, transactions=names[1:], **given), format_)


@examples("retention marks", "retention marks --due", "retention marks -d 'lake/raw.*' -s SWEPT -f json")
@click.command()
@DATASETS
@click.option("-p", "--policy", metavar="NAME", help="Only marks of this policy.")
@click.option(
    "-s", "--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Only marks of this status; may be repeated."
)
@click.option("--due", is_flag=True, help="Only marks whose grace is over: the next sweep takes them up.")
@AS_OF
@FORMAT
@click.option("-n", "--most", type=click.IntRange(min=0), default=20, show_default=True, help="How many marks the table lists.")
def marks(
    globs: tuple[str, ...],
    policy: str | None,
    statuses: tuple[str, ...],
    due: bool,
    as_of: datetime | None,
    format_: str,
    most: int,
) -> None:
    """List marks: what is going to be deleted, since when, by which policy, when it is due, and what became of it."""
    if due and statuses not in ((), ("MARKED",)):
        raise click.UsageError("Only MARKED marks are due: give --due without another --status.")
    if as_of and not due:
        raise click.UsageError("--as-of says when marks are due: it goes with --due.")
    due_by = instant(as_of) if due else None
    environment = find_environment()
    with ledger_to_read(environment) as ledger:
        tables = _chosen(ledger, globs, policy, ("MARKED",) if due else statuses, due_by) if ledger else iter(())
        rows = _with_fates(environment, ledger, tables, due_by) if ledger else iter(())
        if format_ == "json":
            print_rows({name: value for name, value in row.items() if name not in ("held_by", "spared")} for row in rows)
            return
        sums, first = dict[str, tuple[int, int]](), list[dict[str, Any]]()
        for row in rows:
            state = "MARKED, held" if row["held_by"] is not None and row["status"] == "MARKED" else row["status"]
            count, size = sums.get(state, (0, 0))
            sums[state] = (count + 1, size + (row["bytes"] or 0))
            first += [row] if len(first) < most else []
    print_tables(mark_tables(sums, first, None if environment.settings.clock.simulated else instant(None)))


def _with_fates(
    environment: Environment, ledger: Ledger, tables: Iterator[pa.Table], due_by: datetime | None
) -> Iterator[dict[str, Any]]:
    """Give marks as they are printed, each with what becomes of it; of those that are due only what goes."""
    at = due_by or instant(None)
    fates = fates_of(environment, ledger, at)
    for rows in (table.to_pylist() for table in tables):
        swept = [row["id"] for row in rows if row["status"] == "SWEPT"]
        hidden = ledger.histories.hidden(swept) if swept else ()
        for row in rows:
            fate = fates.of(row, row.pop("id") in hidden)
            if due_by is None or (fate.goes and fate.at <= due_by):
                yield {**row, "due_at": fate.at, "message": fate.message, "held_by": fate.hold, "spared": fate.spared}


def _chosen(
    ledger: Ledger, globs: Sequence[str], policy: str | None, statuses: Sequence[str], due_by: datetime | None
) -> Iterator[pa.Table]:
    """Marks that fit, a batch at a time."""
    exact = bool(globs) and all(is_literal(glob) for glob in globs)
    for batch in ledger.marks.read(globs if exact else None, statuses or None, due_by):
        table = pa.Table.from_batches([batch]).select(("id", *_SHOWN))
        if globs and not exact:
            names = table["dataset"].combine_chunks().dictionary_encode()
            fits = pa.array(matching(names.dictionary.to_pylist(), globs), pa.bool_())
            table = table.filter(fits.take(names.indices))
        yield table.filter(pc.equal(table["policy"], policy)) if policy else table
