"""Run one of the definitions' jobs in this process, without a UI, and collect its result."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import dagster as dg

from retention_assets.dagster.build import build_defs
from retention_assets.dagster.jobs import ASSET_JOBS, step_config
from retention_assets.dagster.naming import Names
from retention_assets.dagster.partitions import WITHOUT_PAGES
from retention_assets.dagster.step import ACTOR_TAG, ASSET, STARTING
from retention_assets.environment import Environment
from retention_assets.errors import BadInput
from retention_assets.evaluation.fates import Fates
from retention_assets.frames.log import fault_sentence
from retention_assets.ledger.states import Waiting
from retention_assets.people.operation import JobResult as JobResult
from retention_assets.pipeline.confirmed import TAG
from retention_assets.policy.durations import text_of
from retention_assets.render.dagster import DATA
from retention_assets.render.text import visible_note
from retention_assets.settings.model import Settings

_LEVELS = logging.getLevelNamesMapping()


def run_job(
    settings: Settings,
    job: str,
    as_of: datetime | None = None,
    datasets: Sequence[str] = ("*",),
    log_level: str = "warning",
    confirmed: str | None = None,
    accept_large: bool = False,
    actor: str | None = None,
) -> JobResult:
    """Run a job to its end in this program, under the names that the settings give to this environment.

    Without `as_of` each step asks what time it is. With `confirmed`, a file (pipeline/confirmed.py), it deletes nothing else.
    `accept_large` is for jobs that sweep: they do it also where that takes more than usual.
    """
    environment, names = Environment(settings), Names(settings.dagster.key_prefix)
    at = environment.instant(as_of)
    name = next(each.job for each in ASSET_JOBS if each.name == job)
    given = {"as_of": text_of(as_of) if as_of else "", "datasets": list(datasets), "accept_large": accept_large}
    # Dagster's own console would show every failure as a trace of its internals; the result has it as a sentence.
    config = {**step_config(names, **given), "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    run_id = str(uuid4())
    # The instance of DAGSTER_HOME, so that the UI shows the run.
    made = dg.DagsterInstance.get() if os.environ.get("DAGSTER_HOME") else dg.DagsterInstance.ephemeral()
    with made as instance, environment.ledger() as ledger:
        # opened once for all steps
        definition = build_defs(settings, retention=environment.within(ledger)).resolve_job_def(names.of(name))
        said_by = {TAG: confirmed or "", ACTOR_TAG: actor or ""}
        tags = {tag: value for tag, value in said_by.items() if value} | (WITHOUT_PAGES if instance.is_ephemeral else {})
        instance.add_event_listener(run_id, partial(_tell, least=_LEVELS[log_level.upper()]))
        result = definition.execute_in_process(
            run_config=config, instance=instance, raise_on_error=False, run_id=run_id, tags=tags
        )
        with ledger.database.one_moment():
            waiting = Waiting.of(Fates.recorded(ledger, at).pending(ledger), at)
    said = {
        event.asset_key.path[-1]: plain_metadata(event.materialization.metadata)
        for event in result.all_events
        if event.is_step_materialization and event.asset_key
    }
    checks = [event.event_specific_data for event in result.all_events]
    red = [check for check in checks if isinstance(check, dg.AssetCheckEvaluation) and not check.passed]
    failed, refused = _troubles(said)
    broken = [
        f"check {check.check_name} of {check.asset_key.to_user_string()} failed: {check.description}"
        for check in red
        if check.blocking
    ]
    # A failed check that stopped the run is all that is to say of it.
    bad_input, failures = ((), ()) if broken else _failures(result)
    warnings = [
        f"check {check.check_name}: {check.description}" for check in red if check.severity is dg.AssetCheckSeverity.WARN
    ]
    return JobResult(result.run_id, at, said, bad_input, (*broken, *failures, *failed), refused, tuple(warnings), waiting)


def _tell(entry: dg.EventLogEntry, least: int) -> None:
    # Dagster's own messages, and traces, appear only at the most verbose level
    if entry.user_message == STARTING and least < logging.ERROR:
        # the one long wait of a run: printed once, at any level
        sys.stderr.write(f"{STARTING}\n")
        return
    event = entry.dagster_event
    level = entry.level if isinstance(entry.level, int) else _LEVELS[entry.level.upper()]
    if level < least or (least > logging.DEBUG and event is not None):
        return
    at = datetime.fromtimestamp(entry.timestamp, UTC)
    words = visible_note(entry.user_message or entry.message)
    sys.stderr.write(f"{text_of(at.replace(microsecond=0))} {logging.getLevelName(level)} {words}\n")
    error = getattr(event.event_specific_data, "error", None) if event is not None else None
    if error is not None:
        sys.stderr.write(f"  {visible_note(error.to_string())}\n")


def plain_metadata(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """Return the data of a page with its texts and columns. Numbers to plot, and lists under names with spaces, repeat them."""
    plain: dict[str, Any] = {}
    for name, value in metadata.items():
        if isinstance(value, dg.TableSchemaMetadataValue):
            plain[name] = {column.name: column.type for column in value.schema.columns}
        elif name.startswith("dagster/") or not (" " in name or isinstance(value, dg.IntMetadataValue | dg.FloatMetadataValue)):
            plain[name] = value.value
    data = plain.pop(DATA, {})
    return {**plain, **data}


def _failures(result: dg.ExecuteInProcessResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    bad_input, failed = list[str](), list[str]()
    for event in result.get_step_failure_events():
        data, failure = event.step_failure_data, event.step_failure_data.user_failure_data
        # The last cause is the first that went wrong.
        errors = [data.error] if data.error else []
        while errors and errors[-1].cause:
            errors.append(errors[-1].cause)
        description = failure.description if failure else None
        words = description or (errors[-1].message.strip() if errors else "no error was given")
        if any(error.cls_name == BadInput.__name__ for error in errors):
            bad_input.append(words)
        else:
            asset = failure.metadata.get(ASSET) if failure else None
            failed.append(f"{asset.value if asset else event.step_key} failed: {words}")
    return tuple(bad_input), tuple(failed)


def _troubles(said: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    read, swept = said.get("transaction_log", {}), said.get("swept_transactions", {})
    failed, refused = list[str](), list[str]()
    for row in read.get("refused_datasets", ()):
        # The table has both; all of a store is called `store/*`.
        if read.get("stores_away") and row["dataset"].endswith("/*"):
            failed.append(f"{row['dataset']} was not read: {row['fault']}")
        else:
            refused.append(f"{row['dataset']} was refused: {fault_sentence(row)}")
    rows = swept.get("by_dataset", ())
    not_swept = [f"{row['dataset']} was not swept: {row['refused']}" for row in rows if row["refused"]]
    not_deleted = [
        f"{row['dataset']}: {row['failed']} could not be deleted; the next run tries again: {row['errors']}"
        for row in rows
        if row["failed"]
    ]
    # The table is cut; failures stand first in it.
    if (more := swept.get("refused", 0) - len(not_swept)) > 0:
        not_swept.append(f"… and {more} more datasets were not swept.")
    if (more := swept.get("failed", 0) - sum(row["failed"] for row in rows)) > 0:
        not_deleted.append(f"… and {more} more transactions could not be deleted.")
    # A store that is away is no fault of its datasets.
    (failed if swept.get("stores_away") else refused).extend(not_swept)
    failed += not_deleted
    if swept.get("stopped"):
        failed.append("The sweep was stopped early. The next run continues it.")
    return tuple(failed), tuple(refused)
