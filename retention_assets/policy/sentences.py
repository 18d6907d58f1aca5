"""Policies, holds and deletions as English sentences, which a person reads before approving them.

A key without a phrase would be a rule that nobody sees, so a test walks the model and fails when one is missing.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import minute_in_utc
from retention_assets.policy.model import Datasets, KeepAll, Keeper, Limits, Policy, RetainRule
from retention_assets.policy.realms import REALM
from retention_assets.policy.selection import PERIODS, AttributeTime, Beyond, Branches, Newest, Selection, Window
from retention_assets.policy.sizes import size_text

_RUN = re.compile(r"\brun ([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_CLOCKS = {
    "closed": "they closed",
    "opened": "they were opened",
    "closed_or_opened": "they closed (unfinished ones: were opened)",
    "superseded": "they left the latest view",
    "archived": "they were archived",
}


def count(number: int, noun: str, several: str = "") -> str:
    """`1 mark`, `2,000 marks`, `2 policies`"""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def short_actor(actor: str | None) -> str:
    """`ann (run 2155e7af)`: the run by the first letters of its id, as Dagster shows it."""
    return _RUN.sub(r"run \1", actor or "somebody")


def first_of(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 2 more`"""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def there_again(dataset: str, transactions: Sequence[str]) -> str:
    """Say which deleted transactions are there again, and what deletes them again."""
    history, replay = shlex.join((dataset, transactions[0])), shlex.join(("-d", escape_glob(dataset)))
    are, them = ("is", "it") if len(transactions) == 1 else ("are", "them")
    return (
        f"{count(len(transactions), 'deleted transaction')} {are} back ({first_of(transactions)}): see `retention history"
        f" {history}`; `retention replay {replay}` deletes {them} again"
    )


def sentence(policy: Policy) -> str:
    if isinstance(policy, KeepAll):
        return policy.description
    select = policy.select
    status = f"{_listed(select.status, 'or').lower()} " if select.status else ""
    kinds = f" of type {_listed(select.types, 'or')}" if select.types else ""
    what = "every closed transaction" if select == Selection() else f"{status}transactions{kinds}"
    text = f"Marks {what} of {_datasets(policy.datasets)}"
    scope = list(_branches(policy.branches))
    text += f", {'; '.join(scope)}" if scope else ""
    lines = list(_lines(select))
    text += f", when {_joined(lines)}" if lines else ""
    text += "."
    for window in policy.branches.windows:
        text += f" On branches {window.match} it asks instead that {_joined(list(_window(window)))}."
    if policy.latest_view:
        text += " It may also take transactions of a latest view: current data can be deleted."
    else:
        text += " Latest views are never touched."
    if policy.limits:
        text += f" If it would take {_limits(policy.limits)} of one dataset at once, it takes nothing there."
    sweep = policy.sweep
    wait = f"Marks are swept {policy.grace.words()} later" if policy.grace else "Marks are swept at once, without grace"
    if sweep.mode == "ttl":
        return f"{text} {wait}, by handing expiry to the store."
    pause = f", {sweep.every.words()} apart" if sweep.every else ""
    text = f"{text} {wait}, in batches of {sweep.batch}, {sweep.parallelism} in parallel{pause}."
    return text + (f" What is swept is set aside for {policy.undo.words()} and then deleted for good." if policy.undo else "")


def hold_sentence(hold: Keeper) -> str:
    if isinstance(hold, RetainRule):
        lines = [f"for which this holds: {hold.where.text}"] if hold.where else []
        lines += [f"that are open or closed at most {hold.younger_than.words()} ago"] if hold.younger_than else []
        lines += [f"that are {_listed(_newest(hold.newest), 'or')}{_counted(hold.newest)}"] if hold.newest else []
        about = f"Retains transactions of {_datasets(hold.datasets)} {_joined(lines)}"
        return f"{about}: no policy takes them, because: {hold.reason}."
    which = f"transactions {_listed(hold.transactions)}" if hold.transactions else "everything"
    text = f"Holds {which} of {_datasets(hold.datasets)}: nothing of it is marked or swept"
    text += f" until {minute_in_utc(hold.until)}" if hold.until else " until it is released"
    text += f", because: {hold.reason}" if hold.reason else ""
    return f"{text}{f' (owner {hold.owner})' if hold.owner else ''}."


