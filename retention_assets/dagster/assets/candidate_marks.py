"""The asset `candidate_marks`: the verdict of every transaction, and the resulting marks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.dagster.partition_events import DatasetPage, few, published_by
from retention_assets.dagster.purged_realms import close_purged_realms, counted_realms
from retention_assets.dagster.retention_asset import retention_asset
from retention_assets.dagster.step import Metadata, Step
from retention_assets.datasets import by_store
from retention_assets.evaluation.datahub_policies import load_rules, warn_of_unknown
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.rules_in_force import RulesInForce, rules_digests
from retention_assets.evaluation.visibility import raise_visibility
from retention_assets.frames.log import TIMES
from retention_assets.frames.verdicts.candidate_marks import columns_for
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger import Ledger
from retention_assets.ledger.marking import candidate_table
from retention_assets.people.idle_rules import idle_rules
from retention_assets.pipeline.already_marked import write_already_marked
from retention_assets.pipeline.head_file import is_away, place_faults
from retention_assets.pipeline.part_frames import COUNTS, LOOKS, MARKS, NEWEST, OF_VERDICTS, SUMS, WHY, Verdicts
from retention_assets.pipeline.read_tokens import evaluations_of, read_begun, read_tokens, with_findings
from retention_assets.pipeline.realm_counts import REALMS, add_up
from retention_assets.pipeline.stage import (
    OutputParts,
    Source,
    read_datasets,
    read_output,
    read_parts,
    run_stage,
)
from retention_assets.pipeline.warehouse import FOLDER
from retention_assets.render.dagster import (
    VERDICT_COLUMNS,
    grouped,
    pending_metadata,
    reason_metadata,
    totals_metadata,
    verdict_metadata,
)
from retention_assets.render.summaries import environment_summary, example_of, judged_summary, state_numbers
from retention_assets.stores.protocol import outside_times

_IN_WAREHOUSE = ("transaction_log", "branch_views", "candidate_marks")


def _evaluations(run: Step, sources: Sequence[Source], rules: RulesInForce) -> Iterator[pa.Table]:
    """In parts: there are as many rows of counts as policies have datasets."""
    tokens = read_tokens(sources)
    for datasets, looks, counts in read_parts(sources, run.folder, [LOOKS, COUNTS]):
        digests = rules_digests(rules, datasets["dataset"].to_pylist(), run.as_of)
        yield with_findings(evaluations_of(datasets, tokens, digests, looks, run.as_of), datasets, counts)


def _pages(run: Step, ledger: Ledger, _: Metadata) -> Iterator[DatasetPage]:
    """Verdicts on each dataset, with an example of each; of a mark, its fate."""
    names = published_by(run, ledger)
    faults, fates = ledger.states.faults(set(names)), Fates.recorded(ledger, run.as_of)
    names = list(few(run, names))
    shown = ledger.states.of(names, run.as_of, fates.pending(ledger, names))
    marked = {row["dataset"]: _marked(row, fates) for row in ledger.pending.oldest(names)}
    yield from (DatasetPage(name, "", refused=fault) for name, fault in faults.items())
    examples: dict[str, list[Mapping[str, Any]]] = {}
    for row in read_output(run.folder, COUNTS, list(shown)).to_pylist() if shown else ():
        examples.setdefault(row["dataset"], []).append(row)
    for name, state in shown.items():
        if name not in faults:
            words = judged_summary(state, examples.get(name, ()), run.as_of, marked.get(name, ""))
            yield DatasetPage(name, words, state_numbers(state))


def _marked(mark: Mapping[str, Any], fates: Fates) -> str:
    # The witness of other reasons is not kept with a mark.
    code = mark["reason"] if mark["reason"] == Reason.PURGING.name else Reason.SELECTED.name
    row = {"transaction": mark["transaction"], "code": code, "witness": mark["policy"]}
    return example_of(row, fates.of(mark).message or "")


@retention_asset(
    kinds={"pyspark", "parquet"},
    deps=["transaction_log", "branch_views", "retention_policies"],
    pages=_pages,
)
def candidate_marks(run: Step, ledger: Ledger) -> Metadata:
    """The verdict of every transaction: mark, spare, keep or open, with the policy that has the credit and every reason.

    What is to go is marked in the ledger, from where the grace runs. A mark deletes nothing and can be taken back; what is
    marked already stays as it is.
    """
    clock = run.retention.settings.clock
    loaded = load_rules(ledger, run.retention, run.actor, run.given_as_of)
    rulebook = loaded.rulebook
    sources = run.sources(ledger, "transaction_log")
    datasets = read_datasets(sources)
    names = datasets["dataset"].to_pylist()
    loaded.refuse_unreadable(names)
    places = ledger.places.newest()
    stores = run.retention.stores(by_store(names))
    for fault in place_faults(ledger, stores.values()).values():
        if not is_away(fault):
            raise fault
    unknown = warn_of_unknown(rulebook.entries, names, run.retention) if run.datasets.selects_all else ()
    for warning in (*loaded.unreadable.values(), *rulebook.drifted, *unknown):
        run.log.warning(warning)
    rules = rulebook.rules(names, run.as_of)
    again = run.retention.settings.hidden_again
    realms = counted_realms(ledger)
    known = write_already_marked(ledger, rules.policies, datasets, run.folder, again, realms)
    verdicts = Verdicts(rules.policies, rules.holds, rules.versions, run.as_of, known, realms)
    columns = sorted({*columns_for(rules.policies, datasets), "bytes", *TIMES})
    with candidate_table(ledger.database) as staging:
        sinks = {MARKS: staging} if staging else {}
        written = run_stage(run.spark, sources, run.folder, OF_VERDICTS, verdicts, columns, sinks)
        candidates = staging.staged(written.told[MARKS]) if staging else OutputParts(run.folder, MARKS)
        sums = read_output(run.folder, SUMS)
        present, newest_close = ledger.clock.present(run.given_as_of), pc.max(sums["closed_at_max"]).as_py()
        # Stores are asked for their time only where the clock looks odd.
        outside = partial(outside_times, stores.values())
        if why := ledger.clock.check(present, newest_close, clock.max_ahead, clock.max_skew, outside):
            run.log.warning(why)
        evaluations = list(_evaluations(run, sources, rules))
        marked = ledger.marks.mark(candidates, present, run.actor, None, run.publications(names), evaluations, again, places)
    # A visibility mark that rose by a wrong clock would never fall again.
    newest = ((mine, found) for mine, found in read_parts(sources, run.folder, [NEWEST]))
    raised = 0 if why else raise_visibility(ledger, newest, min(run.as_of, present), run.actor)
    left = add_up(part for _, part in read_parts(sources, run.folder, [REALMS])) if realms else {}
    close_purged_realms(ledger, run, rules.policies, datasets, left, read_begun(sources))
    waiting = Fates.recorded(ledger, run.as_of).pending(ledger)
    totals, last = ledger.states.totals(), ledger.states.last_sweep()
    removed = run.clean_warehouse(ledger, _IN_WAREHOUSE)
    for warning in idle_rules(rulebook.files, ledger):
        run.log.warning(warning)
    swept = sum(amount for amount, _ in marked.swept.values())
    return grouped(
        environment_summary(totals, waiting, last, run.as_of),
        {**pending_metadata(waiting, run.as_of), **totals_metadata(totals)},
        {
            "newly_marked": marked.new,
            "marked_before": marked.known - swept,
            "swept_before": swept,
            "visibility_raised": raised,
            **verdict_metadata(sums, marked.swept),
            **reason_metadata(read_output(run.folder, WHY)),
            "as_of": run.as_of.isoformat(),
            "dagster/column_schema": VERDICT_COLUMNS,
            "folders_removed": removed,
            FOLDER: run.warehouse.below(run.folder),
        },
    )
