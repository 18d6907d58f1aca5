"""Lists what sweeps have set aside, brings it back, and deletes it for good before its time.

Log, store, place, life and lease are asked first; then the order is recorded, and a sweep gives it to the store. If that is
killed, the next run goes on.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from retention_assets.datasets import DatasetFilter, by_store, store_of
from retention_assets.environment import Environment
from retention_assets.errors import Refused, did_you_mean
from retention_assets.evaluation.keepers import Keepers, read_policies
from retention_assets.evaluation.rules_in_force import Rulebook, load_rules
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import Log, is_in_log
from retention_assets.ledger import AskedBy, Lease, Ledger, Settlement
from retention_assets.ledger.batches import Moved
from retention_assets.ledger.histories import state_of
from retention_assets.ledger.marking import PendingSweep
from retention_assets.ledger.trash import AsideMark, AsideSum
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
from retention_assets.policy.language import Policies
from retention_assets.policy.model import Hold
from retention_assets.policy.sentences import count, first_of
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import Count, Minute, Size, Table
from retention_assets.stores.logs import tell_swept
from retention_assets.stores.protocol import Reads, Store, call_store, is_same_place
from retention_assets.sweep import Fate, Recheck, Sweeper, Verdict, Verdicts, find_there, hold_leases, read_fresh
from retention_assets.sweep.admission import Door
from retention_assets.sweep.read import DatasetReading, Wanted, joined

# transactions that a sentence is about, of one dataset
_NAMED = 5
_GONE = (
    "Nothing of it is in the trash. If it is gone for good, record that: retention trash forget DATASET TRANSACTION --reason …"
)
# datasets whose place is asked for
_ASKED = 100


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

    It refuses, and changes nothing, if one of the transactions is not set aside, or if the log has another one of its name.
    What can't come back whole stays set aside.
    """
    with environment.existing_ledger() as ledger:
        with _asked(request, ledger, environment) as (door, lease, marks, log):
            _refuse_other_lives(ledger, marks, log)
            ordered = _order(ledger, lease, marks, Order.RESTORE, request, _hold_over(marks, request))
        sweeper = Sweeper(ledger, door.stores, door.rulebook, request.as_of, request.actor, only=Order.RESTORE)
        try:
            _, failures = _carry_out(sweeper, marks)
        finally:
            back, hold = _hold_what_is_back(ledger, marks, request, ordered)
    return _restored(request.dataset, back, hold, failures)


def _refuse_other_lives(ledger: Ledger, marks: Sequence[AsideMark], log: Log) -> None:
    # transactions under whose id the log has another one now, or one that is not closed
    rows, lines = ledger.sweeps.planned([mark.id for mark in marks]), log.transactions
    closed = lines.filter(pc.not_equal(lines["status"].cast(pa.string()), "OPEN"))
    is_other = pc.and_(pc.is_in(rows["transaction"], join_chunks(lines["transaction"])), pa.array(~is_in_log(rows, closed)))
    if others := sorted(rows["transaction"].filter(is_other).to_pylist()):
        raise Refused(
            f"The log of {marks[0].dataset} has another transaction named {first_of(others)} now, with other times or not "
            "closed. Nothing is put in its place. Nothing was changed."
        )


def _order(
    ledger: Ledger, lease: Lease, marks: Sequence[AsideMark], order: Order, request: RestoreRequest, hold: Hold | None = None
) -> Moved:
    ordered = ledger.trash.begin([lease], [mark.id for mark in marks], order, AskedBy(request.actor, request.reason, hold))
    if ordered.lost:
        raise Refused(ordered.lost[request.dataset])
    return ordered


