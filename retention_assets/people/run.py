"""`retention run`: the job `delete_cycle` without a UI. At a terminal a person first sees what it would delete."""

import sys
from contextlib import ExitStack
from enum import Enum
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import click
from pydantic import Field

from retention_assets.evaluation.keepers import read_policies
from retention_assets.ledger.clock_guard import refuse_before
from retention_assets.people.command import FORMAT, examples, find_environment, given_fields, options, show
from retention_assets.people.operation import AcceptLarge, AsOf, DatasetGlobs, Flags, JobResult, RecordedRequest, Result, Strict
from retention_assets.people.output import ExitCode, confirm, is_on_terminal, print_parts, progress, say
from retention_assets.people.plan import PlanRequest, RetentionPlan, make_plan, show_plan
from retention_assets.pipeline.confirmed import write_confirmed
from retention_assets.policy.durations import minute_in_utc
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import Number, Table
from retention_assets.render.text import date_of

# what a terminal shows of each asset, in the order of the work
_SHOWN = {
    "transaction_log": {"datasets": "datasets read", "dagster/row_count": "transactions read", "refused": "datasets refused"},
    "candidate_marks": {
        "newly_marked": "newly marked",
        "marked_before": "marked or swept before",
        "spare": "selected, but protected",
    },
    "swept_transactions": {
        "deleted": "deleted",
        "already_gone": "already gone",
        "hidden": "hidden: versions can still be read",
        "set_aside": "set aside: can be restored",
        "restored": "restored",
        "failed": "failed",
        "spared": "spared: still needed",
        "expiring": "expires in the database",
        "left": "files left behind",
        "bytes_freed": "bytes freed",
        "bytes_hidden": "bytes hidden",
        "bytes_set_aside": "bytes to be freed later",
    },
}
# transactions that the question at a terminal names
_MOST_NAMED = 20


