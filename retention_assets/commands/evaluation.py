"""The commands that judge: what policies say, and what they would decide about a log. They write and delete nothing.

Belongs here: `validate`, `schema`, `preview`, `compare` and `explain`. None of them needs a ledger or Dagster; `explain` looks
into a ledger that is there.
"""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retention_assets.errors import BadInput, Refused
from retention_assets.people.common.logs import finish_judging, read_all, read_one
from retention_assets.people.common.options import AS_OF, FORMAT, LOG, POLICIES, STRICT, examples
from retention_assets.people.common.output import ExitCode, echo, echo_json, print_json, print_tables, progress, say, say_next
from retention_assets.people.common.sources import find_environment, find_settings, instant, policies_of, rules_of

if TYPE_CHECKING:
    from retention_assets.policy.language import Policies
    from retention_assets.settings.model import Settings


@examples("retention validate", "retention validate policies/new.yaml")
@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@FORMAT
def validate(paths: tuple[Path, ...], format_: str) -> None:
    """Check policy files and print each policy as a sentence.

    PATHS are files or folders; without them, the policies of the settings, and what each store warns of.
    """
    from retention_assets.policy import datahub
    from retention_assets.policy.sentences import hold_sentence, sentence
    from retention_assets.policy.visibility import visibility_sentence

    settings = find_settings(needed=not paths)
    try:
        policies = policies_of(paths, settings, settings.branches)
    except BadInput as fault:
        if format_ == "json":
            print_json({"valid": False, "problems": [problem.as_dict() for problem in fault.problems]})
        raise
    rules = [(policy.name, sentence(policy)) for policy in policies.policies]
    rules += [(entry.name, datahub.sentence(entry)) for entry in policies.entries]
    holds = [(hold.name or "", hold_sentence(hold)) for hold in policies.holds]
    readable = [(rule.name, visibility_sentence(rule)) for rule in policies.visibility]
    warnings = [] if paths else [*_store_warnings(settings), *_heads_warning(settings), *_unknown_words(policies, settings)]
    warnings += _without_branches(policies, settings)
    idle = [] if paths else _idle_rules(policies, settings)
    for warning in (*(f"{store}: {text}" for store, text in warnings), *idle):
        say(warning)
    if format_ == "json":
        print_json(
            {
                "valid": True,
                "policies": [{"name": name, "sentence": words} for name, words in rules],
                "holds": [{"name": name, "sentence": words} for name, words in holds],
                "visibility": [{"name": name, "sentence": words} for name, words in readable],
                "warnings": [{"store": store, "text": text} for store, text in warnings],
                "idle_rules": idle,
            }
        )
        return
    for name, words in rules + holds + readable:
        echo(f"{name}\n  {words}\n")
    if not rules:
        echo("No policy is in force: nothing will be marked and nothing deleted.")
    policy, hold = "policy" if len(rules) == 1 else "policies", "hold" if len(holds) == 1 else "holds"
    say(f"{len(rules)} {policy} and {len(holds)} {hold} are valid.")
    if not paths:
        say_next("`retention preview` shows what they would mark.")


def _store_warnings(settings: "Settings") -> list[tuple[str, str]]:
    """What a person should know of each store before it is used. One that can't be asked says why."""
    from retention_assets.environment import Environment
    from retention_assets.stores.protocol import call_store

    found = []
    for name, store in Environment(settings).stores().items():
        try:
            found += [(name, text) for text in call_store(store, store.warnings)]
        except Refused as fault:
            found.append((name, str(fault)))
    return found


def _heads_warning(settings: "Settings") -> list[tuple[str, str]]:
    if not settings.stores or any(store.data_root for store in settings.stores):
        return []
    text = (
        "No store has its data below a folder, so the end of the record is noted in the warehouse alone: a backup of"
        " ledger and warehouse together can't be told from the present. Keep them apart."
    )
    return [("ledger", text)]


def _idle_rules(policies: "Policies", settings: "Settings") -> list[str]:
    """Rules that are about nothing of the last evaluation, where there was one and its ledger can be asked."""
    from retention_assets.environment import Environment
    from retention_assets.people.idle_rules import idle_rules

    try:
        with Environment(settings).ledger_if_any() as ledger:
            return idle_rules(policies, ledger)
    except Refused as fault:
        return [f"Nobody can say which rules are about nothing: {fault}"]


def _without_branches(policies: "Policies", settings: "Settings") -> list[tuple[str, str]]:
    """Policies that reach logs without branches, which only the logs of a store tell, with a line that asks for branches."""
    from retention_assets.policy.fields import INDEPENDENT
    from retention_assets.policy.language import may_be_about

    unknown = [store for store, branches in settings.branches.items() if branches is None]
    return [
        (store, f"policy {policy.name} selects nothing in a dataset without branches: {', '.join(lines)} asks for them.")
        for policy in policies.policies
        if (lines := policy.lines_about_branches)
        and (policy.branches.reach != "live" or set(policy.select.types or ()) & set(INDEPENDENT))
        for store in unknown
        if may_be_about(policy.datasets, store)
    ]


