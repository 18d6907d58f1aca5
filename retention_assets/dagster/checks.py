"""Asset checks: check results as Dagster's checks of assets, and as events of the jobs that work through lists.

A check is of an asset, never of a dataset: partitioned checks would cost events with the square of their number, so the
offending datasets are a table in the metadata. A failed blocking check stops whatever follows; the datasets at fault are
left out or refused by what made them, and the check is the alarm.

A violation of a dataset stands until the check finds it mended, or the dataset is gone. So a result is about this run's
datasets, joined with the standing violations of others; once a day a check looks at everything.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg

from retention_assets.dagster.check_queries import CHECKS, Check, CheckScope
from retention_assets.dagster.step import Step
from retention_assets.datasets import DatasetFilter, store_of
from retention_assets.evaluation.changes import Listing
from retention_assets.ledger.evaluations import StandingViolation
from retention_assets.ledger.invariants import CheckResult, Violation
from retention_assets.policy.durations import text_of
from retention_assets.render.dagster import draw_table
from retention_assets.render.page import MOST_SHOWN, Column, Count, Table
from retention_assets.stores.protocol import error_text

# Highest age of a look at everything. Runs look at datasets that they read or judged; others may have changed meanwhile.
_WHOLE_LOOK = timedelta(days=1)


def check_events(
    run: Step, checks: Sequence[Check], selected: Container[dg.AssetCheckKey] = frozenset()
) -> Iterator[dg.AssetCheckResult | dg.AssetCheckEvaluation]:
    """Evaluate checks of the asset that a step made, then raise if a blocking one failed.

    The step yields these events: those that it only logs are lost when it fails. Faults of datasets that the run is not about
    fail the check but not the run: an objection holds these datasets back. `selected` are checks of which Dagster expects a
    result. A step that makes nothing does not raise: Dagster fails it after all of its checks.
    """
    if not checks:
        return
    failed = []
    with run.within_ledger() as opened:
        scope = CheckScope(*opened)
        for check in checks:
            result = query(scope, check)
            state = _joined_with_record(scope, check, result)
            is_stopped = check.blocking and not result.passed
            if check.key(run.key) in selected:
                # Dagster stops at an error of a blocking check. Faults of datasets that the run is not about only warn here.
                is_warning = check.warns or (check.blocking and result.passed)
                yield dg.AssetCheckResult(check_name=check.name, **_fields(run.key, state, is_warning))
            else:
                yield check_evaluation(run.key, check, state, is_stopped)
            if is_stopped:
                failed.append(f"{check.name} failed. {result.actual}")
    if failed and not run.makes_nothing:
        raise dg.Failure(f"The run stops here. {' '.join(failed)}", allow_retries=False)


def check_evaluation(asset: dg.AssetKey, check: Check, state: CheckResult, is_blocking: bool) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(check_name=check.name, blocking=is_blocking, **_fields(asset, state, check.warns))


def _fields(asset: dg.AssetKey, state: CheckResult, is_warning: bool) -> dict[str, Any]:
    since = {name: text_of(time.replace(microsecond=0)) for name, time in state.since.items()}
    columns = (
        Column(state.noun, "dataset", key=state.noun),
        Count("violations", "times", key="violations"),
        "what",
        Column("since", lambda violation: since.get(violation.dataset)),
    )
    return {
        "asset_key": asset,
        "passed": state.passed,
        "severity": dg.AssetCheckSeverity.WARN if is_warning else dg.AssetCheckSeverity.ERROR,
        "description": state.actual,
        "metadata": {
            "expected": state.expected,
            "actual": state.actual,
            "violations": state.violations,
            f"{state.noun}s": len(state.by_dataset),
            f"offending_{state.noun}s": draw_table(Table("", columns, state.shown)),
        },
    }


def query(scope: CheckScope, check: Check) -> CheckResult:
    """Query a check. Violations and errors of a blocking check of verdicts are objections in the ledger until it passes."""
    if not check.blocking or check not in CHECKS["candidate_marks"]:
        return check.ask(scope)
    run, ledger = scope.run, scope.ledger
    published = scope.before.published
    by_run = [] if run.is_whole else [entry for entry in published if entry.run == run.run.run_id]
    judged = run.datasets.select([entry.dataset for entry in by_run or published])
    try:
        result = check.ask(scope)
    except Exception as error:
        if judged and not run.is_whole:
            why = f"it could not be evaluated: {type(error).__name__}: {error}"
            ledger.objections.object(dict.fromkeys(judged, why), check.name, run.actor)
        raise
    wrong = {name: violation.what for name, violation in result.by_dataset.items() if name}
    if (everywhere := result.by_dataset.get("")) is not None:
        wrong = dict.fromkeys(judged, everywhere.what) | wrong
    if wrong:
        ledger.objections.object(wrong, check.name, run.actor)
    ledger.objections.withdraw(set(judged) - wrong.keys(), check.name, run.actor, scope.before.objections)
    return result


def _joined_with_record(scope: CheckScope, check: Check, result: CheckResult) -> CheckResult:
    run, ledger = scope.run, scope.ledger
    looked_at = None if check.noun == "store" else scope.looked_at
    may_be_gone = check.noun == "dataset" and scope.is_of_present_datasets
    last = scope.before.whole_looks.get(check.name)
    is_old = last is None or last <= run.as_of - _WHOLE_LOOK
    if is_old and looked_at is not None:
        whole = replace(scope, run=replace(run, is_whole=True, datasets=DatasetFilter()))
        try:
            result, looked_at = query(whole, check), None
        except Exception as fault:  # noqa: BLE001 - whatever it was, the run has done its own work and goes on
            # This run's violations stand, and the failed look at everything is one more.
            result = _add(result, [Violation("", f"datasets outside of this run could not be checked: {error_text(fault)}")])
    if may_be_gone:
        vanished = _vanished(scope, result.by_dataset)
        present = {name: violation for name, violation in result.by_dataset.items() if name not in vanished}
        shown = tuple(violation for violation in result.shown if violation.dataset not in vanished)
        result = replace(result, by_dataset=present, shown=shown)
    standing = ledger.violations.update(check.name, result.by_dataset, looked_at, run.as_of, run.actor, scope.before.violations)
    if may_be_gone:
        vanished = _vanished(scope, [row.dataset for row in standing if row.dataset not in result.by_dataset])
        ledger.violations.end(check.name, vanished, run.as_of)
        standing = [row for row in standing if row.dataset not in vanished]
    if is_old and looked_at is None:
        ledger.violations.note_whole_look(check.name, run.as_of)
    return with_standing(result, standing)


def _vanished(scope: CheckScope, names: Iterable[str]) -> set[str]:
    # Stores are asked only where something is wrong.
    return vanished_names(names, scope.present) if any(names) else set()


def vanished_names(names: Iterable[str], present: Listing) -> set[str]:
    """Names that no store has any more. Datasets of stores that are away may still exist."""
    listed = set(present.names)
    return {name for name in names if name and name not in listed and store_of(name) not in present.away}


def with_standing(result: CheckResult, standing: Collection[StandingViolation]) -> CheckResult:
    earlier = [Violation(row.dataset, row.what, row.times) for row in standing if row.dataset not in result.by_dataset]
    return replace(_add(result, earlier), since={row.dataset: row.since for row in standing})


def _add(result: CheckResult, violations: Collection[Violation]) -> CheckResult:
    by_dataset = {**result.by_dataset, **{violation.dataset: violation for violation in violations}}
    return replace(result, by_dataset=by_dataset, shown=(*result.shown, *violations)[:MOST_SHOWN])
