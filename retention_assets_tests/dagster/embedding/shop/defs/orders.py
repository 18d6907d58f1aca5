"""The shop's own assets, before and after what retention does."""

from typing import Any

import dagster as dg

REPORT = dg.AssetKey(["keep", "purge_report"])


@dg.asset
def orders() -> None:
    """Some table that has nothing to do with any of it."""


# Of datasets that nobody has judged there is no report yet.
EACH_REPORT = dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())


@dg.asset(deps=[REPORT], automation_condition=EACH_REPORT)
def bill(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    """What the platform need not pay for any more."""
    event = context.instance.get_latest_materialization_event(REPORT)
    assert event is not None
    assert event.asset_materialization is not None
    freed = event.asset_materialization.metadata["data"].value["bytes_freed"]
    return dg.MaterializeResult(metadata={"not_paid_for": dg.MetadataValue.int(int(str(freed)))})
