"""Events of single partitions: a page for each dataset that a step worked on, and a failed partition for each refused one.

An event costs about 10 ms, so there are at most `_MOST_PARTITIONS` of a step; the tables of its materialization have the
rest.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

# There is no public way to report that a partition was to be materialized, and was not.
from dagster._core.events import AssetMaterializationPlannedData

from retention_assets.dagster.naming import BY_STORE, Names
from retention_assets.dagster.step import Metadata, Step
from retention_assets.datasets import by_store
from retention_assets.ledger import Ledger
from retention_assets.policy.sentences import count
from retention_assets.render.markdown import paragraph, plain
from retention_assets.render.summaries import named

Event = dg.AssetMaterialization | dg.AssetObservation

# tag of a run whose partitions get no pages
WITHOUT_PAGES = {"retention/pages": "none"}
# beyond, a step writes no events for partitions
_MOST_PARTITIONS = 1_000
_NAMED = 5
_REFUSED_JOB = "refused_datasets"
_REFUSED_IN = "retention/refused_in"
_NUMBER = re.compile(r"\d+")
# characters of a fault: more is not read, and every event carries it
_MOST_WORDS = 1_000


@dataclass(frozen=True)
class DatasetPage:
    """What the page of a dataset's partition says: Markdown, and numbers under names that stay.

    `refused` says why the dataset was not worked on: its partition is failed then, whatever stood there before. `idle` is a
    page about a dataset with nothing to do.
    """

    dataset: str
    summary: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    idle: bool = False

    @property
    def metadata(self) -> dict[str, Any]:
        """The same as Dagster takes it."""
        return {"summary": dg.MetadataValue.md(self.summary), **self.numbers}


# from a step, its ledger and its metadata to the pages of its datasets
Pages = Callable[[Step, Ledger, Metadata], Iterable[DatasetPage]]


def partition_events(step: Step, pages: Iterable[DatasetPage]) -> Iterator[Event]:
    """The events of the pages of a step's datasets, or of their stores where these are the partitions.

    Whoever yields them yields the materialization of the step afterwards.
    """
    every = list(pages)
    yield from _idle_events(step, [page for page in every if page.idle])
    shown = [page for page in every if not page.idle]
    if step.retention.settings.partition_by == BY_STORE:
        stores = by_store([page.dataset for page in shown])
        shown = [_of_store(store, [page for page in shown if page.dataset in names]) for store, names in stores.items()]
    shown = [page for page in shown if is_valid_key(page.dataset)]
    sound = [page for page in shown if page.refused is None]
    for page in sound if len(sound) <= _MOST_PARTITIONS else []:
        yield dg.AssetMaterialization(step.key, partition=page.dataset, metadata=page.metadata)
    yield from _refusals(step, [page for page in shown if page.refused is not None][:_MOST_PARTITIONS])


def is_valid_key(name: str) -> bool:
    """Accept the names that Dagster takes for partitions: three dots stand for a range there."""
    return "..." not in name and name.isprintable()


def published_by(step: Step, ledger: Ledger) -> list[str]:
    """The datasets of which a step published something."""
    return [one.dataset for one in ledger.publications.by(step.asset, [step.run.run_id])]


def of_range(pages: Iterable[DatasetPage], partitions: int) -> list[DatasetPage]:
    """Those of the pages that a run over a range has events for besides Dagster's own, which is one for each partition: all, or
    where partitions are too many, what was refused.
    """
    return [page for page in pages if partitions <= _MOST_PARTITIONS or page.refused is not None]


def few(step: Step, datasets: Sequence[str]) -> Sequence[str]:
    """Some datasets, if each partition of theirs may have an event; else none, before anybody looks each of them up."""
    keys = by_store(datasets) if step.retention.settings.partition_by == BY_STORE else datasets
    return datasets if len(keys) <= _MOST_PARTITIONS else []


def all_refused(pages: Sequence[DatasetPage]) -> str | None:
    """Why nothing of a step was done, if all of its datasets were refused."""
    if any(page.refused is None for page in pages):
        return None
    return " ".join(f"{page.dataset} is refused: {page.refused}." for page in pages[:_NAMED]) or None


def _idle_events(step: Step, pages: Sequence[DatasetPage]) -> Iterator[Event]:
    """Events for pages without work, only where they say something new: one for each change."""
    valid = [page for page in pages if is_valid_key(page.dataset)][:_MOST_PARTITIONS]
    if step.retention.settings.partition_by == BY_STORE:
        return
    for page in valid:
        where = dg.AssetRecordsFilter(step.key, asset_partitions=[page.dataset])
        records = step.instance.fetch_materializations(where, limit=1).records
        before = records[0].asset_materialization if records else None
        if before is None or before.metadata.get("summary") != page.metadata["summary"]:
            yield dg.AssetMaterialization(step.key, partition=page.dataset, metadata=page.metadata)


def _of_store(store: str, pages: Sequence[DatasetPage]) -> DatasetPage:
    """One page for a store's datasets. It is refused where all of them are."""
    refused = [page for page in pages if page.refused is not None]
    numbers: dict[str, Any] = {}
    for page in pages:
        for name, value in page.numbers.items():
            if isinstance(value, int):
                numbers[name] = numbers.get(name, 0) + value
    names = [page.dataset for page in refused]
    words = [f"{count(len(pages), 'dataset')} of {store} worked on", f"{len(names):,} refused: {named(names)}" if names else ""]
    why = refused[0].refused if refused and len(refused) == len(pages) else None
    return DatasetPage(store, paragraph(words), numbers, why)