def _hold_what_is_back(
    ledger: Ledger, marks: Sequence[AsideMark], request: RestoreRequest, ordered: Moved
) -> tuple[list[AsideMark], str | None]:
    """Return the marks that are back, and the hold over them: that of the order, or one over them alone if it is not all."""
    ends, hold = _ends_of(ledger, marks), ordered.hold
    back = [mark for mark in marks if ends[mark.id]["status"] == "RESTORED"]
    # what somebody else finishes is held as well
    if hold and ordered.placed and len(back) < len(marks) and not _begun(ledger, marks):
        names = [mark.transaction for mark in back]
        narrow = _hold_over(back, request) if back else None
        # placed first: what is back is held at any moment
        kept = narrow and ledger.keep.transactions(request.dataset, names, narrow, request.actor, named=False, again=names)
        ledger.holds.release(hold, request.actor, "Not all of it came back." if back else "Nothing came back.")
        hold = kept.hold if kept else None
    return back, hold if back else None


def _restored(dataset: str, back: Sequence[AsideMark], hold: str | None, failures: list[str]) -> Result:
    names, size = [mark.transaction for mark in back], sum(mark.bytes or 0 for mark in back)
    release = f"retention release {shlex.quote(hold)} --reason …" if hold else None
    return Result(
        headline=f"Restored: {count(len(back), 'transaction')} of {dataset}, {size_of(size)}.",
        sentences=[f"{hold} is in force: no policy marks or sweeps what it holds. `{release}` ends it."] if hold else [],
        failures=failures,
        failed=bool(failures),
        data={"dataset": dataset, "restored": names, "bytes": size, "hold": hold, "release": release},
    )


def _hold_over(marks: Sequence[AsideMark], request: RestoreRequest) -> Hold:
    names = tuple(mark.transaction for mark in marks)
    return KeepRequest(actor=request.actor, reason=request.reason, dataset=request.dataset, transactions=names).hold("restored")


class ForgetRequest(RestoreRequest):
    """Transactions of a dataset that are set aside in the record, but not in the store any more."""


@operation(Kind.ACT, "retention trash forget lake/raw.orders T17 -r 'its folder was removed by hand'")
def forget_trash(request: ForgetRequest, environment: Environment) -> Result:
    """End in the record what was set aside and is not in the trash any more, though no sweep deleted it. It deletes nothing.

    It refuses, and changes nothing, if something of one of them is in the trash, or if the store can't tell.
    """
    dataset = request.dataset
    with environment.existing_ledger() as ledger, _asked(request, ledger, environment) as (door, lease, marks, log):
        store = door.stores[store_of(dataset)]
        tell_swept(store, dataset, log, partial(ledger.marks.swept, [dataset]), lambda _, __: ())
        there = find_there(store, dataset, ledger.sweeps.planned([mark.id for mark in marks]))
        if faults := _grouped((mark, there[mark.id]) for mark in marks if mark.id in there):
            raise Refused("\n".join((*faults, "Nothing was changed.")))
        ordered = _order(ledger, lease, marks, Order.DELETE_ASIDE, request)
        ledger.sweeps.settle([lease], [Settlement(mark, Outcome.ALREADY_GONE) for mark in ordered.marks])
    return Result(
        headline=f"Forgotten: {count(len(marks), 'transaction')} of {dataset}. Nothing was deleted.",
        data={"dataset": dataset, "forgotten": [mark.transaction for mark in marks]},
    )


@contextmanager
def _asked(
    request: RestoreRequest, ledger: Ledger, environment: Environment
) -> Iterator[tuple[Door, Lease, Sequence[AsideMark], Log]]:
    # Everything that may refuse is asked before anything is recorded. Under the lease, the newest set aside mark of each name.
    dataset, names = request.dataset, sorted(set(request.transactions))
    at, nothing = present_of(request.as_of, ledger), "Nothing was changed."
    with hold_leases(ledger, [dataset], request.actor) as held:
        if held.others:
            raise Refused(f"{nothing} {held.others[dataset]}")
        free = {mark.transaction: mark for mark in ledger.trash.marks([dataset], names) if mark.order is None}
        # no policy file is read: a broken one stops no restore
        rulebook = Rulebook(ledger, environment.settings, Policies(), Keepers(ledger))
        stores = environment.stores([store_of(dataset)])
        # the record of due marks is asked for, and by the last of their times all of these are due
        last = max((mark.until for mark in free.values()), default=at)
        door = Door(environment, ledger, rulebook, stores, last, request.as_of)
        admission = door.admit(Order.RESTORE, [PendingSweep(dataset, aside=len(names))])
        if fault := admission.withheld or admission.refused.get(dataset):
            raise Refused(f"{nothing} {fault}")
        if missing := [name for name in names if name not in free]:
            histories = ledger.histories.of(dataset, missing)
            states = ((name, state_of(histories[name][-1] if name in histories else None, at)) for name in missing)
            sentences = (f"{name} of {dataset} is not set aside: {state}." for name, state in states)
            raise Refused("\n".join((*sentences, nothing)))
        readings, unread = read_logs(ledger, stores[store_of(dataset)], {dataset: names})
        if unread:
            raise Refused(f"{nothing} {dataset}: {unread[dataset]}")
        yield door, held.leases[dataset], sorted(free.values()), readings[0].log


