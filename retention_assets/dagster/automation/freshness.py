"""Freshness: how old the newest evaluation and sweep may be, where the settings make them run by themselves."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import dagster as dg

from retention_assets.policy.durations import EPOCH, Duration
from retention_assets.settings.model import AutomationSettings

# time for a run, besides the sensor's interval
_A_RUN = timedelta(hours=1)
SWEPT_WITHIN = timedelta(days=1)
# early enough for the run to be over within a day, also where the tick comes late
_LOOK_AGAIN = timedelta(hours=20)


def freshness_policies(automation: AutomationSettings) -> Mapping[str, dg.FreshnessPolicy]:
    """By asset how old its newest materialization may be; none where nobody promised that it is made anew by itself."""
    policies = {}
    if automation.evaluate is not None:
        judged = _length(automation.everything) + _length(automation.evaluate) + _A_RUN
        policies["candidate_marks"] = dg.FreshnessPolicy.time_window(fail_window=judged)
    if automation.sweep is not None:
        swept = SWEPT_WITHIN + _length(automation.sweep) + _A_RUN
        policies["swept_transactions"] = dg.FreshnessPolicy.time_window(fail_window=swept)
    return policies


def is_sweep_due(instance: dg.DagsterInstance, asset: dg.AssetKey, at: datetime) -> bool:
    """Whether the last sweep was so long ago that another is to look, though no mark is due: the record says that one did."""
    last = instance.get_latest_materialization_event(asset)
    return last is not None and datetime.fromtimestamp(last.timestamp, UTC) <= at - _LOOK_AGAIN


def _length(duration: Duration) -> timedelta:
    return duration.after(EPOCH) - EPOCH
