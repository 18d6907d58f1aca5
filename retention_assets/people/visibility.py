"""Tells what of a history may be read, and raises the time before which it is not to be read.

What readers see is determined by evaluation/readable.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.evaluation.dataset_log import read_dataset
from retention_assets.evaluation.readable import readable as evaluate
from retention_assets.evaluation.readable import refuse_hidden, views_at
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.evaluation.visibility import ProposedRaise, VisibilityRules, propose_raises
from retention_assets.frames.lives import is_in_log
from retention_assets.frames.log import Log
from retention_assets.frames.soundness import sound_log
from retention_assets.frames.statistics import newest_closes
from retention_assets.ledger import Ledger
from retention_assets.ledger.visibility import raise_by
from retention_assets.people.command import ask, options, show
from retention_assets.people.common.logs import read_one
from retention_assets.people.common.options import AS_OF, FORMAT, LOG, DurationParam, InstantParam, examples
from retention_assets.people.common.output import ExitCode, echo, print_json, print_tables, progress, say
from retention_assets.people.common.sources import find_environment, ledger_to_read
from retention_assets.people.operation import Flags, Instant, Kind, Only, Request, Result, Span, operation
from retention_assets.policy.durations import Duration, text_of
from retention_assets.policy.globs import is_literal, matches
from retention_assets.policy.scope import rules_reaching
from retention_assets.render.ledger_tables import advance_table, as_of_tables, readable_tables
from retention_assets.stores.protocol import Store, call_store
from retention_assets.stores.realms import read_lines


class AdvanceRequest(Request):
    """Datasets whose history is to be hidden further; without a dataset those that `visibility` in the policy files names."""

    dataset: Annotated[str, Flags()] = Field(
        default="", description="A dataset, such as lake/raw.events; all that the policy files name when left out."
    )
    datasets: Annotated[tuple[str, ...], Flags("-d", "--dataset"), Only.COMMAND] = Field(
        default=("*",), description="Only these of the datasets that the policy files name: a glob."
    )
    retention: Span | None = Field(default=None, description="How long the history of the dataset stays readable, such as 30d.")
    log: Annotated[Path | None, Flags("-l", "--log"), Only.COMMAND] = Field(
        default=None, description="Read this log, a file or folder in the exchange format, instead of the stores."
    )
    as_of: Annotated[Instant | None, Flags("-t", "--as-of")] = Field(
        default=None,
        description="Count back from this instant, such as 2026-03-01 or 7d (7 days ago); the present when left out.",
    )


class DatasetAdvance(Result):
    """Start of a dataset's readable history, if anything of it was ever hidden; or the end of its entry's waiting time."""

    dataset: str
    visible_from: datetime | None
    before: datetime | None
    waits_until: datetime | None = None

    @property
    def raised(self) -> bool:
        return self.visible_from != self.before

    @property
    def headline(self) -> str:
        at = text_of(self.visible_from) if self.visible_from else "its beginning"
        return f"The history of {self.dataset} is readable from {at} on."

    def sentences(self) -> Sequence[str]:
        return () if self.raised else ("Nothing was changed: a visibility mark is never lowered.",)

    def as_dict(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "visible_from": self.visible_from, "before": self.before, "raised": self.raised}


class AdvanceByRulesResult(Result):
    """Outcome for each dataset that an entry is about, and why others could not be read."""

    datasets: tuple[DatasetAdvance, ...]
    refused: dict[str, str]
    away: dict[str, str]

    @property
    def headline(self) -> str:
        raised = sum(each.raised for each in self.datasets)
        return f"The visibility marks of {raised:,} of {len(self.datasets):,} datasets were raised."

    def sentences(self) -> Sequence[str]:
        waiting = sum(each.waits_until is not None for each in self.datasets)
        return (f"{waiting:,} wait until their entry is a week old.",) if waiting else ()

    def remarks(self) -> Sequence[str]:
        return [f"{name} is refused: {why}" for name, why in self.refused.items()] + list(self.away.values())

    def as_dict(self) -> dict[str, Any]:
        rows = [{**each.as_dict(), "waits_until": each.waits_until} for each in self.datasets]
        return {"datasets": rows, "refused": self.refused, "away": self.away}


@operation(Kind.ACT, "retention advance", "retention advance lake/raw.orders --retention 30d", progress="reading histories")
def advance_visibility(request: AdvanceRequest, environment: Environment) -> Result:
    """Raise the visibility mark of a dataset: the time before which its history must not be read.

    The mark is raised to as_of less the retention, but never past the newest transaction, so that a fast clock can't hide what
    is current. It is never lowered. Without a dataset the marks of all datasets rise that `visibility` in the policy files
    names, as each evaluation raises them.
    """
    dataset, retention = request.dataset, request.retention
    if not dataset and retention is None and request.log is None:
        return _advance_by_rules(request, environment)
    if not dataset or retention is None or request.datasets != ("*",):
        expected = "DATASET together with --retention, or neither: then the `visibility` of the policy files counts"
        raise BadInput(
            Problem("is missing" if retention is None else "is about one dataset", key="--retention", expected=expected)
        )
    newest = _newest_close(read_dataset(environment, dataset, request.log).transactions, dataset)
    with environment.ledger() as ledger:
        before = ledger.visibility.of(dataset)
        raised = raise_by(retention, request.as_of or now(), newest)
        after = ledger.visibility.raise_to({dataset: raised}, request.actor)[dataset]
    return DatasetAdvance(dataset=dataset, visible_from=after, before=before)


def _advance_by_rules(request: AdvanceRequest, environment: Environment) -> AdvanceByRulesResult:
    # a new entry waits here as in an evaluation
    refused, away = dict[str, str](), dict[str, str]()
    found: list[ProposedRaise] = []
    with environment.ledger() as ledger:
        at = ledger.clock.due_by(request.as_of)
        load_rulebook(ledger, environment.settings, request.actor, request.as_of)
        rules = VisibilityRules.of(ledger, at)
        for name, store in environment.stores().items():
            try:
                for log in _logs(store, rules, request.datasets):
                    found += propose_raises(rules, log.datasets, newest_closes(log.transactions))
                    unsound = log.datasets.filter(pc.is_valid(log.datasets["fault"])).to_pylist()
                    refused |= {row["dataset"]: row["fault"] for row in unsound}
            except Refused as fault:
                away[name] = str(fault)
        raises = {one.dataset: one.to for one in found if one.to is not None}
        before = ledger.visibility.of_all([one.dataset for one in found])
        after = {**before, **ledger.visibility.raise_to(raises, request.actor)}
    done = (
        DatasetAdvance(
            dataset=one.dataset,
            visible_from=after.get(one.dataset),
            before=before.get(one.dataset),
            waits_until=one.waits_until,
        )
        for one in sorted(found, key=lambda one: one.dataset)
    )
    return AdvanceByRulesResult(datasets=tuple(done), refused=refused, away=away)


def _logs(store: Store, rules: VisibilityRules, globs: Sequence[str]) -> Iterator[Log]:
    """Logs of the datasets of a store that some entry could be about."""
    names = [name for name in call_store(store, store.datasets) if matches(name, globs)]
    wanted = sorted({name for version in rules.versions for name in rules_reaching(names, version.rule.datasets)})
    for share in call_store(store, lambda: store.shares(wanted)) if wanted else ():
        yield sound_log(call_store(store, partial(read_lines, store, share)))


def _newest_close(rows: pa.Table, dataset: str) -> datetime:
    """Commit time of the newest transaction that readers of a dataset can see."""
    committed = rows.filter(pc.equal(rows["status"].cast(pa.string()), "COMMITTED"))
    newest: datetime | None = pc.max(committed["closed_at"]).as_py()
    if newest is None:
        raise Refused(f"Nothing of {dataset} was ever committed: there is no view to keep visible.")
    return newest


@examples(*advance_visibility.examples)
@click.command("advance", help=advance_visibility.help)
@options(advance_visibility)
@FORMAT
def advance_command(format_: str, **given: Any) -> ExitCode:
    globs = given["datasets"]
    if given["retention"] is not None and given["dataset"] is None and len(globs) == 1 and is_literal(globs[0]):
        given |= {"dataset": globs[0], "datasets": ()}
    result = ask(advance_visibility, **given)
    code = show(result, format_)
    if isinstance(result, AdvanceByRulesResult):
        if format_ != "json":
            print_tables([advance_table(result.as_dict()["datasets"])])
        code = ExitCode.FAILED if result.away else ExitCode.REFUSED if result.refused else code
    return code


@examples("retention readable lake/raw.orders", "retention readable lake/raw.orders --at 7d -f json")
@click.command()
@click.argument("dataset")
@click.option("--at", type=InstantParam(), help="The instant that somebody wants to read; the present when left out.")
@click.option("-b", "--branch", help="Only this branch.")
@click.option("--for", "lasting", type=DurationParam(), default="10m", show_default=True, help="How long reading will take.")
@LOG
@AS_OF
@FORMAT
def readable(
    dataset: str,
    at: datetime | None,
    branch: str | None,
    lasting: Duration,
    log_path: Path | None,
    as_of: datetime | None,
    format_: str,
) -> None:
    """Say from when on the history of DATASET may be read, what was current at an instant, and whether that may be read.

    For query engines and catalogs: ask before reading. What is said of an instant stays true until `until`; a policy without
    grace gives no such promise, so ask again afterwards.
    """
    environment = find_environment(needed=log_path is None)
    with progress(f"reading {dataset}"):
        found = evaluate(environment, dataset, at, branch=branch, lasting=lasting, log=log_path, as_of=as_of)
    if branch is not None and not found.branches:
        raise _unknown(branch, dataset, read_one(log_path, environment, dataset).transactions)
    if format_ == "json":
        print_json(found.as_dict())
    else:
        print_tables(readable_tables(found.as_dict()))
        for why in dict.fromkeys(one.why for one in found.branches if one.why):
            echo(f"Why not: {why}")


@examples("retention as-of lake/raw.orders 7d", "retention as-of lake/raw.orders 2026-03-01 -b main")
@click.command("as-of")
@click.argument("dataset")
@click.argument("at", metavar="T", type=InstantParam())
@click.option("-b", "--branch", help="Only this branch.")
@LOG
@FORMAT
def as_of(dataset: str, at: datetime, branch: str | None, log_path: Path | None, format_: str) -> None:
    """Show what a reader of DATASET sees at the instant T: on each live branch, the view that was current then.

    A view consists of the transactions that the branch holds today and that were committed by T. What was swept since is
    flagged. Before the visibility mark only a view that is still current is shown.
    """
    environment = find_environment(needed=log_path is None)
    rows = read_one(log_path, environment, dataset).transactions
    seen = views_at(rows, at, branch)
    if branch is not None and not seen:
        raise _unknown(branch, dataset, rows)
    with ledger_to_read(environment) as ledger:
        visible_from = ledger.visibility.of(dataset) if ledger else None
        swept, gone = _swept(ledger, dataset, rows)
    refuse_hidden(dataset, at, visible_from, seen)
    views = [
        {
            "branch": one.branch,
            "current": one.current,
            "transactions": [{**asdict(row), "swept": row.transaction in swept} for row in one.rows],
        }
        for one in seen
    ]
    if format_ == "json":
        print_json({"dataset": dataset, "at": at, "visible_from": visible_from, "swept_and_unlisted": gone, "branches": views})
    else:
        print_tables(as_of_tables(dataset, at, views))
    if gone:
        say(f"{gone:,} swept transactions of {dataset} are not in its log any more; a view may have held some of them.")


def _swept(ledger: Ledger | None, dataset: str, rows: pa.Table) -> tuple[set[str], int]:
    """Return the swept transactions of a log, and the number of swept ones that it no longer lists."""
    if ledger is None:
        return set(), 0
    marks = ledger.marks.table([dataset], ["SWEPT"])
    names, listed = marks["transaction"].to_pylist(), is_in_log(marks, rows).tolist()
    swept = {name for name, still in zip(names, listed, strict=True) if still}
    return swept, len(set(names) - set(rows["transaction"].to_pylist()))


def _unknown(branch: str, dataset: str, rows: pa.Table) -> BadInput:
    remedy = suggest(branch, pc.unique(pc.list_flatten(rows["heads"])).to_pylist())
    return BadInput(Problem(f"branch '{branch}' is not a live branch of {dataset}", remedy=remedy))