# --- what was refused -------------------------------------------------------------------------------------------------


def _refusals(step: Step, pages: Sequence[DatasetPage]) -> Iterator[dg.AssetObservation]:
    """Have Dagster show the partitions of refused datasets as failed, with the reason, until they are materialized again.

    Dagster calls a partition failed whose last attempt was in a run that failed. The run that found the fault goes on for
    the other datasets, so the attempt is recorded in a run of its own, one for each change: partitions that are shown as
    failed for the same reason stay as they are.
    """
    new = [page for page in pages if not _is_said(step, page)]
    if not new:
        return
    run = _failed_run(step, new)
    for page in new:
        planned = AssetMaterializationPlannedData(step.key, partition=page.dataset)
        event = dg.DagsterEvent.build_asset_materialization_planned_event(run.job_name, step.asset, planned)
        step.instance.report_dagster_event(event, run.run_id)
        metadata = {"refused": dg.MetadataValue.md(_reason(page)), "refused_in": dg.MetadataValue.dagster_run(run.run_id)}
        yield dg.AssetObservation(step.key, partition=page.dataset, metadata=metadata)


def _is_said(step: Step, page: DatasetPage) -> bool:
    """True if the partition is shown as failed for the same reason and nothing was materialized since.

    Reasons that differ only in numbers (a port, seconds of waiting) are the same.
    """
    where = dg.AssetRecordsFilter(step.key, asset_partitions=[page.dataset])
    said = step.instance.fetch_observations(where, limit=1).records
    before = said[0].asset_observation.metadata.get("refused") if said and said[0].asset_observation else None
    if before is None or _NUMBER.sub("0", str(before.value)) != _NUMBER.sub("0", _reason(page)):
        return False
    made = step.instance.fetch_materializations(where, limit=1).records
    return not made or made[0].timestamp < said[0].timestamp


def _failed_run(step: Step, pages: Sequence[DatasetPage]) -> dg.DagsterRun:
    """Failed run that holds the refusals of all steps of this run."""
    tags = {_REFUSED_IN: step.run.run_id, "dagster/max_retries": "0"}
    if found := step.instance.get_runs(dg.RunsFilter(tags={_REFUSED_IN: step.run.run_id}), limit=1):
        return found[0]
    name = Names(tuple(step.key.path[:-1])).of(_REFUSED_JOB)
    run = step.instance.add_run(dg.DagsterRun(job_name=name, status=dg.DagsterRunStatus.STARTED, tags=tags))
    # Without a start Dagster reports that the run failed to start.
    start = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
    step.instance.report_dagster_event(start, run.run_id)
    words = [f"{page.dataset} was refused: {(page.refused or '')[:_MOST_WORDS]}" for page in pages[:20]]
    more = [f"… and {len(pages) - 20:,} more."] if len(pages) > 20 else []
    step.instance.report_run_failed(run, "\n".join([*words, *more]))
    return run


def _reason(page: DatasetPage) -> str:
    return plain((page.refused or "")[:_MOST_WORDS])
