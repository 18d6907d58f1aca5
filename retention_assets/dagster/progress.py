"""Progress of a sweep (a bar on a terminal, lines in a log), and warnings of stores."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import dagster as dg

from retention_assets.errors import Refused
from retention_assets.outcomes import Outcome
from retention_assets.render.terminal import console, status_text
from retention_assets.stores.protocol import Store, call_store
from retention_assets.sweep.dataset_sweep import OnProgress, SweepResult

_GOES = (Outcome.DELETED, Outcome.ALREADY_GONE, Outcome.HIDDEN, Outcome.FAILED, Outcome.SPARED, Outcome.EXPIRING)


@contextmanager
def report_progress(log: Callable[[str], object]) -> Iterator[OnProgress]:
    """What an engine calls after each batch and at the end of each dataset."""
    if not sys.stderr.isatty():

        def lines(result: SweepResult) -> None:
            log(_line(result))

        yield lines
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
            done = sum(result.outcomes[outcome] for outcome in _GOES)
            progress.update(progress.task_ids[0], completed=done, total=max(done, result.planned))

        yield tell


def _line(result: SweepResult) -> str:
    hides = result.outcomes[Outcome.HIDDEN]
    goes = (outcome for outcome in _GOES if hides or outcome is not Outcome.HIDDEN)
    counts = ", ".join(f"{result.outcomes[outcome]} {outcome.value.lower().replace('_', ' ')}" for outcome in goes)
    words = f" {result.refused}" if result.refused else ""
    hidden = f", {result.bytes_hidden} bytes hidden" if hides else ""
    return f"{result.dataset}: {counts}, {result.bytes_freed} bytes freed{hidden}.{words}"


def report_store_warnings(stores: Iterable[Store], log: dg.DagsterLogManager) -> None:
    """Each warning of a store as one of the run. A store that is away says so itself when it is read."""
    for store in stores:
        try:
            warnings = call_store(store, store.warnings)
        except Refused:
            continue
        for warning in warnings:
            log.warning(f"{store.name}: {warning}")
