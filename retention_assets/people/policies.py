"""Shows and changes the policy book, and loads the policy files into it."""

import json
from collections import Counter
from collections.abc import Sequence
from shlex import quote
from typing import Annotated, Any

from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, suggest
from retention_assets.evaluation.keepers import read_policies
from retention_assets.evaluation.rules_in_force import compare_with_files, items_of, load_rulebook
from retention_assets.ledger.book import Orphaned
from retention_assets.people.command import command, group
from retention_assets.people.operation import (
    Flags,
    Kind,
    ReasonedRequest,
    RecordedRequest,
    Request,
    Result,
    Text,
    operation,
    what_is_missing,
)
from retention_assets.policy.book import Stored, item_of, sentence_of
from retention_assets.policy.loading import BookDecision
from retention_assets.render.page import Table
from retention_assets.render.tables import LOADED, VERSIONS, book_tables

_EntryName = Annotated[Text, Flags(), Field(description="The name of the policy, such as raw-30-days.")]


class EntryRequest(ReasonedRequest):
    """Entry of the policy book."""

    name: _EntryName


def _written(entry: Stored, next_: str, **more: int) -> Result:
    state = "is revoked" if entry.revoked else "is in force"
    return Result(
        headline=f"{entry.name} {state}: version {entry.version}, by {entry.written_by}.",
        next=next_,
        data={**vars(entry), "content": json.loads(entry.content), **more},
    )


@operation(Kind.ACT, "retention policies overwrite raw-30-days -r 'as agreed with legal'")
def policy_overwrite(request: EntryRequest, environment: Environment) -> Result:
    """Take an entry from the files into the policy book as your decision. This ends a drift."""
    items = {item.name: item for item in items_of(read_policies(environment.settings))}
    if request.name not in items:
        raise _unknown_entry(request.name, "the policy files", list(items))
    with environment.ledger() as ledger:
        written = ledger.policy_book.write(items[request.name], request.actor, request.reason)
    return _written(written, "no mark was touched. The next evaluation applies it.")


@operation(Kind.ACT, "retention policies revoke raw-30-days -r 'replaced by raw-60-days'")
def policy_revoke(request: EntryRequest, environment: Environment) -> Result:
    """Revoke an entry of the policy book.

    The next sweep spares its marks, unless another policy in force selects them.
    """
    with environment.existing_ledger() as ledger:
        written = ledger.policy_book.revoke(request.name, request.actor, request.reason)
        orphaned = sum(entry.marks for entry in ledger.policy_book.orphaned() if entry.policy == request.name)
    next_ = "the next evaluation judges without it."
    if orphaned:
        next_ = (
            f"the next sweep spares those of its {orphaned:,} open marks that no other policy in force selects."
            f" `retention unmark --policy {quote(written.name)} --reason …` or the job `act_unmark` takes them back now."
        )
    return _written(written, next_, orphaned_marks=orphaned)


def _unknown_entry(name: str, where: str, known: Sequence[str]) -> BadInput:
    return BadInput(Problem(f"'{name}' is not in {where}", key="name", remedy=suggest(name, known)))


@operation(Kind.LOOK, "retention policies", "retention policies show raw-30-days")
def show_book(request: Request, environment: Environment) -> Result:
    """Show the policy book: each entry with its writer, its difference from the files, and orphaned marks."""
    settings = environment.settings
    files = read_policies(settings) if any(path.exists() for path in settings.policies) else None
    with environment.ledger_if_any() as ledger:
        stored = ledger.policy_book.newest() if ledger else []
        orphaned = ledger.policy_book.orphaned() if ledger else []
        notes = what_is_missing(environment, ledger, policies=True)
    # Without a book there is nothing that files could differ from.
    decisions = compare_with_files(stored, files, settings, settings.overwrite_user_policies) if ledger and files else []
    rows = _book_rows(stored, decisions, orphaned)
    return Result(
        data={"entries": rows, "orphaned": [vars(each) for each in orphaned]},
        tables=lambda: book_tables(rows, orphaned),
        notes=notes,
    )


def _book_rows(
    stored: Sequence[Stored], decisions: Sequence[BookDecision], orphaned: Sequence[Orphaned]
) -> list[dict[str, Any]]:
    by_name = {decision.name: decision for decision in decisions}
    marks = Counter[str]()
    for each in orphaned:
        marks[each.policy] += each.marks
    fields = ("name", "version", "written_by", "written_at", "system", "revoked")
    rows: list[dict[str, Any]] = [{name: getattr(entry, name) for name in fields} for entry in stored]
    rows += [{**dict.fromkeys(fields), "name": decision.name} for decision in decisions if decision.stored is None]
    for row in rows:
        decision = by_name.get(row["name"])
        row |= {"files": decision.outcome.value if decision else None, "why": decision.reason if decision else None}
        row["orphaned_marks"] = marks[row["name"]]
    return rows


class VersionsRequest(Request):
    """Entry whose versions are shown."""

    name: _EntryName


@operation(Kind.LOOK, "retention policies show raw-30-days")
def show_versions(request: VersionsRequest, environment: Environment) -> Result:
    """Show every version of the entry NAME, oldest first."""
    with environment.existing_ledger() as ledger:
        versions = ledger.policy_book.versions(request.name)
        if not versions:
            raise _unknown_entry(request.name, "the policy book", [entry.name for entry in ledger.policy_book.newest()])
    rows = []
    for version in versions:
        item = item_of(request.name, version.content)
        words = None if item is None else sentence_of(item)
        rows.append({**vars(version), "content": json.loads(version.content), "sentence": words})
    return Result(data=rows, tables=lambda: [Table(f"Versions of {request.name}", VERSIONS, rows)])


class LoadRequest(RecordedRequest):
    """Load of the policy files."""

    overwrite_user_policies: bool = Field(default=False, description="Let the files replace entries that people wrote.")


@operation(Kind.ACT, "retention policies load")
def load_policy_files(request: LoadRequest, environment: Environment) -> Result:
    """Load the policy files of the settings into the book, and show what happened to each entry.

    An entry that a person wrote stays in force even if the files differ. A warning names this drift.
    """
    settings = environment.settings
    if request.overwrite_user_policies:
        settings = settings.model_copy(update={"overwrite_user_policies": True})
    with environment.ledger() as ledger:
        decisions = load_rulebook(ledger, settings, request.actor).decisions
    table = Table("Loaded", LOADED, decisions, empty="Nothing to load")
    return Result(
        tables=lambda: [table],
        notes=[decision.warning for decision in decisions if decision.warning],
        next="`retention run --mark-only` applies them.",
        data=table.records(),
    )


policies = group(
    show_book,
    "policies",
    command(show_versions, "show"),
    command(load_policy_files, "load"),
    command(policy_overwrite, "overwrite"),
    command(policy_revoke, "revoke"),
)
