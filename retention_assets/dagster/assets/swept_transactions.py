"""The asset `swept_transactions`: what was deleted of the marks that are due, and what was spared because it is needed
again."""

from collections.abc import Sequence

import dagster as dg

from retention_assets.dagster.asset_factory import retention_asset
from retention_assets.dagster.check_queries import CHECKS, before_a_sweep
from retention_assets.dagster.progress import report_progress, report_store_warnings
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Metadata, Step
from retention_assets.datasets import by_store
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.outcomes import Outcome
from retention_assets.render.dagster import pending_metadata, spared_metadata
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper
from retention_assets.sweep.signals import stop_on_signals

_MOST_SHOWN = 1000
# How far back an evaluation of a check is looked for, past executions that ended before it.
_EXECUTIONS = 100
_NUMBERS = ("deleted", "already_gone", "failed", "spared", "expiring", "bytes_freed")


def _refuse_after_a_failed_check(run: Step) -> None:
    """The last word of each check stands until it has another, whoever launches the sweep and in which run.

    That word is about what one run judged. What keeps a wrong mark of another run here is the sweep's own independent check.
    """
    asset = run.sibling("candidate_marks")
    for check in CHECKS["candidate_marks"]:
        key = dg.AssetCheckKey(asset, check.name)
        executions = run.instance.event_log_storage.get_asset_check_execution_history(key, limit=_EXECUTIONS)
        # One that was planned and never evaluated has nothing to say: Dagster has its plan in the place of an evaluation.
        last = next((one for one in executions if isinstance(one.evaluation, dg.AssetCheckEvaluation)), None)
        if last and last.evaluation and not last.evaluation.passed:
            raise dg.Failure(
                f"Nothing is swept: {check.name} failed in run {last.run_id}. {last.evaluation.description or ''} When the"
                " cause is mended, judge anew (`retention run --mark-only`, or materialize candidate_marks), then sweep again.",
                allow_retries=False,
            )


def _refuse_an_unsound_ledger(ledger: Ledger, datasets: Sequence[str]) -> None:
    """A sweep that is launched alone has nobody's checks before it."""
    for name, found in before_a_sweep(ledger, datasets):
        if not found.passed:
            raise dg.Failure(
                f"Nothing is swept: {name} failed. {found.actual} `retention audit verify` names what was changed; take the"
                " marks back that nobody can vouch for (`retention unmark`), then sweep again.",
                allow_retries=False,
            )


def _is_well(one: SweepResult) -> bool:
    """What went wrong stands first: a table that is cut still shows it."""
    return one.refused is None and not one.errors


def _table(results: Sequence[SweepResult]) -> dg.MetadataValue:
    records = [
        dg.TableRecord({"dataset": one.dataset, **_numbers(one), "refused": one.refused or "", "errors": "; ".join(one.errors)})
        for one in results
    ]
    numbers = [dg.TableColumn(name, "int") for name in _NUMBERS]
    words = [dg.TableColumn(name) for name in ("refused", "errors")]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn("dataset"), *numbers, *words]))


@retention_asset(JudgingConfig, kinds={"python"}, deps=["candidate_marks"], sweeps=True)
def swept_transactions(run: Step) -> Metadata:
    """Deletes the bytes of marks whose grace is over, dataset by dataset, in small batches.

    Before a dataset is touched its log is read anew from the store, and every mark that is not justified any more is spared,
    with the reason. What fails is tried again by the next run. Each step is in the ledger before it is taken.
    """
    _refuse_after_a_failed_check(run)
    with run.retention.ledger() as ledger, stop_on_signals() as stop, report_progress(run.log.info) as tell:
        rulebook = load_rulebook(ledger, run.retention.settings, run.actor)
        datasets = run.datasets.select(ledger.marks.datasets_to_sweep(run.as_of))
        _refuse_an_unsound_ledger(ledger, datasets)
        stores = run.retention.stores(by_store(datasets))
        report_store_warnings(stores.values(), run.log)
        results = list(Sweeper(ledger, stores, rulebook, run.given_as_of, run.actor, tell, stop).run(datasets))
        waiting = ledger.pending.waiting()
        spared = ledger.pending.spared([one.dataset for one in results if one.outcomes[Outcome.SPARED]], run.actor)
    for one in results:
        for words in (one.refused, *one.errors, *one.warnings):
            if words:
                run.log.warning(f"{one.dataset}: {words}")
    return {
        "as_of": run.as_of.isoformat(),
        "datasets": len(results),
        "refused": sum(one.refused is not None for one in results),
        "stopped": stop.is_set(),
        **{name: sum(_numbers(one)[name] for one in results) for name in _NUMBERS},
        **pending_metadata(waiting, run.as_of),
        "spared_at_the_door": spared_metadata(spared),
        "by_dataset": _table(sorted(results, key=_is_well)[:_MOST_SHOWN]),
    }


def _numbers(one: SweepResult) -> dict[str, int]:
    return {**{outcome.value.lower(): one.outcomes[outcome] for outcome in Outcome}, "bytes_freed": one.bytes_freed}
