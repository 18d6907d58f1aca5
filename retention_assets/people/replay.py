"""`retention replay`: deletes again what the record calls deleted, and what is there again as the same life.

Everything is asked before anything is recorded; then a sweep carries the order out. If that is killed, the next run goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from retention_assets.datasets import DatasetFilter, by_store, store_of
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.rules_in_force import foreseen_rulebook, load_rules
from retention_assets.frames.log import by_dataset, is_same_again
from retention_assets.ledger import AskedBy, Ledger
from retention_assets.ledger.marking import PendingSweep
from retention_assets.ledger.trash import GONE
from retention_assets.outcomes import Order, Outcome
from retention_assets.people.command import FORMAT, examples, find_environment, given_fields, options, show
from retention_assets.people.operation import (
    AcceptLarge,
    AsOf,
    DatasetGlobs,
    Flags,
    Kind,
    Only,
    RecordedRequest,
    Result,
    Text,
    operation,
)
from retention_assets.people.output import ExitCode, confirm, is_on_terminal, print_parts, progress, say
from retention_assets.people.trash import read_logs
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import Column, Size, Table
from retention_assets.stores.logs import tell_swept
from retention_assets.stores.protocol import Remains, Store, Target, call_store
from retention_assets.sweep import Fate, Recheck, Sweeper, hold_leases
from retention_assets.sweep.admission import Door, Question
from retention_assets.sweep.read import DatasetReading, joined
from retention_assets.sweep.recheck import NOT_SELECTED

# transactions that are named
_MOST = 20
_NAMES = ("dataset", "transaction", "policy")
_ANYWAY = "To delete it all the same: `retention replay --whatever-policies-say --reason …`."
_ANOTHER = "It is another transaction of the same name: its store finds other data than what was deleted."


class ReplayRequest(RecordedRequest):
    """Datasets in which to delete again what is there again."""

    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = None
    plan: Annotated[bool, Only.COMMAND] = Field(default=False, description="Show what would go, and change nothing.")
    accept_large: AcceptLarge = False
    whatever_policies_say: bool = Field(
        default=False, description="Delete also what no policy in force selects any more. Needs a reason."
    )
    yes: Annotated[bool, Flags("-y", "--yes"), Only.COMMAND] = Field(default=False, description="Do not ask before deleting.")
    reason: Annotated[Text | None, Flags("-r", "--reason")] = Field(
        default=None, description="Reason for the record, why it goes whatever policies say."
    )


@dataclass
class ThereAgain:
    """Transactions that are there again, by mark: what goes, and what stays and why; and why datasets could not be asked."""

    going: dict[int, dict[str, Any]] = field(default_factory=dict)
    stays: dict[int, dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def admit(self, order: Order, door: Door, accept_large: bool) -> None:
        """Ask the door, and leave out what it refuses."""
        sizes: dict[str, list[int]] = {name: [] for name in self.refused}
        for row in self.going.values():
            sizes.setdefault(row["dataset"], []).append(row["bytes"] or 0)
        work = [PendingSweep(name, len(own), bytes=sum(own), aside=1) for name, own in sorted(sizes.items())]
        admission = door.admit(order, work, {Question.BRAKE} if accept_large else ())
        if admission.withheld:
            raise Refused(f"Nothing was deleted. {admission.withheld}")
        self.refused |= {name: str(fault) for name, fault in admission.refused.items()}
        self.going = {mark: row for mark, row in self.going.items() if row["dataset"] not in self.refused}


@operation(
    Kind.DELETE, "retention replay --plan", "retention replay -d 'lake/raw.*' --yes",
    "retention replay --whatever-policies-say -r 'the law asks for it' --yes", progress="looking for what is there again",
)  # fmt: skip
def replay(request: ReplayRequest, environment: Environment) -> Result:
    """Delete again what was deleted and is there again, because a backup was put back.

    Only the same life goes: another transaction under the name is never touched. What protects something now protects it here,
    too: holds, retain rules, realms, branches, tags, latest views. It takes what a policy in force, or the purge of its realm,
    still selects, and names the rest. There is no grace and no undo. On a terminal it asks first; elsewhere it needs --yes.
    """
    with environment.existing_ledger() as ledger:
        found = _look(request, environment, ledger)
        return _result(found, plan=True) if request.plan else _carry_out(request, environment, ledger, found)


def _look(request: ReplayRequest, environment: Environment, ledger: Ledger) -> ThereAgain:
    if request.whatever_policies_say != bool(request.reason):
        remedy = "Give both `--whatever-policies-say` and `--reason`, or none of them."
        raise BadInput(Problem("a reason is for what goes whatever policies say", key="reason", remedy=remedy))
    names, found = DatasetFilter(request.datasets).select(ledger.trash.swept_datasets()), ThereAgain()
    due_by, stores = ledger.clock.due_by(request.as_of), environment.stores(by_store(names))
    rulebook = foreseen_rulebook(ledger, environment.settings, due_by)
    recheck = Recheck(ledger, environment.settings, due_by, rulebook.keepers, files=rulebook.files, book=rulebook.in_force)
    for name, own in by_store(names).items():
        try:
            if store := stores.get(name):
                for share in call_store(store, partial(store.shares, own)):
                    _find(recheck, store, share, request.whatever_policies_say, found)
        except Refused as fault:
            found.refused |= dict.fromkeys(own, str(fault))
    # of a store that the settings lack the door tells; the clock would note that it was asked
    found.refused |= {name: "" for name in names if store_of(name) not in stores}
    found.admit(Order.DELETE, Door(environment, ledger, rulebook, stores, due_by, request.as_of), request.accept_large)
    return found


def _find(recheck: Recheck, store: Store, share: Sequence[str], takes_all: bool, found: ThereAgain) -> None:
    ledger, deleted = recheck.ledger, recheck.ledger.marks.swept(share)
    deleted = deleted.filter(pc.is_in(deleted["outcome"], pa.array(GONE)))
    own = dict.fromkeys(share, deleted.slice(0, 0)) | by_dataset(deleted)
    readings, faults = read_logs(ledger, store, {name: {*rows["transaction"].to_pylist()} for name, rows in own.items()})
    found.refused |= faults
    sound = [one for one in readings if one.fault is None and one.token is not None]
    there = {mark: why for one in sound for mark, why in _there_again(recheck, store, one, own[one.dataset]).items()}
    if not there:
        return
    rows = ledger.sweeps.planned(there, Order.REPLAY)
    verdicts = recheck.check(joined(sound), rows, store).by_mark
    for mark, *names, size in zip(*(rows[name].to_pylist() for name in ("id", *_NAMES, "planned")), strict=True):
        row, verdict = {**dict(zip(_NAMES, names, strict=True)), "bytes": size}, verdicts[mark]
        why = there[mark] or verdict.why
        is_decided = verdict.fate is Fate.GOES and not there[mark] and (takes_all or not why)
        found.going |= {mark: row} if is_decided else {}
        found.stays |= {} if is_decided else {mark: {**row, "why": why}}


def _there_again(recheck: Recheck, store: Store, reading: DatasetReading, deleted: pa.Table) -> dict[int, str]:
    """Marks whose transactions are there again by the log and by their store, and why one is not what was deleted."""
    dataset, ledger, log = reading.dataset, recheck.ledger, reading.log.transactions
    at = pc.index_in(deleted["transaction"], value_set=log["transaction"])
    deleted, lines = deleted.filter(pc.is_valid(at)), log.take(at.drop_null())
    deleted = deleted.filter(pa.array(is_same_again(deleted, lines)))
    # a name has one life at a time
    newest = dict(zip(deleted["transaction"].to_pylist(), deleted["id"].to_pylist(), strict=True))
    tell_swept(store, dataset, reading.log, partial(ledger.marks.swept, [dataset]), recheck.kept_of)
    if not store.shares_data:
        newest = {name: newest[name] for name in call_store(store, lambda: store.data_finder(dataset)([*newest]))}
    rows = ledger.sweeps.planned(newest.values(), Order.REPLAY)
    columns = (rows[name].to_pylist() for name in ("transaction", "note", "changed_at"))
    targets = [Target(name, note, again=swept_at) for name, note, swept_at in zip(*columns, strict=True)]
    remains = call_store(store, lambda: store.remains(dataset, targets)) if targets else {}
    is_there = {name: remains.get(name) in (Remains.ALL, Remains.SOME) for name in newest}
    # objects are often written anew, and of a table the files tell
    tells = not (store.shares_data or store.guards)
    return {mark: "" if is_there[name] else _ANOTHER for name, mark in newest.items() if is_there[name] or tells}


def _carry_out(request: ReplayRequest, environment: Environment, ledger: Ledger, found: ThereAgain) -> Result:
    rulebook, actor = load_rules(ledger, environment, request.actor, request.as_of), request.actor
    names = {row["dataset"] for row in found.going.values()} | found.refused.keys()
    stores = environment.stores(by_store(names))
    door = Door(environment, ledger, rulebook, stores, ledger.clock.due_by(request.as_of), request.as_of)
    found.admit(Order.REPLAY, door, request.accept_large)
    with hold_leases(ledger, {row["dataset"] for row in found.going.values()}, actor) as held:
        marks = [mark for mark, row in found.going.items() if row["dataset"] in held.leases]
        begun = ledger.trash.begin([*held.leases.values()], marks, Order.REPLAY, AskedBy(actor, request.reason or ""))
    found.refused |= {**held.others, **begun.lost}
    sweeper = Sweeper(ledger, stores, rulebook, request.as_of, actor, only=Order.REPLAY)
    for result in sweeper.run([*names - found.refused.keys()]):
        if why := result.refused or result.skipped:
            found.refused[result.dataset] = f"{why} The next run goes on with what was begun."
    ends = ledger.trash.replayed(marks)
    going = {mark: row for mark, row in found.going.items() if mark in ends and row["dataset"] not in found.refused}
    done = {mark: row | ends[mark] for mark, row in going.items()}
    found.stays |= {mark: row for mark, row in done.items() if row["outcome"] in (None, Outcome.FAILED)}
    found.going = {mark: row for mark, row in done.items() if mark not in found.stays}
    return _result(found)


def _result(found: ThereAgain, plan: bool = False) -> Result:
    going, staying = [*found.going.values()], [*found.stays.values()]
    size, words = sum(row["bytes"] or 0 for row in going), f"{'There' if plan else 'Deleted'} again"
    failures = [f"{name} was not swept: {why}" for name, why in found.refused.items()]
    failures += [f"{row['transaction']} of {row['dataset']}: {row['why']}" for row in staying if row.get("outcome")]
    notes = [f"{row['transaction']} of {row['dataset']} is there again, and stays: {row['why']}" for row in staying[:_MOST]]
    notes += [_ANYWAY] if any(row["why"] == NOT_SELECTED for row in staying) else []
    columns, shown = ("dataset", "transaction", Column("deleted by", "policy"), Size("bytes")), going[:_MOST]
    return Result(
        headline=f"{words}{', and would be deleted again' * plan}: {count(len(going), 'transaction')}, {size_of(size)}.",
        tables=lambda: [Table(f"{words}: {len(shown)} of {len(going):,}", columns, shown)],
        notes=notes,
        failures=failures,
        failed=bool(failures),
        to_do=plan and bool(going),
        data={"transactions": going, "stays": staying, "refused": found.refused},
    )


@examples(*replay.examples)
@click.command("replay", help=replay.help)
@options(ReplayRequest)
@FORMAT
def replay_command(format_: str, **given: Any) -> ExitCode:
    request, environment = ReplayRequest(**given_fields(given)), find_environment()
    asks = not (request.plan or request.yes)
    if asks and not is_on_terminal():
        raise Refused("Nothing was deleted. Without a terminal it needs --yes; --plan shows what would go.")
    # a yes is also for what the brake would stop
    request = request.model_copy(update={"accept_large": request.accept_large or asks})
    with environment.existing_ledger() as ledger:
        with progress(replay.progress):
            found = _look(request, environment, ledger)
        looked = _result(found, plan=True)
        if asks and found.going:
            print_parts([*looked.notes, looked.headline, *looked.tables()], err=format_ == "json")
            if not confirm("Delete it again?", err=format_ == "json"):
                say("Nothing was deleted.")
                return ExitCode.FAILED
        with progress(replay.progress):
            result = looked if request.plan else _carry_out(request, environment, ledger, found)
    return show(request, result, format_)
