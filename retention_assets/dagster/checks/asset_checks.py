"""Asset checks: check results as Dagster's checks of assets, and as events of the jobs that work through lists.

A check is of an asset, never of a dataset: partitioned checks would cost events with the square of their number, so the
offending datasets are a table in the metadata. A failed blocking check stops whatever follows; the datasets at fault are
left out or refused by what made them, and the check is the alarm.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.checks.queries import CHECKS, Check, CheckResult
from retention_assets.dagster.checks.state import CheckScope
from retention_assets.dagster.naming import Names
from retention_assets.dagster.step import Step
from retention_assets.ledger.invariants import Violation
from retention_assets.policy.durations import text_of

CheckEvent = dg.AssetCheckResult | dg.AssetCheckEvaluation


def check_specs(names: Names) -> list[dg.AssetCheckSpec]:
    """The checks of an environment's assets."""
    return [
        dg.AssetCheckSpec(check.name, asset=names.key(asset), description=check.description, blocking=check.blocking)
        for asset, checks in CHECKS.items()
        for check in checks
    ]


def check_events(
    run: Step, checks: Sequence[Check], selected: Container[dg.AssetCheckKey] = frozenset()
) -> Iterator[CheckEvent]:
    """Evaluate checks of the asset that a step made, then raise if one failed that nothing may follow.

    To be yielded: what a step only logs is lost when it fails. What is wrong with datasets that the run is not about keeps a
    check red and the run going: an objection holds those back already. `selected` are checks of which Dagster expects a
    result. Where nothing is made nothing can follow, and Dagster itself fails the step after all of its checks.
    """
    if not checks:
        return
    failed = []
    with run.within_ledger() as run:
        scope = CheckScope.of(run)
        for check in checks:
            result = query(run, check)
            state = scope.check_everything(check, result, query)
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
        raise dg.Failure(f"Nothing that follows is done. {' '.join(failed)}", allow_retries=False)


def check_evaluation(asset: dg.AssetKey, check: Check, state: CheckResult, is_blocking: bool) -> dg.AssetCheckEvaluation:
    """Make an event of the asset of a result."""
    return dg.AssetCheckEvaluation(check_name=check.name, blocking=is_blocking, **_fields(asset, state, check.warns))


def _fields(asset: dg.AssetKey, state: CheckResult, is_warning: bool) -> dict[str, Any]:
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
            f"offending_{state.noun}s": _table(state),
        },
    }


def query(run: Step, check: Check) -> CheckResult:
    """Query a check. What a blocking one finds wrong with what was judged is an objection in the ledger, until it passes.

    So is one that could not be evaluated: nobody knows what it would have found.
    """
    if not check.blocking or check not in CHECKS["candidate_marks"]:
        return check.ask(run)
    try:
        result = check.ask(run)
    except Exception as error:
        if not run.is_whole:
            _object(run, check, dict.fromkeys(_judged(run), f"it could not be evaluated: {type(error).__name__}: {error}"))
        raise
    everywhere = result.by_dataset.get("")
    judged = _judged(run)
    wrong = {name: violation.what for name, violation in result.by_dataset.items() if name}
    if everywhere is not None:
        wrong = dict.fromkeys(judged, everywhere.what) | wrong
    _object(run, check, wrong)
    with run.retention.ledger() as ledger:
        ledger.objections.withdraw(set(judged) - wrong.keys(), check.name, run.actor)
    return result


def _judged(run: Step) -> list[str]:
    """Datasets that a run judged; launched alone, all whose verdicts are published."""
    asset = run.sibling("candidate_marks").to_user_string()
    with run.retention.ledger() as ledger:
        by_run = () if run.is_whole else ledger.publications.by(asset, [run.run.run_id])
        publications = by_run or ledger.publications.of(asset)
    return list(run.datasets.select(publication.dataset for publication in publications))


def _object(run: Step, check: Check, sentences: Mapping[str, str]) -> None:
    if sentences:
        with run.retention.ledger() as ledger:
            ledger.objections.object(sentences, check.name, run.actor)


def _table(found: CheckResult) -> dg.MetadataValue:
    records = [
        dg.TableRecord({found.noun: one.dataset, "violations": one.times, "what": one.what, "since": _since(found, one)})
        for one in found.shown
    ]
    columns = [dg.TableColumn(found.noun), dg.TableColumn("violations", "int"), dg.TableColumn("what"), dg.TableColumn("since")]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _since(found: CheckResult, one: Violation) -> str:
    since = found.since.get(one.dataset)
    return text_of(since.replace(microsecond=0)) if since else ""
