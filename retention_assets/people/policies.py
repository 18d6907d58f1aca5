"""Shows and changes the policy book: loads the files, takes one entry from them, revokes one, compares book and files."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Annotated, Any

import click
from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, suggest
from retention_assets.evaluation.rules_in_force import items_of, load_rulebook, read_policies
from retention_assets.ledger.policy_book import Orphaned
from retention_assets.people.command import command
from retention_assets.people.common.options import ACTOR, FORMAT, examples
from retention_assets.people.common.output import print_json, print_tables, say, say_next
from retention_assets.people.common.sources import find_environment, ledger_to_read, policies_if_any
from retention_assets.people.operation import Flags, Kind, ReasonedRequest, Request, Result, Text, operation
from retention_assets.policy.book import BookDecision, Stored, as_loaded, compare, item_of, sentence_of
from retention_assets.policy.language import Policies
from retention_assets.render.ledger_tables import book_tables, load_table, version_table
from retention_assets.settings.model import Settings


class EntryRequest(ReasonedRequest):
    """Entry of the policy book."""

    name: Annotated[Text, Flags()] = Field(description="The name of the policy, such as raw-30-days.")


class EntryResult(Result):
    """Version of an entry that a person wrote."""

    written: Stored

    @property
    def headline(self) -> str:
        state = "is revoked" if self.written.revoked else "is in force"
        return f"{self.written.name} {state}: version {self.written.version}, by {self.written.written_by}."

    @property
    def next(self) -> str:
        return "no mark was touched. The next evaluation judges by it."

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self.written), "content": json.loads(self.written.content)}


class RevokeResult(EntryResult):
    """Revoked entry, and the open marks that only it made."""

    orphaned_marks: int

    @property
    def next(self) -> str:
        if not self.orphaned_marks:
            return "the next evaluation judges without it."
        return (
            f"the next sweep spares those of its {self.orphaned_marks:,} open marks that no other policy in force selects."
            f" `retention unmark --policy {quote(self.written.name)} --reason …` or the job `unmark` takes them back now."
        )

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "orphaned_marks": self.orphaned_marks}


@operation(Kind.ACT, "retention policies overwrite raw-30-days -r 'as agreed with legal'")
def policy_overwrite(request: EntryRequest, environment: Environment) -> EntryResult:
    """Take what the files say of an entry into the policy book, as a person's decision; this ends a drift."""
    items = {item.name: item for item in items_of(read_policies(environment.settings))}
    if request.name not in items:
        raise unknown_entry(request.name, "the policy files", list(items))
    with environment.ledger() as ledger:
        return EntryResult(written=ledger.policy_book.write(items[request.name], request.actor, request.reason))


@operation(Kind.ACT, "retention policies revoke raw-30-days -r 'replaced by raw-60-days'")
def policy_revoke(request: EntryRequest, environment: Environment) -> RevokeResult:
    """Put an entry of the policy book out of force.

    The next sweep spares what it marked and no other policy in force selects.
    """
    with environment.existing_ledger() as ledger:
        written = ledger.policy_book.revoke(request.name, request.actor, request.reason)
        orphaned = sum(entry.marks for entry in ledger.policy_book.orphaned() if entry.policy == request.name)
    return RevokeResult(written=written, orphaned_marks=orphaned)


def unknown_entry(name: str, where: str, known: Sequence[str]) -> BadInput:
    """Refusal of a name that is in none of the known ones."""
    return BadInput(Problem(f"'{name}' is not in {where}", key="name", remedy=suggest(name, known)))


def compare_with_files(stored: Sequence[Stored], files: Policies, settings: Settings) -> list[BookDecision]:
    """Effect that loading the files now would have on each entry."""
    loaded = [as_loaded(item) for item in items_of(files)]
    aspects = [store.name for store in settings.stores if store.kind == "aspects"]
    return compare(stored, loaded, settings.overwrite_user_policies, aspects)