def _datasets(datasets: Datasets) -> str:
    text = f"the datasets {_listed(datasets.include, 'or')}"
    text += f" except {_listed(datasets.exclude)}" if datasets.exclude else ""
    wanted = [f"{key} is {value!r}{' or below it' if key == REALM else ''}" for key, value in datasets.with_.items()]
    return text + (f" where {_joined(wanted)}" if wanted else "")


def _branches(branches: Branches) -> Iterator[str]:
    if branches.include != ("*",) or branches.exclude:
        text = f"looking at the branches {_listed(branches.include, 'or')}"
        yield text + (f" except {_listed(branches.exclude)}" if branches.exclude else "")
    if branches.only_in:
        yield f"only those that lie on branch {branches.only_in} alone"
    if branches.not_in:
        yield f"only those that do not lie on branch {branches.not_in}"
    if branches.reach == "unreachable":
        yield "only those that no live branch reaches"
    elif branches.reach == "any":
        yield "also those that no live branch reaches"


def _lines(select: Selection) -> Iterator[str]:
    yield from _window(select)
    if select.from_table:
        yield (
            "they are older than the dataset itself wants to keep them and not among the newest that it keeps, on each branch"
            " by the branch's own numbers where it has some; a dataset that says nothing about this keeps everything"
        )
    if select.expired_refs == "drop":
        yield (
            "branches and tags that are past the max-ref-age of the dataset keep nothing: they are dropped together with what"
            " they alone keep, never main"
        )
    if select.in_views_older_than:
        yield (
            f"every view that holds them closed more than {select.in_views_older_than.words()} ago"
            " and no open transaction follows it"
        )
    if select.superseded:
        yield "all of their files were replaced or deleted later on every branch"
    if select.terminal_only is not None:
        yield (
            "they are finished" if select.terminal_only else "they are finished, or unfinished and old enough by their opening"
        )
    if select.archived_before_purge:
        yield f"they were archived (for the record types {_listed(select.archived_before_purge)})"
    if select.unreferenced:
        yield "nothing retained refers to them"
    if select.where:
        yield f"this holds: {select.where.text}"


def _window(part: Selection | Window) -> Iterator[str]:
    if line := part.older_than:
        start = {None: "", "day": ", counted from 00:00 UTC"}.get(
            line.align, f", counted from the start of that {line.align} in UTC"
        )
        if not isinstance(line.of, AttributeTime):
            yield f"{_CLOCKS[line.of]} more than {line.age.words()} ago{start}"
        elif line.age:
            yield f"the instant in their attribute {line.of.attribute} is more than {line.age.words()} ago{start}"
        else:
            yield f"the instant in their attribute {line.of.attribute} has passed{start}"
    if part.beyond and part.beyond.views is not None:
        yield f"they are outside the newest {count(part.beyond.views, 'view')} of every branch"
    if part.beyond and (newest := _newest(part.beyond)):
        neither = f"not {newest[0]}" if len(newest) == 1 else f"neither {', nor '.join(newest)}"
        yield f"they are {neither}{_counted(part.beyond)}"
    if part.window == "complete":
        yield "they are not of the view that was current at that cut-off"


def _newest(counts: Newest) -> list[str]:
    newest = []
    if counts.transactions is not None:
        newest.append(f"among the newest {count(counts.transactions, 'data transaction')} of any branch")
    if isinstance(counts, Beyond) and counts.bytes is not None:
        newest.append(f"among the newest of any branch that together have at most {size_text(counts.bytes)}")
    if counts.periods:
        periods = _listed([count(number, PERIODS[key]) for key, number in counts.periods.items()])
        zone = f" in the time zone {counts.zone}" if counts.zone else ""
        newest.append(f"needed for the newest state of each of the last {periods} with data{zone}")
    return newest


def _counted(counts: Newest) -> str:
    condition = f", counting only those where {counts.where.text}" if counts.where else ""
    return condition + (f", separately for each {_listed(counts.per)}" if counts.per else "")


