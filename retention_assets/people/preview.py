"""Previews what policies would decide about a log, and compares it with what others would."""

from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from retention_assets.clock import now
from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation import preview as evaluation
from retention_assets.frames.log import LINES, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.people.command import command
from retention_assets.people.operation import (
    AsOf,
    Flags,
    Kind,
    LogFile,
    Only,
    PolicyFiles,
    Request,
    Result,
    Strict,
    operation,
)
from retention_assets.people.policy_files import policies_of, rules_of, store_warnings
from retention_assets.render.tables import compare_tables, preview_tables
from retention_assets.render.text import json_rows
from retention_assets.stores.logs import read_lines
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store, call_store


def _read_all(path: Path | None, environment: Environment, as_of: datetime | None) -> tuple[Log, tuple[str, ...]]:
    if path is not None:
        # DuckDB takes longer to import than all of this, and only a file needs it.
        from retention_assets.exchange import read_log

        return read_log(path), ()
    if not environment.settings.stores:
        what = "no log was named, and no store of the settings has one"
        raise BadInput(Problem(what, remedy="Name one with --log FILE."))
    lines, away = [LINES.empty_table()], list[str]()
    with ExitStack() as stack:
        scanned, unread = dict[str, Store](), dict[str, str | None]()
        if any(isinstance(settings, ObjectsSettings) for settings in environment.settings.stores):
            # Imported here: it loads all that sweeps, and most environments have no scanned store.
            from retention_assets.people.rehearsal import scan_stores

            ledger = stack.enter_context(environment.ledger_if_any())
            scanned, unread = scan_stores(environment, ledger, DatasetFilter(), as_of, stack)
        for name in (settings.name for settings in environment.settings.stores):
            try:
                if (fault := unread.get(name)) is not None:
                    raise Refused(f"{name}/* was not read: {fault}")
                store = scanned.get(name) or environment.stores([name])[name]
                lines.append(call_store(store, partial(read_lines, store, call_store(store, store.datasets))))
            except Refused as refusal:
                away.append(str(refusal))
    if len(lines) == 1:
        raise Refused("\n".join(away))
    return sound_log(pa.concat_tables(lines).combine_chunks()), tuple(away)


class PreviewRequest(Request):
    """Log, and policies to judge it by."""

    log: LogFile = None
    policies: PolicyFiles = ()
    against: Annotated[tuple[Path, ...], Flags("--against"), Only.COMMAND] = Field(
        default=(), description="Show what these policies would newly mark, and no longer mark; may be repeated."
    )
    as_of: AsOf = None
    most: Annotated[int, Flags("-n", "--most"), Only.COMMAND] = Field(
        default=20, ge=0, description="List at most this many marks, and as many kept transactions."
    )
    strict: Strict = False


@operation(
    Kind.LOOK,
    "retention preview",
    "retention preview -l log.jsonl -p policies -f json",
    "retention preview --against new-policies",
    progress="reading and judging",
)
def make_preview(request: PreviewRequest, environment: Environment) -> Result:
    """Show what policies would decide about a log. Writes nothing, deletes nothing.

    With --against it shows where the decisions of other policies differ.
    """
    settings, at = environment.settings, request.as_of or now()
    policies = policies_of(request.policies, settings)
    others = policies_of(request.against, settings) if request.against else None
    log, away = _read_all(request.log, environment, request.as_of)
    rules, notes = rules_of(policies, log, settings)
    if others is not None:
        after, more = rules_of(others, log, settings)
        changes, rows = evaluation.compare(log, rules, after, at)
        listed = (row for batch in rows.to_batches() for row in batch.to_pylist())
        return Result(
            tables=lambda: compare_tables(changes),
            pieces=lambda: json_rows(listed, {"changes": [vars(change) for change in changes]}, "transactions"),
            notes=tuple(dict.fromkeys((*notes, *more))),
            failures=away,
            refusals=_refusals(log),
        )
    # a store that is away is named once, by its failure
    stores = [] if request.log else store_warnings(environment)
    warnings = [(name, text) for name, text in stores if not any(text in fault for fault in away)]
    judged = evaluation.preview(log, rules, at)
    return Result(
        tables=lambda: preview_tables(judged, request.most),
        pieces=lambda: evaluation.as_json(judged),
        notes=(*(f"{store}: {text}" for store, text in warnings), *notes),
        failures=away,
        refusals=_refusals(log),
    )


def _refusals(log: Log) -> tuple[str, ...]:
    refused = len(log.datasets) - log.datasets["fault"].null_count
    words = f"{refused} of {len(log.datasets)} datasets were refused, because their logs are not sound."
    return (words,) if refused else ()


preview = command(make_preview, "preview")