def book_rows(
    stored: Sequence[Stored], decisions: Sequence[BookDecision], orphaned: Sequence[Orphaned]
) -> list[dict[str, Any]]:
    """Rows for each entry of the book, then for those that only the files have, with the effect of loading."""
    by_name = {decision.name: decision for decision in decisions}
    marks = Counter[str]()
    for one in orphaned:
        marks[one.policy] += one.marks
    rows: list[Mapping[str, Any]] = [
        {name: getattr(entry, name) for name in ("name", "version", "written_by", "written_at", "system", "revoked")}
        for entry in stored
    ]
    nobody = dict.fromkeys(("version", "written_by", "written_at", "system", "revoked"))
    rows += [{"name": one.name, **nobody} for one in decisions if one.stored is None]
    return [{**row, **_comparison(by_name.get(row["name"])), "orphaned_marks": marks[row["name"]]} for row in rows]


def _comparison(decision: BookDecision | None) -> dict[str, str | None]:
    return {"files": decision.outcome.value if decision else None, "why": decision.reason if decision else None}


@examples("retention policies", "retention policies show raw-30-days")
@click.group(invoke_without_command=True)
@FORMAT
@click.pass_context
def policies(context: click.Context, format_: str) -> None:
    """Show the policy book: each entry, who wrote it, how it differs from the files, and the marks that changes orphaned."""
    if context.invoked_subcommand is not None:
        return
    environment = find_environment()
    files = policies_if_any(environment.settings)
    with ledger_to_read(environment) as ledger:
        stored = ledger.policy_book.newest() if ledger else []
        orphaned = ledger.policy_book.orphaned() if ledger else []
    # Without a book there is nothing that files could differ from.
    decisions = compare_with_files(stored, files, environment.settings) if ledger and files else []
    rows = book_rows(stored, decisions, orphaned)
    if format_ == "json":
        print_json({"entries": rows, "orphaned": [vars(one) for one in orphaned]})
    else:
        print_tables(book_tables(rows, orphaned))


@examples("retention policies show raw-30-days")
@policies.command()
@click.argument("name")
@FORMAT
def show(name: str, format_: str) -> None:
    """Show every version of the entry NAME, oldest first."""
    with find_environment().existing_ledger() as ledger:
        versions = ledger.policy_book.versions(name)
        if not versions:
            raise unknown_entry(name, "the policy book", [entry.name for entry in ledger.policy_book.newest()])
    rows = [
        {**vars(version), "content": json.loads(version.content), "sentence": _sentence(name, version.content)}
        for version in versions
    ]
    if format_ == "json":
        print_json(rows)
        return
    print_tables([version_table(name, rows)])


def _sentence(name: str, content: str) -> str | None:
    item = item_of(name, content)
    return None if item is None else sentence_of(item)


@examples("retention policies load")
@policies.command()
@click.option("--overwrite-user-policies", is_flag=True, help="Let the files replace also what people wrote.")
@ACTOR
@FORMAT
def load(overwrite_user_policies: bool, actor: str, format_: str) -> None:
    """Load the policy files of the settings into the book, and show what was done with each entry.

    An entry that a person wrote stays in force where the files differ from it: that is drift, and a warning names it.
    """
    environment = find_environment()
    settings = environment.settings
    if overwrite_user_policies:
        settings = settings.model_copy(update={"overwrite_user_policies": True})
    with environment.ledger() as ledger:
        decisions = load_rulebook(ledger, settings, Request(actor=actor).actor).decisions
    if format_ == "json":
        print_json([_loaded(decision) for decision in decisions])
    else:
        print_tables([load_table(decisions)])
    for decision in decisions:
        if decision.warning:
            say(decision.warning)
    if format_ != "json":
        say_next("`retention run --mark-only` judges by them.")


def _loaded(decision: BookDecision) -> dict[str, Any]:
    touched = [scope.model_dump(mode="json", by_alias=True, exclude_defaults=True) for scope in decision.touched]
    return {"name": decision.name, "outcome": decision.outcome.value, "reason": decision.reason, "touched": touched}


policies.add_command(command(policy_overwrite, "overwrite"))
policies.add_command(command(policy_revoke, "revoke"))