def _limits(limits: Limits) -> str:
    parts = []
    if limits.transactions is not None:
        parts.append(f"more than {count(limits.transactions, 'transaction')}")
    if limits.bytes is not None:
        parts.append(f"more than {limits.bytes:,} bytes")
    if limits.fraction is not None:
        parts.append(f"more than {limits.fraction:.4g} of the transactions")
    return _listed(parts, "or")


def _listed(words: Sequence[str], joint: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joint} {words[-1]}"


def _joined(lines: Sequence[str]) -> str:
    return lines[0] if len(lines) == 1 else f"{'; '.join(lines[:-1])}; and {lines[-1]}"


# These never change: people and programs search for them.
SCHEDULED = "This transaction has been scheduled for deletion."
DELETED = "Transaction data has been deleted."
_THERE_AGAIN = "Transaction data was deleted, and is there again."


@dataclass(frozen=True)
class DeletionMessage:
    """Sentence about a transaction, with its details."""

    message: str
    details: str

    def __str__(self) -> str:
        return f"{self.message} {self.details}"


def deletion_message(
    status: str,
    *,
    dataset: str,
    transaction: str,
    policy: str,
    due_at: datetime,
    changed_at: datetime | None,
    as_of: datetime,
    outcome: str | None = None,
    until: datetime | None = None,
    holds: Sequence[str] = (),
    spared: str | None = None,
    there_again: bool = False,
) -> DeletionMessage | None:
    """Build the message from the newest mark; `policy` is `name@version`. None where `message_of` returns None."""
    hold = ", ".join(holds) or None
    message = message_of(status, outcome=outcome, until=until, hold=hold, spared=spared)
    name = " ".join(shlex.quote(one) for one in (dataset, transaction))
    if message is None:
        return None
    if status == "MARKED" and (hold or spared):
        then = "when the hold ends, the policies in force decide" if hold else "the next sweep that looks takes its mark back"
        return DeletionMessage(message, f"Policy {policy} marked it; {then}.")
    if status == "MARKED":
        due = f"It is due since {minute_in_utc(due_at)}" if due_at <= as_of else f"It is due at {minute_in_utc(due_at)}"
        keep = f"To keep it: the job `act_keep`, or `retention keep {name} --reason …`."
        return DeletionMessage(message, f"{due}, by policy {policy}. {keep}")
    if status == "SWEEPING":
        since = f" since {minute_in_utc(changed_at)}" if changed_at else ""
        return DeletionMessage(message, f"It is being deleted{since}, by policy {policy}, and can't be taken back any more.")
    at = f" at {minute_in_utc(changed_at)}" if changed_at else ""
    if outcome == "SET_ASIDE":
        restore = f"To bring it back: the job `act_restore`, or `retention restore {name} --reason …`."
        return DeletionMessage(message, f"It was set aside{at}, by policy {policy}. {restore}")
    if there_again:
        remedy = f"`retention replay -d {shlex.quote(dataset)}` deletes it again; with other times it is judged as a new one"
        why = f"A backup may have brought it back. Its record says that it is gone, so no policy marks it again: {remedy}."
        return DeletionMessage(_THERE_AGAIN, f"It was deleted{at}, by policy {policy}. {why}")
    return DeletionMessage(message, f"It was deleted{at}, by policy {policy}, and can't be recovered.")


def message_of(
    status: str,
    *,
    outcome: str | None = None,
    until: datetime | None = None,
    hold: str | None = None,
    spared: str | None = None,
) -> str | None:
    """Choose the sentence: what is marked goes, unless a hold keeps it or the sweep will spare it for a reason.

    None where the mark was taken back or restored, and where a sweep deleted nothing: that is not called deleted.
    """
    if status == "SWEPT" and outcome == "SET_ASIDE":
        return f"Transaction data is set aside until {minute_in_utc(until)}."
    if status == "SWEPT":
        return None if outcome == "HIDDEN" else DELETED
    if status not in ("MARKED", "SWEEPING"):
        return None
    if hold is not None and status == "MARKED":
        return f"This transaction is marked, and the hold {hold} keeps it."
    return SCHEDULED if spared is None else f"This transaction is marked, and the sweep will spare it: {spared}."
