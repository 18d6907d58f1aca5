"""Jobs without a UI: run one of the definitions' jobs in this process, and collect its result.

Belongs here: run configuration from what a command was given, the instance, metadata of the materializations as plain values,
and what a person has to see to.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dagster as dg

from retention_assets.dagster.build import build_defs
from retention_assets.dagster.naming import Names
from retention_assets.environment import Environment
from retention_assets.policy.durations import text_of
from retention_assets.settings.model import Settings


@dataclass(frozen=True)
class JobResult:
    """What a job did: per asset the metadata of its materialization as plain values, and what a person has to look at."""

    run_id: str
    as_of: datetime
    said: Mapping[str, Mapping[str, Any]]
    troubles: tuple[str, ...]

    def number(self, asset: str, name: str) -> int:
        """A number of an asset's metadata; 0 where the job did not come to it."""
        return int(self.said.get(asset, {}).get(name, 0))


def run_job(
    settings: Settings, job: str, as_of: datetime | None = None, datasets: Sequence[str] = ("*",), log_level: str = "warning"
) -> JobResult:
    """Run a job to its end in this program, under the names that the settings give to this environment.

    Without `as_of` each step asks what time it is.
    """
    at = Environment(settings).instant(as_of)
    definition = build_defs(settings).resolve_job_def(Names(settings.dagster.key_prefix).of(job))
    config = {"as_of": text_of(as_of) if as_of else "", "datasets": list(datasets), "log_level": log_level.upper()}
    with _instance() as instance:
        result = definition.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
    said = {
        event.asset_key.path[-1]: _plain(event.materialization.metadata)
        for event in result.all_events
        if event.is_step_materialization and event.asset_key
    }
    return JobResult(result.run_id, at, said, (*_checks(result), *_failures(result), *_troubles(said)))


@contextmanager
def _instance() -> Iterator[dg.DagsterInstance]:
    """The instance of DAGSTER_HOME, so that the UI shows the run; without one, nothing of the run is kept there."""
    with dg.DagsterInstance.get() if os.environ.get("DAGSTER_HOME") else dg.DagsterInstance.ephemeral() as instance:
        yield instance


def _plain(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    return {name: _value(value) for name, value in metadata.items()}


def _value(value: dg.MetadataValue) -> Any:
    if isinstance(value, dg.TableMetadataValue):
        return [dict(record.data) for record in value.records]
    if isinstance(value, dg.TableSchemaMetadataValue):
        return {column.name: column.type for column in value.schema.columns}
    return value.value


def _failed_checks(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str | None, dg.AssetCheckEvaluation]]:
    """Blocking checks that failed, each with the step that it ended."""
    for event in result.all_events:
        said = event.event_specific_data
        if isinstance(said, dg.AssetCheckEvaluation) and said.blocking and not said.passed:
            yield event.step_key, said


def _checks(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    for _, said in _failed_checks(result):
        yield f"check {said.check_name} of {said.asset_key.to_user_string()} failed: {said.description}"


def _failures(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    checked = {step for step, _ in _failed_checks(result)}
    for event in result.get_step_failure_events():
        if event.step_key in checked:
            # The check has been named, and nothing else of the step failed.
            continue
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        yield f"{event.step_key} failed: {error.message.strip() if error else 'no error was given'}"


def _troubles(said: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What was refused or failed while the job went on."""
    for row in said.get("transaction_log", {}).get("refused_datasets", ()):
        at = f" (transaction {row['transaction']})" if row["transaction"] else ""
        yield f"{row['dataset']} was refused: {row['fault']}{at}"
    swept = said.get("swept_transactions", {})
    rows = swept.get("by_dataset", ())
    for row in rows:
        if row["refused"]:
            yield f"{row['dataset']} was not swept: {row['refused']}"
        if row["failed"]:
            yield f"{row['dataset']}: {row['failed']} could not be deleted and are tried again by the next run: {row['errors']}"
    # The table is cut; what went wrong stands first in it.
    for name, words in (("refused", "datasets were not swept"), ("failed", "transactions could not be deleted")):
        shown = sum(int(row[name] != "") if name == "refused" else row[name] for row in rows)
        if (more := swept.get(name, 0) - shown) > 0:
            yield f"… and {more} more {words}."
    if swept.get("stopped"):
        yield "The sweep was stopped before its end; the next run goes on."
