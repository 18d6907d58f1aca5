"""Checks policy files, previews and compares what they would decide about a log, and shows and changes the policy book."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import click
import pyarrow as pa
from pydantic import Field

from retention_assets.clock import now
from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.evaluation import preview as evaluation
from retention_assets.evaluation.changes import list_datasets
from retention_assets.evaluation.keepers import read_policies
from retention_assets.evaluation.rules_in_force import (
    RulesInForce,
    aspects_stores,
    compare_with_files,
    items_of,
    load_rulebook,
    rules_for,
    warn_of_unknown,
)
from retention_assets.frames.log import LINES, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.ledger.book import Orphaned
from retention_assets.people.command import command, examples, group
from retention_assets.people.operation import (
    AsOf,
    Flags,
    Kind,
    LogFile,
    Only,
    PolicyFiles,
    ReasonedRequest,
    RecordedRequest,
    Request,
    Result,
    Strict,
    Text,
    json_rows,
    operation,
    what_is_missing,
)
from retention_assets.people.output import echo
from retention_assets.policy.book import Stored, item_of, sentence_of
from retention_assets.policy.durations import Duration
from retention_assets.policy.language import Policies, load_policies, may_be_about, policy_schema
from retention_assets.policy.loading import BookDecision
from retention_assets.policy.model import RetainRule, named_holds
from retention_assets.policy.selection import INDEPENDENT
from retention_assets.policy.sentences import count, hold_sentence
from retention_assets.render.tables import book_tables, compare_tables, load_table, preview_tables, version_table
from retention_assets.settings.model import Settings
from retention_assets.stores.logs import read_lines
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store, call_store


def policies_of(paths: Sequence[Path], settings: Settings) -> Policies:
    """Load the policies of the paths given, or those of the settings. Only the latter have to fit stores that exist."""
    return load_policies(paths) if paths else read_policies(settings)


def rules_of(policies: Policies, log: Log, settings: Settings) -> tuple[RulesInForce, tuple[str, ...]]:
    """Rules in force for the datasets of a log, with a note where they were guessed."""
    rules = rules_for(policies, log.datasets["dataset"].to_pylist(), settings)
    if not rules.guessed:
        return rules, ()
    note = (
        f"DataHub entries were applied to {len(rules.guessed)} datasets by their names ({', '.join(rules.guessed[:3])} …): "
        "their stores are not in the settings, where `kind: aspects` would settle that."
    )
    return rules, (note,)


def _read_all(path: Path | None, environment: Environment, as_of: datetime | None) -> tuple[Log, tuple[str, ...]]:
    if path is not None:
        # DuckDB takes longer to import than all of this, and only a file needs it.
        from retention_assets.exchange import read_log

        return read_log(path), ()
    if not environment.settings.stores:
        what = "no log was named, and no store of the settings has one"
        raise BadInput(Problem(what, remedy="Name one with --log FILE."))
    lines, away = [LINES.empty_table()], list[str]()
    with ExitStack() as stack:
        scanned, unread = dict[str, Store](), dict[str, str | None]()
        if any(isinstance(settings, ObjectsSettings) for settings in environment.settings.stores):
            # Imported here: it loads all that sweeps, and most environments have no scanned store.
            from retention_assets.people.rehearsal import scan_stores

            ledger = stack.enter_context(environment.ledger_if_any())
            scanned, unread = scan_stores(environment, ledger, DatasetFilter(), as_of, stack)
        for name in (settings.name for settings in environment.settings.stores):
            try:
                if (fault := unread.get(name)) is not None:
                    raise Refused(f"{name}/* was not read: {fault}")
                store = scanned.get(name) or environment.stores([name])[name]
                lines.append(call_store(store, partial(read_lines, store, call_store(store, store.datasets))))
            except Refused as refusal:
                away.append(str(refusal))
    if len(lines) == 1:
        raise Refused("\n".join(away))
    return sound_log(pa.concat_tables(lines).combine_chunks()), tuple(away)


# --- files ---


class ValidateRequest(Request):
    """Policy files to check."""

    paths: Annotated[tuple[Path, ...], Flags()] = Field(
        default=(), description="Files or folders; by default the policies of the settings, with the warnings of each store."
    )

    @property
    def needs_settings(self) -> bool:
        return not self.paths


@operation(Kind.LOOK, "retention validate", "retention validate policies/new.yaml")
def validate_policies(request: ValidateRequest, environment: Environment) -> Result:
    """Check policy files and print each policy as a sentence.

    PATHS are files or folders; without them, the policies of the settings and the warnings of each store.
    """
    settings, from_settings = environment.settings, not request.paths
    try:
        policies = read_policies(settings, request.paths)
    except BadInput as fault:
        problems = [problem.as_dict() for problem in fault.problems]
        return Result(bad_input=fault.first_problems(), data={"valid": False, "problems": problems})
    warnings, faults = _without_branches(policies, settings), list[Problem]()
    if from_settings:
        of_undo, faults = _ask_about_undo(policies, environment)
        of_stores = dict.fromkeys([*_store_warnings(environment), *of_undo])
        of_stores |= dict.fromkeys(_promises(policies, environment))
        warnings = [*of_stores, *_heads_warning(settings), *_entry_notes(policies, environment), *warnings]
    idle = _idle_rules(policies, environment) if from_settings else []
    rules = [(policy.name, sentence_of(policy)) for policy in policies.policies]
    rules += [(entry.name, sentence_of(entry)) for entry in policies.entries]
    retain = [(rule.name, hold_sentence(rule)) for rule in policies.holds if isinstance(rule, RetainRule)]
    holds = [(hold.name or "", hold_sentence(hold)) for hold in named_holds(policies.holds)]
    visibility = [(rule.name, sentence_of(rule)) for rule in policies.visibility]
    named = {"policies": rules, "holds": holds, "retain": retain, "visibility": visibility}
    counts = [count(len(rules), "policy", "policies"), count(len(holds), "hold")]
    counts += [count(len(retain), "retain rule")] if retain else []
    return Result(
        sentences=[
            *(f"{name}\n  {words}\n" for part in named.values() for name, words in part),
            *([] if rules else ["No policy is in force: nothing is marked or deleted."]),
            *([] if faults else [f"{', '.join(counts[:-1])} and {counts[-1]} are valid."]),
        ],
        next="`retention preview` shows what they would mark." if from_settings and not faults else "",
        notes=[*(f"{store}: {text}" for store, text in warnings), *idle],
        failures=[str(fault) for fault in faults],
        data={
            "valid": not faults,
            **({"problems": [fault.as_dict() for fault in faults]} if faults else {}),
            **{key: [{"name": name, "sentence": words} for name, words in part] for key, part in named.items()},
            "warnings": [{"store": store, "text": text} for store, text in warnings],
            "idle_rules": idle,
        },
    )


validate = command(validate_policies, "validate")


def _store_warnings(environment: Environment) -> list[tuple[str, str]]:
    warnings = []
    for name, store in environment.stores().items():
        try:
            warnings += [(name, text) for text in call_store(store, store.warnings)]
        except Refused as fault:
            warnings.append((name, str(fault)))
    return warnings


def _ask_about_undo(policies: Policies, environment: Environment) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Return what may end the window of `undo` early in a store, and where policies or purges can't have it at all."""
    warnings, faults, settings = list[tuple[str, str]](), list[Problem](), environment.settings
    for name, store in environment.stores().items():
        undos: list[tuple[Duration, str, str | None]] = [
            (policy.undo, "undo", policy.name)
            for policy in policies.policies
            if policy.undo and may_be_about(policy.datasets, name)
        ]
        if settings.realms.undo and name in settings.undo_faults:
            warnings.append((name, "realms.undo does not reach this store, which can't set data aside: a purge deletes it."))
        elif settings.realms.undo:
            undos.append((settings.realms.undo, "realms.undo", None))
        try:
            fault = call_store(store, store.undo_fault) if undos else None
            if undos and fault is None:
                longest = max((undo for undo, *_ in undos), key=lambda undo: undo.length)
                warnings += [(name, text) for text in call_store(store, partial(store.undo_warnings, longest))]
            what = f"nothing of the store {name} can be set aside"
            faults += [Problem(what, policy=policy, key=key, remedy=fault) for _, key, policy in undos if fault]
        except Refused as away:
            warnings.append((name, str(away)))
    return warnings, faults


