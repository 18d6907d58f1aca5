"""Checks policy files, and prints their schema."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import click
from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.changes import list_datasets
from retention_assets.evaluation.keepers import read_policies
from retention_assets.evaluation.rules_in_force import RulesInForce, aspects_stores, rules_for, warn_of_unknown
from retention_assets.frames.log import Log
from retention_assets.people.command import command, examples
from retention_assets.people.operation import Flags, Kind, Request, Result, operation
from retention_assets.people.output import echo
from retention_assets.policy.book import sentence_of
from retention_assets.policy.durations import Duration
from retention_assets.policy.language import Policies, load_policies, may_be_about, policy_schema
from retention_assets.policy.model import Hold, RetainRule
from retention_assets.policy.selection import INDEPENDENT
from retention_assets.policy.sentences import count, hold_sentence
from retention_assets.settings.model import Settings
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
        of_stores = dict.fromkeys([*store_warnings(environment), *of_undo])
        of_stores |= dict.fromkeys(_promises(policies, environment))
        warnings = [*of_stores, *_heads_warning(settings), *_entry_notes(policies, environment), *warnings]
    idle = _idle_rules(policies, environment) if from_settings else []
    rules = [(policy.name, sentence_of(policy)) for policy in policies.policies]
    rules += [(entry.name, sentence_of(entry)) for entry in policies.entries]
    retain = [(rule.name, hold_sentence(rule)) for rule in policies.holds if isinstance(rule, RetainRule)]
    holds = [(hold.name or "", hold_sentence(hold)) for hold in policies.holds if isinstance(hold, Hold)]
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


def _ask_stores(environment: Environment, ask: Callable[[str, Store], Iterable[str]]) -> list[tuple[str, str]]:
    """Return what the stores answer, each text with the store's name; of a store that is away, why."""
    answers = list[tuple[str, str]]()
    for name, store in environment.stores().items():
        try:
            answers += [(name, text) for text in ask(name, store)]
        except Refused as away:
            answers.append((name, str(away)))
    return answers


def store_warnings(environment: Environment) -> list[tuple[str, str]]:
    return _ask_stores(environment, lambda _, store: call_store(store, store.warnings))


def _ask_about_undo(policies: Policies, environment: Environment) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Return what may end the window of `undo` early in a store, and where policies or purges can't have it at all."""
    faults, settings, of_realms = list[Problem](), environment.settings, environment.settings.realms.undo

    def ask(name: str, store: Store) -> Iterable[str]:
        undos: list[tuple[Duration, str, str | None]] = [
            (policy.undo, "undo", policy.name)
            for policy in policies.policies
            if policy.undo and may_be_about(policy.datasets, name)
        ]
        if of_realms and name not in settings.undo_faults:
            undos.append((of_realms, "realms.undo", None))
        if not undos:
            return ()
        if fault := call_store(store, store.undo_fault):
            what = f"nothing of the store {name} can be set aside"
            faults.extend(Problem(what, policy=policy, key=key, remedy=fault) for _, key, policy in undos)
            return ()
        longest = max((undo for undo, *_ in undos), key=lambda undo: undo.length)
        return call_store(store, partial(store.undo_warnings, longest))

    text = "realms.undo does not reach this store, which can't set data aside: a purge deletes it."
    unreached = [(name, text) for name in settings.undo_faults if of_realms]
    return [*unreached, *_ask_stores(environment, ask)], faults


def _promises(policies: Policies, environment: Environment) -> list[tuple[str, str]]:
    def ask(name: str, store: Store) -> Iterable[str]:
        about = [policy for policy in policies.policies if may_be_about(policy.datasets, name)]
        return call_store(store, partial(store.policy_warnings, about)) if about else ()

    return _ask_stores(environment, ask)


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
