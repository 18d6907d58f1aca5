"""The commands about the policy book: which policies are in force, how they differ from the files, and every version.

Belongs here: `policies` and what stands below it. What loading decides is the book's own (policy/book.py,
ledger/policy_book.py).
"""

from typing import TYPE_CHECKING, Any

import click

from retention_assets.commands.options import ACTOR, FORMAT, REASON
from retention_assets.commands.output import print_json, print_tables, say
from retention_assets.commands.sources import (
    find_settings,
    ledger_to_change,
    ledger_to_read,
    ledger_to_write,
    policies_if_any,
    policies_of,
)
from retention_assets.errors import BadInput, Problem, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retention_assets.ledger.policy_book import Orphaned
    from retention_assets.policy.book import BookDecision, Loaded, Stored
    from retention_assets.policy.datahub import AspectEntry
    from retention_assets.policy.language import Policies
    from retention_assets.policy.model import Policy
    from retention_assets.settings.model import Settings


@click.group(invoke_without_command=True)
@FORMAT
@click.pass_context
def policies(context: click.Context, format_: str) -> None:
    """Show the policy book: each entry, who wrote it, how it differs from the files, and the marks that changes orphaned."""
    if context.invoked_subcommand is not None:
        return
    settings = find_settings()
    files = policies_if_any(settings)
    with ledger_to_read(settings) as ledger:
        stored = ledger.policy_book.newest() if ledger else []
        orphaned = ledger.policy_book.orphaned() if ledger else []
    # Without a book there is nothing that files could have drifted from.
    rows = _rows(stored, _compared(stored, files, settings), orphaned) if ledger else []
    if format_ == "json":
        print_json({"entries": rows, "orphaned": [vars(one) for one in orphaned]})
        return
    from retention_assets.render.ledger_tables import book_tables

    print_tables(book_tables(rows, orphaned))


def _compared(stored: "Sequence[Stored]", files: "Policies | None", settings: "Settings") -> "dict[str, BookDecision]":
    """What loading the files now would do with each entry."""
    from retention_assets.policy.book import compare

    if files is None:
        return {}
    overwrite = settings.overwrite_user_policies
    return {decision.name: decision for decision in compare(stored, _loaded(files), overwrite, _aspect_stores(settings))}


def _rows(
    stored: "Sequence[Stored]", decisions: "dict[str, BookDecision]", orphaned: "Sequence[Orphaned]"
) -> list[dict[str, Any]]:
    counts: dict[str, int] = {}
    for one in orphaned:
        counts[one.policy] = counts.get(one.policy, 0) + one.marks
    rows = [
        {
            **{name: getattr(entry, name) for name in ("name", "version", "written_by", "written_at", "system", "revoked")},
            **_drift(decisions.get(entry.name)),
            "orphaned_marks": counts.get(entry.name, 0),
        }
        for entry in stored
    ]
    new = [name for name, decision in decisions.items() if decision.stored is None]
    nobody = dict.fromkeys(("version", "written_by", "written_at", "system", "revoked"))
    return rows + [{"name": name, **nobody, **_drift(decisions[name]), "orphaned_marks": counts.get(name, 0)} for name in new]


def _drift(decision: "BookDecision | None") -> dict[str, str | None]:
    return {"files": decision.outcome.value if decision else None, "why": decision.reason if decision else None}


@policies.command()
@click.argument("name")
@FORMAT
def show(name: str, format_: str) -> None:
    """Show every version of the entry NAME, oldest first."""
    import json

    with ledger_to_change(find_settings()) as ledger:
        versions = ledger.policy_book.versions(name)
        known = [] if versions else [entry.name for entry in ledger.policy_book.newest()]
    if not versions:
        raise _unknown(name, "the policy book", known)
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
    from retention_assets.policy import datahub
    from retention_assets.policy.book import item_of
    from retention_assets.policy.model import Policy
    from retention_assets.policy.sentences import sentence

    item = item_of(name, content)
    if item is None:
        return None
    return sentence(item) if isinstance(item, Policy) else datahub.sentence(item)


@policies.command()
@click.option("--overwrite-user-policies", is_flag=True, help="What the files say replaces also what people wrote.")
@ACTOR
@FORMAT
def load(overwrite_user_policies: bool, actor: str, format_: str) -> None:
    """Load the policy files of the settings into the book, and say what was done with each entry.

    What a person wrote stays in force where the files differ from it: that is drift, and a warning names it.
    """
    settings = find_settings()
    loaded = _loaded(policies_of((), settings))
    overwrite = overwrite_user_policies or settings.overwrite_user_policies
    with ledger_to_write(settings) as ledger:
        decisions = ledger.policy_book.load(loaded, actor, overwrite, _aspect_stores(settings))
    if format_ == "json":
        print_json([_decision(decision) for decision in decisions])
    else:
        from retention_assets.render.ledger_tables import load_table

        print_tables([load_table(decisions)])
    for decision in decisions:
        if decision.warning:
            say(decision.warning)


def _decision(decision: "BookDecision") -> dict[str, Any]:
    touched = [scope.model_dump(mode="json", by_alias=True, exclude_defaults=True) for scope in decision.touched]
    return {"name": decision.name, "outcome": decision.outcome.value, "reason": decision.reason, "touched": touched}


@policies.command()
@click.argument("name")
@REASON
@ACTOR
@FORMAT
def overwrite(name: str, reason: str, actor: str, format_: str) -> None:
    """Take what the files say of NAME into the book, as a person's decision; this ends a drift."""
    settings = find_settings()
    files = policies_of((), settings)
    items = {item.name: item for item in _items(files)}
    if name not in items:
        raise _unknown(name, "the policy files", list(items))
    with ledger_to_write(settings) as ledger:
        _print_written(ledger.policy_book.write(items[name], actor, reason), "is in force", format_)


@policies.command()
@click.argument("name")
@REASON
@ACTOR
@FORMAT
def revoke(name: str, reason: str, actor: str, format_: str) -> None:
    """Put the entry NAME out of force. The marks that it made stay; `retention unmark --policy NAME` takes them back."""
    with ledger_to_change(find_settings()) as ledger:
        written = ledger.policy_book.revoke(name, actor, reason)
        orphaned = sum(one.marks for one in ledger.policy_book.orphaned() if one.policy == name)
    _print_written(written, "is revoked", format_)
    if orphaned:
        say(f"{orphaned:,} open marks of it stay. `retention unmark --policy {name}` takes them back.")


def _print_written(written: "Stored", what: str, format_: str) -> None:
    if format_ == "json":
        import json

        print_json({**vars(written), "content": json.loads(written.content)})
    else:
        click.echo(f"{written.name} {what}: version {written.version}, by {written.written_by}.")


def _loaded(files: "Policies") -> "list[Loaded]":
    from retention_assets.policy.book import as_loaded

    return [as_loaded(item) for item in _items(files)]


def _items(files: "Policies") -> "list[Policy | AspectEntry]":
    return [*files.policies, *files.entries]


def _aspect_stores(settings: "Settings") -> list[str]:
    return [store.name for store in settings.stores if store.kind == "aspects"]


def _unknown(name: str, where: str, known: list[str]) -> BadInput:
    guess = nearest(name, known)
    return BadInput(Problem(f"'{name}' is not in {where}", remedy=f"Did you mean {guess}?" if guess else None))