def read_logs(
    ledger: Ledger, store: Store, transactions: Mapping[str, Collection[str]]
) -> tuple[Sequence[DatasetReading], dict[str, str]]:
    """Read logs fresh, or what a store that need not be read whole has of these; and say by dataset why one is no use."""
    try:
        wanted = None
        if call_store(store, lambda: store.reads) is Reads.SOME:
            wanted = Wanted.of(ledger, {name: pa.array(sorted(own), pa.string()) for name, own in transactions.items()})
        readings = read_fresh(store, [*transactions], wanted).datasets
    except Refused as fault:
        return (), dict.fromkeys(transactions, str(fault))
    # of a dataset that is not there its trash may be
    return readings, {one.dataset: one.fault for one in readings if one.token is not None and one.fault}


def _carry_out(sweeper: Sweeper, marks: Sequence[AsideMark]) -> tuple[Mapping[int, Any], list[str]]:
    """Give an order that was recorded, and take back what could not be done; return how the marks are, and what failed."""
    ledger, why, others = sweeper.ledger, dict[str, str](), dict[str, str]()
    try:
        for result in sweeper.run([mark.dataset for mark in marks]):
            why[result.dataset] = result.refused or result.skipped or ""
    finally:
        with hold_leases(ledger, {mark.dataset for mark in _begun(ledger, marks)}, sweeper.holder) as held:
            left = [mark for mark in _begun(ledger, marks) if mark.dataset in held.leases]
            undone = [Settlement(mark.id, Outcome.FAILED, error=why.get(mark.dataset) or "It was not done.") for mark in left]
            if undone:
                ledger.sweeps.settle(held.leases.values(), undone)
            others |= {name: f"{other} That goes on with what was begun." for name, other in held.others.items()}
    ends = _ends_of(ledger, marks)
    stays = (mark for mark in marks if ends[mark.id]["outcome"] == Outcome.SET_ASIDE)
    return ends, _grouped((mark, others.get(mark.dataset) or ends[mark.id]["last_error"]) for mark in stays)


def _ends_of(ledger: Ledger, marks: Sequence[AsideMark]) -> dict[int, dict[str, Any]]:
    rows = ledger.marks.by_ids((mark.id for mark in marks), columns=("id", "status", "outcome", "freed", "last_error"))
    return {row["id"]: row for row in rows.to_pylist()}


def _begun(ledger: Ledger, marks: Sequence[AsideMark]) -> list[AsideMark]:
    begun = {*ledger.sweeps.planned(begun_in={mark.dataset for mark in marks})["id"].to_pylist()}
    return [mark for mark in marks if mark.id in begun]


def _grouped(faults: Iterable[tuple[AsideMark, str]]) -> list[str]:
    # the first names of each dataset that have a fault in common
    groups: dict[tuple[str, str], list[str]] = {}
    for mark, why in faults:
        groups.setdefault((mark.dataset, why), []).append(mark.transaction)
    return [f"{first_of(names, _NAMED)} of {dataset}: {why}" for (dataset, why), names in groups.items()]


class TrashRequest(Request):
    """Datasets of which set aside transactions are listed."""

    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = Field(default=None, description=SIMULATED)


