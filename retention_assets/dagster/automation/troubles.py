"""What is wrong with an environment at this moment, whatever run or tick found it.

Belongs here: sensors and schedules whose last tick failed, assets that are overdue, checks with standing violations (stores
that are away among them), and policies that differ from their files. Does not belong here: telling anybody (alerts.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import dagster as dg

from retention_assets.clock import now
from retention_assets.dagster.automation.freshness import explain_overdue, freshness_policies
from retention_assets.dagster.checks.queries import CHECKS
from retention_assets.dagster.step import Resources
from retention_assets.errors import BadInput
from retention_assets.evaluation.rules_in_force import foreseen_rulebook
from retention_assets.stores.protocol import error_text


@dataclass(frozen=True)
class Trouble:
    """What is wrong with one thing: `about` are the datasets, stores or policies at fault, each with a sentence.

    What is about none of them stands under "".
    """

    title: str
    about: Mapping[str, str]


# By what is at fault.
Troubles = Mapping[str, Trouble]


def find_troubles(
    context: dg.SensorEvaluationContext, resources: Resources, watched: Iterable[str]
) -> dict[str, Troubles | None]:
    """All there is to tell, by where it was looked for; None where nobody could look, so that nothing is known to be mended."""
    found: dict[str, Troubles | None] = {
        "ticks": _failed_ticks(context, frozenset(watched)),
        "freshness": _overdue(context.instance, resources),
        "checks": None,
        "policies": None,
        "ledger": {},
    }
    try:
        found["checks"] = _failed_checks(resources)
        found["policies"] = _drifted(resources)
    except BadInput:
        # The sensors and runs that load policy files say so.
        pass
    except Exception as fault:  # noqa: BLE001 - whatever keeps the ledger from being read has to be told, and is no reason to stop
        found["ledger"] = {"ledger": Trouble("The ledger can't be read", {"": error_text(fault)})}
    return found


def _failed_ticks(context: dg.SensorEvaluationContext, watched: frozenset[str]) -> Troubles:
    """The sensors and schedules whose last tick failed. One that somebody has stopped is not waited for."""
    found, here = {}, context.code_location_origin
    for state in context.instance.all_instigator_state():
        # Another code location may have sensors of the same names.
        is_here = here is None or state.repository_selector.location_name == here.location_name
        if not is_here or state.instigator_name not in watched or state.status.value == "STOPPED":
            continue
        # The newest may be at work.
        ticks = context.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=2)
        over = next((tick for tick in ticks if tick.status.value != "STARTED"), None)
        if over is not None and over.status.value == "FAILURE":
            what = f"{state.instigator_type.value.lower()} {state.instigator_name}"
            found[what] = Trouble(f"The {what} fails", {"": _bottom_of(over.error)})
    return found


def _bottom_of(error: object) -> str:
    """The sentence of what went wrong first."""
    while (cause := getattr(error, "cause", None)) is not None:
        error = cause
    return str(getattr(error, "message", "") or "no error was given").strip()


def _overdue(instance: dg.DagsterInstance, resources: Resources) -> Troubles:
    automation = resources.retention.settings.automation
    keys = {resources.names.key(asset): asset for asset in freshness_policies(automation)}
    states = instance.get_freshness_state_records(list(keys))
    return {
        asset: Trouble(f"{key.to_user_string()} is overdue", {"": explain_overdue(asset, automation)})
        for key, asset in keys.items()
        if key in states and states[key].freshness_state.value == "FAIL"
    }


def _failed_checks(resources: Resources) -> Troubles:
    assets = {check.name: asset for asset, checks in CHECKS.items() for check in checks}
    about: dict[str, dict[str, str]] = {}
    with resources.retention.ledger() as ledger:
        for one in ledger.violations.standing():
            about.setdefault(one.check, {})[one.dataset] = f"{one.what}, since {one.since:%Y-%m-%d %H:%M} UTC"
    return {
        check: Trouble(f"The check {check} of {resources.names.key(assets[check]).to_user_string()} fails", sentences)
        for check, sentences in about.items()
        if check in assets
    }


def _drifted(resources: Resources) -> Troubles:
    with resources.retention.ledger() as ledger:
        decisions = foreseen_rulebook(ledger, resources.retention.settings, now()).decisions
    differing = {one.name: one.warning for one in decisions if one.warning}
    return {"policies": Trouble("The policy book differs from the policy files", differing)} if differing else {}
