"""The asset `swept_transactions`: what was deleted of the marks that are due, and what was spared at the door."""

import dagster as dg

from retention_assets.outcomes import Outcome
from retention_assets.policy.globs import matches
from retention_assets.resources.launch import Sweeping
from retention_assets.resources.retention import Retention
from retention_assets.resources.telling import telling
from retention_assets.rulebook import load_rulebook
from retention_assets.sweep.engine import Sweeper
from retention_assets.sweep.one_dataset import Result
from retention_assets.sweep.stopping import stopping

_MOST_SHOWN = 1000
_NUMBERS = ("deleted", "already_gone", "failed", "spared", "bytes_freed")


@dg.asset(group_name="retention", kinds={"python"}, deps=["candidate_marks"])
def swept_transactions(
    context: dg.AssetExecutionContext, config: Sweeping, retention: dg.ResourceParam[Retention]
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Deletes the bytes of marks whose grace is over, dataset by dataset, in small batches.

    Before a dataset is touched its log is read anew from the store, and every mark that is not justified any more is spared,
    with the reason. What fails is tried again by the next run. Each step is in the ledger before it is taken.
    """
    as_of, holder = config.instant(), f"run {context.run.run_id}"
    with retention.ledger() as ledger, stopping() as stop, telling(context.log.info) as tell:
        rulebook = load_rulebook(ledger, retention.settings, holder)
        datasets = [name for name in ledger.marks.datasets_to_sweep(as_of) if matches(name, config.datasets)]
        stores = retention.stores({name.partition("/")[0] for name in datasets})
        results = list(Sweeper(ledger, stores, rulebook, as_of, holder, tell, stop).sweep(datasets))
    for one in results:
        for words in (one.refused, *one.errors, *one.remarks):
            if words:
                context.log.warning(f"{one.dataset}: {words}")
    return dg.MaterializeResult(
        metadata={
            "as_of": as_of.isoformat(),
            "datasets": len(results),
            "refused": sum(one.refused is not None for one in results),
            "stopped": stop.is_set(),
            **{name: sum(_numbers(one)[name] for one in results) for name in _NUMBERS},
            "by_dataset": dg.MetadataValue.table(
                [
                    dg.TableRecord(
                        {"dataset": one.dataset, **_numbers(one), "refused": one.refused or "", "errors": "; ".join(one.errors)}
                    )
                    for one in results[:_MOST_SHOWN]
                ],
                dg.TableSchema(
                    [
                        dg.TableColumn("dataset"),
                        *(dg.TableColumn(name, "int") for name in _NUMBERS),
                        *(dg.TableColumn(name) for name in ("refused", "errors")),
                    ]
                ),
            ),
        }
    )


def _numbers(one: Result) -> dict[str, int]:
    return {**{outcome.value.lower(): one.outcomes[outcome] for outcome in Outcome}, "bytes_freed": one.bytes_freed}