@operation(Kind.LOOK, "retention trash", "retention trash -d 'lake/raw.*' -f json")
def list_trash(request: TrashRequest, environment: Environment) -> Result:
    """List what sweeps have set aside. Until the time shown it can be restored; after it, the next run deletes it for good."""
    rows, notes, over = list[AsideSum](), list[str](), list[str]()
    with environment.ledger_if_any() as ledger:
        if ledger:
            at, rows = present_of(request.as_of, ledger), _chosen(ledger, request.datasets)
            due = _chosen(ledger, request.datasets, at)
            over = [f"The time of {_amount(due)} of it is over: the next run deletes it for good."] if due else []
            notes = [*_warnings(ledger, rows, environment)]
        notes = [*what_is_missing(environment, ledger), *notes]
    table = _table(rows)
    return Result(
        headline="" if rows else "Nothing is set aside.",
        sentences=over,
        tables=lambda: [table],
        notes=notes,
        data=table.records(),
    )


def _chosen(ledger: Ledger, globs: Sequence[str], over_by: datetime | None = None) -> list[AsideSum]:
    rows = ledger.trash.sums(over_by)
    chosen = {*DatasetFilter(globs).select({row.dataset for row in rows})}
    return [row for row in rows if row.dataset in chosen]


_ASIDE = (
    "dataset",
    "policy",
    Count("transactions", "marks", key="transactions"),
    Size("not yet freed", "bytes"),
    Minute("until"),
    Minute("the last until", "last"),
)


def _table(rows: Sequence[AsideSum]) -> Table:
    return Table(f"Set aside: {_amount(rows)} not yet freed, times in UTC", _ASIDE, rows)


def _amount(rows: Sequence[AsideSum]) -> str:
    return f"{count(sum(row.marks for row in rows), 'transaction')}, {size_of(sum(row.bytes for row in rows))}"


def _warnings(ledger: Ledger, rows: Sequence[AsideSum], environment: Environment) -> Iterator[str]:
    settings = environment.settings
    undos = {policy.name: policy.undo for policy in read_policies(settings).policies} if rows else {}
    # the ledger has the bytes as they were set aside; the store is asked for the place alone, which is cheap
    places = ledger.trash.places(sorted({row.dataset for row in rows})[:_ASKED])
    for name, store in environment.stores(by_store(row.dataset for row in rows)).items():
        own = [undos.get(row.policy) or settings.realms.undo for row in rows if store_of(row.dataset) == name]
        longest = max(own, key=lambda undo: undo.length)
        try:
            texts = call_store(store, partial(store.undo_warnings, longest))
            yield from (f"{name}: {text}" for text in texts)
            for dataset, planned in (each for each in places if store_of(each[0]) == name):
                if not is_same_place(planned, call_store(store, partial(store.place, dataset)) or ""):
                    yield f"{dataset} is not at {planned} any more: what lies in the trash there, and its bytes, may be gone."
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
        if not rows and "*" not in request.datasets:
            guess = did_you_mean(request.datasets[0], [row.dataset for row in ledger.trash.sums()], most=1) or ""
            raise Refused(f"Nothing of {', '.join(request.datasets)} is set aside. {guess}".rstrip())
        datasets, stores = sorted({row.dataset for row in rows}), environment.stores(by_store(row.dataset for row in rows))
        # loading records newer retain rules, which keep what the log does not have any more
        rulebook = load_rules(ledger, environment, request.actor, request.as_of)
        # the record of due marks is asked for, and by the last of their times all of these are due
        last = max((row.last for row in rows), default=at)
        door = Door(environment, ledger, rulebook, stores, last, request.as_of)
        admission = door.admit(Order.DELETE_ASIDE, [PendingSweep(name, aside=1) for name in datasets])
        if admission.withheld:
            raise Refused(f"Nothing was deleted. {admission.withheld}")
        names = [name for name in datasets if name not in admission.refused]
        recheck = Recheck(
            ledger, environment.settings, ledger.clock.due_by(request.as_of), rulebook.keepers, files=rulebook.files
        )
        with hold_leases(ledger, names, request.actor) as held:
            marks = [mark for mark in ledger.trash.marks(held.leases) if mark.order is None]
            marks = [mark for mark in marks if shown is None or mark.id in shown]
            checked, unread = _recheck(recheck, stores, marks)
            asked = AskedBy(request.actor, request.reason)
            begun = ledger.trash.begin(held.leases.values(), checked.go, Order.DELETE_ASIDE, asked)
        sweeper = Sweeper(ledger, stores, rulebook, request.as_of, request.actor, only=Order.DELETE_ASIDE)
        ordered = [mark for mark in marks if mark.id in begun.marks]
        ends, failures = _carry_out(sweeper, ordered)
        refused = {**admission.by_subject, **unread, **held.others, **begun.lost}
        failures += [f"{name} was not swept: {why}" for name, why in refused.items()]
        kept = checked.reasons(Fate.KEPT)
        failures += _grouped((mark, f"It stays set aside. {why}") for mark in marks if (why := kept.get(mark.id)))
    done = [end for end in ends.values() if end["outcome"] != Outcome.SET_ASIDE]
    freed = sum(end["freed"] or 0 for end in done)
    return Result(
        headline=f"Deleted for good: {count(len(done), 'transaction')}, {size_of(freed)} freed.",
        failures=failures,
        failed=bool(failures),
        data={"datasets": datasets, "deleted": len(done), "bytes_freed": freed},
    )