def _unknown_words(policies: "Policies", settings: "Settings") -> list[tuple[str, str]]:
    """DataHub entries about an entity or aspect that no row has, where the stores can be asked."""
    from retention_assets.environment import Environment
    from retention_assets.evaluation.changes import list_datasets
    from retention_assets.evaluation.datahub_policies import warn_of_unknown

    environment = Environment(settings)
    if not policies.entries or not any(store.kind == "aspects" for store in settings.stores):
        return []
    listed = list_datasets(environment)
    aspects = " and ".join(store.name for store in settings.stores if store.kind == "aspects")
    return [(aspects, text) for text in warn_of_unknown(policies.entries, listed.names, environment)]


@examples("retention schema > policies/schema.json")
@click.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    from retention_assets.policy.schema import policy_schema

    echo(policy_schema(), nl=False)


@examples("retention preview", "retention preview -t 'in 30d'", "retention preview -l log.jsonl -p policies -f json")
@click.command()
@LOG
@POLICIES
@AS_OF
@FORMAT
@click.option("-n", "--most", default=20, show_default=True, help="How many marks the table lists.")
@STRICT
def preview(
    log_path: Path | None, policy_paths: tuple[Path, ...], as_of: datetime | None, format_: str, most: int, strict: bool
) -> ExitCode:
    """Show what policies would decide about a log. Writes nothing, deletes nothing."""
    from retention_assets.evaluation.preview import as_json, preview

    environment = find_environment(needed=not (log_path and policy_paths))
    policies = policies_of(policy_paths, environment.settings)
    log, away = read_all(log_path, environment)
    for store, text in () if log_path else _store_warnings(environment.settings):
        say(f"{store}: {text}")
    with progress(f"judging {len(log.transactions):,} transactions"):
        result = preview(log, rules_of(policies, log, environment.settings), instant(as_of))
    if format_ == "json":
        for piece in as_json(result):
            echo_json(piece, nl=False)
    else:
        from retention_assets.render.verdict_tables import preview_tables

        print_tables(preview_tables(result, most))
    return finish_judging(log, away, strict=strict)


@examples("retention compare -p policies -p new-policies")
@click.command()
@LOG
@click.option(
    "-p", "--policies", "policy_paths", type=click.Path(path_type=Path), multiple=True, required=True,
    help="Give it twice: first the policies in force, then those to compare them with.",
)  # fmt: skip
@AS_OF
@FORMAT
@click.option("--transactions", "each", is_flag=True, help="With --format json, list every transaction as well as the sums.")
@STRICT
def compare(
    log_path: Path | None, policy_paths: tuple[Path, ...], as_of: datetime | None, format_: str, each: bool, strict: bool
) -> ExitCode:
    """Show what another set of policies would newly mark and no longer mark."""
    from retention_assets.evaluation.preview import compare

    if len(policy_paths) != 2:
        raise click.UsageError("Give --policies exactly twice: before and after.")
    environment = find_environment(needed=log_path is None)
    settings = environment.settings
    before, after = (policies_of((path,), settings) for path in policy_paths)
    log, away = read_all(log_path, environment)
    with progress(f"judging {len(log.transactions):,} transactions twice"):
        changes, rows = compare(log, rules_of(before, log, settings), rules_of(after, log, settings), instant(as_of))
    if format_ == "json":
        found: dict[str, Any] = {"changes": [vars(change) for change in changes]}
        print_json({**found, "transactions": rows.to_pylist()} if each else found)
    else:
        from retention_assets.render.verdict_tables import compare_tables

        print_tables(compare_tables(changes))
    return finish_judging(log, away, strict=strict)


@examples("retention explain lake/raw.orders T1", "retention explain lake/raw.orders T1 -t 'in 30d'")
@click.command()
@click.argument("dataset")
@click.argument("transaction")
@LOG
@POLICIES
@AS_OF
@FORMAT
def explain(
    dataset: str, transaction: str, log_path: Path | None, policy_paths: tuple[Path, ...], as_of: datetime | None, format_: str
) -> None:
    """Explain the verdict of one TRANSACTION of DATASET, line by line, and say whether it is scheduled for deletion.

    It is judged by the rules that the next run goes by, with the holds of the ledger; or by --policies alone.
    """
    from retention_assets.evaluation.explain import explain_with_ledger
    from retention_assets.people.history import explain_transaction

    environment = find_environment(needed=not (log_path and policy_paths))
    if policy_paths:
        log = read_one(log_path, environment, dataset)
        rules = rules_of(policies_of(policy_paths, environment.settings), log, environment.settings)
        found = explain_with_ledger(log, rules, None, dataset, transaction, instant(as_of))
    else:
        with progress(f"reading {dataset}"):
            found = explain_transaction(environment, dataset, transaction, as_of, log_path)
    if format_ == "json":
        print_json(found.as_dict())
    else:
        from retention_assets.render.terminal import console
        from retention_assets.render.verdict_tables import explained_transaction

        console().print(explained_transaction(found))
