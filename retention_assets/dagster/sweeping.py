"""The assets `swept_transactions` and `purge_report`: delete due marks, showing the progress, and report the day."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import BY_STORE
from retention_assets.dagster.partitions import DatasetPage, few, numbers_of, retention_asset
from retention_assets.dagster.step import Metadata, Resources, Step
from retention_assets.datasets import by_store, store_of
from retention_assets.errors import Refused
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.rules_in_force import load_rules
from retention_assets.ledger import Ledger
from retention_assets.ledger.mark_rows import OPENED
from retention_assets.ledger.states import LastSweep, PendingGroup, Totals, Waiting
from retention_assets.ledger.trash import AsideSum
from retention_assets.outcomes import Order, Outcome
from retention_assets.people.history import last_seen
from retention_assets.people.realms import reported_realms
from retention_assets.pipeline.confirmed import TAG, read_confirmed, write_confirmed
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.pipeline.sweep_stage import SweepTask, SweepWatch, is_for_tasks, sweep_in_tasks
from retention_assets.policy.sizes import size_of
from retention_assets.render.assets import (
    SWEEP_COUNTS,
    SWEPT,
    due_table,
    pending_numbers,
    spared_table,
    sweep_numbers,
    totals_numbers,
    upcoming_table,
    week_table,
)
from retention_assets.render.dagster import DATA, draw_page, draw_plot
from retention_assets.render.markdown import listing, plain, with_table
from retention_assets.render.page import MOST_SHOWN, Medium, Page, Table
from retention_assets.render.report import COLUMNS, DayReport, day_report
from retention_assets.render.report_page import page_of
from retention_assets.render.summaries import (
    day_summary,
    state_summary,
    sweep_summary,
    swept_summary,
    week_summary,
)
from retention_assets.render.svg import Plots, freed_words, plots_of, since, strip
from retention_assets.render.terminal import console, status_text
from retention_assets.render.text import kib, plain_json
from retention_assets.stores.protocol import Store, call_store
from retention_assets.sweep.admission import Door, Question
from retention_assets.sweep.dataset_sweep import OnProgress, SweepResult, refused_results
from retention_assets.sweep.engine import Sweeper, stop_on_signals

_RARE = (Outcome.HIDDEN, Outcome.SET_ASIDE, Outcome.RESTORED)
_SHOWN = (Outcome.DELETED, Outcome.ALREADY_GONE, *_RARE, Outcome.FAILED, Outcome.SPARED, Outcome.EXPIRING)


@contextmanager
def report_progress(log: Callable[[str], None]) -> Iterator[OnProgress]:
    """Make the callback that shows progress after each batch and dataset: a bar on a terminal, or else lines in the log."""
    if not sys.stderr.isatty():
        yield lambda result: log(_line(result))
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    # The bar's own column would parse a name as markup.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress:
        bars: dict[str, object] = {}

        def tell(result: SweepResult) -> None:
            # One bar at a time: datasets are swept one after the other.
            if result.dataset not in bars:
                for known in progress.task_ids:
                    progress.remove_task(known)
                bars.clear()
                bars[result.dataset] = progress.add_task(status_text(result.dataset).plain, total=result.planned)
            done = sum(result.outcomes[outcome] for outcome in _SHOWN)
            progress.update(progress.task_ids[0], completed=done, total=max(done, result.planned))

        yield tell


def _line(result: SweepResult) -> str:
    shown = (outcome for outcome in _SHOWN if outcome not in _RARE or result.outcomes[outcome])
    counts = ", ".join(f"{result.outcomes[outcome]} {outcome.value.lower().replace('_', ' ')}" for outcome in shown)
    refusal = f" {result.refused}" if result.refused else ""
    later = f", {size_of(result.bytes_set_aside)} to be freed later" if result.bytes_set_aside else ""
    hidden = f", {size_of(result.bytes_hidden)} hidden" if result.outcomes[Outcome.HIDDEN] else ""
    return f"{result.dataset}: {counts}, {size_of(result.bytes_freed)} freed{hidden}{later}.{refusal}"


def report_store_warnings(stores: Iterable[Store], log: dg.DagsterLogManager) -> None:
    """Log the warnings of stores. A store that is away is reported when it is read."""
    for store in stores:
        try:
            warnings = call_store(store, store.warnings)
        except Refused:
            continue
        for warning in warnings:
            log.warning(f"{store.name}: {warning}")


_BYTES = ("bytes_freed", "bytes_hidden", "bytes_set_aside")
# numbers that a page shows even if they are zero
_PLOTTED = ("deleted", "spared", "failed")
_OUTCOMES = [outcome.value.lower() for outcome in Outcome]


def _pages_of_sweeps(run: Step, ledger: Ledger, metadata: Metadata) -> Iterator[DatasetPage]:
    rows = {str(row["dataset"]): row for row in metadata[DATA].value["by_dataset"]}
    swept = few(run, [name for name, row in rows.items() if not row["refused"] and any(map(row.get, _OUTCOMES))])
    judged = run.datasets.select(ledger.publications.datasets(run.sibling("candidate_marks").to_user_string()))
    faults = ledger.states.faults(set(judged).difference(rows))
    idle = [name for name in judged if name not in rows and name not in faults]
    if not few(run, idle):
        # only datasets without any page: some in each run, until all have one
        with_pages = run.instance.get_materialized_partitions(run.key)
        idle = [name for name in idle if name not in with_pages][:MOST_SHOWN]
    names = [*swept, *idle]
    states = ledger.states.of(names, run.as_of, Fates.recorded(ledger, run.as_of).pending(ledger, names))
    yield from (DatasetPage(name, "", refused=fault) for name, fault in faults.items())
    for name in swept:
        row = rows[name]
        numbers = {**{key: row[key] for key in ("deleted", "spared", "failed")}, "freed (KiB)": kib(row["bytes_freed"])}
        yield DatasetPage(name, swept_summary(states[name]), numbers)
    not_swept = {name: str(row["refused"]) for name, row in rows.items() if row["refused"]}
    yield from (DatasetPage(name, f"**Not swept**: {plain(why)}", idle=True) for name, why in not_swept.items())
    for name in idle:
        # A dataset with due marks that a stopped sweep did not reach has no page that says it was swept.
        if not states[name].waiting.due:
            yield DatasetPage(name, swept_summary(states[name]), idle=True)


@retention_asset(kinds={"python"}, deps=["candidate_marks"], pages=_pages_of_sweeps)
def swept_transactions(run: Step, ledger: Ledger) -> Metadata:
    """Deletes the bytes of marks whose grace is over, dataset by dataset, in small batches.

    Before it deletes, the sweep reads the log again and spares every mark that is not justified any more, with the reason. The
    next run repeats what fails. The ledger has each step before it is done.
    """
    confirmed = read_confirmed(run.run.tags[TAG]) if TAG in run.run.tags else None
    rulebook = load_rules(ledger, run.retention, run.actor, run.given_as_of)
    work = {row.dataset: row for row in ledger.marks.to_sweep(run.as_of)}
    due = {name: work[name] for name in run.datasets.select(work)}
    stores = run.retention.stores(by_store(due))
    door = Door(run.retention, ledger, rulebook, stores, run.as_of, run.given_as_of)
    admission = door.admit(Order.DELETE, [*due.values()], [Question.BRAKE] if run.accept_large else ())
    if admission.withheld:
        raise Refused(f"Nothing is swept. {admission.withheld}")
    refused = admission.refused
    wanted = {name: row.marks for name, row in due.items() if name not in refused}
    stores = {name: stores[name] for name in by_store(wanted) if name in stores}
    report_store_warnings(stores.values(), run.log)
    # Starting Spark takes over signal handling, so it comes first.
    spark = run.spark if is_for_tasks(run.retention.settings, wanted) else None
    with stop_on_signals() as stop, report_progress(run.log.info) as tell:
        if spark is None:
            sweeper = Sweeper(ledger, stores, rulebook, run.given_as_of, run.actor, tell, stop, confirmed=confirmed)
            swept = list(sweeper.run(list(wanted)))
        else:
            # Also removes stores' lists and confirmed plans that earlier runs left.
            run.clean_warehouse(ledger, [run.key.path[-1]])
            file = None if confirmed is None else write_confirmed(confirmed, run.folder)
            settings, given = run.retention.settings, run.given_as_of
            task = SweepTask(settings, rulebook.files, ledger.id, given, run.actor, run.folder, file)
            swept = sweep_in_tasks(spark, task, wanted, SweepWatch(ledger, rulebook, run.actor, stop, tell))
    # where nothing was due and nothing came back there is nothing to report
    results = [*refused_results(refused), *(result for result in swept if due[result.dataset].is_due or result.is_touched)]
    with ledger.database.one_moment():
        objections, last = {row.dataset for row in ledger.objections.standing()}, ledger.states.last_sweep()
        spared = ledger.pending.spared([result.dataset for result in results if result.outcomes[Outcome.SPARED]], run.actor)
        pending = Fates.recorded(ledger, run.as_of).pending(ledger)
    for result in results:
        for message in (result.refused, result.skipped, *result.errors, *result.warnings):
            if message:
                run.log.warning(f"{result.dataset}: {message}")
    refusals = sum(result.refused is not None for result in results)
    if run.datasets.keys is not None and results and refusals == len(results):
        raise Refused(" ".join(sorted({str(result.refused) for result in results})))
    # Failures stand first: a table that is cut still shows them.
    shown = sorted(results, key=lambda result: result.refused is None and not result.errors)
    table, numbers = Table("by dataset", SWEPT, shown, "by_dataset"), sweep_numbers(results)
    data = {
        **pending_numbers(pending, run.as_of),
        "objections": len(objections),
        "datasets": len(results),
        "refused": refusals,
        "skipped": (skipped := sum(result.skipped is not None for result in results)),
        "stores_away": len({store_of(result.dataset) for result in results if result.store_failed}),
        "stopped": stop.is_set(),
        **numbers,
        "as_of": run.as_of.isoformat(),
        "ordered_by": run.actor,
    }
    not_swept = [result.dataset for result in results if result.refused]
    summary = sweep_summary(len(results), not_swept, numbers, skipped, objections, run.actor, last)
    counted = {name.replace("_", " "): numbers[name] for name in (*SWEEP_COUNTS, "left") if name in _PLOTTED or numbers[name]}
    sizes = {f"{name.removeprefix('bytes_').replace('_', ' ')} (KiB)": kib(numbers[name]) for name in _BYTES}
    plotted = counted | {name: size for name, size in sizes.items() if size or "freed" in name}
    return draw_page(Page(summary, (table, spared_table(spared)), plotted, data))


# Time for which a page stays where Dagster shows it; the ledger can make it again (`retention report --html`).
_KEPT = timedelta(days=30)
_WEEK = 7
# days whose due transactions are listed by name
_DAYS_AHEAD = 8


def _pages_of_reports(run: Step, ledger: Ledger, metadata: Metadata) -> Iterator[DatasetPage]:
    judged = run.datasets.select(ledger.publications.datasets(run.sibling("candidate_marks").to_user_string()))
    # Stores are no datasets, of which a page adds up the numbers: the report is the same for each.
    keys = by_store(judged) if run.retention.settings.partition_by == BY_STORE else judged
    return (DatasetPage(key, metadata["summary"].value, numbers_of(metadata)) for key in few(run, list(keys)))


@retention_asset(kinds={"html"}, deps=["swept_transactions"], pages=_pages_of_reports, is_daily=True)
def purge_report(run: Step, ledger: Ledger) -> Metadata:
    """The present state, the next marks to go, the deletions of the last seven days, and the day's report.

    All numbers come from the ledger. A day with nothing due has a report too: it shows when a run looked. The page is one file
    without external links, to keep or to send.
    """
    day = run.as_of.date()
    run.clean_warehouse(ledger, [run.key.path[-1]], _KEPT)
    state = _State.read(ledger, run.as_of)
    if ledger.clock.simulated:
        ledger.clock.see(run.as_of)
    ledger.reports.note_look(run.as_of, run.actor, Waiting.of(state.waiting, run.as_of).due)
    file = inside(run.folder, f"{day.isoformat()}.html")
    # Only what a browser may open from a page is a link. Other files are shown by the path below the warehouse: a page is
    # as wide as its longest word, and a whole path would hide the ends of all sentences.
    link = dg.MetadataValue.url(file) if file.startswith(("http://", "https://")) else run.warehouse.below(file)
    report, plots, metadata = _state_page(state, ledger, {"page": link})
    write_text(page_of(report, (plots.freed, plots.ages)), file)
    run.log.info(f"The report is in {file}")
    return metadata


@dataclass(frozen=True)
class _State:
    """State of the ledger at an instant, as far as the database adds it up in groups."""

    as_of: datetime
    fates: Fates
    waiting: Sequence[PendingGroup]
    totals: Totals
    last: LastSweep | None
    failing: Sequence[str]
    aside: Sequence[AsideSum]

    @classmethod
    def read(cls, ledger: Ledger, as_of: datetime) -> "_State":
        states = ledger.states
        with ledger.database.one_moment():
            fates, failing = Fates.recorded(ledger, as_of), sorted({row.check for row in ledger.violations.standing()})
            return cls(as_of, fates, fates.pending(ledger), states.totals(), states.last_sweep(), failing, ledger.trash.sums())

    @property
    def data(self) -> dict[str, Any]:
        last = {"day": self.last.day.isoformat(), **self.last.counters} if self.last else None
        shown = {**pending_numbers(self.waiting, self.as_of), **totals_numbers(self.totals)}
        aside = {"set_aside": sum(row.marks for row in self.aside), "bytes_set_aside": sum(row.bytes for row in self.aside)}
        day = self.as_of.date().isoformat()
        state = {"day": day, **shown, **aside, "failing_checks": list(self.failing), "last_sweep": last}
        return dict(plain_json(state))


def _state_page(state: _State, ledger: Ledger, entries: Mapping[str, Any]) -> tuple[DayReport, Plots, Metadata]:
    day, totals = state.as_of.astimezone(UTC).date(), state.totals
    with ledger.database.one_moment():
        report = replace(day_report(ledger, day), realms=reported_realms(ledger))
        freed = ledger.pending.freed(since(day))
        due = ledger.marks.table(None, OPENED, state.as_of + timedelta(days=_DAYS_AHEAD), first=MOST_SHOWN).to_pylist()
    plots = plots_of(freed, state.waiting, day, state.as_of)
    coming = upcoming_table((row, state.fates.of(row)) for row in due)
    week = week_table(group for group in freed if group.as_of > state.as_of - timedelta(days=_WEEK))
    marked, total = Waiting.of(state.waiting, state.as_of), report.total
    lines = sorted(report.lines, key=lambda line: (-line.counters["failed"], -line.counters["to_delete"], line.dataset))
    day_in_full = Table("day in full", COLUMNS, lines, "by_dataset")
    data = {
        "execution_date": day.isoformat(),
        "finished": total.finished_at is not None or not report.lines,
        "datasets": len(report.lines),
        "ordered_by": list(total.ordered_by),
        **total.counters,
        "realms": [realm.sentence for realm in report.realms],
        "next_to_go": coming.records(Medium.RUN),
        "state": state.data,
    }
    numbers = {
        "marked": marked.marks,
        "marked (KiB)": kib(marked.bytes),
        "refused": len(totals.refused),
        "failing checks": len(state.failing),
        "datasets": totals.datasets,
        "transactions": totals.transactions,
        "size (KiB)": kib(totals.bytes),
        "deleted": total.counters["deleted"],
        "freed (KiB)": kib(total.counters["bytes_freed"]),
    }
    today = with_table(day_summary(report), day_in_full)
    shown = {
        "next to go": dg.MetadataValue.md(listing(coming)),
        "last 7 days": dg.MetadataValue.md(with_table(week_summary(week.rows), week)),
        "today": dg.MetadataValue.md("\n\n".join([today, *(plain(realm.sentence) for realm in report.realms)])),
        "freed": dg.MetadataValue.md(strip(freed_words(plots.days), plots.days.totals)),
        "by policy": draw_plot(plots.freed),
        "by age": draw_plot(plots.ages),
        **entries,
    }
    summary = state_summary(totals, marked, state.last, state.failing, state.aside)
    page = Page(summary, (week, day_in_full), numbers, data, due_table(state.waiting, state.as_of))
    return report, plots, draw_page(page, shown)


def state_events(instance: dg.DagsterInstance, resources: Resources) -> Iterator[dg.AssetMaterialization]:
    """Bring the page of `purge_report` up to date where something else than a report changed the ledger."""
    key = resources.names.key(purge_report.name)
    records = instance.fetch_materializations(key, limit=1).records
    last = records[0].asset_materialization if records else None
    if last is None:
        return
    before = last.metadata.get(DATA)
    data = before.data if isinstance(before, dg.JsonMetadataValue) else None
    with resources.retention.ledger() as ledger:
        state = _State.read(ledger, last_seen(resources.retention.within(ledger), ledger))
        if not isinstance(data, Mapping) or data.get("state") != state.data:
            entries = {"page": last.metadata["page"]} if "page" in last.metadata else {}
            *_, metadata = _state_page(state, ledger, entries)
            yield dg.AssetMaterialization(key, metadata=metadata)
