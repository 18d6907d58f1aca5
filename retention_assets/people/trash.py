"""Lists what sweeps have set aside, brings it back, and deletes it for good before its time.

What a person asks for is recorded first; then a sweep gives the order to the store. If that is killed, the next run goes on.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import click
from pydantic import AfterValidator, Field
from rich.table import Table

from retention_assets.datasets import DatasetFilter, by_store, store_of
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import foreseen_rulebook, load_rules, read_policies
from retention_assets.ledger import AskedBy, Ledger
from retention_assets.ledger.histories import state_of
from retention_assets.ledger.trash import AsideSum
from retention_assets.outcomes import Order, Outcome
from retention_assets.people.clock import SIMULATED, present_of
from retention_assets.people.command import FORMAT, command, examples, find_environment, given_fields, group, options, show
from retention_assets.people.marks import KeepRequest, stripped_ids
from retention_assets.people.operation import (
    AsOf,
    DatasetGlobs,
    DatasetName,
    Flags,
    Kind,
    Only,
    ReasonedRequest,
    Request,
    Result,
    operation,
    what_is_missing,
)
from retention_assets.people.output import ExitCode, confirm, is_on_terminal, print_parts, progress, say
from retention_assets.people.rehearsal import ledger_fault
from retention_assets.pipeline.head_file import place_faults
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.terminal import Count, Minute, Size, table
from retention_assets.stores.protocol import UndoStore, call_store
from retention_assets.sweep import Sweeper, SweepResult, hold_leases
from retention_assets.sweep.engine import store_fault

# transactions that a sentence is about, of one dataset
_NAMED = 5


class RestoreRequest(ReasonedRequest):
    """Transactions of a dataset to bring back."""

    dataset: DatasetName
    transactions: Annotated[tuple[str, ...], AfterValidator(stripped_ids), Flags(required=True)] = Field(
        min_length=1, description="Ids, such as ['T1', 'T2']."
    )
    as_of: AsOf = Field(default=None, description=SIMULATED)


@operation(Kind.ACT, "retention restore lake/raw.orders T17 -r 'the audit of 2026 needs it'", progress="restoring {dataset}")
def restore(request: RestoreRequest, environment: Environment) -> Result:
    """Bring back what a sweep has set aside, and place a hold, so that no policy marks it again at once.

    It refuses, and changes nothing, if one of the transactions is not set aside. What can't come back whole stays set aside.
    """
    dataset, names = request.dataset, sorted(set(request.transactions))
    with environment.existing_ledger() as ledger:
        at = present_of(request.as_of, ledger)
        if ledger.clock.simulated:
            _check_clock(ledger, environment, at)
        if not (stores := environment.stores([store_of(dataset)])):
            raise Refused(f"The settings have no store named {store_of(dataset)}. Nothing was changed.")
        rulebook = foreseen_rulebook(ledger, environment.settings, at)
        with hold_leases(ledger, [dataset], request.actor) as held:
            if held.others:
                raise Refused(f"Nothing was changed. {held.others[dataset]}")
            marks = ledger.trash.named(dataset, names)
            if missing := [name for name in names if name not in marks]:
                histories = ledger.histories.of(dataset, missing)
                states = ((name, state_of(histories[name][-1] if name in histories else None, at)) for name in missing)
                sentences = (f"{name} of {dataset} is not set aside: {state}." for name, state in states)
                raise Refused("\n".join((*sentences, "Nothing was changed.")))
            keep = KeepRequest(actor=request.actor, reason=request.reason, dataset=dataset, transactions=tuple(names))
            asked = AskedBy(request.actor, request.reason, keep.hold("restored"))
            begun = ledger.trash.begin(held.leases.values(), marks.values(), Order.RESTORE, asked)
            if begun.lost:
                raise Refused(begun.lost[dataset])
        sweeper = Sweeper(ledger, stores, rulebook, request.as_of, request.actor, only=Order.RESTORE)
        results = [*sweeper.run([dataset])]
        newest = [history[-1] for history in ledger.histories.of(dataset, names).values()]
        back, failures = [mark for mark in newest if mark.status == "RESTORED"], [*_failures(ledger, results, {dataset: marks})]
        hold = begun.hold
        if hold and begun.placed and ledger.trash.named(dataset, names) == marks:
            ledger.holds.release(hold, request.actor, "Nothing came back.")
            hold = None
    names, size = [mark.transaction for mark in back], sum(mark.set_aside.bytes or 0 for mark in back if mark.set_aside)
    release = f"retention release {shlex.quote(hold)} --reason …" if hold else None
    return Result(
        headline=f"Restored: {count(len(back), 'transaction')} of {dataset}, {size_of(size)}.",
        sentences=[f"{hold} is in force: no policy marks or sweeps what it holds. `{release}` ends it."] if hold else [],
        failures=failures,
        failed=bool(failures),
        data={"dataset": dataset, "restored": names, "bytes": size, "hold": hold, "release": release},
    )


def _check_clock(ledger: Ledger, environment: Environment, present: datetime) -> None:
    # before anything is recorded: the sweep that follows would refuse
    clock = environment.settings.clock
    if why := ledger.clock.check(present, None, clock.max_ahead, clock.max_skew):
        raise Refused(f"Nothing was changed. {why}")


def _failures(ledger: Ledger, results: Sequence[SweepResult], marks: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for result in results:
        if fault := result.refused or result.skipped:
            yield f"{result.dataset} was not swept: {fault} The next `retention run` goes on with it."
        begun = marks[result.dataset]
        stay = [name for name, mark in ledger.trash.named(result.dataset, begun).items() if mark == begun[name]]
        for name, history in ledger.histories.of(result.dataset, stay[:_NAMED]).items():
            yield f"{name} of {result.dataset}: {history[-1].last_error}"
        if len(stay) > _NAMED:
            yield f"{len(stay) - _NAMED:,} more of {result.dataset} stay set aside."


class TrashRequest(Request):
    """Datasets of which set aside transactions are listed."""

    datasets: DatasetGlobs = ("*",)


@operation(Kind.LOOK, "retention trash", "retention trash -d 'lake/raw.*' -f json")
def list_trash(request: TrashRequest, environment: Environment) -> Result:
    """List what sweeps have set aside. Until the time shown it can be restored; after it, the next run deletes it for good."""
    with environment.ledger_if_any() as ledger:
        rows = _chosen(ledger, request.datasets) if ledger else []
        notes = what_is_missing(environment, ledger)
    keys = ("dataset", "policy", "transactions", "bytes", "until", "last")
    return Result(
        headline="" if rows else "Nothing is set aside.",
        tables=lambda: [_table(rows)] if rows else (),
        notes=[*notes, *_warnings(rows, environment)],
        data=[dict(zip(keys, row, strict=True)) for row in rows],
    )


def _chosen(ledger: Ledger, globs: Sequence[str]) -> list[AsideSum]:
    rows = ledger.trash.sums()
    chosen = {*DatasetFilter(globs).select({row.dataset for row in rows})}
    return [row for row in rows if row.dataset in chosen]


def _table(rows: Sequence[AsideSum]) -> Table:
    total = f"{count(sum(row.marks for row in rows), 'transaction')}, {size_of(sum(row.bytes for row in rows))} not yet freed"
    title = f"Set aside: {total}, times in UTC"
    columns = ("dataset", "policy", Count("transactions"), Size("not yet freed"), Minute("until"), Minute("the last until"))
    return table(title, columns, rows)


def _warnings(rows: Sequence[AsideSum], environment: Environment) -> Iterator[str]:
    settings = environment.settings
    undos = {policy.name: policy.undo for policy in read_policies(settings).policies} if rows else {}
    for name, store in environment.stores(by_store(row.dataset for row in rows)).items():
        own = [undos.get(row.policy) or settings.realms.undo for row in rows if store_of(row.dataset) == name]
        longest = max(own, key=lambda undo: undo.length)
        try:
            texts = call_store(store, partial(store.undo_warnings, longest)) if isinstance(store, UndoStore) else ()
            yield from (f"{name}: {text}" for text in texts)
        except Refused as fault:
            yield f"{name}: {fault}"


class EmptyTrashRequest(ReasonedRequest):
    """Datasets of which set aside transactions are deleted for good."""

    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = Field(default=None, description=SIMULATED)
    yes: Annotated[bool, Flags("-y", "--yes"), Only.COMMAND] = Field(
        default=False, description="Do not ask before deleting. It asks only on a terminal."
    )


@operation(
    Kind.DELETE, "retention trash empty -r 'the disk is full'", "retention trash empty -d 'lake/raw.*' -r 'checked' --yes",
    progress="deleting for good",
)  # fmt: skip
def empty_trash(request: EmptyTrashRequest, environment: Environment) -> Result:
    """Delete for good what sweeps have set aside, before its time. Nothing brings it back.

    What holds, retain rules and realms keep stays, and is named. On a terminal it asks first.
    """
    return _empty(request, environment)


def _empty(request: EmptyTrashRequest, environment: Environment, shown: Collection[int] | None = None) -> Result:
    with environment.existing_ledger() as ledger:
        at, rows = present_of(request.as_of, ledger), _chosen(ledger, request.datasets)
        _check_clock(ledger, environment, at)
        datasets, stores = sorted({row.dataset for row in rows}), environment.stores(by_store(row.dataset for row in rows))
        # the check covers due marks, and by the last of their times all of these are due
        if fault := ledger_fault(environment, ledger, datasets, max((row.last for row in rows), default=at)):
            raise Refused(f"Nothing was deleted. {fault}")
        # loading records newer retain rules, which keep what the log does not have any more
        rulebook = load_rules(ledger, environment, request.actor, request.as_of)
        faults = {name: str(fault) for name, fault in place_faults(ledger, stores.values()).items()}
        faults |= {name: fault for name in by_store(datasets) if (fault := store_fault(rulebook, name))}
        objected = {
            row.dataset: f"{row.check} failed in {row.raised_by}: {row.sentence}."
            for row in ledger.objections.standing(set(datasets))
        }
        named = {name: ledger.trash.named(name) for name in datasets if not {name, store_of(name)} & {*faults, *objected}}
        marks = [mark for own in named.values() for mark in own.values() if shown is None or mark in shown]
        with hold_leases(ledger, named, request.actor) as held:
            asked = AskedBy(request.actor, request.reason)
            begun = ledger.trash.begin(held.leases.values(), marks, Order.DELETE_ASIDE, asked)
        sweeper = Sweeper(ledger, stores, rulebook, request.as_of, request.actor, only=Order.DELETE_ASIDE)
        results = [*sweeper.run(sorted({*begun.marks.values()}))]
        refused = {**objected, **held.others, **begun.lost, **{f"{name}/*": fault for name, fault in faults.items()}}
        members = {name: {key: mark for key, mark in own.items() if mark in begun.marks} for name, own in named.items()}
        failures = [f"{name} was not swept: {why}" for name, why in refused.items()]
        failures += _failures(ledger, results, members)
    deleted = sum(result.outcomes[Outcome.DELETED] + result.outcomes[Outcome.ALREADY_GONE] for result in results)
    freed = sum(result.bytes_freed for result in results)
    return Result(
        headline=f"Deleted for good: {count(deleted, 'transaction')}, {size_of(freed)} freed.",
        failures=failures,
        failed=bool(failures),
        data={"datasets": datasets, "deleted": deleted, "bytes_freed": freed},
    )


@examples(*empty_trash.examples)
@click.command("empty", help=empty_trash.help)
@options(EmptyTrashRequest)
@FORMAT
def empty_command(format_: str, **given: Any) -> ExitCode:
    request, environment, shown = EmptyTrashRequest(**given_fields(given)), find_environment(), None
    if is_on_terminal() and not request.yes:
        with environment.existing_ledger() as ledger:
            rows = _chosen(ledger, request.datasets)
            # more may be set aside before the answer: nobody was asked about that
            shown = {mark for row in rows for mark in ledger.trash.named(row.dataset).values()}
        print_parts([_table(rows)], err=format_ == "json")
        if not confirm("Delete it for good?", err=format_ == "json"):
            say("Nothing was deleted.")
            return ExitCode.FAILED
    with progress(empty_trash.progress):
        result = _empty(request, environment, shown)
    return show(request, result, format_)


trash = group(list_trash, "trash", empty_command)
restore_command = command(restore, "restore")
