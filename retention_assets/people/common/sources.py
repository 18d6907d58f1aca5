"""What a command works on: the environment that the settings describe, its policies, its ledger, the present.

Belongs here: finding them by what was typed and by the settings, and a note on stderr where one of them is missing.
Does not belong here: logs (logs.py), and what is done with any of it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retention_assets.errors import BadInput, Problem
from retention_assets.people.common.options import CONFIG_NOTE
from retention_assets.people.common.output import say

if TYPE_CHECKING:
    from retention_assets.environment import Environment
    from retention_assets.evaluation.rules_in_force import RulesInForce
    from retention_assets.frames.log import Log
    from retention_assets.ledger import Ledger
    from retention_assets.policy.language import Policies
    from retention_assets.policy.model import Hold
    from retention_assets.settings.model import Settings


def find_settings(*, needed: bool = True) -> "Settings":
    """The settings of --config, or those that hold where the program runs; the defaults where none are needed."""
    from retention_assets.settings.model import FILE, VARIABLE, load_settings

    context = click.get_current_context(silent=True)
    named: Path | None = context.meta.get(CONFIG_NOTE) if context else None
    if needed and named is None and not os.environ.get(VARIABLE) and not Path(FILE).exists():
        remedy = "`retention init` writes some; --config FILE names those of another place."
        raise BadInput(Problem("there are no settings here", file=FILE, expected="a settings file", remedy=remedy))
    return load_settings(named)


def find_environment(*, needed: bool = True) -> "Environment":
    """What they describe: the ledger and the stores, to be opened."""
    from retention_assets.environment import Environment

    return Environment(find_settings(needed=needed))


def instant(as_of: datetime | None) -> datetime:
    """The instant that was named, or the present."""
    from retention_assets.clock import now

    return as_of or now()


def policies_of(
    paths: tuple[Path, ...], settings: "Settings", branches: "Mapping[str, bool | None] | None" = None
) -> "Policies":
    """The policies of the paths given, or those of the settings. Only the latter have to fit stores that exist; of paths it is
    looked whether they ask for branches where there are none, if `branches` tells that.
    """
    from retention_assets.policy.language import load_policies

    if paths:
        return load_policies(paths, branches=branches)
    return load_policies(settings.policies, settings.branches, settings.needing_grace, settings.branches)


def policies_if_any(settings: "Settings") -> "Policies | None":
    """The policies of the settings; none, with a note, where there are no files at all."""
    if any(path.exists() for path in settings.policies):
        return policies_of((), settings)
    say(f"no policy files at {', '.join(map(str, settings.policies))}")
    return None


def holds_of_files(settings: "Settings") -> tuple["Hold", ...]:
    """The holds that policy files place."""
    policies = policies_if_any(settings)
    return policies.holds if policies else ()


def rules_of(policies: "Policies", log: "Log", settings: "Settings") -> "RulesInForce":
    """The rules in force for the datasets of a log."""
    from retention_assets.evaluation.rules_in_force import rules_for

    rules = rules_for(policies, log.datasets["dataset"].to_pylist(), settings)
    if rules.guessed:
        some = ", ".join(rules.guessed[:3])
        say(
            f"DataHub entries were applied to {len(rules.guessed)} datasets by their names ({some} …): "
            "their stores are not in the settings, where `kind: aspects` would say so."
        )
    return rules


@contextmanager
def ledger_to_read(environment: "Environment") -> "Iterator[Ledger | None]":
    """The ledger, or none, with a note: who only reads leaves no file behind."""
    with environment.ledger_if_any() as ledger:
        if ledger is None:
            say(environment.no_ledger)
        yield ledger