def _recheck(recheck: Recheck, stores: Mapping[str, Store], marks: Sequence[AsideMark]) -> tuple[Verdicts, dict[str, str]]:
    # what may go by the logs as they are now, as the sweep asks again; and by dataset, why its log is no use
    result, unread = Verdicts(), dict[str, str]()
    for name, own in by_store(sorted({mark.dataset for mark in marks})).items():
        for share in call_store(stores[name], partial(stores[name].shares, own)):
            of_share = frozenset(share)
            here = [mark for mark in marks if mark.dataset in of_share]
            asked = {name: {mark.transaction for mark in here if mark.dataset == name} for name in share}
            readings, faults = read_logs(recheck.ledger, stores[name], asked)
            unread |= faults
            if readings:
                rows = recheck.ledger.sweeps.planned([mark.id for mark in here if mark.dataset not in faults])
                checked = recheck.check(joined(readings), rows, stores[name])
                gone = {mark for reading in readings for mark in _gone(recheck, stores[name], reading, rows)} & checked.go
                result |= checked | Verdicts(dict.fromkeys(gone, Verdict(Fate.KEPT, _GONE)))
    return result, unread


def _gone(recheck: Recheck, store: Store, reading: DatasetReading, rows: pa.Table) -> Iterator[int]:
    # marks of which nothing is in the trash, though nobody has begun to delete them
    dataset, ledger = reading.dataset, recheck.ledger
    own = rows.filter(pc.equal(rows["dataset"], dataset))
    tell_swept(store, dataset, reading.log, partial(ledger.marks.swept, [dataset]), recheck.kept_of)
    there = find_there(store, dataset, own)
    yield from {*own["id"].to_pylist()} - there.keys()


@examples(*empty_trash.examples)
@click.command("empty", help=empty_trash.help)
@options(EmptyTrashRequest)
@FORMAT
def empty_command(format_: str, **given: Any) -> ExitCode:
    request, environment, shown = EmptyTrashRequest(**given_fields(given)), find_environment(), None
    if is_on_terminal() and not request.yes:
        with environment.existing_ledger() as ledger:
            # more may be set aside before the answer: nobody was asked about that
            names = DatasetFilter(request.datasets).select(sorted({row.dataset for row in ledger.trash.sums()}))
            shown = {mark.id for mark in ledger.trash.marks(names)}
            rows = _chosen(ledger, request.datasets)
        if rows:
            print_parts([_table(rows)], err=format_ == "json")
        if rows and not confirm("Delete it for good?", err=format_ == "json"):
            say("Nothing was deleted.")
            return ExitCode.FAILED
    with progress(empty_trash.progress):
        result = _empty(request, environment, shown)
    return show(request, result, format_)


trash = group(list_trash, "trash", empty_command, command(forget_trash, "forget"))
restore_command = command(restore, "restore")