class LogLevel(Enum):
    """Levels of Dagster's log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class RunRequest(RecordedRequest):
    """Run over some datasets."""

    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = None
    mark_only: bool = Field(default=False, description="Read, judge and mark, but sweep nothing.")
    yes: Annotated[bool, Flags("-y", "--yes")] = Field(
        default=False, description="Do not ask before deleting. It asks only on a terminal."
    )
    accept_large: AcceptLarge = False
    strict: Strict = False
    log_level: LogLevel = Field(default=LogLevel.WARNING, description="How much Dagster prints on stderr.")


@examples("retention run", "retention run -d 'lake/raw.*' --mark-only")
@click.command()
@options(RunRequest)
@FORMAT
def run(format_: str, **given: Any) -> ExitCode:
    """Read the stores, judge, mark what may go, sweep what is due, and report.

    On a terminal it shows what it would delete and asks first. After a yes it deletes at most that.
    """
    request = RunRequest(**given_fields(given))
    environment = find_environment()
    # Before anything is started: policies that cannot be accepted are input.
    read_policies(environment.settings)
    # Before Dagster is loaded; each step asks again. A ledger that is none for these settings is refused by being opened.
    environment.instant(request.as_of)
    with environment.ledger_if_any() as ledger:
        if ledger is not None:
            clock = environment.settings.clock
            with ledger.database.one_moment():
                times, present = ledger.clock.times(), ledger.clock.present(request.as_of)
            refuse_before(times, present, clock.max_skew, clock.simulated)
    with ExitStack() as stack:
        job, accept_large, confirmed = ("evaluate", False, None) if request.mark_only else ("cycle", request.accept_large, None)
        if is_on_terminal() and not (request.mark_only or request.yes):
            # The yes is also for deletions that the brake would stop: they are shown with a warning.
            with progress(show_plan.progress):
                plan = make_plan(PlanRequest(datasets=request.datasets, as_of=request.as_of, accept_large=True), environment)
            if not _is_agreed(plan, format_):
                say("Nothing was done: nothing was marked and nothing deleted.")
                return ExitCode.FAILED
            folder = stack.enter_context(TemporaryDirectory(prefix="retention-run-"))
            accept_large, confirmed = True, write_confirmed(plan.confirmable, folder)
            if agreed := plan.confirmable.select(["dataset", "bytes"]).to_pylist():
                with environment.ledger() as ledger:
                    amounts = {"datasets": sorted({row["dataset"] for row in agreed}), "transactions": len(agreed)}
                    ledger.confirm(request.actor, {**amounts, "bytes": sum(row["bytes"] or 0 for row in agreed)})
        if "dagster" not in sys.modules:
            # Loading it takes as long as starting Spark does.
            environment.start_spark()
        from retention_assets.dagster.headless import run_job

        ran = run_job(
            environment.settings, job, request.as_of, request.datasets, request.log_level.value, confirmed, accept_large,
            request.actor,
        )  # fmt: skip
    code = show(request, _result(ran), format_)
    return ExitCode.STOPPED if ran.number("swept_transactions", "stopped") else code


def _result(ran: JobResult) -> Result:
    left = ran.number("swept_transactions", "left")
    words = f"{left:,} files of swept transactions were not deleted: `retention history` names the reasons."
    names = {"dagster/row_count": "rows"}
    return Result(
        headline=_headline(ran),
        tables=lambda: _tables(ran),
        next=(
            "`retention marks` shows what goes and when; `retention keep` takes something out of it for good."
            if ran.number("candidate_marks", "newly_marked")
            else ""
        ),
        closing=lambda: (*([words] if left else ()), *ran.warnings),
        bad_input=ran.bad_input,
        failures=ran.failed,
        refusals=ran.refused,
        data={
            "run": ran.run_id,
            "as_of": ran.as_of,
            "assets": {
                asset: {names.get(name, name): value for name, value in numbers.items()} for asset, numbers in ran.said.items()
            },
            "troubles": list(ran.troubles),
            "warnings": list(ran.warnings),
        },
    )


def _tables(ran: JobResult) -> list[Table]:
    rows = [
        {"what": words, "number": size_of(number) if name.startswith("bytes_") else f"{number:,}"}
        for asset, shown in _SHOWN.items()
        for name, words in shown.items()
        if (number := ran.number(asset, name))
    ]
    return [Table(f"As of {minute_in_utc(ran.as_of)}", ("what", Number("number")), rows)]


def _headline(ran: JobResult) -> str:
    """Marks and deletions of the run, as far as it came, and when the next deletion is due."""
    sentences, marked, waiting = list[str](), ran.number("candidate_marks", "newly_marked"), ran.waiting
    deleted, freed = (ran.number("swept_transactions", name) for name in ("deleted", "bytes_freed"))
    aside, later = (ran.number("swept_transactions", name) for name in ("set_aside", "bytes_set_aside"))
    if "candidate_marks" in ran.said:
        sentences.append(f"{count(marked, 'transaction') if marked else 'Nothing'} newly marked.")
    if "swept_transactions" in ran.said:
        sentences += [f"{count(aside, 'transaction')} set aside, {size_of(later)} not yet freed."] if aside else []
        sentences.append(f"{count(deleted, 'transaction')} deleted, {size_of(freed)} freed." if deleted else "Nothing deleted.")
    if waiting.due:
        sentences.append(f"{count(waiting.due, 'mark is', 'marks are')} due now.")
    elif waiting.next_due:
        first = "It is" if waiting.marks == 1 else "The first is"
        sentences.append(
            f"{count(waiting.marks, 'mark waits', 'marks wait')}. {first} due on {date_of(waiting.next_due.date())}."
        )
    return " ".join(sentences)


def _is_agreed(plan: RetentionPlan, format_: str) -> bool:
    for words in (*plan.notes, *plan.failures, *plan.refusals):
        say(words)
    if not (len(plan.taken) or len(plan.emptied)):
        say("This run deletes nothing.")
        return True
    # beside a result in JSON, which has stdout for itself
    err = format_ == "json"
    parts: tuple[str | Table, ...] = (*plan.sentences, *plan.deletion_tables(), plan.deleted_table(_MOST_NAMED))
    print_parts((f"This run would {plan.deletes}.", *parts), err=err)
    if len(plan.taken) <= _MOST_NAMED:
        return confirm("Go on?", err=err)
    return confirm(f"Go on? (d lists all {len(plan.taken):,})", err=err, detail=lambda: [plan.deleted_table()])