def _promises(policies: Policies, environment: Environment) -> list[tuple[str, str]]:
    warnings = list[tuple[str, str]]()
    for name, store in environment.stores().items():
        about = [policy for policy in policies.policies if may_be_about(policy.datasets, name)]
        if about:
            try:
                warnings += [(name, text) for text in call_store(store, partial(store.policy_warnings, about))]
            except Refused as away:
                warnings.append((name, str(away)))
    return warnings


def _heads_warning(settings: Settings) -> list[tuple[str, str]]:
    if not settings.stores or any(store.data_root for store in settings.stores):
        return []
    text = (
        "No store has its data below a folder, so only the warehouse notes the end of the record. An old backup of ledger "
        "and warehouse together would not be noticed. Keep their backups apart."
    )
    return [("ledger", text)]


def _idle_rules(policies: Policies, environment: Environment) -> list[str]:
    # imported here: it loads what reads the warehouse, and a file that is checked alone needs none of it
    from retention_assets.people.idle_rules import idle_rules

    try:
        with environment.ledger_if_any() as ledger:
            return idle_rules(policies, ledger)
    except Refused as fault:
        return [f"Rules that match nothing can't be found: {fault}"]


def _without_branches(policies: Policies, settings: Settings) -> list[tuple[str, str]]:
    unknown = [store for store, branches in settings.branches.items() if branches is None]
    return [
        (store, f"policy {policy.name} selects nothing in a dataset without branches, because of {', '.join(lines)}.")
        for policy in policies.policies
        if (lines := policy.lines_about_branches)
        and (policy.branches.reach != "live" or set(policy.select.types or ()) & set(INDEPENDENT))
        for store in unknown
        if may_be_about(policy.datasets, store)
    ]


