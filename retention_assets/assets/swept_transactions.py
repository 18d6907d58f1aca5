"""The asset `swept_transactions`: what was deleted of the marks that are due, and what was spared at the door."""

from collections.abc import Sequence

import dagster as dg

from retention_assets.outcomes import Outcome
from retention_assets.partitions import DATASETS
from retention_assets.resources.launch import Judging
from retention_assets.resources.running import Materials, Metadata, Running
from retention_assets.resources.telling import telling
from retention_assets.rulebook import load_rulebook
from retention_assets.sweep.engine import Sweeper
from retention_assets.sweep.one_dataset import Result
from retention_assets.sweep.stopping import stopping

_MOST_SHOWN = 1000
_NUMBERS = ("deleted", "already_gone", "failed", "spared", "bytes_freed")


def materialize(run: Running) -> Metadata:
    """Sweep what is due of the chosen datasets."""
    with run.retention.ledger() as ledger, stopping() as stop, telling(run.log.info) as tell:
        rulebook = load_rulebook(ledger, run.retention.settings, run.actor)
        datasets = run.choice.of(ledger.marks.datasets_to_sweep(run.as_of))
        stores = run.retention.stores({name.partition("/")[0] for name in datasets})
        results = list(Sweeper(ledger, stores, rulebook, run.as_of, run.actor, tell, stop).sweep(datasets))
    for one in results:
        for words in (one.refused, *one.errors, *one.remarks):
            if words:
                run.log.warning(f"{one.dataset}: {words}")
    return {
        "as_of": run.as_of.isoformat(),
        "datasets": len(results),
        "refused": sum(one.refused is not None for one in results),
        "stopped": stop.is_set(),
        **{name: sum(_numbers(one)[name] for one in results) for name in _NUMBERS},
        "by_dataset": _table(results[:_MOST_SHOWN]),
    }


def _table(results: Sequence[Result]) -> dg.MetadataValue:
    records = [
        dg.TableRecord({"dataset": one.dataset, **_numbers(one), "refused": one.refused or "", "errors": "; ".join(one.errors)})
        for one in results
    ]
    numbers = [dg.TableColumn(name, "int") for name in _NUMBERS]
    words = [dg.TableColumn(name) for name in ("refused", "errors")]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn("dataset"), *numbers, *words]))


@dg.asset(
    group_name="retention",
    kinds={"python"},
    deps=["candidate_marks"],
    partitions_def=DATASETS,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def swept_transactions(
    context: dg.AssetExecutionContext, config: Judging, materials: dg.ResourceParam[Materials]
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Deletes the bytes of marks whose grace is over, dataset by dataset, in small batches.

    Before a dataset is touched its log is read anew from the store, and every mark that is not justified any more is spared,
    with the reason. What fails is tried again by the next run. Each step is in the ledger before it is taken.
    """
    return dg.MaterializeResult(metadata=materialize(materials.of_asset(context, config)))


def _numbers(one: Result) -> dict[str, int]:
    return {**{outcome.value.lower(): one.outcomes[outcome] for outcome in Outcome}, "bytes_freed": one.bytes_freed}
