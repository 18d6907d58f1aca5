"""Change the policy book: load the files, take one entry from them, revoke one, and compare book and files."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, nearest
from retention_assets.evaluation.rules_in_force import items_of, load_rulebook, read_policies
from retention_assets.ledger.policy_book import Orphaned
from retention_assets.operations.request import NamedRequest, Request
from retention_assets.policy.book import BookDecision, Stored, as_loaded, compare
from retention_assets.policy.language import Policies
from retention_assets.settings.model import Settings


@dataclass(frozen=True, kw_only=True)
class LoadRequest(Request):
    """Actor who loads the files; and whether these replace entries that people wrote, whatever the settings say."""

    overwrite_user_policies: bool = False


@dataclass(frozen=True)
class LoadResult:
    """Effect of loading on each entry."""

    decisions: tuple[BookDecision, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about entries that differ from the files and stay."""
        return tuple(decision.warning for decision in self.decisions if decision.warning)

    def as_list(self) -> list[dict[str, Any]]:
        return [
            {
                "name": one.name,
                "outcome": one.outcome.value,
                "reason": one.reason,
                "touched": [scope.model_dump(mode="json", by_alias=True, exclude_defaults=True) for scope in one.touched],
            }
            for one in self.decisions
        ]


def load_policy_files(request: LoadRequest, environment: Environment) -> LoadResult:
    """Load the policy files of the settings into the book."""
    settings = environment.settings
    if request.overwrite_user_policies:
        settings = settings.model_copy(update={"overwrite_user_policies": True})
    with environment.ledger() as ledger:
        return LoadResult(load_rulebook(ledger, settings, request.actor).decisions)


@dataclass(frozen=True)
class EntryResult:
    """Version of an entry that a person wrote, and the number of open marks that no longer have a policy because of it."""

    written: Stored
    orphaned_marks: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self.written), "content": json.loads(self.written.content)}


def overwrite_policy(request: NamedRequest, environment: Environment) -> EntryResult:
    """Take what the files say of an entry into the book, as a person's decision; this ends a drift."""
    items = {item.name: item for item in items_of(read_policies(environment.settings))}
    if request.name not in items:
        raise unknown_entry(request.name, "the policy files", list(items))
    with environment.ledger() as ledger:
        return EntryResult(ledger.policy_book.write(items[request.name], request.actor, request.reason))


def revoke_policy(request: NamedRequest, environment: Environment) -> EntryResult:
    """Put an entry out of force."""
    with environment.existing_ledger() as ledger:
        written = ledger.policy_book.revoke(request.name, request.actor, request.reason)
        orphaned = sum(one.marks for one in ledger.policy_book.orphaned() if one.policy == request.name)
    return EntryResult(written, orphaned)


def unknown_entry(name: str, where: str, known: Sequence[str]) -> BadInput:
    """Refusal of a name that is in none of the known ones."""
    guess = nearest(name, known)
    remedy = f"Did you mean {guess}?" if guess else None
    return BadInput(Problem(f"'{name}' is not in {where}", key="name", remedy=remedy))


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
