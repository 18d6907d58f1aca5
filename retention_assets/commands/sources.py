"""What a command works on: the settings, the policies, the ledger, the present.

Belongs here: finding them by what was typed and by the settings. Does not belong here: logs (logs.py), and what is done with
any of it.

Every command finds its ledger through the settings. One that only reads asks for `ledger_to_read`, which makes none where
there is none; one that changes what must be there already for `ledger_to_change`; one that may be the first for
`ledger_to_write`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from retention_assets.commands.output import say
from retention_assets.errors import Refused

if TYPE_CHECKING:
    from retention_assets.evaluation.rules_in_force import RulesInForce
    from retention_assets.frames.log import Log
    from retention_assets.ledger import Ledger
    from retention_assets.policy.language import Policies
    from retention_assets.policy.model import Hold
    from retention_assets.settings.model import Settings


def find_settings() -> "Settings":
    """The settings that hold where the program runs."""
    from retention_assets.settings.model import load_settings

    return load_settings()


def instant(as_of: datetime | None) -> datetime:
    """The instant that was named, or the present."""
    from retention_assets.clock import now

    return as_of or now()


def policies_of(paths: tuple[Path, ...], settings: "Settings") -> "Policies":
    """The policies of the paths given, or those of the settings. Only the latter have to name stores that exist."""
    from retention_assets.policy.language import load_policies

    if paths:
        return load_policies(paths)
    return load_policies(settings.policies, {store.name for store in settings.stores})


def policies_if_any(settings: "Settings") -> "Policies | None":
    """The policies of the settings; none, with a word about it, where there are no files at all."""
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
def ledger_to_write(settings: "Settings") -> "Iterator[Ledger]":
    """The ledger, made if there is none."""
    from retention_assets.ledger import open_ledger

    with open_ledger(settings.ledger) as ledger:
        yield ledger


@contextmanager
def ledger_to_change(settings: "Settings") -> "Iterator[Ledger]":
    """The ledger that knows what is to be changed; refused where there is none."""
    from retention_assets.ledger import ledger_is_there

    if not ledger_is_there(settings.ledger):
        raise Refused(_nothing_at(settings))
    with ledger_to_write(settings) as ledger:
        yield ledger


@contextmanager
def ledger_to_read(settings: "Settings") -> "Iterator[Ledger | None]":
    """The ledger, or none, with a word about it: who only looks leaves no file behind."""
    from retention_assets.ledger import ledger_is_there

    if ledger_is_there(settings.ledger):
        with ledger_to_write(settings) as ledger:
            yield ledger
    else:
        say(_nothing_at(settings))
        yield None


def _nothing_at(settings: "Settings") -> str:
    return f"no ledger yet at {settings.ledger}; nothing is marked"
