"""Finds what a request works on, by what was typed and by the settings: environment, policies, rules, logs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.rules_in_force import RulesInForce, read_policies, rules_for
from retention_assets.frames.log import LINES, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.ledger import Ledger
from retention_assets.people.output import CONFIG_NOTE
from retention_assets.policy.language import Policies, load_policies
from retention_assets.settings.model import FILE, VARIABLE, Settings, load_settings
from retention_assets.stores.logs import read_lines
from retention_assets.stores.protocol import Store, call_store


def find_environment(*, needed: bool = True) -> Environment:
    """Environment of --config, or of the settings where the program runs; of the defaults where none are needed."""
    context = click.get_current_context(silent=True)
    named: Path | None = context.meta.get(CONFIG_NOTE) if context else None
    if needed and named is None and not os.environ.get(VARIABLE) and not Path(FILE).exists():
        remedy = "`retention init` writes some; --config FILE names those of another place."
        raise BadInput(Problem("there are no settings here", file=FILE, expected="a settings file", remedy=remedy))
    return Environment(load_settings(named))


def policies_of(paths: Sequence[Path], settings: Settings, branches: Mapping[str, bool | None] | None = None) -> Policies:
    """Load the policies of the paths given, or those of the settings. Only the latter have to fit stores that exist."""
    return load_policies(paths, branches=branches) if paths else read_policies(settings)


def rules_of(policies: Policies, log: Log, settings: Settings) -> tuple[RulesInForce, tuple[str, ...]]:
    """Rules in force for the datasets of a log, with a note where they were guessed."""
    rules = rules_for(policies, log.datasets["dataset"].to_pylist(), settings)
    if not rules.guessed:
        return rules, ()
    note = (
        f"DataHub entries were applied to {len(rules.guessed)} datasets by their names ({', '.join(rules.guessed[:3])} …): "
        "their stores are not in the settings, where `kind: aspects` would say so."
    )
    return rules, (note,)


def what_is_missing(environment: Environment, ledger: Ledger | None, *, policies: bool = False) -> tuple[str, ...]:
    """Notes for who only reads: no ledger yet, and, if asked, no policy files."""
    paths = environment.settings.policies
    absent = policies and not any(path.exists() for path in paths)
    return (
        *((f"no policy files at {', '.join(map(str, paths))}",) if absent else ()),
        *(() if ledger else (environment.no_ledger,)),
    )


def read_all(path: Path | None, environment: Environment) -> tuple[Log, tuple[str, ...]]:
    """Read the log of a path, or of all stores of the settings; and say why a store can't be read."""
    if path is not None:
        # DuckDB takes longer to import than all of this, and only a file needs it.
        from retention_assets.exchange import read_log

        return read_log(path), ()
    if not environment.settings.stores:
        what = "no log was named, and the settings have no log of a store"
        raise BadInput(Problem(what, remedy="Name one with --log FILE."))
    lines, away = [LINES.empty_table()], list[str]()
    for settings in environment.settings.stores:
        try:
            lines += [_lines_of(store) for store in environment.stores([settings.name]).values()]
        except Refused as fault:
            away.append(str(fault))
    if len(lines) == 1:
        raise Refused("\n".join(away))
    return sound_log(pa.concat_tables(lines).combine_chunks()), tuple(away)


def _lines_of(store: Store) -> pa.Table:
    return call_store(store, lambda: read_lines(store, store.datasets()))