def _entry_notes(policies: Policies, environment: Environment) -> list[tuple[str, str]]:
    if not policies.entries or not (aspects := aspects_stores(environment.settings)):
        return []
    names = list_datasets(environment).names
    return [(" and ".join(aspects), text) for text in warn_of_unknown(policies.entries, names, environment)]


@examples("retention schema > policies/schema.json")
@click.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    echo(policy_schema(), nl=False)


# --- the book ---


class EntryRequest(ReasonedRequest):
    """Entry of the policy book."""

    name: Annotated[Text, Flags()] = Field(description="The name of the policy, such as raw-30-days.")


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

    name: Annotated[Text, Flags()] = Field(description="The name of the policy, such as raw-30-days.")


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
    return Result(data=rows, tables=lambda: [version_table(request.name, rows)])


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
    return Result(
        tables=lambda: [load_table(decisions)],
        notes=[decision.warning for decision in decisions if decision.warning],
        next="`retention run --mark-only` applies them.",
        data=[
            {
                "name": decision.name,
                "outcome": decision.outcome.value,
                "reason": decision.reason,
                "touched": [scope.as_written for scope in decision.touched],
            }
            for decision in decisions
        ],
    )


policies = group(
    show_book,
    "policies",
    command(show_versions, "show"),
    command(load_policy_files, "load"),
    command(policy_overwrite, "overwrite"),
    command(policy_revoke, "revoke"),
)


# --- what policies would decide ---


class PreviewRequest(Request):
    """Log, and policies to judge it by."""

    log: LogFile = None
    policies: PolicyFiles = ()
    against: Annotated[tuple[Path, ...], Flags("--against"), Only.COMMAND] = Field(
        default=(), description="Show what these policies would newly mark, and no longer mark; may be repeated."
    )
    as_of: AsOf = None
    most: Annotated[int, Flags("-n", "--most"), Only.COMMAND] = Field(
        default=20, ge=0, description="List at most this many marks, and as many kept transactions."
    )
    strict: Strict = False


@operation(
    Kind.LOOK,
    "retention preview",
    "retention preview -l log.jsonl -p policies -f json",
    "retention preview --against new-policies",
    progress="reading and judging",
)
def make_preview(request: PreviewRequest, environment: Environment) -> Result:
    """Show what policies would decide about a log. Writes nothing, deletes nothing.

    With --against it shows where the decisions of other policies differ.
    """
    settings, at = environment.settings, request.as_of or now()
    policies = policies_of(request.policies, settings)
    others = policies_of(request.against, settings) if request.against else None
    log, away = _read_all(request.log, environment, request.as_of)
    rules, notes = rules_of(policies, log, settings)
    if others is not None:
        after, more = rules_of(others, log, settings)
        changes, rows = evaluation.compare(log, rules, after, at)
        listed = (row for batch in rows.to_batches() for row in batch.to_pylist())
        return Result(
            tables=lambda: compare_tables(changes),
            pieces=lambda: json_rows(listed, {"changes": [vars(change) for change in changes]}, "transactions"),
            notes=tuple(dict.fromkeys((*notes, *more))),
            failures=away,
            refusals=_refusals(log),
        )
    # a store that is away is named once, by its failure
    stores = [] if request.log else _store_warnings(environment)
    warnings = [(name, text) for name, text in stores if not any(text in fault for fault in away)]
    judged = evaluation.preview(log, rules, at)
    return Result(
        tables=lambda: preview_tables(judged, request.most),
        pieces=lambda: evaluation.as_json(judged),
        notes=(*(f"{store}: {text}" for store, text in warnings), *notes),
        failures=away,
        refusals=_refusals(log),
    )


def _refusals(log: Log) -> tuple[str, ...]:
    refused = len(log.datasets) - log.datasets["fault"].null_count
    words = f"{refused} of {len(log.datasets)} datasets were refused, because their logs are not sound."
    return (words,) if refused else ()


preview = command(make_preview, "preview")
