"""The commands about the policy book: which policies are in force, how they differ from the files, and every version.

Belongs here: `policies` with what stands below it. What loading decides is the book's own (policy/book.py).
"""

import json
from typing import TYPE_CHECKING

import click

from retention_assets.commands.common.options import ACTOR, FORMAT, REASON, examples
from retention_assets.commands.common.output import echo, print_json, print_tables, say, say_next
from retention_assets.commands.common.sources import find_environment, ledger_to_read, policies_if_any

if TYPE_CHECKING:
    from retention_assets.operations.policy_book import EntryResult


@examples("retention policies", "retention policies show raw-30-days")
@click.group(invoke_without_command=True)
@FORMAT
@click.pass_context
def policies(context: click.Context, format_: str) -> None:
    """Show the policy book: each entry, who wrote it, how it differs from the files, and the marks that changes orphaned."""
    if context.invoked_subcommand is not None:
        return
    from retention_assets.operations.policy_book import book_rows, compare_with_files
    from retention_assets.render.ledger_tables import book_tables

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
    from retention_assets.operations.policy_book import unknown_entry

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
    from retention_assets.render.ledger_tables import version_table

    print_tables([version_table(name, rows)])


def _sentence(name: str, content: str) -> str | None:
    from retention_assets.policy.book import item_of, sentence_of

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
    from retention_assets.operations.policy_book import LoadRequest, load_policy_files
    from retention_assets.render.ledger_tables import load_table

    request = LoadRequest(actor=actor, overwrite_user_policies=overwrite_user_policies)
    loaded = load_policy_files(request, find_environment())
    if format_ == "json":
        print_json(loaded.as_list())
    else:
        print_tables([load_table(loaded.decisions)])
    for warning in loaded.warnings:
        say(warning)
    if format_ != "json":
        say_next("`retention run --mark-only` judges by them.")


@examples("retention policies overwrite raw-30-days -r 'as agreed with legal'")
@policies.command()
@click.argument("name")
@REASON
@ACTOR
@FORMAT
def overwrite(name: str, reason: str, actor: str, format_: str) -> None:
    """Take what the files say of the entry NAME into the book, as a person's decision; this ends a drift."""
    from retention_assets.operations.policy_book import overwrite_policy
    from retention_assets.operations.request import NamedRequest

    entry = overwrite_policy(NamedRequest(actor=actor, reason=reason, name=name), find_environment())
    _print_entry(entry, "is in force", format_)


@examples("retention policies revoke raw-30-days -r 'replaced by raw-60-days'")
@policies.command()
@click.argument("name")
@REASON
@ACTOR
@FORMAT
def revoke(name: str, reason: str, actor: str, format_: str) -> None:
    """Put the entry NAME out of force. The next sweep spares what it marked and no other policy in force selects."""
    from retention_assets.operations.policy_book import revoke_policy
    from retention_assets.operations.request import NamedRequest

    entry = revoke_policy(NamedRequest(actor=actor, reason=reason, name=name), find_environment())
    _print_entry(entry, "is revoked", format_)
    if entry.orphaned_marks:
        say(
            f"The next sweep spares those of its {entry.orphaned_marks:,} open marks that no other policy in force selects."
            f" `retention unmark --policy {name}` takes them back now."
        )


def _print_entry(entry: "EntryResult", what: str, format_: str) -> None:
    if format_ == "json":
        print_json(entry.as_dict())
    else:
        echo(f"{entry.written.name} {what}: version {entry.written.version}, by {entry.written.written_by}.")
