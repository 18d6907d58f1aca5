"""Asset checks: check results as Dagster's checks of assets, and as events of the jobs that work through lists.

A check is of an asset, never of a dataset: partitioned checks would cost events with the square of their number, so the
offending datasets are a table in the metadata. A failed blocking check stops whatever follows; the datasets at fault are
left out or refused by what made them, and the check is the alarm.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import dagster as dg

from retention_assets.dagster.checks.queries import CHECKS, Check, CheckResult, ChecksAlone, WholeStep
from retention_assets.dagster.checks.state import CheckScope
from retention_assets.dagster.naming import Names
from retention_assets.dagster.partitions import dataset_filter_of
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Resources, Step, masking_faults, resources_in
from retention_assets.ledger.invariants import Violation
from retention_assets.policy.durations import text_of


def asset_checks(names: Names) -> list[dg.AssetChecksDefinition]:
    """The checks of an environment's assets."""
    return [_asset_check(names, names.key(asset), check) for asset, checks in CHECKS.items() for check in checks]


def evaluate_checks(run: Step) -> Iterator[dg.AssetCheckEvaluation]:
    """The checks of the asset that a step of a job made, evaluated; then a Failure if one failed that nothing may follow.

    To be yielded: what a step only logs is lost when it fails. What is wrong with datasets that the run is not about keeps a
    check red and the run going: an objection holds those back already.
    """
    failed = []
    checks = CHECKS.get(run.key.path[-1], ())
    if not checks:
        return
    with run.within_ledger() as run:
        scope = CheckScope.of(run)
        for check in checks:
            found = query(run, check)
            is_stopped = check.blocking and not found.passed
            yield check_evaluation(run.key, check, scope.check_everything(check, found, query), is_stopped)
            if is_stopped:
                failed.append(f"{check.name} failed. {found.actual}")
    if failed:
        raise dg.Failure(f"Nothing that follows is done. {' '.join(failed)}", allow_retries=False)


def check_evaluation(asset: dg.AssetKey, check: Check, found: CheckResult, is_blocking: bool) -> dg.AssetCheckEvaluation:
    """What a check found, as an event of its asset."""
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=check.name,
        passed=found.passed,
        metadata=_metadata(found),
        severity=dg.AssetCheckSeverity.WARN if check.warns else dg.AssetCheckSeverity.ERROR,
        description=found.actual,
        blocking=is_blocking,
    )


def query(run: Step, check: Check) -> CheckResult:
    """Query a check. What a blocking one finds wrong with what was judged is an objection in the ledger, until it passes.

    So is one that could not be evaluated: nobody knows what it would have found.
    """
    if not check.blocking or check not in CHECKS["candidate_marks"]:
        return check.query(run)
    try:
        found = check.query(run)
    except Exception as error:
        if not isinstance(run, WholeStep):
            _object(run, check, dict.fromkeys(_judged(run), f"it could not be evaluated: {type(error).__name__}: {error}"))
        raise
    everywhere = found.by_dataset.get("")
    judged = _judged(run)
    wrong = {name: one.what for name, one in found.by_dataset.items() if name}
    if everywhere is not None:
        wrong = dict.fromkeys(judged, everywhere.what) | wrong
    _object(run, check, wrong)
    with run.retention.ledger() as ledger:
        ledger.objections.withdraw(set(judged) - wrong.keys(), check.name, run.actor)
    return found


def _judged(run: Step) -> list[str]:
    """Datasets that a run judged; launched alone, all whose verdicts are published."""
    asset = run.sibling("candidate_marks").to_user_string()
    with run.retention.ledger() as ledger:
        mine = () if isinstance(run, WholeStep) else ledger.publications.by(asset, [run.run.run_id])
        mine = mine or ledger.publications.of(asset)
    return list(run.datasets.select(one.dataset for one in mine))


def _object(run: Step, check: Check, sentences: Mapping[str, str]) -> None:
    if sentences:
        with run.retention.ledger() as ledger:
            ledger.objections.object(sentences, check.name, run.actor)


def _asset_check(names: Names, asset: dg.AssetKey, check: Check) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=asset,
        name=check.name,
        description=check.description,
        blocking=check.blocking,
        required_resource_keys=names.resources,
    )
    def asset_check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resources = resources_in(context.op_execution_context.resources, names)
        with masking_faults(), _running(context, asset, resources).within_ledger() as run:
            found = query(run, check)
            state = CheckScope.of(run).check_everything(check, found, query)
        # Dagster stops a run at an error of a blocking check. Faults of datasets that the run is not about only warn here.
        is_warning = check.warns or (check.blocking and found.passed)
        severity = dg.AssetCheckSeverity.WARN if is_warning else dg.AssetCheckSeverity.ERROR
        return dg.AssetCheckResult(passed=state.passed, severity=severity, metadata=_metadata(state), description=state.actual)

    return asset_check


def _running(context: dg.AssetCheckExecutionContext, asset: dg.AssetKey, resources: Resources) -> Step:
    """Launched alone, a check has no partition, and looks at all that is published."""
    config = JudgingConfig()
    run = resources.of_op(context.op_execution_context, asset, config)
    # Both kinds of context have the same attributes, but no type in common.
    datasets = dataset_filter_of(context, config.datasets, run.retention.settings.partition_by)  # type: ignore[arg-type]
    kind = Step if context.op_execution_context.job_def.asset_layer.selected_asset_keys else ChecksAlone
    return kind(**{one.name: getattr(run, one.name) for one in fields(run)} | {"datasets": datasets})


def _metadata(found: CheckResult) -> dict[str, Any]:
    return {
        "expected": found.expected,
        "actual": found.actual,
        "violations": found.violations,
        f"{found.noun}s": found.datasets,
        f"offending_{found.noun}s": _table(found),
    }


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
