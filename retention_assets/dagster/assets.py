"""The assets that read and judge: `transaction_log`, `retention_policies`, `branch_views` and `candidate_marks`.

No rule of retention is decided here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.dagster.partitions import DatasetPage, few, published_by, retention_asset
from retention_assets.dagster.step import Metadata, Step
from retention_assets.dagster.sweeping import report_store_warnings
from retention_assets.datasets import by_store
from retention_assets.errors import Refused
from retention_assets.evaluation.changes import list_datasets
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.keepers import Keepers
from retention_assets.evaluation.rules_in_force import RulesInForce, load_rules, rules_digests, warn_of_unknown
from retention_assets.evaluation.visibility import raise_visibility
from retention_assets.frames.log import LOG, STRAYS, SUMMED, TIMES, attribute_of, faults_of, sums_by
from retention_assets.frames.verdicts.candidate_marks import columns_for
from retention_assets.frames.verdicts.decisions import CANDIDATE_MARKS
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.views.branch_views import BRANCH_VIEWS
from retention_assets.ledger import Ledger
from retention_assets.ledger.marking import MarkResult, candidate_table
from retention_assets.people.idle_rules import idle_rules
from retention_assets.pipeline.part_frames import (
    COUNTS,
    ENDS,
    LOOKS,
    MARKS,
    NEWEST,
    OF_VERDICTS,
    OF_VIEWS,
    REALMS,
    SUMS,
    VIEWS,
    WHY,
    LeftOfRealm,
    Verdicts,
    Views,
    add_up,
    write_already_marked,
)
from retention_assets.pipeline.read_logs import LARGEST, read_stores
from retention_assets.pipeline.read_logs import SUMS as LOG_SUMS
from retention_assets.pipeline.read_tokens import (
    evaluations_of,
    read_begun,
    read_tokens,
    with_findings,
    write_begun,
    write_tokens,
)
from retention_assets.pipeline.stage import (
    OutputParts,
    Source,
    read_datasets,
    read_output,
    read_parts,
    read_transactions,
    run_stage,
)
from retention_assets.pipeline.warehouse import FOLDER
from retention_assets.policy.durations import text_of
from retention_assets.policy.loading import LoadOutcome
from retention_assets.policy.model import Policy
from retention_assets.policy.realms import is_within, realm_of
from retention_assets.policy.sentences import count
from retention_assets.render.assets import (
    BRANCHES,
    BRANCHES_FIRST,
    MEANINGS,
    SCANNED,
    UNREAD,
    largest_table,
    pending_numbers,
    policy_table,
    reason_tables,
    scan_numbers,
    totals_numbers,
    verdict_counts,
    verdict_numbers,
    verdict_table,
)
from retention_assets.render.dagster import column_schema, draw_page
from retention_assets.render.page import MOST_SHOWN, Page, Table
from retention_assets.render.summaries import (
    branches_summary,
    dataset_numbers,
    example_of,
    judged_summary,
    log_summary,
    logs_summary,
    marks_summary,
    policies_summary,
    views_summary,
)
from retention_assets.render.text import kib
from retention_assets.stores.logs import ChosenDatasets, choose_datasets
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store, StoreFailed, outside_times

if TYPE_CHECKING:
    from retention_assets.pipeline.scans import RunScans

LOG_COLUMNS, VIEW_COLUMNS, VERDICT_COLUMNS = (
    column_schema(schema, MEANINGS) for schema in (LOG, BRANCH_VIEWS, CANDIDATE_MARKS)
)


def close_purged_realms(
    ledger: Ledger,
    run: Step,
    policies: Sequence[Policy],
    datasets: pa.Table,
    left: Mapping[str, Sequence[LeftOfRealm]],
    begun: datetime,
) -> None:
    """Set realms with nothing left to PURGED, and log what is left of the others. All logs were read since `begun`."""
    status = {name: realm.status for name, realm in ledger.realms.all().items()}
    for name, groups in left.items():
        # new data in it stays, and the person who purged it should know
        if status.get(name) == "PURGED" and groups:
            appeared = count(sum(group.transactions for group in groups), "transaction")
            run.log.warning(f"Realm {name} is PURGED, but {appeared} appeared in it since: kept until it is ACTIVE again.")
    # A realm that became PURGING during this evaluation was not counted. A run whose partitions are all datasets counts as
    # everything; one with other globs than `*` does not, nor one with a refused dataset: it may be of any realm.
    purged = {realm_of(policy.name) for policy in policies}
    realms = [name for name, now in status.items() if now == "PURGING" and name in purged]
    if not realms or "*" not in run.datasets.globs or datasets["fault"].null_count < len(datasets):
        return
    present = list_datasets(run.retention)
    if not present.away and set(present.names) <= set(datasets["dataset"].to_pylist()):
        for name in realms:
            _close(ledger, run, name, left.get(name, ()), begun)


def close_realms_of_nothing(ledger: Ledger, run: Step) -> None:
    """Close realms where no dataset exists any more: without one there is no evaluation to close them."""
    present = list_datasets(run.retention)
    if run.datasets.selects_all and not present.away and not present.names:
        for name, realm in ledger.realms.all().items():
            if realm.status == "PURGING":
                _close(ledger, run, name, (), run.retention.present())


def _close(ledger: Ledger, run: Step, name: str, left: Sequence[LeftOfRealm], begun: datetime) -> None:
    if left:
        for group in left:
            if group.why:
                run.log.warning(f"Realm {name} stays PURGING: {group.why}: {count(group.transactions, 'transaction')}.")
        return
    if aside := sum(row.marks for row in ledger.trash.sums() if is_within(realm_of(row.policy) or "", name)):
        run.log.info(f"Realm {name} stays PURGING: {count(aside, 'transaction')} of it are set aside and not deleted yet.")
        return
    last = max(ledger.realms.last_changes(name))
    if begun <= last:
        since = f"before {text_of(last)}, when it was last changed or swept"
        run.log.info(f"Nothing of realm {name} was found in the logs, which were read {since}: a later run makes it PURGED.")
        return
    try:
        ledger.realms.purged(name, run.actor)
    except Refused as fault:
        # Its status was changed concurrently.
        run.log.warning(str(fault))
    else:
        run.log.info(f"Realm {name} is PURGED: nothing of it is left.")


def _pages_of_logs(run: Step, _: Ledger, __: Metadata) -> Iterator[DatasetPage]:
    datasets = read_datasets([Source(run.folder)])
    faults = faults_of(datasets)
    yield from (DatasetPage(name, "", refused=fault) for name, fault in faults.items())
    transactions = dict(zip(datasets["dataset"].to_pylist(), datasets["transactions"].to_pylist(), strict=True))
    shown = few(run, [name for name in transactions if name not in faults])
    if not shown:
        return
    rows = read_transactions([Source(run.folder)], shown, ["dataset", "bytes"])
    plain = pa.table({"dataset": rows["dataset"].cast(pa.string()), "bytes": rows["bytes"]})
    sizes = {row["dataset"]: row["bytes"] for row in sums_by(plain, ["dataset"])}
    for name in shown:
        size = sizes.get(name, 0)
        yield DatasetPage(
            name, log_summary(transactions[name], size), {"transactions": transactions[name], "size (KiB)": kib(size)}
        )


@retention_asset(kinds={"pyspark", "parquet"}, pages=_pages_of_logs)
def transaction_log(run: Step, ledger: Ledger) -> Metadata:
    """One row per transaction of every dataset: identity, parent, type, status, times, bytes, branches and tags.

    A dataset with an unsound log is refused as a whole; the table below shows the fault. The run goes on with the other
    datasets.
    """
    # imported here: with scans come DuckDB, pandas and fsspec, and each takes longer to import than the definitions to load
    from retention_assets.pipeline.scans import RunScans, SparkScanner

    stores = run.retention.stores()
    if not stores:
        raise dg.Failure("The settings name no store. Add one to retention.yaml, then run again.")
    report_store_warnings(stores.values(), run.log)
    scanner = SparkScanner(lambda: run.spark)
    placed = run.retention.place_faults(ledger, stores.values(), run.actor)
    faults = {name: fault for name, fault in placed.items() if not isinstance(fault, StoreFailed)}
    elsewhere = [ChosenDatasets(stores[name], (), str(fault)) for name, fault in faults.items()]
    present = {name: store for name, store in stores.items() if name not in faults}
    objects = [settings for settings in run.retention.settings.stores if isinstance(settings, ObjectsSettings)]
    scanned = [(present.pop(settings.name), settings) for settings in objects if settings.name in present]
    keepers = Keepers.of_settings(ledger, run.retention.settings)
    scans = RunScans(ledger, run.warehouse, scanner, run.actor, keepers.in_force, run.given_as_of)
    with scans.scanning(scanned, run.datasets):
        return _read(run, ledger, [*present.values()], scans, elsewhere)


def _read(run: Step, ledger: Ledger, stores: list[Store], scans: "RunScans", elsewhere: list[ChosenDatasets]) -> Metadata:
    begun = run.retention.present()
    plain = choose_datasets(stores, run.datasets)
    chosen = [*plain, *scans.chosen, *elsewhere]
    away = {choice.store.name: choice.fault for choice in chosen if choice.fault}
    faults = " ".join(f"{name}: {fault.rstrip('.')}." for name, fault in away.items())
    if len(away) == len(run.retention.settings.stores):
        raise dg.Failure(f"No store can be read. {faults}")
    names = [name for choice in chosen for name in choice.datasets]
    unknown = run.datasets.unknown_keys(names)
    if not names:
        scans.publish(())
        close_realms_of_nothing(ledger, run)
        about = f"the partitions {', '.join(unknown[:5])}" if unknown else ", ".join(run.datasets.globs)
        raise dg.Failure(f"No store has a dataset of {about}. {faults}".rstrip())
    write_tokens(plain, run.folder, scans.tokens)
    write_begun({**{store.name: begun for store in stores}, **scans.begun}, run.folder)
    parts = read_stores(run.spark, plain, run.folder)
    parts += scans.write_logs(run.folder, parts)
    datasets = read_datasets([Source(run.folder)])
    # A refused dataset is published as well: nobody may go on judging its previous log.
    scans.publish(run.publications(datasets["dataset"].to_pylist()))
    try:
        scans.clean()
    except Refused as fault:
        run.log.warning(f"No folder of a scan was removed. {fault}")
    refused = datasets.filter(pc.is_valid(datasets["fault"]))
    rows = int(pc.sum(datasets["transactions"].cast(SUMMED)).as_py() or 0)
    sums = read_output(run.folder, LOG_SUMS)
    shown = {name: int(pc.sum(sums[name]).as_py() or 0) for name in sums.column_names}
    numbers = {"datasets": len(datasets), "refused": len(refused), "branches": shown["branches"], "tags": shown["tags"]}
    scanned = scan_numbers(scans.shown)
    # files in the folders of tables that no log names
    strays = attribute_of(datasets, STRAYS).drop_null()
    data = {
        **numbers,
        "transactions": rows,
        "stores_away": len(away),
        "unknown_partitions": len(unknown),
        **shown,
        **scanned,
        **({STRAYS: sum(map(int, strays.to_pylist()))} if len(strays) else {}),
        "parts": parts,
        FOLDER: run.warehouse.below(run.folder),
    }
    scanned_in = {f"scanned in {scan.store}": scan.totals["scanned"] for scan, _ in scans.shown}
    plotted = {**numbers, "size (KiB)": kib(shown["bytes"]), **scanned_in}
    tables = (
        Table("not read", UNREAD, list(_unread(refused, chosen, unknown)), "refused_datasets"),
        largest_table(read_output(run.folder, LARGEST).to_pylist()),
        Table("scans", SCANNED, [*scanned.items()]),
    )
    page = Page(logs_summary(data, len(refused), len(away)), tables, plotted, data)
    return draw_page(page, {"dagster/row_count": rows, "dagster/column_schema": LOG_COLUMNS})


def _unread(refused: pa.Table, chosen: list[ChosenDatasets], unknown: list[str]) -> Iterator[dict[str, str]]:
    for row in refused.slice(0, MOST_SHOWN).to_pylist():
        yield {"dataset": row["dataset"], "fault": row["fault"], "transaction": row["fault_transaction"] or ""}
    for choice in chosen:
        if choice.fault:
            yield {"dataset": f"{choice.store.name}/*", "fault": choice.fault, "transaction": ""}
    for name in unknown[:MOST_SHOWN]:
        yield {"dataset": name, "fault": "in no store", "transaction": ""}


@retention_asset(kinds={"yaml"}, is_daily=True)
def retention_policies(run: Step, ledger: Ledger) -> Metadata:
    """Compares the policy files with the policies in force: written, skipped, drifted, or removed.

    A broken file stops the run here, because a skipped rule could be one that keeps data. A policy that a person changed in the
    book stays as it is, and the difference is reported.
    """
    rulebook = load_rules(ledger, run.retention, run.actor, run.given_as_of)
    decisions = rulebook.decisions
    with ledger.database.one_moment():
        orphaned, in_force = ledger.policy_book.orphaned(), ledger.policy_book.in_force()
    for warning in (*rulebook.unreadable.values(), *rulebook.drifted):
        run.log.warning(warning)
    counts = {outcome.value.lower(): sum(decision.outcome is outcome for decision in decisions) for outcome in LoadOutcome}
    marks = sum(version.marks for version in orphaned)
    data = {"in_force": len(in_force), "orphaned_marks": marks, **counts}
    numbers = {"in force": len(in_force), "orphaned marks": marks, "changed by a person": counts["drifted"]}
    summary = policies_summary(len(in_force), counts, marks)
    return draw_page(Page(summary, [policy_table(decisions, in_force)], numbers, data))


_COLUMNS = [name for name in LOG.names if name not in ("parent", "archived_at", "bytes", "files", "file_names", "attributes")]


def _pages_of_views(run: Step, ledger: Ledger, _: Metadata) -> Iterator[DatasetPage]:
    names = published_by(run, ledger)
    faults = faults_of(read_datasets(run.sources(ledger, "transaction_log")))
    yield from (DatasetPage(name, "", refused=faults[name]) for name in names if name in faults)
    shown = few(run, [name for name in names if name not in faults])
    ends = read_output(run.folder, ENDS, shown).to_pylist() if shown else []
    branches: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(ends, key=lambda row: (-row["transactions"], row["branch"])):
        branches.setdefault(row["dataset"], []).append(row)
    for name in shown:
        rows = branches.get(name, [])
        numbers = {"branches": len(rows), "in latest views": sum(row["transactions"] for row in rows)}
        yield DatasetPage(name, branches_summary(rows), numbers)


@retention_asset(kinds={"pyspark", "parquet"}, deps=["transaction_log"], pages=_pages_of_views)
def branch_views(run: Step, ledger: Ledger) -> Metadata:
    """One row per transaction: the number of branches that hold it, its newest view index (0 is a latest view), the number of
    newer data transactions, the time it left its last latest view, and the branch or tag that protects it.
    """
    sources = run.sources(ledger, "transaction_log")
    written = run_stage(run.spark, sources, run.folder, OF_VIEWS, Views(run.as_of), _COLUMNS)
    datasets = read_datasets(sources)
    ledger.publications.publish(run.publications(datasets["dataset"].to_pylist()), run.actor)
    sums, ends = read_output(run.folder, SUMS), read_output(run.folder, ENDS)
    counts = {name: pc.sum(sums[name]).as_py() or 0 for name in sums.column_names}
    data = {**counts, "as_of": run.as_of.isoformat(), FOLDER: run.warehouse.below(run.folder)}
    numbers = {"branches": len(ends), "in latest views": counts["in_latest_views"], "protected": counts["protected"]}
    summary = views_summary(len(datasets) - len(faults_of(datasets)), len(ends), counts)
    rows = {"dagster/row_count": written.rows[VIEWS], "dagster/column_schema": VIEW_COLUMNS}
    branches = Table("all branches", BRANCHES, ends.sort_by(BRANCHES_FIRST).slice(0, MOST_SHOWN).to_pylist(), "branches")
    return draw_page(Page(summary, [branches], numbers, data), rows)


def _pages_of_verdicts(run: Step, ledger: Ledger, _: Metadata) -> Iterator[DatasetPage]:
    names = published_by(run, ledger)
    faults, fates = ledger.states.faults(set(names)), Fates.recorded(ledger, run.as_of)
    names = list(few(run, names))
    shown = ledger.states.of(names, run.as_of, fates.pending(ledger, names))
    marked: dict[str, str] = {}
    for mark in ledger.marks.by_ids(ledger.pending.oldest(names)).to_pylist():
        # The witness of other reasons is not kept with a mark.
        code = mark["reason"] if mark["reason"] == Reason.PURGING.name else Reason.SELECTED.name
        example = {"transaction": mark["transaction"], "code": code, "witness": mark["policy"]}
        marked[mark["dataset"]] = example_of(example, fates.of(mark).message or "")
    yield from (DatasetPage(name, "", refused=fault) for name, fault in faults.items())
    examples: dict[str, list[Mapping[str, Any]]] = {}
    for row in read_output(run.folder, COUNTS, list(shown)).to_pylist() if shown else ():
        examples.setdefault(row["dataset"], []).append(row)
    for name, state in shown.items():
        if name not in faults:
            summary = judged_summary(state, examples.get(name, ()), marked.get(name, ""))
            yield DatasetPage(name, summary, dataset_numbers(state))


@dataclass(frozen=True)
class Evaluation:
    """Outcome of judging and marking."""

    # sums of the verdicts by policy, and of the reasons
    sums: pa.Table
    reasons: pa.Table
    marked: MarkResult
    visibility_raised: int
    folders_removed: int


@retention_asset(
    kinds={"pyspark", "parquet"},
    deps=["transaction_log", "branch_views", "retention_policies"],
    pages=_pages_of_verdicts,
)
def candidate_marks(run: Step, ledger: Ledger) -> Metadata:
    """The verdict of every transaction: mark, spare, keep or open, with its policy and its reasons.

    What may go is marked in the ledger, and its grace begins. A mark deletes nothing and can be taken back. Earlier marks stay
    as they are.
    """
    return page_of(evaluate(run, ledger), run, ledger)


def evaluate(run: Step, ledger: Ledger) -> Evaluation:
    """Judge the transactions of the logs, and mark what may go."""
    rulebook = load_rules(ledger, run.retention, run.actor, run.given_as_of)
    sources = run.sources(ledger, "transaction_log")
    datasets = read_datasets(sources)
    names = datasets["dataset"].to_pylist()
    if why := next(filter(None, map(rulebook.unreadable.get, by_store(names))), None):
        raise Refused(why)
    places, stores = ledger.places.newest(), run.retention.stores(by_store(names))
    faults = run.retention.place_faults(ledger, stores.values()).values()
    if moved := [fault for fault in faults if not isinstance(fault, StoreFailed)]:
        raise moved[0]
    with ledger.database.one_moment():
        entries, rules = rulebook.entries, rulebook.rules(names, run.as_of)
        # their remaining transactions are counted
        realms = tuple(name for name, realm in ledger.realms.all().items() if realm.status in ("PURGING", "PURGED"))
    unknown = warn_of_unknown(entries, names, run.retention) if run.datasets.selects_all else ()
    for warning in (*rulebook.unreadable.values(), *rulebook.drifted, *unknown):
        run.log.warning(warning)
    again = run.retention.settings.hidden_again
    already = write_already_marked(ledger, rules.policies, datasets, run.folder, again, realms)
    verdicts = Verdicts(rules.policies, rules.holds, rules.versions, run.as_of, already, realms)
    columns = sorted({*columns_for(rules.policies, datasets, rules.holds), "bytes", *TIMES})
    with candidate_table(ledger.database) as staging:
        sinks = {MARKS: staging} if staging else {}
        written = run_stage(run.spark, sources, run.folder, OF_VERDICTS, verdicts, columns, sinks)
        candidates = staging.staged(written.texts[MARKS]) if staging else OutputParts(run.folder, MARKS)
        sums, present = read_output(run.folder, SUMS), ledger.clock.present(run.given_as_of)
        newest_close, clock = pc.max(sums["closed_at_max"]).as_py(), run.retention.settings.clock
        # Stores are asked for their time only where the clock looks odd.
        outside = partial(outside_times, stores.values())
        if wrong_clock := ledger.clock.check(present, newest_close, clock.max_ahead, clock.max_skew, outside):
            run.log.warning(wrong_clock)
        looks = list(_looks_of(run, rules, sources))
        marked = ledger.marks.mark(candidates, present, run.actor, None, run.publications(names), looks, again, places)
    # A visibility mark that rose by a wrong clock would never fall again.
    newest = ((part, closes) for part, closes in read_parts(sources, run.folder, [NEWEST]))
    raised = 0 if wrong_clock else raise_visibility(ledger, newest, min(run.as_of, present), run.actor)
    left = add_up(part for _, part in read_parts(sources, run.folder, [REALMS])) if realms else {}
    close_purged_realms(ledger, run, rules.policies, datasets, left, read_begun(sources))
    removed = run.clean_warehouse(ledger, ["transaction_log", "branch_views", "candidate_marks"])
    for warning in idle_rules(rulebook.files, ledger):
        run.log.warning(warning)
    return Evaluation(sums, read_output(run.folder, WHY), marked, raised, removed)


def _looks_of(run: Step, rules: RulesInForce, sources: Sequence[Source]) -> Iterator[pa.Table]:
    """Yield evaluations, with which the next look at each dataset is compared."""
    tokens = read_tokens(sources)
    # in parts: there are as many rows of counts as policies have datasets
    for part, looks, counts in read_parts(sources, run.folder, [LOOKS, COUNTS]):
        digests = rules_digests(rules, part["dataset"].to_pylist(), run.as_of)
        yield with_findings(evaluations_of(part, tokens, digests, looks, run.as_of), part, counts)


def page_of(evaluation: Evaluation, run: Step, ledger: Ledger) -> Metadata:
    marked = evaluation.marked
    swept = sum(amount for amount, _ in marked.swept.values())
    counts = verdict_counts(evaluation.sums, marked.swept)
    verdicts, rows = verdict_numbers(counts), pc.sum(evaluation.sums["count_all"]).as_py() or 0
    with ledger.database.one_moment():
        pending, totals = Fates.recorded(ledger, run.as_of).pending(ledger), ledger.states.totals()
    data = {
        **pending_numbers(pending, run.as_of),
        **totals_numbers(totals),
        "newly_marked": marked.new,
        "marked_before": marked.known - swept,
        "swept_before": swept,
        "visibility_raised": evaluation.visibility_raised,
        **verdicts,
        "as_of": run.as_of.isoformat(),
        "folders_removed": evaluation.folders_removed,
        FOLDER: run.warehouse.below(run.folder),
    }
    numbers = {
        "newly marked": marked.new,
        "spared": data["spare"],
        "kept": data["keep"],
        "to go (KiB)": kib(data["mark_bytes"]),
    }
    tables = [verdict_table(counts), *reason_tables(evaluation.reasons)]
    summary = marks_summary(marked.new, data["marked_before"], data)
    return draw_page(
        Page(summary, tables, numbers, data), {"dagster/row_count": rows, "dagster/column_schema": VERDICT_COLUMNS}
    )
